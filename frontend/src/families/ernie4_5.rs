//! ERNIE 4.5, dense: a Llama with rotary embedding of neighbouring pairs and one switch for all biases.

use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::Decoder;

pub(super) const FAMILY: Family = Family {
    model_types: &["ernie4_5"],
    title: "ERNIE 4.5",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = parts(reader)?;
    parts.decoder(|_, module| {
        Ok(parts.pre_norm(module, parts.attention(module), parts.gated(module)))
    })
}

/// What the dense models and those with experts share.
pub(super) fn parts<'a>(reader: &'a Reader<'a>) -> Result<Parts<'a>, LoadError> {
    let parts = Parts::read(
        reader,
        Defaults {
            epsilon: 1e-5,
            base: 500_000.0,
            ..Defaults::default()
        },
    )?;
    let bias = reader.flag_or("use_bias", false)?;
    Ok(Parts {
        rope: parts.rope.clone().interleaved(),
        bias,
        output_bias: bias,
        mlp_bias: bias,
        ..parts
    })
}
