//! Names of tensors: those of a GGUF file as those of the published checkpoints.

use super::Architecture;

/// Parts outside of layers.
const MODEL: &[(&str, &str)] = &[
    ("token_embd", "model.embed_tokens"),
    ("output_norm", "model.norm"),
    ("output", "lm_head"),
];
/// Parts of a layer.
const LAYER: &[(&str, &str)] = &[
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

/// Factors of rotary frequencies, which a file holds in place of the settings of Llama 3.
pub(super) const ROPE_FACTORS: &str = "rope_freqs.weight";

/// Factors of rotary frequencies of short and long texts.
pub(super) const SHORT_FACTORS: &str = "rope_factors_short.weight";
/// The latter.
pub(super) const LONG_FACTORS: &str = "rope_factors_long.weight";

/// Whether the tensor `name` of a file with `layers` layers is no part of the model: what files keep
/// for rotary embedding, and layers that predict further tokens, which stand after the others.
pub(super) fn is_apart(name: &str, layers: u64) -> bool {
    if [ROPE_FACTORS, SHORT_FACTORS, LONG_FACTORS].contains(&name) {
        return true;
    }
    let layer = name
        .strip_prefix("blk.")
        .and_then(|rest| rest.split_once('.'));
    layer.is_some_and(|(layer, part)| {
        part.starts_with("attn_rot_embd") || layer.parse().is_ok_and(|layer: u64| layer >= layers)
    })
}

/// The checkpoint's name for the tensor `name` of a file of `architecture`, or `None` for one that no
/// family here has.
pub(super) fn checkpoint_name(name: &str, architecture: &Architecture) -> Option<String> {
    let find = |table: &[(&str, &'static str)], module: &str| {
        let entry = table.iter().find(|(known, _)| *known == module);
        entry.map(|(_, name)| *name)
    };
    let (list, own) = (architecture.list, architecture.names);
    let layer = match name.strip_prefix("blk.") {
        None => None,
        Some(rest) => {
            let (layer, rest) = rest.split_once('.')?;
            Some((layer.parse::<usize>().ok()?, rest))
        }
    };
    if let Some((layer, rest)) = layer
        && let Some(whole) = find(own, rest)
    {
        return Some(format!("{list}.{layer}.{whole}"));
    }
    let (module, part) = layer.map_or(name, |(_, rest)| rest).rsplit_once('.')?;
    if !matches!(part, "weight" | "bias") {
        return None;
    }
    Some(match layer {
        None => {
            let module = find(architecture.model, module).or_else(|| find(MODEL, module))?;
            format!("{module}.{part}")
        }
        Some((layer, _)) => {
            let module = find(own, module).or_else(|| find(LAYER, module))?;
            format!("{list}.{layer}.{module}.{part}")
        }
    })
}
