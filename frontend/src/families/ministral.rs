//! Ministral: a Mistral in which `layer_types` says which layers have the window.

use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::Decoder;

pub(super) const FAMILY: Family = Family {
    model_types: &["ministral"],
    title: "Ministral",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = Parts::read(reader, Defaults::default())?;
    let windows = reader.windows(|_| true)?;
    parts.decoder(|index, module| {
        let mut attention = parts.attention(module);
        attention.window = windows.get(index).copied().flatten();
        Ok(parts.pre_norm(module, attention, parts.gated(module)))
    })
}
