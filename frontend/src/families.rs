//! The model families: one small file each, which says how it differs from the common decoder.

mod decoder;
mod llama;
mod qwen3;

pub(crate) use decoder::{Decoder, build};

use crate::LoadError;
use crate::config::fields::Fields;
pub(crate) use crate::weights::names::Names;
use serde_json::Value;
use std::path::Path;

/// A family of models.
#[derive(Debug)]
pub(crate) struct Family {
    /// The value of `model_type` in config.json.
    pub(crate) model_type: &'static str,
    /// The value of `general.architecture` in a GGUF file.
    pub(crate) gguf: &'static str,
    /// Whether such a file holds the rows of queries and keys paired for rotary embedding.
    pub(crate) gguf_paired: bool,
    /// How its tensors are named.
    pub(crate) names: Names,
    /// Its decoder.
    pub(crate) decoder: Decoder,
}

/// Every family, in alphabetical order.
pub(crate) const FAMILIES: &[Family] = &[llama::FAMILY, qwen3::FAMILY];

/// The family whose `model_type` is `name`.
pub(crate) fn find(name: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.model_type == name)
}

/// The `model_type` of every supported family.
pub fn supported() -> Vec<String> {
    FAMILIES
        .iter()
        .map(|family| family.model_type.to_string())
        .collect()
}

/// The family that the configuration `value` of `file` asks for.
///
/// # Errors
/// The field is missing, or the family is not supported.
pub(crate) fn choose(file: &Path, value: &Value) -> Result<&'static Family, LoadError> {
    let fields = Fields::root(file, value)?;
    let field = "model_type";
    let found = fields.text(field)?.ok_or_else(|| fields.missing(field))?;
    find(found).ok_or_else(|| LoadError::Family {
        file: fields.file().to_path_buf(),
        field: field.into(),
        found: found.into(),
        supported: supported(),
    })
}
