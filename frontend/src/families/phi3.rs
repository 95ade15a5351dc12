//! Phi-3 and Phi-4, dense: queries, keys and values are one layer, gate and up another.

use super::glm::gated;
use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::{Decoder, Linear, Projections};

pub(super) const FAMILY: Family = Family {
    model_types: &["phi3"],
    title: "Phi-3",
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
    let parts = Parts {
        bias: false,
        output_bias: false,
        ..parts
    };
    let [heads, kv_heads, width] = parts.sizes;
    let rows = (heads + 2 * kv_heads) * width;
    let window = reader.window()?;
    parts.decoder(|_, module| {
        let all = format!("{module}.self_attn.qkv_proj");
        let all = Linear::new(all, parts.hidden, rows, false);
        let mut attention = parts.attention(module);
        attention.projections = Projections::fused(&all, parts.sizes);
        attention.window = window;
        Ok(parts.pre_norm(module, attention, gated(&parts, module)))
    })
}
