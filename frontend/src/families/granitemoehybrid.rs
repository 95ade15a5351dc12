//! Granite 4: Mamba-2 in most layers, attention in some, experts beside a shared part in all.

use super::granite::scaled;
use super::granitemoe::{experts, shared};
use super::mamba::{Sizes, mixer};
use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, limit};
use crate::decoder::{Block, Branch, Decoder, Layer, Step};

pub(super) const FAMILY: Family = Family {
    model_types: &["granitemoehybrid"],
    title: "Granite 4",
    category: Category::Recurrent,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = Parts::read(reader, Defaults::default())?;
    let scale = reader.number_or("attention_multiplier", 1.0)?;
    let rotary = reader.fields.text("position_embedding_type")? == Some("rope");
    let biases = [
        reader.flag_or("mamba_proj_bias", false)?,
        reader.flag_or("mamba_conv_bias", true)?,
    ];
    let count = reader.fields.size("num_local_experts", 0..=limit::WIDTH)?;
    let attends = attends(reader)?;
    let decoder = parts.decoder(|index, module| {
        let body: Box<dyn Block> = if attends[index] {
            let mut attention = parts.attention(module);
            attention.scale = scale;
            attention.rope = attention.rope.filter(|_| rotary);
            Box::new(attention)
        } else {
            let (module, sizes) = (format!("{module}.mamba"), Sizes::hybrid(reader)?);
            Box::new(mixer(reader, &module, sizes, biases, Some(parts.epsilon))?)
        };
        let norm = parts.rms(module, "post_attention_layernorm");
        let mut feed_forward = Vec::new();
        if count != Some(0) {
            feed_forward.push(Branch::new(norm.clone(), experts(&parts, module)?));
        }
        if let Some(shared) = shared(&parts, module)? {
            feed_forward.push(Branch::new(norm, shared));
        }
        let before = parts.rms(module, "input_layernorm");
        Ok(Layer {
            steps: vec![
                Step::of(Branch::new(before, body)),
                Step::parallel(feed_forward),
            ],
        })
    })?;
    scaled(reader, decoder)
}

/// Which layers have attention.
fn attends(reader: &Reader<'_>) -> Result<Vec<bool>, LoadError> {
    let name = reader.fields.any(&["layer_types", "layers_block_type"]);
    let Some(kinds) = reader.kinds(name)? else {
        return Ok(vec![false; reader.config.layers]);
    };
    Ok(kinds
        .into_iter()
        .map(|kind| matches!(kind, "attention" | "full_attention"))
        .collect())
}
