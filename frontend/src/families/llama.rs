//! Llama 1 to 3 and the many models published under its `model_type` (SmolLM, TinyLlama, Yi).

use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, Rope};
use crate::decoder::{
    Attention, Block, Branch, Context, Decoder, Layer, Linear, Norm, Projections, Step,
};

pub(super) const FAMILY: Family = Family {
    model_types: &["llama"],
    title: "Llama",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = Parts::read(reader, Defaults::default())?;
    parts.decoder(|_, module| {
        Ok(parts.pre_norm(module, parts.attention(module), parts.gated(module)))
    })
}

/// A decoder in the names of Llama with the layers that `layer` gives for a number and a module.
pub(super) fn common(
    reader: &Reader<'_>,
    context: Option<Context>,
    layer: impl Fn(usize, &str) -> Result<Layer, LoadError>,
) -> Result<Decoder, LoadError> {
    let layers =
        (0..reader.config.layers).map(|index| layer(index, &format!("model.layers.{index}")));
    Ok(Decoder {
        embedding: reader.embedding("model.embed_tokens"),
        layers: layers.collect::<Result<_, _>>()?,
        norm: Some(Norm::rms(
            "model.norm",
            reader.config.hidden,
            reader.epsilon()?,
        )),
        head: reader.head("lm_head"),
        context,
    })
}

/// Attention whose layers are `q_proj`, `k_proj`, `v_proj` and `o_proj` of `module`, with biases or
/// without.
pub(super) fn attention(
    reader: &Reader<'_>,
    module: &str,
    rope: impl Into<Option<Rope>>,
    [bias, output_bias]: [bool; 2],
) -> Result<Attention, LoadError> {
    let sizes = reader.heads()?;
    let [heads, _, width] = sizes;
    let hidden = reader.config.hidden;
    let projections = Projections::new(module, hidden, sizes, bias);
    let output = Linear::new(
        format!("{module}.o_proj"),
        heads * width,
        hidden,
        output_bias,
    );
    Ok(Attention::new(sizes, projections, output, rope.into()))
}

/// Attention and a feed-forward part, each on an RMS norm of its input and added to it.
pub(super) fn pre_norm(
    reader: &Reader<'_>,
    module: &str,
    attention: impl Block + 'static,
    feed_forward: impl Block + 'static,
) -> Result<Layer, LoadError> {
    let epsilon = reader.epsilon()?;
    let norm = |name: &str| Norm::rms(format!("{module}.{name}"), reader.config.hidden, epsilon);
    Ok(Layer {
        steps: vec![
            Step::of(Branch::new(norm("input_layernorm"), attention)),
            Step::of(Branch::new(norm("post_attention_layernorm"), feed_forward)),
        ],
    })
}
