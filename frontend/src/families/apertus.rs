//! Apertus: a Llama with norms of heads and, between two layers, the nonlinearity xIELU, which learns its slopes.

use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::{Block, Branch, Decoder, Layer, Step, Xielu};

pub(super) const FAMILY: Family = Family {
    model_types: &["apertus"],
    title: "Apertus",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = Parts::read(
        reader,
        Defaults {
            epsilon: 1e-5,
            base: 12_000_000.0,
            own: "xielu",
            ..Defaults::default()
        },
    )?;
    let parts = Parts {
        mlp_bias: false,
        ..parts
    };
    let named = reader.fields.text("hidden_act")?;
    let own = named.is_none_or(|name| name == "xielu");
    parts.decoder(|_, module| {
        let [query, key] = parts.head_norms(module, ["q_norm", "k_norm"]);
        let attention = parts.attention(module).with_head_norms(query, key);
        let plain = parts.plain(module, ["up_proj", "down_proj"]);
        let mlp: Box<dyn Block> = match own {
            true => Box::new(Xielu::new(format!("{module}.mlp.act_fn"), plain)),
            false => Box::new(plain),
        };
        Ok(Layer {
            steps: vec![
                Step::of(Branch::new(
                    parts.rms(module, "attention_layernorm"),
                    attention,
                )),
                Step::of(Branch::new(parts.rms(module, "feedforward_layernorm"), mlp)),
            ],
        })
    })
}
