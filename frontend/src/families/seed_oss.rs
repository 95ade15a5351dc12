//! Seed-OSS: a Llama with biases on queries, keys and values, and switches for the others.

use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::Decoder;

pub(super) const FAMILY: Family = Family {
    model_types: &["seed_oss"],
    title: "Seed-OSS",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = Parts::read(
        reader,
        Defaults {
            bias: true,
            ..Defaults::default()
        },
    )?;
    let parts = Parts {
        output_bias: reader.flag_or("attention_out_bias", false)?,
        ..parts
    };
    parts.decoder(|_, module| {
        Ok(parts.pre_norm(module, parts.attention(module), parts.gated(module)))
    })
}
