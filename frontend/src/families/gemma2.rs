//! Gemma 2: norms on both sides of each part, bounded scores and logits, windows in every other layer.

use super::gemma::{attention, base, sandwich};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, Rope};
use crate::decoder::Decoder;

pub(super) const FAMILY: Family = Family {
    model_types: &["gemma2"],
    title: "Gemma 2",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let sizes = reader.heads()?;
    let rope = Rope::read(reader, sizes[2])?;
    let windows = reader.windows(|layer| layer.is_multiple_of(2))?;
    base(reader, rope.context, |index, module| {
        let mut attention = attention(reader, module, sizes, rope.clone())?;
        attention.window = windows[index];
        sandwich(reader, module, attention)
    })
}
