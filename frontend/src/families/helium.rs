//! Helium: a Llama with rotary embedding of neighbouring pairs.

use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::Decoder;

pub(super) const FAMILY: Family = Family {
    model_types: &["helium"],
    title: "Helium",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = Parts::read(
        reader,
        Defaults {
            epsilon: 1e-8,
            base: 100_000.0,
            ..Defaults::default()
        },
    )?;
    let parts = Parts {
        rope: parts.rope.clone().interleaved(),
        output_bias: false,
        ..parts
    };
    parts.decoder(|_, module| {
        Ok(parts.pre_norm(module, parts.attention(module), parts.gated(module)))
    })
}
