//! Ministral 3: a Llama whose queries grow with the position beyond the length of the training.

use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, limit};
use crate::decoder::Decoder;

pub(super) const FAMILY: Family = Family {
    model_types: &["ministral3"],
    title: "Ministral 3",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = Parts::read(
        reader,
        Defaults {
            epsilon: 1e-5,
            base: 1_000_000.0,
            ..Defaults::default()
        },
    )?;
    let parts = Parts {
        bias: false,
        output_bias: false,
        mlp_bias: false,
        ..parts
    };
    let (window, growth) = (reader.window()?, growth(reader)?);
    parts.decoder(|_, module| {
        let mut attention = parts.attention(module);
        attention.window = window;
        attention.growth = growth;
        attention.growth_from = 0;
        Ok(parts.pre_norm(module, attention, parts.gated(module)))
    })
}

/// By how much queries grow, and after how many positions each time.
fn growth(reader: &Reader<'_>) -> Result<Option<[f64; 2]>, LoadError> {
    let settings = match reader.fields.object("rope_parameters")? {
        Some(new) => Some(new),
        None => reader.fields.object("rope_scaling")?,
    };
    let Some(settings) = settings else {
        return Ok(None);
    };
    let Some(rate) = settings.number("llama_4_scaling_beta")? else {
        return Ok(None);
    };
    let name = "original_max_position_embeddings";
    let length = settings.required(name, 1..=limit::CONTEXT)?;
    Ok(Some([rate, length as f64]))
}
