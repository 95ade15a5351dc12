//! GLM-4 of April 2025: a GLM with norms at both ends of each branch.

use super::glm::{gated, parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::{Branch, Decoder, Layer, Step};

pub(super) const FAMILY: Family = Family {
    model_types: &["glm4"],
    title: "GLM-4",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = parts(reader)?;
    parts.decoder(|_, module| {
        let norm = |name| parts.rms(module, name);
        let attention = Branch::new(norm("input_layernorm"), parts.attention(module));
        let mlp = Branch::new(norm("post_attention_layernorm"), gated(&parts, module));
        Ok(Layer {
            steps: vec![
                Step::of(attention.then(norm("post_self_attn_layernorm"))),
                Step::of(mlp.then(norm("post_mlp_layernorm"))),
            ],
        })
    })
}
