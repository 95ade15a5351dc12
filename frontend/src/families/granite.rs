//! Granite 3, dense: a Llama with factors of the embedding, the scores, the branches and the logits.

use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::{Decoder, Layer};

pub(super) const FAMILY: Family = Family {
    model_types: &["granite"],
    title: "Granite",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = Parts::read(reader, Defaults::default())?;
    let scale = reader.number_or("attention_multiplier", 1.0)?;
    let decoder = parts.decoder(|_, module| {
        let mut attention = parts.attention(module);
        attention.scale = scale;
        Ok(parts.pre_norm(module, attention, parts.gated(module)))
    })?;
    scaled(reader, decoder)
}

/// `decoder` with the factors of Granite's embedding, branches and logits.
pub(super) fn scaled(reader: &Reader<'_>, mut decoder: Decoder) -> Result<Decoder, LoadError> {
    let residual = reader.number_or("residual_multiplier", 1.0)?;
    let steps = decoder.layers.iter_mut().flat_map(|Layer { steps }| steps);
    steps.for_each(|step| step.scale = residual);
    decoder.embedding.scale = reader.number_or("embedding_multiplier", 1.0)?;
    decoder.head.scale = 1.0 / reader.positive_or(&["logits_scaling"], 1.0)?;
    Ok(decoder)
}
