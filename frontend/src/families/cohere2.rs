//! Command R7B: a Command R in which layers with a sliding window alternate with layers that see all
//! and know no positions.

use super::cohere::{finished, parallel, parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::Decoder;

pub(super) const FAMILY: Family = Family {
    model_types: &["cohere2"],
    title: "Command R7B",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = parts(reader, 10_000.0)?;
    let period = reader.width_or(&["sliding_window_pattern"], 4)?;
    let windows = reader.windows(|index| !(index + 1).is_multiple_of(period))?;
    let decoder = parts.decoder(|index, module| {
        let mut attention = parts.attention(module);
        attention.window = windows.get(index).copied().flatten();
        if attention.window.is_none() {
            attention.rope = None;
        }
        Ok(parallel(&parts, module, attention))
    })?;
    finished(&parts, decoder)
}
