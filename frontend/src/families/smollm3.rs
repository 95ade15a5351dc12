//! SmolLM3: a Llama in which every fourth layer knows no positions.

use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::Decoder;

pub(super) const FAMILY: Family = Family {
    model_types: &["smollm3"],
    title: "SmolLM3",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = Parts::read(
        reader,
        Defaults {
            base: 2_000_000.0,
            ..Defaults::default()
        },
    )?;
    let turning = turning(reader)?;
    let slides =
        reader.flag_or("use_sliding_window", false)? || reader.fields.get("layer_types").is_some();
    let windows = reader.windows(|index| !turns(&turning, index))?;
    parts.decoder(|index, module| {
        let mut attention = parts.attention(module);
        if !turns(&turning, index) {
            attention.rope = None;
        }
        attention.window = windows.get(index).copied().flatten().filter(|_| slides);
        Ok(parts.pre_norm(module, attention, parts.gated(module)))
    })
}

fn turns(turning: &[usize], index: usize) -> bool {
    turning.get(index).is_none_or(|&turns| turns != 0)
}

/// For each layer 1 where it has rotary embedding: `no_rope_layers`, which says the opposite of its
/// name, else all but every `no_rope_layer_interval`-th.
fn turning(reader: &Reader<'_>) -> Result<Vec<usize>, LoadError> {
    let (name, layers) = ("no_rope_layers", reader.config.layers);
    match reader.sizes(name, 0..=1)? {
        Some(turning) if turning.len() == layers => Ok(turning),
        Some(turning) => {
            let reason = format!("has {} numbers for {layers} layers", turning.len());
            Err(reader.fields.error(name, reason))
        }
        None => {
            let interval = reader.width_or(&["no_rope_layer_interval"], 4)?;
            let turns = |index: usize| usize::from(!(index + 1).is_multiple_of(interval));
            Ok((0..layers).map(turns).collect())
        }
    }
}
