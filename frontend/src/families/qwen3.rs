//! Qwen3, dense: a Llama with a norm on each head of queries and keys.

use super::llama::{common, pre_norm};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, Rope};
use crate::decoder::{Attention, Decoder, Gated, Linear, Norm, Projections};
use mlxcel_ir::Activation;

pub(super) const FAMILY: Family = Family {
    model_types: &["qwen3"],
    title: "Qwen3",
    category: Category::Dense,
    gguf: "qwen3",
    gguf_paired: false,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let bias = reader.flag_or("attention_bias", false)?;
    let sizes = reader.heads()?;
    let [heads, _, width] = sizes;
    let rope = Rope::read(reader, width)?;
    let windows = windows(reader)?;
    let context = rope.context;
    common(reader, context, |index, module| {
        let (hidden, epsilon) = (reader.config.hidden, reader.epsilon()?);
        let within = |name: &str| format!("{module}.self_attn.{name}");
        let projections = Projections::new(&format!("{module}.self_attn"), hidden, sizes, bias);
        let output = Linear::new(within("o_proj"), heads * width, hidden, bias);
        let norm = |name| Norm::rms(within(name), width, epsilon);
        let mut attention = Attention::new(sizes, projections, output, Some(rope.clone()))
            .with_head_norms(norm("q_norm"), norm("k_norm"));
        attention.window = windows[index];
        let inner = reader.width("intermediate_size")?;
        let activation = reader.activation(Activation::Silu)?;
        let mlp = Gated::new(&format!("{module}.mlp"), [hidden, inner], false, activation);
        pre_norm(reader, module, attention, mlp)
    })
}

/// The windows of layers, where the configuration switches them on.
///
/// `sliding_window` alone means nothing: Qwen publishes it with `use_sliding_window: false`, and the
/// layers that use it are named by `layer_types` (transformers 5) or `max_window_layers` (before).
pub(super) fn windows(reader: &Reader<'_>) -> Result<Vec<Option<usize>>, LoadError> {
    if !reader.flag_or("use_sliding_window", false)? {
        return Ok(vec![None; reader.config.layers]);
    }
    let first = reader.count_or("max_window_layers", usize::MAX)?;
    reader.windows(|layer| layer >= first)
}
