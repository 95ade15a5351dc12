//! BitNet b1.58: a Llama with norms before the last layers of attention and of the feed-forward part.

use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::{Decoder, Norm};
use mlxcel_ir::Activation;

pub(super) const FAMILY: Family = Family {
    model_types: &["bitnet"],
    title: "BitNet",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = Parts::read(
        reader,
        Defaults {
            epsilon: 1e-5,
            base: 500_000.0,
            activation: Activation::Relu2,
            ..Defaults::default()
        },
    )?;
    let parts = Parts {
        mlp_bias: false,
        ..parts
    };
    let norm = |name: String, width| Some(Norm::rms(name, width, parts.epsilon));
    let [heads, _, width] = parts.sizes;
    parts.decoder(|_, module| {
        let mut attention = parts.attention(module);
        attention.norm = norm(format!("{module}.self_attn.attn_sub_norm"), heads * width);
        let mut mlp = parts.gated(module);
        mlp.norm = norm(format!("{module}.mlp.ffn_sub_norm"), parts.inner);
        Ok(parts.pre_norm(module, attention, mlp))
    })
}
