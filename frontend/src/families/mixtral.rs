//! Mixtral: a Mistral with a choice of experts.

use super::llama::{attention, common, pre_norm};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, Rope};
use crate::decoder::{Decoder, Experts, Linear, Router, Scores};
use mlxcel_ir::Activation;

pub(super) const FAMILY: Family = Family {
    model_types: &["mixtral"],
    title: "Mixtral",
    category: Category::Experts,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let [_, _, width] = reader.heads()?;
    let rope = Rope::of_kind(reader, width, "full_attention", 1_000_000.0)?;
    let window = reader.window()?;
    common(reader, rope.context, |_, module| {
        let within = format!("{module}.self_attn");
        let mut attention = attention(reader, &within, rope.clone(), [false, false])?;
        attention.window = window;
        let experts = experts(reader, &format!("{module}.block_sparse_moe"))?;
        pre_norm(reader, module, attention, experts)
    })
}

/// The experts of the feed-forward part `module`, weighed by a softmax over those chosen.
pub(super) fn experts(reader: &Reader<'_>, module: &str) -> Result<Experts, LoadError> {
    let hidden = reader.config.hidden;
    let [count, chosen] = reader.experts()?;
    let gate = Linear::new(format!("{module}.gate"), hidden, count, false);
    let router = Router::new(gate, chosen, Scores::SoftmaxChosen);
    let activation = reader.activation(Activation::Silu)?;
    let sizes = [hidden, reader.width("intermediate_size")?];
    Ok(Experts::new(
        reader.weights,
        module,
        router,
        sizes,
        activation,
    ))
}
