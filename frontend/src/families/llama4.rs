//! Llama 4, text: chunks in the layers that turn, longer reach in the others, experts on weighed input.

use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, limit};
use crate::decoder::{
    Decoder, Experts, Gated, HeadNorm, Inner, Linear, Norm, Router, Scores, Stack,
};

pub(super) const FAMILY: Family = Family {
    model_types: &["llama4_text", "llama4"],
    title: "Llama 4",
    category: Category::Experts,
    names: Names {
        transposed: &["experts.gate_up_proj", "experts.down_proj"],
        ..Names::MODEL
    },
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let mut parts = Parts::read(
        reader,
        Defaults {
            epsilon: 1e-5,
            base: 500_000.0,
            ..Defaults::default()
        },
    )?;
    parts.rope = parts.rope.interleaved();
    let (width, epsilon, activation) = (parts.sizes[2], parts.epsilon, parts.activation);
    let turning = turning(reader)?;
    let chunk = reader
        .fields
        .size("attention_chunk_size", 1..=limit::CONTEXT)?;
    let kinds = reader.kinds("layer_types")?;
    let growth = [
        reader.number_or("attn_scale", 0.1)?,
        reader.positive_or(&["floor_scale"], 8192.0)?,
    ];
    let grows = reader.flag_or("attn_temperature_tuning", true)?;
    let normed = reader.flag_or("use_qk_norm", true)?;
    let step = reader.width_or(&["interleave_moe_layer_step"], 1)?;
    let sparse = reader.sizes("moe_layers", 0..=limit::LAYERS)?;
    let dense = reader.width_or(&["intermediate_size_mlp"], parts.inner)?;
    parts.decoder(|index, module| {
        let mut attention = parts.attention(module);
        let chunked = match &kinds {
            Some(kinds) => kinds[index] == "chunked_attention",
            None => turning[index],
        };
        attention.chunk = chunk.filter(|_| chunked);
        match turning[index] {
            true if normed => {
                let norm = HeadNorm::Each(Norm::rms("", width, epsilon).plain());
                attention.norm_after_rope = true;
                attention.query_norm = Some(norm.clone());
                attention.key_norm = Some(norm);
            }
            true => {}
            false => {
                attention.rope = None;
                attention.growth = grows.then_some(growth);
            }
        }
        let within = format!("{module}.feed_forward");
        let sparse = match &sparse {
            Some(layers) => layers.contains(&index),
            None => (index + 1).is_multiple_of(step),
        };
        if !sparse {
            let mlp = Gated::new(&within, [parts.hidden, dense], false, activation);
            return Ok(parts.pre_norm(module, attention, mlp));
        }
        Ok(parts.pre_norm(module, attention, experts(&parts, &within)?))
    })
}

/// Which layers turn queries and keys: those with a 1 in `no_rope_layers`, else all but every fourth.
fn turning(reader: &Reader<'_>) -> Result<Vec<bool>, LoadError> {
    let period = reader.width_or(&["no_rope_layer_interval"], 4)?;
    let listed = reader.sizes("no_rope_layers", 0..=1)?;
    let layers = reader.config.layers;
    match listed.filter(|listed| !listed.is_empty()) {
        None => Ok((0..layers)
            .map(|layer| !(layer + 1).is_multiple_of(period))
            .collect()),
        Some(listed) if listed.len() == layers => {
            Ok(listed.into_iter().map(|turns| turns == 1).collect())
        }
        Some(listed) => {
            let reason = format!("must have {layers} elements, has {}", listed.len());
            Err(reader.fields.error("no_rope_layers", reason))
        }
    }
}

fn experts(parts: &Parts<'_>, module: &str) -> Result<Experts, LoadError> {
    let reader = parts.reader;
    let (hidden, inner) = (parts.hidden, parts.inner);
    let [count, chosen] = reader.experts()?;
    let gate = Linear::new(format!("{module}.router"), hidden, count, false);
    let router = Router::new(gate, chosen, Scores::SigmoidChosen);
    let sizes = [hidden, inner];
    let mut experts = Experts::new(reader.weights, module, router, sizes, parts.activation);
    let joined = format!("{module}.experts.gate_up_proj");
    if reader.weights.has(&joined) {
        experts.inner = Inner::Joined(Stack::new(joined, count, hidden, 2 * inner));
        experts.down = Stack::new(format!("{module}.experts.down_proj"), count, inner, hidden);
    }
    experts.weigh_input = true;
    let shared = format!("{module}.shared_expert");
    Ok(experts.with_shared(Gated::new(&shared, sizes, false, parts.activation), None))
}
