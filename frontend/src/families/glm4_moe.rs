//! GLM-4.5 and later: half of each head turns, experts chosen by sigmoids.

use super::deepseek::{dense_layers, experts, mlp, sigmoid_router};
use super::llama::{attention, common, pre_norm};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, Rope};
use crate::decoder::{Block, Decoder, Norm};

pub(super) const FAMILY: Family = Family {
    model_types: &["glm4_moe"],
    title: "GLM-4.5",
    category: Category::Experts,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let [_, _, width] = reader.heads()?;
    let epsilon = reader.positive_or(&["rms_norm_eps"], 1e-5)?;
    let rope = Rope::with(reader, width, "full_attention", 10_000.0, 0.5)?;
    let bias = reader.flag_or("attention_bias", false)?;
    let normed = reader.flag_or("use_qk_norm", false)?;
    let dense = dense_layers(reader, 1)?;
    common(reader, rope.context, |index, module| {
        let within = format!("{module}.self_attn");
        let norm = |name: &str| Norm::rms(format!("{within}.{name}"), width, epsilon);
        let mut attention = attention(reader, &within, rope.clone(), [bias, false])?;
        if normed {
            attention = attention.with_head_norms(norm("q_norm"), norm("k_norm"));
        }
        let within = format!("{module}.mlp");
        let feed_forward: Box<dyn Block> = match dense[index] {
            true => Box::new(mlp(reader, &within, reader.width("intermediate_size")?)?),
            false => Box::new(experts(reader, &within, sigmoid_router(reader, &within)?)?),
        };
        pre_norm(reader, module, attention, feed_forward)
    })
}
