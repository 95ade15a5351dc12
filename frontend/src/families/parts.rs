//! The parts of a layer in the names and sizes of Llama, which most families share; a family changes
//! the fields in which it differs.

use super::llama;
use crate::LoadError;
use crate::config::{Reader, Rope};
use crate::decoder::{
    Attention, Block, Branch, Decoder, Gated, HeadNorm, Layer, Linear, Norm, Plain, Projections,
    Step,
};
use mlxcel_ir::Activation;

/// What holds where a configuration does not say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Defaults {
    /// Of norms.
    pub(super) epsilon: f64,
    /// Of rotary embedding.
    pub(super) base: f64,
    pub(super) activation: Activation,
    /// The name of a nonlinearity that the family makes itself.
    pub(super) own: &'static str,
    /// Whether attention has biases.
    pub(super) bias: bool,
    /// The share of each head that turns.
    pub(super) turning: f64,
}

impl Defaults {
    /// Of Llama.
    pub(super) const LLAMA: Self = Self {
        epsilon: 1e-6,
        base: 10_000.0,
        activation: Activation::Silu,
        own: "",
        bias: false,
        turning: 1.0,
    };
}

impl Default for Defaults {
    fn default() -> Self {
        Self::LLAMA
    }
}

/// What a configuration says of every layer.
#[derive(Clone)]
pub(super) struct Parts<'a> {
    pub(super) reader: &'a Reader<'a>,
    /// Width of the residual stream.
    pub(super) hidden: usize,
    /// Width within the feed-forward part.
    pub(super) inner: usize,
    /// Query heads, key-value heads, width of a head.
    pub(super) sizes: [usize; 3],
    pub(super) epsilon: f64,
    pub(super) activation: Activation,
    pub(super) rope: Rope,
    /// Whether queries, keys and values have biases,
    pub(super) bias: bool,
    /// the layer after attention,
    pub(super) output_bias: bool,
    /// and the feed-forward part.
    pub(super) mlp_bias: bool,
}

impl<'a> Parts<'a> {
    /// As the configuration says, else `defaults`.
    ///
    /// # Errors
    /// A field that is missing or out of bounds.
    pub(super) fn read(reader: &'a Reader<'a>, defaults: Defaults) -> Result<Self, LoadError> {
        Self::with_inner(reader, defaults, reader.width("intermediate_size")?)
    }

    /// The same with the width `inner` within the feed-forward part.
    pub(super) fn with_inner(
        reader: &'a Reader<'a>,
        defaults: Defaults,
        inner: usize,
    ) -> Result<Self, LoadError> {
        let sizes = reader.heads()?;
        let (base, turning) = (defaults.base, defaults.turning);
        let activation = match reader.fields.text("hidden_act")? {
            Some(name) if name == defaults.own => defaults.activation,
            _ => reader.activation(defaults.activation)?,
        };
        let bias = reader.flag_or("attention_bias", defaults.bias)?;
        Ok(Self {
            reader,
            hidden: reader.config.hidden,
            inner,
            sizes,
            epsilon: reader.epsilon_or(defaults.epsilon)?,
            activation,
            rope: Rope::with(reader, sizes[2], "full_attention", base, turning)?,
            bias,
            output_bias: bias,
            mlp_bias: reader.flag_or("mlp_bias", false)?,
        })
    }

    /// The attention `module.self_attn`.
    pub(super) fn attention(&self, module: &str) -> Attention {
        let [heads, _, width] = self.sizes;
        let attention = format!("{module}.self_attn");
        let projections = Projections::new(&attention, self.hidden, self.sizes, self.bias);
        let output = Linear::new(
            format!("{attention}.o_proj"),
            heads * width,
            self.hidden,
            self.output_bias,
        );
        Attention::new(self.sizes, projections, output, Some(self.rope.clone()))
    }

    /// The norms `q` and `k` of `module.self_attn` over all heads together.
    pub(super) fn whole_norms(&self, module: &str, [q, k]: [&str; 2]) -> [Option<HeadNorm>; 2] {
        let [heads, kv_heads, width] = self.sizes;
        let norm = |name: &str, heads: usize| {
            let norm = Norm::rms(
                format!("{module}.self_attn.{name}"),
                heads * width,
                self.epsilon,
            );
            Some(HeadNorm::All(norm))
        };
        [norm(q, heads), norm(k, kv_heads)]
    }

    /// The RMS norms `q` and `k` of `module.self_attn` of each head.
    pub(super) fn head_norms(&self, module: &str, [q, k]: [&str; 2]) -> [Norm; 2] {
        [q, k].map(|name| {
            Norm::rms(
                format!("{module}.self_attn.{name}"),
                self.sizes[2],
                self.epsilon,
            )
        })
    }

    /// The gated feed-forward part `module.mlp`.
    pub(super) fn gated(&self, module: &str) -> Gated {
        let sizes = [self.hidden, self.inner];
        Gated::new(
            &format!("{module}.mlp"),
            sizes,
            self.mlp_bias,
            self.activation,
        )
    }

    /// The feed-forward part of the two layers `up` and `down` of `module.mlp`.
    pub(super) fn plain(&self, module: &str, [up, down]: [&str; 2]) -> Plain {
        let layer = |name: &str, from: usize, to: usize| {
            Linear::new(format!("{module}.mlp.{name}"), from, to, self.mlp_bias)
        };
        Plain {
            up: layer(up, self.hidden, self.inner),
            down: layer(down, self.inner, self.hidden),
            activation: self.activation,
        }
    }

    /// The RMS norm `module.name`.
    pub(super) fn rms(&self, module: &str, name: &str) -> Norm {
        Norm::rms(format!("{module}.{name}"), self.hidden, self.epsilon)
    }

    /// The layer norm `module.name`.
    pub(super) fn layer_norm(&self, module: &str, name: &str, bias: bool) -> Norm {
        Norm::layer(format!("{module}.{name}"), self.hidden, self.epsilon, bias)
    }

    /// Attention and a feed-forward part, each on an RMS norm of its input and added to it.
    pub(super) fn pre_norm(
        &self,
        module: &str,
        attention: impl Block + 'static,
        feed_forward: impl Block + 'static,
    ) -> Layer {
        Layer {
            steps: vec![
                Step::of(Branch::new(self.rms(module, "input_layernorm"), attention)),
                Step::of(Branch::new(
                    self.rms(module, "post_attention_layernorm"),
                    feed_forward,
                )),
            ],
        }
    }

    /// A decoder in the names of Llama with the layers that `layer` gives for a number and a module.
    ///
    /// # Errors
    /// Those of `layer`.
    pub(super) fn decoder(
        &self,
        layer: impl Fn(usize, &str) -> Result<Layer, LoadError>,
    ) -> Result<Decoder, LoadError> {
        let mut decoder = llama::common(self.reader, self.rope.context, layer)?;
        decoder.norm = Some(self.rms("model", "norm"));
        Ok(decoder)
    }
}
