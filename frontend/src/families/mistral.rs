//! Mistral: a Llama whose layers all have a sliding window where the configuration gives one.

use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::Decoder;

pub(super) const FAMILY: Family = Family {
    model_types: &["mistral"],
    title: "Mistral",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = Parts::read(reader, Defaults::default())?;
    // `layer_types` means nothing here, as in every other implementation of this `model_type`.
    let window = reader.window()?;
    parts.decoder(|_, module| {
        let mut attention = parts.attention(module);
        attention.window = window;
        Ok(parts.pre_norm(module, attention, parts.gated(module)))
    })
}
