//! Metadata as a configuration.

use super::names::ROPE_FACTORS;
use super::tensors::Described;
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
    let kv_heads = metadata.size(&key("attention.head_count_kv"))?;
    let width = match metadata.size(&key("attention.key_length"))? {
        Some(width) => width,
        None => hidden.checked_div(heads).unwrap_or(0),
    };
    let name = key("attention.value_length");
    if let Some(other) = metadata.size(&name)?.filter(|&other| other != width) {
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
        .find(|tensor| tensor.checkpoint_name == "model.embed_tokens.weight")
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
    let layers = required("block_count")?;
    let experts = |name: &str| metadata.size(&key(&format!("expert_{name}")));
    let described_norm = described
        .iter()
        .any(|tensor| tensor.checkpoint_name.ends_with(".q_norm.weight"));
    let mut fields = Map::new();
    for (name, value) in [
        ("model_type", json!(family.name())),
        ("hidden_size", json!(hidden)),
        ("intermediate_size", json!(required("feed_forward_length")?)),
        ("num_hidden_layers", json!(layers)),
        ("num_attention_heads", json!(heads)),
        ("num_key_value_heads", json!(kv_heads.unwrap_or(heads))),
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
        (
            "partial_rotary_factor",
            json!(turning as f64 / width.max(1) as f64),
        ),
        ("attention_bias", json!(has(".q_proj"))),
        ("attention_out_bias", json!(has(".o_proj"))),
        ("use_bias", json!(has(".q_proj"))),
        ("mlp_bias", json!(has(".up_proj"))),
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
    for (name, field) in architecture.fields {
        if let Some(number) = metadata.number(&key(name))? {
            fields.insert((*field).into(), json!(number));
        }
    }
    if let Ok(Value::Object(implied)) = serde_json::from_str(architecture.implied) {
        fields.extend(implied);
    }
    // The largest of Gemma 2 and 3 divides scores by the root of what its width gives each head.
    if matches!((architecture.name, layers), ("gemma2", 46) | ("gemma3", 62)) {
        let share = hidden.checked_div(heads);
        fields.insert("query_pre_attn_scalar".into(), json!(share));
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
    let field = "split.count";
    if metadata.size(field)?.is_some_and(|count| count > 1) {
        let reason =
            "files in several parts are not supported; join them with llama-gguf-split --merge";
        return Err(metadata.error(field, reason));
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
            Ok(json!({
                "rope_type": "yarn",
                "factor": factor,
                "original_max_position_embeddings": original,
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
