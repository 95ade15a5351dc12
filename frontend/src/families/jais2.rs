//! Jais 2: a Llama with layer norms, biases, and a squared ReLU between two layers.

use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::{Branch, Decoder, Layer, Step};
use mlxcel_ir::Activation;

pub(super) const FAMILY: Family = Family {
    model_types: &["jais2"],
    title: "Jais 2",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = Parts::read(
        reader,
        Defaults {
            epsilon: 1e-5,
            activation: Activation::Relu2,
            bias: true,
            ..Defaults::default()
        },
    )?;
    let parts = Parts {
        mlp_bias: reader.flag_or("mlp_bias", true)?,
        ..parts
    };
    let mut decoder = parts.decoder(|_, module| {
        let norm = |name| parts.layer_norm(module, name, true);
        let mlp = parts.plain(module, ["up_proj", "down_proj"]);
        Ok(Layer {
            steps: vec![
                Step::of(Branch::new(
                    norm("input_layernorm"),
                    parts.attention(module),
                )),
                Step::of(Branch::new(norm("post_attention_layernorm"), mlp)),
            ],
        })
    })?;
    decoder.norm = Some(parts.layer_norm("model", "norm", true));
    Ok(decoder)
}
