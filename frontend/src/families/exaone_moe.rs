//! K-EXAONE: layers with a window turn, the others do not; experts chosen by sigmoids.

use super::deepseek::{dense_layers, experts, mlp, sigmoid_router};
use super::llama::{attention, common, pre_norm};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, Rope};
use crate::decoder::{Block, Decoder, Norm};

pub(super) const FAMILY: Family = Family {
    model_types: &["exaone_moe"],
    title: "K-EXAONE",
    category: Category::Experts,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let [_, _, width] = reader.heads()?;
    let epsilon = reader.positive_or(&["rms_norm_eps"], 1e-5)?;
    let rope = Rope::read(reader, width)?;
    let windows = windows(reader)?;
    let dense = dense_layers(reader, 1)?;
    common(reader, rope.context, |index, module| {
        let within = format!("{module}.self_attn");
        let norm = |name: &str| Norm::rms(format!("{within}.{name}"), width, epsilon);
        let turns = windows[index].is_some() || reader.window()?.is_none();
        let rope = turns.then(|| rope.clone());
        let mut attention = attention(reader, &within, rope, [false, false])?
            .with_head_norms(norm("q_norm"), norm("k_norm"));
        attention.window = windows[index];
        let within = format!("{module}.mlp");
        let feed_forward: Box<dyn Block> = match dense[index] {
            true => Box::new(mlp(reader, &within, reader.width("intermediate_size")?)?),
            false => {
                let mut router = sigmoid_router(reader, &within)?;
                router.correction = Some(format!("{within}.e_score_correction_bias"));
                Box::new(experts(reader, &within, router)?)
            }
        };
        pre_norm(reader, module, attention, feed_forward)
    })
}

/// The windows of layers: all but every fourth, or as a pattern such as `LLLG` says.
fn windows(reader: &Reader<'_>) -> Result<Vec<Option<usize>>, LoadError> {
    let name = "sliding_window_pattern";
    let pattern = reader.fields.get(name).and_then(|value| value.as_str());
    let period = match pattern {
        Some(_) => 1,
        None => reader.width_or(&[name], 4)?,
    };
    let last = reader.config.layers - 1;
    reader.windows(
        |layer| match pattern.filter(|pattern| !pattern.is_empty()) {
            Some(pattern) => layer != last && pattern.as_bytes()[layer % pattern.len()] == b'L',
            None => !(layer + 1).is_multiple_of(period),
        },
    )
}
