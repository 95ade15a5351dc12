//! The manifest and the digests of an artifact, before anything trusts them.

use crate::Error;
use memmap2::Mmap;
use mlxcel_frontend::artifact::{FORMAT, MANIFEST, Manifest, Part};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::path::{Component, Path};

/// The longest manifest that is read: hundreds of times what the largest model needs.
const MANIFEST_LIMIT: u64 = 16 << 20;

/// The most functions, buffers or parts that a manifest may list.
const LIST_LIMIT: usize = 100_000;

/// Reads the manifest of the artifact in `folder` and checks every field that can be checked without
/// the other files.
pub(crate) fn read_manifest(folder: &Path) -> Result<Manifest, Error> {
    let path = folder.join(MANIFEST);
    let error = |problem: String| Error::Artifact {
        path: path.clone(),
        problem,
    };
    let size = fs::metadata(&path)
        .map_err(|cause| error(format!("{cause}; `mlxcel compile` makes an artifact")))?
        .len();
    if size > MANIFEST_LIMIT {
        return Err(error(format!("{size} bytes are too many for a manifest")));
    }
    let text = fs::read_to_string(&path).map_err(|cause| error(cause.to_string()))?;
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|cause| error(cause.to_string()))?;
    match value["format"].as_u64() {
        Some(format) if format == u64::from(FORMAT) => {}
        Some(format) => {
            return Err(error(format!(
                "format is {format}, and this build reads {FORMAT}: compile the model again, or \
                 use the mlxcel that made it"
            )));
        }
        None => return Err(error("format: a number is missing".to_string())),
    }
    let manifest = serde_json::from_str(&text).map_err(|cause| error(cause.to_string()))?;
    check_fields(&manifest).map_err(error)?;
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

/// Maps a part and checks its size and digest. The bytes that were checked are the bytes returned.
pub(crate) fn open_part(folder: &Path, name: &str, part: &Part) -> Result<Mmap, Error> {
    let path = folder.join(name);
    let error = |problem: String| Error::Artifact {
        path: path.clone(),
        problem,
    };
    let file = File::open(&path).map_err(|cause| error(cause.to_string()))?;
    let size = file
        .metadata()
        .map_err(|cause| error(cause.to_string()))?
        .len();
    if size != part.bytes {
        return Err(error(format!(
            "it has {size} bytes, and the manifest says {}: copy the artifact again or compile \
             the model again",
            part.bytes
        )));
    }
    // SAFETY: the map is only read. A file that another process changes meanwhile is ruled out by
    // the contract of `Artifact::open`.
    let map = unsafe { Mmap::map(&file) }.map_err(|cause| error(cause.to_string()))?;
    let digest: String = Sha256::digest(&map)
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
    Ok(map)
}
