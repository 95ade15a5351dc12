//! GLM-4 of June 2024: half of each head turns in neighbouring pairs, gate and up are one layer.

use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::{Decoder, Gated, Linear};

pub(super) const FAMILY: Family = Family {
    model_types: &["glm"],
    title: "GLM",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = parts(reader)?;
    parts.decoder(|_, module| {
        Ok(parts.pre_norm(module, parts.attention(module), gated(&parts, module)))
    })
}

/// What GLM-4 of 2024 and of 2025 share.
pub(super) fn parts<'a>(reader: &'a Reader<'a>) -> Result<Parts<'a>, LoadError> {
    let parts = Parts::read(
        reader,
        Defaults {
            epsilon: 1.5625e-7,
            bias: true,
            turning: 0.5,
            ..Defaults::default()
        },
    )?;
    Ok(Parts {
        rope: parts.rope.clone().interleaved(),
        output_bias: false,
        mlp_bias: false,
        ..parts
    })
}

/// The feed-forward part whose layer `gate_up_proj` has the rows of the gate first.
pub(super) fn gated(parts: &Parts<'_>, module: &str) -> Gated {
    let layer = |name: &str, from, to| Linear::new(format!("{module}.mlp.{name}"), from, to, false);
    let both = layer("gate_up_proj", parts.hidden, 2 * parts.inner);
    let down = layer("down_proj", parts.inner, parts.hidden);
    Gated::fused(&both, down, parts.activation)
}
