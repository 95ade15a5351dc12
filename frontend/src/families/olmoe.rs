//! OLMoE: norms of all queries and of all keys, and a choice of experts.

use super::llama::{attention, common, pre_norm};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, Rope};
use crate::decoder::{Decoder, Experts, HeadNorm, Linear, Norm, Router, Scores};
use mlxcel_ir::Activation;

pub(super) const FAMILY: Family = Family {
    model_types: &["olmoe"],
    title: "OLMoE",
    category: Category::Experts,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let hidden = reader.config.hidden;
    let [heads, kv_heads, width] = reader.heads()?;
    let rope = Rope::read(reader, width)?;
    let bias = reader.flag_or("attention_bias", false)?;
    let [count, chosen] = reader.experts()?;
    let inner = reader.width("intermediate_size")?;
    let normalised = reader.flag_or("norm_topk_prob", false)?;
    let epsilon = reader.positive_or(&["rms_norm_eps"], 1e-5)?;
    common(reader, rope.context, |_, module| {
        let within = format!("{module}.self_attn");
        let mut attention = attention(reader, &within, rope.clone(), [bias, bias])?;
        let norm = |name: &str, heads: usize| {
            HeadNorm::All(Norm::rms(
                format!("{within}.{name}"),
                heads * width,
                epsilon,
            ))
        };
        attention.query_norm = Some(norm("q_norm", heads));
        attention.key_norm = Some(norm("k_norm", kv_heads));
        attention.clip = reader.fields.positive("clip_qkv")?;
        attention.window = reader.window()?;
        let within = format!("{module}.mlp");
        let gate = Linear::new(format!("{within}.gate"), hidden, count, false);
        let router = Router::new(gate, chosen, Scores::Softmax).normalised(normalised);
        let activation = reader.activation(Activation::Silu)?;
        let experts = Experts::new(reader.weights, &within, router, [hidden, inner], activation);
        pre_norm(reader, module, attention, experts)
    })
}
