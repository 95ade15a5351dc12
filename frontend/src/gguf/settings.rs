//! Metadata as a configuration.

use super::names::{LONG_FACTORS, ROPE_FACTORS, SHORT_FACTORS};
use super::tensors::{self, Described};
use super::{Architecture, Metadata};
use crate::LoadError;
use crate::families::Family;
use mlxcel_ir::{RopeScaling, rope};
use serde_json::{Map, Value, json};

/// The settings of Llama 3's frequencies that no published model departs from; the divisor is the
/// largest of the file's factors.
const LLAMA3: (f64, f64, f64) = (1.0, 4.0, 8192.0);

/// The configuration of a file of `architecture`, read as `family`, with the tensors `described`, and its query heads,
/// key-value heads and width of a head.
///
/// The metadata is put into the words of `config.json`, so that the same bounds hold for both.
pub(super) fn fields(
    metadata: &Metadata<'_>,
    architecture: &Architecture,
    family: &Family,
    described: &[Described<'_>],
) -> Result<(Value, [usize; 3]), LoadError> {
    let key = |name: &str| format!("{}.{name}", architecture.name);
    let required = |name: &str| metadata.required(&key(name), metadata.size(&key(name))?);
    refuse_variants(metadata, architecture)?;
    let hidden = required("embedding_length")?;
    let heads = required("attention.head_count")?;
    let by_layer = metadata.sizes(&key("attention.head_count_kv"))?;
    let kv_heads = match &by_layer {
        Some(counts) => counts.iter().copied().max(),
        None => metadata.size(&key("attention.head_count_kv"))?,
    };
    // Latent attention has widths of what the latents become, and some files those of latents too.
    let widths = |name: &str| {
        let own = metadata.size(&key(&format!("attention.{name}_mla")))?;
        Ok::<_, LoadError>(own.or(metadata.size(&key(&format!("attention.{name}")))?))
    };
    let width = match widths("key_length")? {
        Some(width) => width,
        None => hidden.checked_div(heads).unwrap_or(0),
    };
    let latent = metadata.size(&key("attention.kv_lora_rank"))?.is_some();
    let name = key("attention.value_length");
    let value = widths("value_length")?;
    if let Some(other) = value.filter(|&other| other != width && !latent) {
        let reason = format!("only the width of a head, {width}, is supported, is {other}");
        return Err(metadata.error(&name, reason));
    }
    let name = key("rope.dimension_count");
    let turning = metadata.size(&name)?.unwrap_or(width);
    if turning > width {
        let reason = format!("exceeds the width of a head, {width}: is {turning}");
        return Err(metadata.error(&name, reason));
    }
    let rows = described
        .iter()
        .find(|tensor| tensor.name == "token_embd.weight")
        .and_then(|tensor| tensor.shape.first().copied());
    let has = |part: &str| {
        let suffix = format!("{part}.bias");
        described
            .iter()
            .any(|tensor| tensor.checkpoint_name.ends_with(&suffix))
    };
    let [rms, layer] = [
        "attention.layer_norm_rms_epsilon",
        "attention.layer_norm_epsilon",
    ];
    let epsilon = match metadata.number(&key(rms))? {
        Some(epsilon) => Some(epsilon),
        None => metadata.number(&key(layer))?,
    };
    let layers = tensors::layers(metadata, architecture)?;
    let experts = |name: &str| metadata.size(&key(&format!("expert_{name}")));
    let described_norm = described
        .iter()
        .any(|tensor| tensor.name.ends_with(".attn_q_norm.weight"));
    // Of the tensors, because some files say another width.
    let inner = described
        .iter()
        .find(|tensor| tensor.name == "blk.0.ffn_down.weight")
        .and_then(|tensor| tensor.shape.last().copied());
    let inner = match inner {
        Some(inner) => inner as u64,
        None => required("feed_forward_length")?,
    };
    let two_norms = described
        .iter()
        .any(|tensor| tensor.name.contains(".attn_norm_2."));
    let turning = match turning {
        0 => width,
        turning => turning,
    };
    let mut fields = Map::new();
    for (name, value) in [
        ("model_type", json!(family.name())),
        ("hidden_size", json!(hidden)),
        ("intermediate_size", json!(inner)),
        ("n_inner", json!(inner)),
        ("num_hidden_layers", json!(layers)),
        ("num_attention_heads", json!(heads)),
        ("num_key_value_heads", json!(kv_heads.unwrap_or(heads))),
        ("num_kv_heads", json!(kv_heads.unwrap_or(heads))),
        ("multi_query", json!(kv_heads == Some(1))),
        ("new_decoder_architecture", json!(two_norms)),
        ("head_dim", json!(width)),
        (
            "max_position_embeddings",
            json!(required("context_length")?),
        ),
        (
            "vocab_size",
            json!(metadata.required("token_embd.weight", rows)?),
        ),
        (
            "rms_norm_eps",
            json!(metadata.required(&key(rms), epsilon)?),
        ),
        ("norm_epsilon", json!(epsilon)),
        ("layer_norm_epsilon", json!(epsilon)),
        ("layer_norm_eps", json!(epsilon)),
        ("norm_eps", json!(epsilon)),
        (
            "partial_rotary_factor",
            json!(turning as f64 / width.max(1) as f64),
        ),
        (
            "attention_bias",
            json!(has(".q_proj") || has(".query_key_value")),
        ),
        ("attention_out_bias", json!(has(".o_proj"))),
        ("use_bias", json!(has(".q_proj"))),
        ("use_qkv_bias", json!(has(".q_proj"))),
        ("bias", json!(has(".query_key_value"))),
        ("qk_layernorm", json!(described_norm)),
        ("mlp_bias", json!(has(".up_proj"))),
        ("lm_head_bias", json!(has("lm_head"))),
        ("use_qk_norm", json!(described_norm)),
        ("num_local_experts", json!(experts("count")?)),
        ("num_experts_per_tok", json!(experts("used_count")?)),
        (
            "moe_intermediate_size",
            json!(experts("feed_forward_length")?),
        ),
        (
            "shared_expert_intermediate_size",
            json!(experts("shared_feed_forward_length")?),
        ),
        ("n_shared_experts", json!(experts("shared_count")?)),
        ("num_shared_experts", json!(experts("shared_count")?)),
        ("n_group", json!(experts("group_count")?)),
        ("topk_group", json!(experts("group_used_count")?)),
        (
            "norm_topk_prob",
            json!(metadata.flag(&key("expert_weights_norm"))?),
        ),
        (
            "routed_scaling_factor",
            json!(metadata.number(&key("expert_weights_scale"))?),
        ),
        (
            "first_k_dense_replace",
            json!(metadata.size(&key("leading_dense_block_count"))?),
        ),
        (
            "use_parallel_residual",
            json!(metadata.flag(&key("use_parallel_residual"))?),
        ),
        (
            "rope_theta",
            json!(metadata.number(&key("rope.freq_base"))?),
        ),
        ("rope_scaling", scaling(metadata, architecture)?),
        (
            "eos_token_id",
            json!(metadata.size("tokenizer.ggml.eos_token_id")?),
        ),
    ] {
        fields.insert(name.into(), value);
    }
    for &(name, field) in architecture.fields {
        let name = key(name);
        if let Some(slides) = metadata.get(&name).and_then(|value| value.flags()) {
            let kind = |slides| match slides {
                true => "sliding_attention",
                false => "full_attention",
            };
            let kinds: Vec<&str> = slides.map(kind).take(layers as usize).collect();
            fields.insert("layer_types".into(), json!(kinds));
        } else if let Some(number) = metadata.number(&name)? {
            // A window of no width is none.
            let is_none = field == "sliding_window" && number == 0.0;
            if !is_none {
                fields.insert(field.into(), json!(number));
            }
        }
    }
    if let Some(counts) = &by_layer {
        let kind = |&count: &u64| match count {
            0 => "conv",
            _ => "full_attention",
        };
        let kinds: Vec<&str> = counts.iter().map(kind).collect();
        fields.insert("layer_types".into(), json!(kinds));
    }
    if latent {
        let plain = width.saturating_sub(turning);
        // Some files do not say it; the joined rows of keys and values do.
        let joined = described
            .iter()
            .find(|tensor| tensor.checkpoint_name.ends_with(".kv_b_proj.weight"));
        let rows = joined.and_then(|tensor| tensor.shape.first().copied());
        let rows = rows.and_then(|rows| (rows as u64).checked_div(heads));
        let value = value.or(rows.map(|rows| rows.saturating_sub(plain)));
        fields.insert("qk_nope_head_dim".into(), json!(plain));
        fields.insert("v_head_dim".into(), json!(value));
        fields.insert("partial_rotary_factor".into(), Value::Null);
    }
    let groups = experts("group_count")?.unwrap_or(1);
    if family.name() == "deepseek_v2" && groups > 1 {
        fields.insert("topk_method".into(), json!("group_limited_greedy"));
    }
    if architecture.name == "mamba2" {
        let (inner, heads) = (required("ssm.inner_size")?, required("ssm.time_step_rank")?);
        fields.insert("head_dim".into(), json!(inner.checked_div(heads)));
        fields.insert("expand".into(), json!(inner.checked_div(hidden)));
    }
    if architecture.name == "mpt" {
        let steepest = metadata.number(&key("attention.max_alibi_bias"))?;
        let attention = json!({
            "alibi": steepest.is_none_or(|steepest| steepest > 0.0),
            "alibi_bias_max": steepest,
            "clip_qkv": metadata.number(&key("attention.clamp_kqv"))?,
        });
        fields.insert("attn_config".into(), attention);
    }
    if architecture.name == "minicpm" {
        // Files have what these settings make of the sizes.
        let branch = metadata.number(&key("residual_scale"))?;
        let depth = branch.map(|scale| scale * (layers as f64).sqrt());
        fields.insert("scale_depth".into(), json!(depth));
        let logits = metadata.number(&key("logit_scale"))?;
        let base = logits.map(|scale| hidden as f64 / scale);
        fields.insert("dim_model_base".into(), json!(base));
    }
    if let Ok(Value::Object(implied)) = serde_json::from_str(architecture.implied) {
        fields.extend(implied);
    }
    // The largest of Gemma 2 and 3 divides scores by the root of what its width gives each head.
    if matches!((architecture.name, layers), ("gemma2", 46) | ("gemma3", 62)) {
        let share = hidden.checked_div(heads);
        fields.insert("query_pre_attn_scalar".into(), json!(share));
    }
    let factors = |name: &str| {
        let tensor = described.iter().find(|tensor| tensor.name == name)?;
        tensor.floats()
    };
    if let (Some(short), Some(long)) = (factors(SHORT_FACTORS), factors(LONG_FACTORS)) {
        fields.insert(
            "rope_scaling".into(),
            json!({
                "rope_type": "longrope",
                "short_factor": short,
                "long_factor": long,
                "attention_factor": metadata.number(&key("rope.scaling.attn_factor"))?,
                "original_max_position_embeddings":
                    metadata.size(&key("rope.scaling.original_context_length"))?,
            }),
        );
    }
    if let Some(tensor) = described.iter().find(|tensor| tensor.name == ROPE_FACTORS) {
        let base = metadata.number(&key("rope.freq_base"))?.unwrap_or(10_000.0);
        let scaling = &fields["rope_scaling"];
        if let Some(found) = llama3(metadata, (width, base, scaling), tensor)? {
            fields.insert("rope_scaling".into(), found);
        }
    }
    let heads = [heads, kv_heads.unwrap_or(heads), width].map(|size| size as usize);
    Ok((Value::Object(fields), heads))
}

/// Variants that share the architecture's name but not its graph.
fn refuse_variants(metadata: &Metadata<'_>, architecture: &Architecture) -> Result<(), LoadError> {
    let window = "attention.sliding_window";
    let field = format!("{}.{window}", architecture.name);
    let is_read = architecture.fields.iter().any(|(name, _)| *name == window);
    if !is_read && metadata.size(&field)?.is_some_and(|window| window > 0) {
        let reason = "sliding windows are not supported in GGUF files of this family";
        return Err(metadata.error(&field, reason));
    }
    Ok(())
}

/// `rope_scaling` from the metadata.
fn scaling(metadata: &Metadata<'_>, architecture: &Architecture) -> Result<Value, LoadError> {
    let key = |name: &str| format!("{}.rope.{name}", architecture.name);
    let old = metadata.number(&key("scale_linear"))?;
    match metadata.text(&key("scaling.type"))? {
        None if old.is_some_and(|factor| factor != 1.0) => {
            Ok(json!({"rope_type": "linear", "factor": old}))
        }
        None | Some("none") => Ok(Value::Null),
        Some("linear") => {
            let field = key("scaling.factor");
            let factor = metadata.required(&field, metadata.number(&field)?)?;
            Ok(json!({"rope_type": "linear", "factor": factor}))
        }
        Some("yarn") => {
            let field = key("scaling.factor");
            let factor = metadata.required(&field, metadata.number(&field)?)?;
            let original = metadata.size(&key("scaling.original_context_length"))?;
            let name = key("scaling.attn_factor");
            if metadata.number(&name)?.is_some_and(|factor| factor != 1.0) {
                return Err(metadata.error(&name, "is not supported; it must be 1"));
            }
            // What says by how much attention grows with the factor: the same for both, so not at all.
            let grown = metadata.number(&key("scaling.yarn_log_multiplier"))?;
            // Files of this architecture have a tenth of it.
            let tenth = architecture.name == "deepseek2";
            let grown = grown.map(|grown| if tenth { grown / 0.1 } else { grown });
            let temperature = format!("{}.attention.temperature_scale", architecture.name);
            Ok(json!({
                "rope_type": "yarn",
                "factor": factor,
                "original_max_position_embeddings": original,
                "beta_fast": metadata.number(&key("scaling.yarn_beta_fast"))?,
                "beta_slow": metadata.number(&key("scaling.yarn_beta_slow"))?,
                "mscale": grown,
                "mscale_all_dim": grown,
                "llama_4_scaling_beta": metadata.number(&temperature)?,
                // Its ends of the ramp are no whole pairs.
                "truncate": architecture.name != "gpt-oss",
            }))
        }
        Some(other) => Err(metadata.error(
            &key("scaling.type"),
            format!("`{other}` is not supported; supported are none, linear, yarn"),
        )),
    }
}

/// The settings of Llama 3 from which the factors in `tensor` were computed.
fn llama3(
    metadata: &Metadata<'_>,
    (width, base, given): (u64, f64, &Value),
    tensor: &Described<'_>,
) -> Result<Option<Value>, LoadError> {
    let width = usize::try_from(width).unwrap_or(0);
    let fail = |reason: &str| LoadError::Tensor {
        file: metadata.file.to_path_buf(),
        tensor: tensor.name.into(),
        reason: reason.into(),
    };
    let factors = tensor
        .floats()
        .filter(|factors| factors.len() == width / 2)
        .ok_or_else(|| fail("must be F32 with one factor for each two elements of a head"))?;
    let (low, high, original) = LLAMA3;
    let factor = factors.iter().copied().fold(1.0, f64::max);
    if !factor.is_finite() {
        return Err(fail("has a factor that is not a number"));
    }
    if factor == 1.0 {
        return Ok(None);
    }
    let scaling = RopeScaling::Llama3 {
        factor,
        low,
        high,
        original,
    };
    let plain = rope::frequencies(width, base, &RopeScaling::None);
    let scaled = rope::frequencies(width, base, &scaling);
    let same = plain
        .iter()
        .zip(&scaled)
        .zip(&factors)
        .all(|((plain, scaled), factor)| (plain / scaled / factor - 1.0).abs() < 1e-4);
    match same && given.is_null() {
        true => Ok(Some(json!({
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": low,
            "high_freq_factor": high,
            "original_max_position_embeddings": original,
        }))),
        false => Err(fail(
            "holds frequency factors other than those of Llama 3, which are not supported",
        )),
    }
}
