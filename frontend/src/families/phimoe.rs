//! Phi-3.5-MoE: two experts chosen by a sparse mixer, norms with biases.

use super::llama::{attention, common};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, Rope};
use crate::decoder::{Branch, Decoder, Experts, Layer, Linear, Norm, Router, Scores, Step};
use mlxcel_ir::Activation;

pub(super) const FAMILY: Family = Family {
    model_types: &["phimoe"],
    title: "Phi-3.5-MoE",
    category: Category::Experts,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let (hidden, epsilon) = (reader.config.hidden, reader.epsilon()?);
    let [_, _, width] = reader.heads()?;
    let rope = rope(reader, width)?;
    let bias = reader.flag_or("attention_bias", false)?;
    let [count, chosen] = reader.experts()?;
    if chosen != 2 || count < 2 {
        let reason = format!("must be 2, which its router is made for, is {chosen}");
        return Err(reader.fields.error("num_experts_per_tok", reason));
    }
    let inner = reader.width("intermediate_size")?;
    let window = reader.window()?;
    let jitter = reader.number_or("router_jitter_noise", 0.01)?;
    let activation = reader.activation(Activation::Silu)?;
    let norm = |module: String| Norm::layer(module, hidden, epsilon, true);
    let mut decoder = common(reader, rope.context, |_, module| {
        let within = format!("{module}.self_attn");
        let mut attention = attention(reader, &within, rope.clone(), [bias, bias])?;
        attention.window = window;
        let within = format!("{module}.block_sparse_moe");
        let gate = Linear::new(format!("{within}.gate"), hidden, count, false);
        let router = Router::new(gate, chosen, Scores::Mixer { jitter });
        let experts = Experts::new(reader.weights, &within, router, [hidden, inner], activation);
        let before = |name| norm(format!("{module}.{name}"));
        Ok(Layer {
            steps: vec![
                Step::of(Branch::new(before("input_layernorm"), attention)),
                Step::of(Branch::new(before("post_attention_layernorm"), experts)),
            ],
        })
    })?;
    decoder.norm = Some(norm("model.norm".into()));
    if reader.flag_or("lm_head_bias", false)? {
        decoder.head = reader.biased_head("lm_head");
    }
    Ok(decoder)
}

/// Rotary embedding. What it turns grows by `short_mscale`, where there is one: the factor for texts
/// up to the training's length.
fn rope(reader: &Reader<'_>, width: usize) -> Result<Rope, LoadError> {
    let mut rope = Rope::read(reader, width)?;
    for name in ["rope_parameters", "rope_scaling"] {
        let inner = reader.fields.object(name)?;
        if let Some(scale) = inner
            .map(|inner| inner.positive("short_mscale"))
            .transpose()?
        {
            rope.magnitude = scale.unwrap_or(rope.magnitude);
        }
    }
    Ok(rope)
}
