//! The manifest and the digests of an artifact, before anything trusts them.

use crate::Error;
use mlxcel_frontend::artifact::{
    Bytes, CONTRACT, FORMAT, Files, MANIFEST, Manifest, Part, WEIGHTS,
};
use sha2::{Digest, Sha256};
use std::path::{Component, Path};

/// The longest manifest that is read: hundreds of times what the largest model needs.
const MANIFEST_LIMIT: usize = 16 << 20;

/// The most functions, buffers or parts that a manifest may list.
const LIST_LIMIT: usize = 100_000;

/// Reads the manifest of an artifact and checks every field that can be checked without the other files.
pub(crate) fn read_manifest(files: &Files) -> Result<Manifest, Error> {
    let error = |problem: String| Error::Artifact {
        path: files.place(MANIFEST),
        problem,
    };
    let bytes = files
        .get(MANIFEST)
        .map_err(|cause| error(format!("{cause}; `mlxcel compile` makes an artifact")))?;
    if bytes.len() > MANIFEST_LIMIT {
        let size = bytes.len();
        return Err(error(format!("{size} bytes are too many for a manifest")));
    }
    let text = std::str::from_utf8(&bytes).map_err(|cause| error(cause.to_string()))?;
    parse_manifest(text).map_err(error)
}

fn parse_manifest(text: &str) -> Result<Manifest, String> {
    let value: serde_json::Value = serde_json::from_str(text).map_err(|cause| cause.to_string())?;
    match value["format"].as_u64() {
        Some(format) if format == u64::from(FORMAT) => {}
        Some(format) => {
            return Err(format!(
                "format is {format}, and this build reads {FORMAT}: compile the model again, or \
                 use the mlxcel that made it"
            ));
        }
        None => return Err("format: a number is missing".to_string()),
    }
    let mut fields = serde_json::Deserializer::from_str(text);
    let manifest = serde_path_to_error::deserialize(&mut fields)
        .map_err(|cause| format!("{}: {}", cause.path(), cause.inner()))?;
    check_fields(&manifest)?;
    Ok(manifest)
}

fn check_fields(manifest: &Manifest) -> Result<(), String> {
    let lists = [
        ("functions", manifest.functions.len()),
        ("buffers", manifest.buffers.len()),
        ("parts", manifest.parts.len()),
    ];
    if let Some((name, count)) = lists.iter().find(|(_, count)| *count > LIST_LIMIT) {
        return Err(format!("{name}: {count} entries are too many"));
    }
    // Positions and tokens are i32 in the compiled functions.
    let limit = i32::MAX as usize;
    for (name, value) in [
        ("context", manifest.context),
        ("vocabulary", manifest.vocabulary),
    ] {
        if value == 0 || value > limit {
            return Err(format!("{name} is {value}: expected 1 to {limit}"));
        }
    }
    if manifest.functions.is_empty() {
        return Err("functions: there are none".to_string());
    }
    for function in &manifest.functions {
        let name = &function.name;
        if function.batch == 0 || function.tokens == 0 || function.tokens > manifest.context {
            return Err(format!(
                "functions: `{name}` is for {} rows of {} tokens: expected at least 1 of 1 to {}",
                function.batch, function.tokens, manifest.context
            ));
        }
    }
    if manifest.reference.is_some() && manifest.parts.contains_key(WEIGHTS) {
        return Err(format!("reference: `{WEIGHTS}` is a part as well"));
    }
    if let Some(contract) = &manifest.contract {
        let budget = contract.budget;
        if !(budget > 0.0 && budget < 1.0) {
            return Err(format!(
                "contract: the budget {budget} is not between 0 and 1"
            ));
        }
        let count = contract.tokens.len();
        if count == 0 || count > manifest.context {
            return Err(format!(
                "contract: {count} tokens: expected 1 to {}",
                manifest.context
            ));
        }
        let vocabulary = manifest.vocabulary;
        if let Some(token) = contract
            .tokens
            .iter()
            .find(|&&token| token as usize >= vocabulary)
        {
            return Err(format!(
                "contract: token {token} is outside the vocabulary of {vocabulary}"
            ));
        }
        let bytes = (count as u64).saturating_mul(vocabulary as u64 * size_of::<f32>() as u64);
        if manifest.parts.get(CONTRACT).map(|part| part.bytes) != Some(bytes) {
            return Err(format!(
                "contract: parts: `{CONTRACT}` of {bytes} bytes is not listed"
            ));
        }
    }
    for name in manifest.parts.keys() {
        let plain = Path::new(name)
            .components()
            .all(|component| matches!(component, Component::Normal(_)));
        if name.is_empty() || name.contains('\\') || !plain {
            return Err(format!("parts: `{name}` is not a file inside the artifact"));
        }
    }
    Ok(())
}

/// Fails if the manifest is not as it was written, though it makes sense.
pub(crate) fn check_seal(manifest: &Manifest) -> Result<(), String> {
    let digest = manifest.digest();
    if manifest.seal == digest {
        return Ok(());
    }
    Err(format!(
        "its seal is {}, and its content has {digest}: it was damaged or edited; copy the artifact \
         again or compile the model again",
        manifest.seal
    ))
}

/// Maps a part and checks its size and digest. The bytes that were checked are the bytes returned.
pub(crate) fn open_part(files: &Files, name: &str, part: &Part) -> Result<Bytes, Error> {
    let error = |problem: String| Error::Artifact {
        path: files.place(name),
        problem,
    };
    let bytes = files.get(name).map_err(|cause| error(cause.to_string()))?;
    let size = bytes.len() as u64;
    if size != part.bytes {
        return Err(error(format!(
            "it has {size} bytes, and the manifest says {}: copy the artifact again or compile \
             the model again",
            part.bytes
        )));
    }
    let digest: String = Sha256::digest(&bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    if !digest.eq_ignore_ascii_case(&part.sha256) {
        return Err(error(format!(
            "its sha256 is {digest}, and the manifest says {}: the file was damaged or edited; \
             copy the artifact again or compile the model again",
            part.sha256
        )));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::{FORMAT, parse_manifest};
    use crate::layout::BufferLayout;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn valid() -> Value {
        json!({
            "format": FORMAT, "mlxcel": "0", "model": "m", "family": "f", "source": "",
            "target": "iree-cpu", "chip": "generic",
            "compiler": {"version": "", "flags": []},
            "context": 16, "vocabulary": 8,
            "functions": [{"name": "decode", "batch": 1, "tokens": 1, "outputs": ["token"]}],
            "buffers": [{"name": "c", "dtype": "f32", "shape": [1, 16, 2], "tokens_dim": 1}],
            "dispatches": 1,
            "kernels": 0,
            "transient_bytes": 0,
            "parts": {"module.vmfb": {"sha256": "", "bytes": 1}},
            "seal": "",
        })
    }

    #[test]
    fn accepts_a_valid_manifest() {
        let manifest = parse_manifest(&valid().to_string()).unwrap();
        assert_eq!(BufferLayout::all(&manifest).unwrap()[0].bytes(), 16 * 2 * 4);
    }

    /// Replaces the leaf that the path of `choices` leads to.
    fn replace(value: &mut Value, choices: &[usize], by: Value) {
        let Some((&choice, rest)) = choices.split_first() else {
            *value = by;
            return;
        };
        let child = match value {
            Value::Object(object) if !object.is_empty() => {
                let index = choice % object.len();
                object.values_mut().nth(index)
            }
            Value::Array(list) if !list.is_empty() => {
                let index = choice % list.len();
                list.get_mut(index)
            }
            _ => None,
        };
        match child {
            Some(child) => replace(child, rest, by),
            None => *value = by,
        }
    }

    fn leaf() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            any::<u64>().prop_map(|number| json!(number)),
            (0u64..20).prop_map(|number| json!(number)),
            any::<f64>().prop_map(|number| json!(number)),
            ".{0,8}".prop_map(|text| json!(text)),
            Just(json!([])),
            prop::collection::vec(any::<u64>(), 0..4).prop_map(|list| json!(list)),
            Just(json!({"..": {"sha256": "", "bytes": 0}})),
        ]
    }

    proptest! {
        #[test]
        fn what_is_accepted_is_within_bounds(
            edits in prop::collection::vec(
                (prop::collection::vec(0usize..16, 1..5), leaf()),
                1..4,
            ),
        ) {
            let mut value = valid();
            for (path, by) in edits {
                replace(&mut value, &path, by);
            }
            if let Ok(manifest) = parse_manifest(&value.to_string()) {
                let limit = i32::MAX as usize;
                prop_assert!((1..=limit).contains(&manifest.context));
                prop_assert!((1..=limit).contains(&manifest.vocabulary));
                for function in &manifest.functions {
                    prop_assert!(function.batch > 0);
                    prop_assert!((1..=manifest.context).contains(&function.tokens));
                }
                prop_assert!(manifest.parts.keys().all(|name| !name.contains("..")));
                for layout in BufferLayout::all(&manifest).into_iter().flatten() {
                    prop_assert_eq!(layout.used_bytes(manifest.context), layout.bytes());
                }
            }
        }

        #[test]
        fn no_text_panics(text in ".{0,60}") {
            let _ = parse_manifest(&text);
        }
    }
}
