//! Names of tensors: those of a GGUF file as those of the published checkpoints.

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

/// The checkpoint's name for the tensor `name` of a file whose layers have `own` names before the
/// common ones, or `None` for one that no family here has.
pub(super) fn checkpoint_name(name: &str, own: &[(&str, &'static str)]) -> Option<String> {
    let (module, part) = name.rsplit_once('.')?;
    if !matches!(part, "weight" | "bias") {
        return None;
    }
    let find = |table: &[(&str, &'static str)], module: &str| {
        let entry = table.iter().find(|(known, _)| *known == module);
        entry.map(|(_, name)| *name)
    };
    match module.strip_prefix("blk.") {
        None => Some(format!("{}.{part}", find(MODEL, module)?)),
        Some(rest) => {
            let (layer, module) = rest.split_once('.')?;
            let layer: usize = layer.parse().ok()?;
            let module = find(own, module).or_else(|| find(LAYER, module))?;
            Some(format!("model.layers.{layer}.{module}.{part}"))
        }
    }
}
