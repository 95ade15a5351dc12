//! Llama 1 to 3 and the many models published under its `model_type` (SmolLM, TinyLlama, Yi).

use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, Rope};
use crate::decoder::{Attention, Branch, Decoder, Gated, Layer, Linear, Norm, Projections, Step};
use mlxcel_ir::Activation;

pub(super) const FAMILY: Family = Family {
    model_types: &["llama"],
    title: "Llama",
    category: Category::Dense,
    gguf: "llama",
    gguf_paired: true,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let attention_bias = reader.flag_or("attention_bias", false)?;
    let mlp_bias = reader.flag_or("mlp_bias", false)?;
    let [heads, kv_heads, width] = reader.heads()?;
    let rope = Rope::read(reader, width)?;
    let context = rope.context;
    common(reader, context, |_, module| {
        let hidden = reader.config.hidden;
        let attention = format!("{module}.self_attn");
        let sizes = [heads, kv_heads, width];
        let projections = Projections::new(&attention, hidden, sizes, attention_bias);
        let output = Linear::new(
            format!("{attention}.o_proj"),
            heads * width,
            hidden,
            attention_bias,
        );
        let attention = Attention::new(sizes, projections, output, Some(rope.clone()));
        let inner = reader.width("intermediate_size")?;
        let activation = reader.activation(Activation::Silu)?;
        let mlp = Gated::new(
            &format!("{module}.mlp"),
            [hidden, inner],
            mlp_bias,
            activation,
        );
        pre_norm(reader, module, attention, mlp)
    })
}

/// A decoder in the names of Llama with the layers that `layer` gives for a number and a module.
pub(super) fn common(
    reader: &Reader<'_>,
    context: Option<usize>,
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

/// Attention and a feed-forward part, each on an RMS norm of its input and added to it.
pub(super) fn pre_norm(
    reader: &Reader<'_>,
    module: &str,
    attention: Attention,
    feed_forward: impl crate::decoder::Block + 'static,
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
