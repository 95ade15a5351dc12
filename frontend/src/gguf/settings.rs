//! Metadata as a configuration.

use super::Metadata;
use super::names::ROPE_FACTORS;
use super::tensors::Described;
use crate::LoadError;
use crate::families::Family;
use mlxcel_ir::{RopeScaling, rope};
use serde_json::{Map, Value, json};

/// The settings of Llama 3's frequencies that no published model departs from; the divisor is the
/// largest of the file's factors.
const LLAMA3: (f64, f64, f64) = (1.0, 4.0, 8192.0);

/// The configuration of a file of `family` with the tensors `described`, and its query heads,
/// key-value heads and width of a head.
///
/// The metadata is put into the words of `config.json`, so that the same bounds hold for both.
pub(super) fn fields(
    metadata: &Metadata<'_>,
    family: &Family,
    described: &[Described<'_>],
) -> Result<(Value, [usize; 3]), LoadError> {
    let key = |name: &str| format!("{}.{name}", family.gguf);
    let required = |name: &str| metadata.required(&key(name), metadata.size(&key(name))?);
    refuse_variants(metadata, family)?;
    let hidden = required("embedding_length")?;
    let heads = required("attention.head_count")?;
    let kv_heads = metadata.size(&key("attention.head_count_kv"))?;
    let width = match metadata.size(&key("attention.key_length"))? {
        Some(width) => width,
        None => hidden.checked_div(heads).unwrap_or(0),
    };
    for name in ["attention.value_length", "rope.dimension_count"] {
        if let Some(other) = metadata.size(&key(name))?.filter(|&other| other != width) {
            let reason = format!("only the width of a head, {width}, is supported, is {other}");
            return Err(metadata.error(&key(name), reason));
        }
    }
    let rows = described
        .iter()
        .find(|tensor| tensor.checkpoint_name == "model.embed_tokens.weight")
        .and_then(|tensor| tensor.shape.first().copied());
    let has = |part: &str| {
        let suffix = format!(".{part}.bias");
        described
            .iter()
            .any(|tensor| tensor.checkpoint_name.ends_with(&suffix))
    };
    let epsilon = key("attention.layer_norm_rms_epsilon");
    let mut fields = Map::new();
    for (name, value) in [
        ("model_type", json!(family.name())),
        ("hidden_size", json!(hidden)),
        ("intermediate_size", json!(required("feed_forward_length")?)),
        ("num_hidden_layers", json!(required("block_count")?)),
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
            json!(metadata.required(&epsilon, metadata.number(&epsilon)?)?),
        ),
        ("attention_bias", json!(has("q_proj"))),
        ("mlp_bias", json!(has("gate_proj"))),
        (
            "rope_theta",
            json!(metadata.number(&key("rope.freq_base"))?),
        ),
        ("rope_scaling", scaling(metadata, family)?),
        (
            "eos_token_id",
            json!(metadata.size("tokenizer.ggml.eos_token_id")?),
        ),
    ] {
        fields.insert(name.into(), value);
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
fn refuse_variants(metadata: &Metadata<'_>, family: &Family) -> Result<(), LoadError> {
    let fields = [
        (
            format!("{}.expert_count", family.gguf),
            0,
            "mixtures of experts are not supported",
        ),
        (
            format!("{}.attention.sliding_window", family.gguf),
            0,
            "sliding windows are not supported in GGUF files of this family",
        ),
        (
            "split.count".to_string(),
            1,
            "files in several parts are not supported; join them with llama-gguf-split --merge",
        ),
    ];
    for (field, allowed, reason) in fields {
        if metadata.size(&field)?.is_some_and(|count| count > allowed) {
            return Err(metadata.error(&field, reason));
        }
    }
    Ok(())
}

/// `rope_scaling` from the metadata.
fn scaling(metadata: &Metadata<'_>, family: &Family) -> Result<Value, LoadError> {
    let key = |name: &str| format!("{}.rope.{name}", family.gguf);
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
        Some(other) => Err(metadata.error(
            &key("scaling.type"),
            format!("`{other}` is not supported; supported are none, linear"),
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
