//! Reading what families have in common out of a configuration.

use super::{Config, Fields, alias, limit};
use crate::decoder::{Embedding, Head, Layer, Linear};
use crate::{LoadError, weights::Weights};
use mlxcel_ir::{Activation, WeightSource};
use serde_json::Value;
use std::ops::RangeInclusive;

/// What a family reads a decoder from.
pub(crate) struct Reader<'a> {
    pub(crate) fields: Fields<'a>,
    pub(crate) config: &'a Config,
    pub(crate) weights: &'a Weights,
}

/// Every activation by the names that configurations give it.
const ACTIVATIONS: &[(&str, Activation)] = &[
    ("silu", Activation::Silu),
    ("swish", Activation::Silu),
    ("swiglu", Activation::Silu),
    ("gelu", Activation::Gelu),
    ("gelu_python", Activation::Gelu),
    ("gelu_pytorch_tanh", Activation::GeluTanh),
    ("gelu_new", Activation::GeluTanh),
    ("gelu_fast", Activation::GeluTanh),
    ("gelu_tanh", Activation::GeluTanh),
    ("gelu_python_tanh", Activation::GeluTanh),
    ("quick_gelu", Activation::QuickGelu),
    ("relu", Activation::Relu),
    ("relu2", Activation::Relu2),
    ("tanh", Activation::Tanh),
    ("sigmoid", Activation::Sigmoid),
];

/// The names of the table of tokens under the root.
const EMBEDDINGS: [&str; 6] = [
    "embed_tokens",
    "tok_embeddings",
    "wte",
    "embeddings",
    "word_embeddings",
    "embed_in",
];

impl<'a> Reader<'a> {
    /// The width at `name`, which must be there.
    pub(crate) fn width(&self, name: &str) -> Result<usize, LoadError> {
        self.fields.required(name, 1..=limit::WIDTH)
    }

    /// The width at the first of `names` that is there, or `default`.
    pub(crate) fn width_or(&self, names: &[&str], default: usize) -> Result<usize, LoadError> {
        let found = self.fields.size(self.fields.any(names), 1..=limit::WIDTH)?;
        Ok(found.unwrap_or(default))
    }

    /// `width` times the factor of the field `name`.
    pub(crate) fn scaled(&self, name: &str, width: usize, factor: f64) -> Result<usize, LoadError> {
        let scaled = (width as f64 * factor) as usize;
        match scaled <= limit::WIDTH {
            true => Ok(scaled),
            false => {
                let reason = format!("makes {width} more than {}", limit::WIDTH);
                Err(self.fields.error(name, reason))
            }
        }
    }

    /// The count at `name`, which may be 0, or `default`.
    pub(crate) fn count_or(&self, name: &str, default: usize) -> Result<usize, LoadError> {
        Ok(self.fields.size(name, 0..=limit::WIDTH)?.unwrap_or(default))
    }

    /// The number above 0 at the first of `names` that is there, or `default`.
    pub(crate) fn positive_or(&self, names: &[&str], default: f64) -> Result<f64, LoadError> {
        Ok(self
            .fields
            .positive(self.fields.any(names))?
            .unwrap_or(default))
    }

    /// The finite number at `name`, or `default`.
    pub(crate) fn number_or(&self, name: &str, default: f64) -> Result<f64, LoadError> {
        Ok(self.fields.number(name)?.unwrap_or(default))
    }

    /// The flag at `name`, or `default`.
    pub(crate) fn flag_or(&self, name: &str, default: bool) -> Result<bool, LoadError> {
        Ok(self.fields.flag(name)?.unwrap_or(default))
    }

    /// Query heads, key-value heads and the width of a head. Key-value heads are as many as query
    /// heads where the configuration does not say; the width is the hidden width shared among the
    /// heads.
    pub(crate) fn heads(&self) -> Result<[usize; 3], LoadError> {
        let [heads, kv_heads] = self.head_counts()?;
        Ok([heads, kv_heads, self.head_width(heads)?])
    }

    /// Query heads and key-value heads.
    pub(crate) fn head_counts(&self) -> Result<[usize; 2], LoadError> {
        let fields = &self.fields;
        let heads = fields.required(fields.any(alias::HEADS), 1..=limit::HEADS)?;
        let name = fields.any(alias::KV_HEADS);
        let kv_heads = fields.size(name, 1..=limit::HEADS)?.unwrap_or(heads);
        if !heads.is_multiple_of(kv_heads) {
            let reason = format!("{kv_heads} does not divide the {heads} attention heads");
            return Err(fields.error(name, reason));
        }
        Ok([heads, kv_heads])
    }

    /// As [`Reader::heads`] of a model whose heads have a key and a value each and share its width,
    /// whatever else the configuration says.
    pub(crate) fn own_heads(&self) -> Result<[usize; 3], LoadError> {
        let (fields, hidden) = (&self.fields, self.config.hidden);
        let name = fields.any(alias::HEADS);
        let heads = fields.required(name, 1..=limit::HEADS)?;
        match hidden.is_multiple_of(heads) {
            true => Ok([heads, heads, hidden / heads]),
            false => Err(fields.error(name, format!("{heads} does not divide the width {hidden}"))),
        }
    }

    /// The layers that `layer` gives for a number and a module of `list`.
    pub(crate) fn layers(
        &self,
        list: &str,
        layer: impl Fn(usize, &str) -> Result<Layer, LoadError>,
    ) -> Result<Vec<Layer>, LoadError> {
        let numbers = 0..self.config.layers;
        numbers
            .map(|index| layer(index, &format!("{list}.{index}")))
            .collect()
    }

    fn head_width(&self, heads: usize) -> Result<usize, LoadError> {
        let (fields, hidden) = (&self.fields, self.config.hidden);
        let given = fields.size("head_dim", 1..=limit::HEADS)?;
        if given.is_none() && !hidden.is_multiple_of(heads) {
            let reason = format!("is missing, and {heads} heads do not divide the width {hidden}");
            return Err(fields.error("head_dim", reason));
        }
        Ok(given.unwrap_or(hidden / heads))
    }

    /// How many experts a layer has and how many of them a token uses.
    pub(crate) fn experts(&self) -> Result<[usize; 2], LoadError> {
        let fields = &self.fields;
        let name = fields.any(alias::EXPERTS);
        let count = fields.required(name, 1..=limit::WIDTH)?;
        let name = fields.any(alias::CHOSEN);
        Ok([count, fields.required(name, 1..=count)?])
    }

    /// The epsilon of norms.
    pub(crate) fn epsilon(&self) -> Result<f64, LoadError> {
        self.epsilon_or(1e-6)
    }

    /// The epsilon of norms, or `default`.
    pub(crate) fn epsilon_or(&self, default: f64) -> Result<f64, LoadError> {
        self.positive_or(alias::EPSILON, default)
    }

    /// The nonlinearity, `default` where the configuration does not name one.
    pub(crate) fn activation(&self, default: Activation) -> Result<Activation, LoadError> {
        self.activation_at(self.fields.any(alias::ACTIVATION), default)
    }

    /// The nonlinearity that configurations call `name`.
    pub(crate) fn named_activation(name: &str) -> Option<Activation> {
        let found = ACTIVATIONS.iter().find(|(known, _)| *known == name);
        found.map(|&(_, activation)| activation)
    }

    /// The nonlinearity at `name`.
    pub(crate) fn activation_at(
        &self,
        name: &str,
        default: Activation,
    ) -> Result<Activation, LoadError> {
        let Some(wanted) = self.fields.text(name)? else {
            return Ok(default);
        };
        Self::named_activation(wanted).ok_or_else(|| {
            let known: Vec<&str> = ACTIVATIONS.iter().map(|&(name, _)| name).collect();
            let reason = format!(
                "`{wanted}` is not supported; supported are {}",
                known.join(", ")
            );
            self.fields.error(name, reason)
        })
    }

    /// The kind of each layer, where the configuration lists them under `name`.
    pub(crate) fn kinds(&self, name: &str) -> Result<Option<Vec<&'a str>>, LoadError> {
        let Some(value) = self.fields.get(name) else {
            return Ok(None);
        };
        let kinds: Option<Vec<&str>> = value
            .as_array()
            .and_then(|kinds| kinds.iter().map(Value::as_str).collect());
        kinds
            .filter(|kinds| kinds.len() == self.config.layers)
            .map(Some)
            .ok_or_else(|| {
                let what = format!("a list of {} words", self.config.layers);
                self.fields.expected(name, &what, value)
            })
    }

    /// The numbers at `name`, each within `range`.
    pub(crate) fn sizes(
        &self,
        name: &str,
        range: RangeInclusive<usize>,
    ) -> Result<Option<Vec<usize>>, LoadError> {
        let Some(value) = self.fields.get(name) else {
            return Ok(None);
        };
        let sizes: Option<Vec<usize>> = value.as_array().and_then(|items| {
            let size = |item: &Value| usize::try_from(item.as_u64()?).ok();
            items
                .iter()
                .map(|item| size(item).filter(|size| range.contains(size)))
                .collect()
        });
        sizes.map(Some).ok_or_else(|| {
            let what = format!(
                "a list of whole numbers from {} to {}",
                range.start(),
                range.end()
            );
            self.fields.expected(name, &what, value)
        })
    }

    /// Whether each layer has a sliding window, as `layer_types` says, else as `otherwise` does.
    pub(crate) fn sliding(
        &self,
        otherwise: impl Fn(usize) -> bool,
    ) -> Result<Vec<bool>, LoadError> {
        let Some(kinds) = self.kinds("layer_types")? else {
            return Ok((0..self.config.layers).map(otherwise).collect());
        };
        kinds
            .into_iter()
            .map(|kind| match kind {
                "sliding_attention" => Ok(true),
                "full_attention" => Ok(false),
                other => {
                    let what = "full_attention or sliding_attention in each place";
                    Err(self
                        .fields
                        .expected("layer_types", what, &Value::from(other)))
                }
            })
            .collect()
    }

    /// The width of the sliding window, where there is one.
    pub(crate) fn window(&self) -> Result<Option<usize>, LoadError> {
        self.fields.size("sliding_window", 1..=limit::CONTEXT)
    }

    /// The window of each layer that has one.
    pub(crate) fn windows(
        &self,
        otherwise: impl Fn(usize) -> bool,
    ) -> Result<Vec<Option<usize>>, LoadError> {
        let window = self.window()?;
        let sliding = self.sliding(otherwise)?;
        Ok(sliding
            .into_iter()
            .map(|slides| window.filter(|_| slides))
            .collect())
    }

    /// The table `module` of all tokens.
    pub(crate) fn embedding(&self, module: &str) -> Embedding {
        Embedding::new(module, self.config.vocabulary, self.config.hidden)
    }

    /// The head `module`, or the embedding: as the configuration says, else by whether there is a
    /// head. A head whose numbers are not the embedding's outweighs a configuration that denies it.
    pub(crate) fn head(&self, module: &str) -> Head {
        let untied = match self.config.tied {
            Some(tied) => !tied || self.has_other_head(module),
            None => self.weights.has(&format!("{module}.weight")),
        };
        let size = [self.config.hidden, self.config.vocabulary];
        Head::new(untied.then(|| Linear::new(module, size[0], size[1], false)))
    }

    /// The same with a bias.
    pub(crate) fn biased_head(&self, module: &str) -> Head {
        let mut head = self.head(module);
        match &mut head.linear {
            Some(linear) => *linear = Linear::new(module, linear.from, linear.to, true),
            None => head.bias = Some(format!("{module}.bias")),
        }
        head
    }

    /// Whether the head `module` and the embedding are both there and differ.
    fn has_other_head(&self, module: &str) -> bool {
        let head = format!("{module}.weight");
        let shape = [self.config.vocabulary, self.config.hidden];
        if self.weights.declaration(&head, &shape, "").is_err() {
            return false;
        }
        let embedding = EMBEDDINGS.iter().find_map(|name| {
            let name = self.weights.rules.rooted(name);
            self.weights.get(&format!("{name}.weight"))
        });
        match (self.weights.get(&head), embedding) {
            (Some(head), Some(embedding)) => {
                (head.values, head.scales, head.biases)
                    != (embedding.values, embedding.scales, embedding.biases)
            }
            _ => false,
        }
    }
}
