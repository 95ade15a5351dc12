//! Qwen2 and Qwen2.5, dense: a Llama with biases on queries, keys and values only.

use super::parts::{Defaults, Parts};
use super::qwen3::windows;
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::Decoder;

pub(super) const FAMILY: Family = Family {
    model_types: &["qwen2"],
    title: "Qwen2",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = Parts {
        bias: true,
        output_bias: false,
        mlp_bias: false,
        ..Parts::read(reader, Defaults::default())?
    };
    let windows = windows(reader)?;
    parts.decoder(|index, module| {
        let mut attention = parts.attention(module);
        attention.window = windows.get(index).copied().flatten();
        Ok(parts.pre_norm(module, attention, parts.gated(module)))
    })
}
