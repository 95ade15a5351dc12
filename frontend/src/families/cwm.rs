//! Code World Model: a Llama in which three of four layers have a sliding window.

use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::Decoder;

pub(super) const FAMILY: Family = Family {
    model_types: &["cwm"],
    title: "CWM",
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
        ..parts
    };
    let windows = reader.windows(|index| !index.is_multiple_of(4))?;
    parts.decoder(|index, module| {
        let mut attention = parts.attention(module);
        attention.window = windows.get(index).copied().flatten();
        Ok(parts.pre_norm(module, attention, parts.gated(module)))
    })
}
