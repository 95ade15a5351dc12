//! Arcee AFM: a Llama with a squared ReLU between two layers.

use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::Decoder;
use mlxcel_ir::Activation;

pub(super) const FAMILY: Family = Family {
    model_types: &["arcee"],
    title: "Arcee",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = Parts::read(
        reader,
        Defaults {
            epsilon: 1e-5,
            activation: Activation::Relu2,
            ..Defaults::default()
        },
    )?;
    parts.decoder(|_, module| {
        let mlp = parts.plain(module, ["up_proj", "down_proj"]);
        Ok(parts.pre_norm(module, parts.attention(module), mlp))
    })
}
