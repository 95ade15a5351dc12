//! EXAONE 4: norms of heads and at the ends of branches; where some layers have a window, the others know no positions.

use super::olmo2::post_norm;
use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::Decoder;

pub(super) const FAMILY: Family = Family {
    model_types: &["exaone4"],
    title: "EXAONE 4",
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
        mlp_bias: false,
        ..parts
    };
    let windows = windows(reader)?;
    let mixed = reader.window()?.is_some();
    parts.decoder(|index, module| {
        let [query, key] = parts.head_norms(module, ["q_norm", "k_norm"]);
        let mut attention = parts.attention(module).with_head_norms(query, key);
        attention.window = windows.get(index).copied().flatten();
        if mixed && attention.window.is_none() {
            attention.rope = None;
        }
        Ok(post_norm(&parts, module, attention))
    })
}

/// The windows of layers: as `layer_types` says, else by `sliding_window_pattern`, a period or a word
/// of `L` (window) and `G` (none) that repeats, after which the last layer has none.
pub(super) fn windows(reader: &Reader<'_>) -> Result<Vec<Option<usize>>, LoadError> {
    let name = "sliding_window_pattern";
    let last = reader.config.layers - 1;
    match reader.fields.get(name).and_then(|pattern| pattern.as_str()) {
        Some(pattern) => {
            let kinds: Vec<bool> = pattern.bytes().map(|kind| kind == b'L').collect();
            reader.windows(|index| {
                index != last && kinds.get(index % kinds.len().max(1)) == Some(&true)
            })
        }
        None => {
            let period = reader.count_or(name, 4)?;
            reader.windows(|index| period != 0 && !(index + 1).is_multiple_of(period))
        }
    }
}
