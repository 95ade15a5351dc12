//! Qwen3, dense: a Llama with a norm on each head of queries and keys.

use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::Decoder;

pub(super) const FAMILY: Family = Family {
    model_types: &["qwen3"],
    title: "Qwen3",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = Parts {
        mlp_bias: false,
        ..Parts::read(reader, Defaults::default())?
    };
    let windows = windows(reader)?;
    parts.decoder(|index, module| {
        let [query, key] = parts.head_norms(module, ["q_norm", "k_norm"]);
        let mut attention = parts.attention(module).with_head_norms(query, key);
        attention.window = windows.get(index).copied().flatten();
        Ok(parts.pre_norm(module, attention, parts.gated(module)))
    })
}

/// The windows of layers, where the configuration switches them on.
///
/// `sliding_window` alone means nothing: Qwen publishes it with `use_sliding_window: false`, and the
/// layers that use it are named by `layer_types` (transformers 5) or `max_window_layers` (before).
pub(super) fn windows(reader: &Reader<'_>) -> Result<Vec<Option<usize>>, LoadError> {
    windows_where(reader, |layer, most| layer >= most)
}

/// The same where `slides` tells, of a layer and `max_window_layers`, what `layer_types` does not.
pub(super) fn windows_where(
    reader: &Reader<'_>,
    slides: impl Fn(usize, usize) -> bool,
) -> Result<Vec<Option<usize>>, LoadError> {
    if !reader.flag_or("use_sliding_window", false)? {
        return Ok(vec![None; reader.config.layers]);
    }
    let most = reader.count_or("max_window_layers", usize::MAX)?;
    reader.windows(|layer| slides(layer, most))
}
