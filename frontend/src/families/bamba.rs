//! Bamba: Mamba-2 in most layers, attention whose heads turn by half in some.

use super::mamba::{Sizes, mixer};
use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, limit};
use crate::decoder::{Block, Branch, Decoder, Gated, Layer};

pub(super) const FAMILY: Family = Family {
    model_types: &["bamba"],
    title: "Bamba",
    category: Category::Recurrent,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let defaults = Defaults {
        epsilon: 1e-5,
        turning: 0.5,
        ..Defaults::default()
    };
    let parts = Parts::read(reader, defaults)?;
    let biases = [
        reader.flag_or("mamba_proj_bias", false)?,
        reader.flag_or("mamba_conv_bias", true)?,
    ];
    let attends = reader.sizes("attn_layer_indices", 0..=limit::LAYERS)?;
    let attends = attends.unwrap_or_default();
    let mut decoder = parts.decoder(|index, module| {
        let mixer: Box<dyn Block> = match attends.contains(&index) {
            true => Box::new(parts.attention(module)),
            false => {
                let (within, sizes) = (format!("{module}.mamba"), Sizes::hybrid(reader)?);
                Box::new(mixer(reader, &within, sizes, biases, Some(parts.epsilon))?)
            }
        };
        let within = format!("{module}.feed_forward");
        let sizes = [parts.hidden, parts.inner];
        let mlp = Gated::new(&within, sizes, parts.mlp_bias, parts.activation);
        Ok(Layer::sequential([
            Branch::new(parts.rms(module, "input_layernorm"), mixer),
            Branch::new(parts.rms(module, "pre_ff_layernorm"), mlp),
        ]))
    })?;
    decoder.norm = Some(parts.rms("model", "final_layernorm"));
    Ok(decoder)
}
