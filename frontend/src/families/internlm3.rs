//! InternLM 3: a Llama with one switch for the biases of queries, keys and values and one for the others.

use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::Decoder;

pub(super) const FAMILY: Family = Family {
    model_types: &["internlm3"],
    title: "InternLM3",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = Parts::read(
        reader,
        Defaults {
            epsilon: 1e-5,
            ..Defaults::default()
        },
    )?;
    // The names it was published with; later ones are those of a Llama.
    let bias = reader.flag_or("bias", parts.mlp_bias)?;
    let parts = Parts {
        bias: reader.flag_or("qkv_bias", parts.bias)?,
        output_bias: bias,
        mlp_bias: bias,
        ..parts
    };
    parts.decoder(|_, module| {
        Ok(parts.pre_norm(module, parts.attention(module), parts.gated(module)))
    })
}
