//! Qwen2-MoE and Qwen3-MoE: some layers with a choice of experts, the others dense.

use super::llama::{attention, common, pre_norm};
use super::qwen3::windows_where;
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, Rope, limit};
use crate::decoder::{Attention, Decoder, Experts, Gated, Linear, Norm, Router, Scores};
use mlxcel_ir::Activation;

pub(super) const FAMILY: Family = Family {
    model_types: &["qwen2_moe"],
    title: "Qwen2-MoE",
    category: Category::Experts,
    names: Names::MODEL,
    decoder: |reader| {
        let bias = reader.flag_or("qkv_bias", true)?;
        decoder(reader, true, |module, rope| {
            attention(reader, module, rope, [bias, false])
        })
    },
};

pub(super) const QWEN3: Family = Family {
    model_types: &["qwen3_moe"],
    title: "Qwen3-MoE",
    decoder: |reader| {
        let bias = reader.flag_or("attention_bias", false)?;
        let epsilon = reader.epsilon()?;
        decoder(reader, false, |module, rope| {
            let attention = attention(reader, module, rope, [bias, bias])?;
            let norm = |name| Norm::rms(format!("{module}.{name}"), attention.width, epsilon);
            let norms = [norm("q_norm"), norm("k_norm")];
            let [query, key] = norms;
            Ok(attention.with_head_norms(query, key))
        })
    },
    ..FAMILY
};

fn decoder(
    reader: &Reader<'_>,
    shared: bool,
    attention: impl Fn(&str, Rope) -> Result<Attention, LoadError>,
) -> Result<Decoder, LoadError> {
    let [_, _, width] = reader.heads()?;
    let rope = Rope::read(reader, width)?;
    // The first generation alternates up to a layer; in the second all slide or none.
    let windows = match shared {
        true => windows_where(reader, |layer, most| {
            layer < most && layer.is_multiple_of(2)
        })?,
        false => {
            let slides = reader.flag_or("use_sliding_window", false)?;
            vec![reader.window()?.filter(|_| slides); reader.config.layers]
        }
    };
    let sparse = sparse(reader)?;
    common(reader, rope.context, |index, module| {
        let hidden = reader.config.hidden;
        let mut attention = attention(&format!("{module}.self_attn"), rope.clone())?;
        attention.window = windows[index];
        let within = format!("{module}.mlp");
        let activation = reader.activation(Activation::Silu)?;
        if !sparse[index] {
            let inner = reader.width("intermediate_size")?;
            let mlp = Gated::new(&within, [hidden, inner], false, activation);
            return pre_norm(reader, module, attention, mlp);
        }
        let experts = match shared {
            true => shared_experts(reader, &within, false)?,
            false => experts(reader, &within, false)?,
        };
        pre_norm(reader, module, attention, experts)
    })
}

/// The experts of the feed-forward part `module`, whose weights add up to 1 if the configuration says
/// so, or else if `normalised`.
pub(super) fn experts(
    reader: &Reader<'_>,
    module: &str,
    normalised: bool,
) -> Result<Experts, LoadError> {
    let hidden = reader.config.hidden;
    let [count, chosen] = reader.experts()?;
    let gate = Linear::new(format!("{module}.gate"), hidden, count, false);
    let normalised = reader.flag_or("norm_topk_prob", normalised)?;
    let router = Router::new(gate, chosen, Scores::Softmax).normalised(normalised);
    let inner = reader.width("moe_intermediate_size")?;
    let activation = reader.activation(Activation::Silu)?;
    Ok(Experts::new(
        reader.weights,
        module,
        router,
        [hidden, inner],
        activation,
    ))
}

/// The same beside a feed-forward part that all tokens use, by a gate.
pub(super) fn shared_experts(
    reader: &Reader<'_>,
    module: &str,
    normalised: bool,
) -> Result<Experts, LoadError> {
    let hidden = reader.config.hidden;
    let inner = reader.width("shared_expert_intermediate_size")?;
    let name = format!("{module}.shared_expert");
    let gate = Linear::new(format!("{name}_gate"), hidden, 1, false);
    let activation = reader.activation(Activation::Silu)?;
    let mlp = Gated::new(&name, [hidden, inner], false, activation);
    Ok(experts(reader, module, normalised)?.with_shared(mlp, Some(gate)))
}

/// Which layers have experts: every `decoder_sparse_step`-th, but for `mlp_only_layers`.
pub(super) fn sparse(reader: &Reader<'_>) -> Result<Vec<bool>, LoadError> {
    let step = reader.width_or(&["decoder_sparse_step"], 1)?;
    let dense = reader.sizes("mlp_only_layers", 0..=limit::LAYERS)?;
    let dense = dense.unwrap_or_default();
    let layers = 0..reader.config.layers;
    Ok(layers
        .map(|layer| !dense.contains(&layer) && (layer + 1).is_multiple_of(step))
        .collect())
}
