//! Gemma 1: Llama with norms that count from one and an embedding scaled by the root of its width.

use super::llama::{common, pre_norm};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, Rope};
use crate::decoder::{Attention, Context, Decoder, Gated, Layer, Linear, Norm, Projections, Step};
use mlxcel_ir::Activation;

pub(super) const FAMILY: Family = Family {
    model_types: &["gemma"],
    title: "Gemma",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let sizes = reader.heads()?;
    let rope = Rope::read(reader, sizes[2])?;
    base(reader, rope.context, |_, module| {
        let attention = attention(reader, module, sizes, rope.clone())?;
        let mut layer = pre_norm(reader, module, attention, feed_forward(reader, module)?)?;
        let norms = layer.steps.iter_mut().flat_map(|step| &mut step.branches);
        for norm in norms.filter_map(|branch| branch.before.as_mut()) {
            norm.offset = 1.0;
        }
        Ok(layer)
    })
}

/// A Gemma with the layers that `layer` gives: the scaled embedding and the final norm from one.
pub(super) fn base(
    reader: &Reader<'_>,
    context: Option<Context>,
    layer: impl Fn(usize, &str) -> Result<Layer, LoadError>,
) -> Result<Decoder, LoadError> {
    let mut decoder = common(reader, context, layer)?;
    decoder.embedding.scale = (reader.config.hidden as f64).sqrt();
    decoder.norm = decoder.norm.map(Norm::about_one);
    decoder.head.softcap = reader.fields.positive("final_logit_softcapping")?;
    Ok(decoder)
}

/// The attention of `module` with scores divided by the root of `query_pre_attn_scalar`, which is
/// the width of a head where it is missing.
pub(super) fn attention(
    reader: &Reader<'_>,
    module: &str,
    sizes: [usize; 3],
    rope: Rope,
) -> Result<Attention, LoadError> {
    let bias = reader.flag_or("attention_bias", false)?;
    let ([heads, _, width], hidden) = (sizes, reader.config.hidden);
    let module = format!("{module}.self_attn");
    let projections = Projections::new(&module, hidden, sizes, bias);
    let output = Linear::new(format!("{module}.o_proj"), heads * width, hidden, bias);
    let mut attention = Attention::new(sizes, projections, output, Some(rope));
    let root = reader.positive_or(&["query_pre_attn_scalar"], width as f64)?;
    attention.scale = 1.0 / root.sqrt();
    attention.softcap = reader.fields.positive("attn_logit_softcapping")?;
    Ok(attention)
}

/// The feed-forward part of `module`.
pub(super) fn feed_forward(reader: &Reader<'_>, module: &str) -> Result<Gated, LoadError> {
    let inner = reader.width("intermediate_size")?;
    let activation = reader.activation(Activation::GeluTanh)?;
    let hidden = reader.config.hidden;
    Ok(Gated::new(
        &format!("{module}.mlp"),
        [hidden, inner],
        false,
        activation,
    ))
}

/// Attention and a feed-forward part, each between two norms from one.
pub(super) fn sandwich(
    reader: &Reader<'_>,
    module: &str,
    attention: Attention,
) -> Result<Layer, LoadError> {
    let epsilon = reader.epsilon()?;
    let norm = |name: &str| {
        Norm::rms(format!("{module}.{name}"), reader.config.hidden, epsilon).about_one()
    };
    let feed_forward = feed_forward(reader, module)?;
    let branch = |before: &str, body, after: &str| crate::decoder::Branch {
        before: Some(norm(before)),
        body,
        after: Some(norm(after)),
    };
    let attention = branch(
        "input_layernorm",
        Box::new(attention) as _,
        "post_attention_layernorm",
    );
    let names = ["pre_feedforward_layernorm", "post_feedforward_layernorm"];
    let feed_forward = branch(names[0], Box::new(feed_forward) as _, names[1]);
    Ok(Layer {
        steps: vec![Step::of(attention), Step::of(feed_forward)],
    })
}
