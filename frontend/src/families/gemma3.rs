//! Gemma 3, its language model: Gemma 2 with norms of heads, and two bases of rotary embedding, one
//! for layers with a window and one for those without.

use super::gemma::{attention, base, sandwich};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, Rope};
use crate::decoder::{Decoder, Norm};

pub(super) const FAMILY: Family = Family {
    model_types: &["gemma3_text", "gemma3"],
    title: "Gemma 3",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    if reader.flag_or("use_bidirectional_attention", false)? {
        let reason = "is set: such a model gives no text".to_string();
        return Err(reader.fields.error("use_bidirectional_attention", reason));
    }
    let sizes = reader.heads()?;
    let [global, local] = ropes(reader, sizes[2])?;
    let names = ["sliding_window_pattern", "_sliding_window_pattern"];
    let every = reader.width_or(&names, 6)?;
    let windows = reader.windows(|layer| !(layer + 1).is_multiple_of(every))?;
    base(reader, global.context, |index, module| {
        let rope = if windows[index].is_some() {
            &local
        } else {
            &global
        };
        let within = |name: &str| format!("{module}.self_attn.{name}");
        let epsilon = reader.epsilon()?;
        let norm = |name| Norm::rms(within(name), sizes[2], epsilon).about_one();
        let mut attention = attention(reader, module, sizes, rope.clone())?
            .with_head_norms(norm("q_norm"), norm("k_norm"));
        attention.window = windows[index];
        // The field exists and means nothing.
        attention.softcap = None;
        sandwich(reader, module, attention)
    })
}

/// Rotary embedding of layers without a window and of those with one, which is never stretched: in
/// the older spelling only its base has a name.
fn ropes(reader: &Reader<'_>, width: usize) -> Result<[Rope; 2], LoadError> {
    let global = Rope::of_kind(reader, width, "full_attention", 1e6)?;
    let local = match reader.fields.object("rope_parameters")? {
        Some(_) => Rope::of_kind(reader, width, "sliding_attention", 1e4)?,
        None => Rope::plain(width, reader.positive_or(&["rope_local_base_freq"], 1e4)?),
    };
    Ok([global, local])
}
