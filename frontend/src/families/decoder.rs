//! The graph of a decoder-only transformer with RMS norms, rotary embedding and a gated
//! feed-forward part. Families differ by the fields of [`Decoder`] and by their configuration.

mod attention;

use crate::config::Config;
use crate::model::{GraphOptions, Logits};
use crate::{LoadError, weights::Weights};
use mlxcel_ir::{
    BuildError, Builder, DType, Dim, Graph, Symbol, TensorType, ValueId, WeightDecl, WeightId, step,
};

/// What a family decides about the decoder.
#[derive(Debug)]
pub(crate) struct Decoder {
    /// Whether each head of queries and keys passes a norm before rotary embedding.
    pub(crate) qk_norm: bool,
    /// Whether the projections to queries, keys and values have biases.
    pub(crate) qkv_bias: Switch,
    /// Whether the projection after attention has a bias.
    pub(crate) output_bias: Switch,
    /// Whether the projections of the feed-forward part have biases.
    pub(crate) mlp_bias: Switch,
    /// Whether layers may have a sliding window; if not, the configuration's windows mean nothing.
    pub(crate) windows: bool,
}

/// When a linear layer has a bias.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Switch {
    /// Never.
    Never,
    /// Where `attention_bias` says so.
    AttentionBias,
    /// Where `mlp_bias` says so.
    MlpBias,
}

impl Switch {
    fn on(self, config: &Config) -> bool {
        match self {
            Switch::Never => false,
            Switch::AttentionBias => config.attention_bias,
            Switch::MlpBias => config.mlp_bias,
        }
    }
}

/// Builds the graph of `config` over the tensors of `weights`.
///
/// # Errors
/// A tensor that is missing or of the wrong shape.
pub(crate) fn build(
    decoder: &Decoder,
    config: &Config,
    weights: &Weights,
    options: &GraphOptions,
) -> Result<Graph, LoadError> {
    let rows = [Dim::Symbol(Symbol::B)];
    let mut builder = Builder::new(&options.name);
    let tokens = TensorType::new(DType::I32, [Symbol::B, Symbol::T]);
    let tokens = builder.input(step::TOKENS, tokens);
    let start = builder.input(step::START, TensorType::new(DType::I32, rows));
    let length = builder.input(step::LENGTH, TensorType::new(DType::I32, rows));
    let mut work = Work {
        decoder,
        config,
        weights,
        builder,
        start,
    };
    let table = work.matrix(EMBEDDING, config.vocabulary, config.hidden)?;
    let mut x = work.builder.embedding(tokens, table).or_else(work.fail())?;
    work.builder.name(x, "embedding");
    for layer in 0..config.layers {
        x = work.layer(layer, x)?;
        if options.hidden {
            work.builder.output(step::hidden(layer), x);
        }
    }
    work.head(x, length, table, options)?;
    Ok(work.builder.finish())
}

/// The embedding, without `.weight`.
const EMBEDDING: &str = "model.embed_tokens";
/// The head, without `.weight`.
pub(crate) const HEAD: &str = "lm_head";

/// A graph under construction.
struct Work<'a> {
    decoder: &'a Decoder,
    config: &'a Config,
    weights: &'a Weights,
    builder: Builder,
    start: ValueId,
}

impl Work<'_> {
    /// Turns a builder's error into one that names the model.
    fn fail<T>(&self) -> impl FnOnce(BuildError) -> Result<T, LoadError> + use<T> {
        let path = self.weights.path.clone();
        move |source| Err(LoadError::Graph { path, source })
    }

    fn declared(&self, name: &str, shape: &[usize]) -> Result<WeightDecl, LoadError> {
        let reason = format!(
            "by the configuration of this {} model",
            self.config.model_type
        );
        self.weights.declaration(name, shape, &reason)
    }

    /// The weight of `module`, `[rows, columns]`.
    fn matrix(&mut self, module: &str, rows: usize, columns: usize) -> Result<WeightId, LoadError> {
        let declared = self.declared(&format!("{module}.weight"), &[rows, columns])?;
        Ok(self.builder.weight(declared))
    }

    /// `x` through the linear layer `module`, named `name`.
    fn linear(
        &mut self,
        x: ValueId,
        module: &str,
        [from, to]: [usize; 2],
        bias: bool,
        name: String,
    ) -> Result<ValueId, LoadError> {
        let declared = self.declared(&format!("{module}.weight"), &[to, from])?;
        let low_rank = self.weights.low_rank(&declared.name)?;
        let weight = self.builder.weight(declared);
        let bias_name = format!("{module}.bias");
        let bias = match bias {
            true => {
                let declared = self.declared(&bias_name, &[to])?;
                Some(self.builder.weight(declared))
            }
            // A bias left out would give wrong numbers without a sign of it.
            false if self.weights.has(&bias_name) => {
                return Err(LoadError::Tensor {
                    file: self.weights.path.clone(),
                    tensor: bias_name,
                    reason: "is there, but the configuration says that this layer has no bias"
                        .into(),
                });
            }
            false => None,
        };
        let y = self.builder.linear(x, weight, bias).or_else(self.fail())?;
        let y = match low_rank {
            None => y,
            Some(change) => adapted(&mut self.builder, x, y, change).or_else(self.fail())?,
        };
        self.builder.name(y, name);
        Ok(y)
    }

    /// `x` through the norm `module` of `width` features, named `name`.
    fn norm(
        &mut self,
        x: ValueId,
        module: &str,
        width: usize,
        name: String,
    ) -> Result<ValueId, LoadError> {
        let declared = self.declared(&format!("{module}.weight"), &[width])?;
        let weight = self.builder.weight(declared);
        let y = self
            .builder
            .rms_norm(x, Some(weight), self.config.epsilon, 0.0)
            .or_else(self.fail())?;
        self.builder.name(y, name);
        Ok(y)
    }

    /// `lhs + rhs`, named `name`.
    fn add(&mut self, lhs: ValueId, rhs: ValueId, name: String) -> Result<ValueId, LoadError> {
        let sum = self.builder.add(lhs, rhs).or_else(self.fail())?;
        self.builder.name(sum, name);
        Ok(sum)
    }

    /// One layer: attention and feed-forward part, each on a norm of its input and added to it.
    fn layer(&mut self, layer: usize, x: ValueId) -> Result<ValueId, LoadError> {
        let Config {
            hidden,
            intermediate,
            activation,
            ..
        } = *self.config;
        let module = format!("model.layers.{layer}");
        let named = |part: &str| format!("layers.{layer}.{part}");
        let within = |part: &str| format!("{module}.{part}");

        let normed = self.norm(x, &within("input_layernorm"), hidden, named("input_norm"))?;
        let attended = self.attention(layer, normed)?;
        let x = self.add(x, attended, named("residual"))?;

        let post = within("post_attention_layernorm");
        let normed = self.norm(x, &post, hidden, named("post_norm"))?;
        let bias = self.decoder.mlp_bias.on(self.config);
        let up = [hidden, intermediate];
        let gate = self.linear(normed, &within("mlp.gate_proj"), up, bias, named("gate"))?;
        let up = self.linear(normed, &within("mlp.up_proj"), up, bias, named("up"))?;
        let gated = self
            .builder
            .gated(gate, up, activation)
            .or_else(self.fail())?;
        self.builder.name(gated, named("gated"));
        let down = [intermediate, hidden];
        let down = self.linear(gated, &within("mlp.down_proj"), down, bias, named("down"))?;
        self.add(x, down, named("output"))
    }

    /// The final norm, the head and what `options` wants of them.
    fn head(
        &mut self,
        hidden: ValueId,
        length: ValueId,
        table: WeightId,
        options: &GraphOptions,
    ) -> Result<(), LoadError> {
        if options.logits == Logits::None && !options.token {
            return Ok(());
        }
        let all = options.logits == Logits::All;
        // The norm and the head, the largest layer of small models, run on one row where one counts.
        let x = match all {
            true => hidden,
            false => self.last(hidden, length)?,
        };
        let size = [self.config.hidden, self.config.vocabulary];
        let x = self.norm(x, "model.norm", size[0], "norm".into())?;
        let logits = match is_tied(self.config, self.weights) {
            true => {
                let logits = self.builder.linear(x, table, None).or_else(self.fail())?;
                self.builder.name(logits, "logits");
                logits
            }
            false => self.linear(x, HEAD, size, false, "logits".into())?,
        };
        if options.logits != Logits::None {
            self.builder.output(step::LOGITS, logits);
        }
        if options.token {
            let last = match all {
                true => self.last(logits, length)?,
                false => logits,
            };
            let token = self.builder.argmax(last).or_else(self.fail())?;
            self.builder.name(token, "token");
            self.builder.output(step::TOKEN, token);
        }
        Ok(())
    }

    /// The row of each `x[B, T, ...]` at position `length - 1`.
    fn last(&mut self, x: ValueId, length: ValueId) -> Result<ValueId, LoadError> {
        let one = vec![Symbol::B.into()];
        let one = self
            .builder
            .constant(1.0, DType::I32, one)
            .or_else(self.fail())?;
        let index = self.builder.subtract(length, one).or_else(self.fail())?;
        let row = self.builder.take_row(x, index).or_else(self.fail())?;
        self.builder.name(row, "last");
        Ok(row)
    }
}

/// `y`, what a linear layer makes of `x`, with the change `[A, B]` of an adapter: `y + B A x`. See
/// [`Weights::low_rank`].
fn adapted(
    builder: &mut Builder,
    x: ValueId,
    y: ValueId,
    change: [WeightDecl; 2],
) -> Result<ValueId, BuildError> {
    let mut change_of = x;
    for part in change {
        let part = builder.weight(part);
        change_of = builder.linear(change_of, part, None)?;
    }
    builder.add(y, change_of)
}

/// Whether the head is the embedding: as the configuration says, else by whether there is a head.
fn is_tied(config: &Config, weights: &Weights) -> bool {
    config
        .tied
        .unwrap_or_else(|| !weights.has(&format!("{HEAD}.weight")))
}
