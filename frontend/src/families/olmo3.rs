//! OLMo 3: an OLMo 2 with sliding windows, in which settings of rotary embedding may differ by kind
//! of layer.

use super::olmo2::{attention, parts, post_norm};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, Rope};
use crate::decoder::Decoder;

pub(super) const FAMILY: Family = Family {
    model_types: &["olmo3"],
    title: "OLMo 3",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = parts(reader, BASE)?;
    let sliding = reader.sliding(|index| !(index + 1).is_multiple_of(4))?;
    let window = reader.window()?;
    // In the older spelling, what stretches frequencies is of the other layers.
    let local = match reader.fields.object("rope_parameters")? {
        Some(_) => Rope::of_kind(reader, parts.sizes[2], "sliding_attention", BASE)?,
        None => Rope::plain(parts.sizes[2], parts.rope.base),
    };
    parts.decoder(|index, module| {
        let mut attention = attention(&parts, module);
        if sliding.get(index).is_some_and(|&slides| slides) {
            attention.window = window;
            attention.rope = Some(local.clone());
        }
        Ok(post_norm(&parts, module, attention))
    })
}

/// Of rotary embedding, where the configuration names none.
const BASE: f64 = 500_000.0;
