//! StableLM 2: layer norms, part of each head turns; norms of heads and parallel branches by switches.

use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::{Branch, Decoder, HeadNorm, Layer, Norm, Step};

pub(super) const FAMILY: Family = Family {
    model_types: &["stablelm", "stablelm_epoch"],
    title: "StableLM",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = Parts::read(
        reader,
        Defaults {
            epsilon: 1e-5,
            turning: 0.25,
            ..Defaults::default()
        },
    )?;
    let parts = Parts {
        bias: reader.flag_or("use_qkv_bias", false)?,
        output_bias: false,
        mlp_bias: false,
        ..parts
    };
    let normed = reader.flag_or("qk_layernorm", false)?;
    let parallel = reader.flag_or("use_parallel_residual", false)?;
    let mut decoder = parts.decoder(|_, module| {
        let mut attention = parts.attention(module);
        if normed {
            attention.query_norm = own_norms(&parts, module, "q_layernorm");
            attention.key_norm = own_norms(&parts, module, "k_layernorm");
        }
        let norm = |name| parts.layer_norm(module, name, true);
        let attention = Branch::new(norm("input_layernorm"), attention);
        let mlp = |name| Branch::new(norm(name), parts.gated(module));
        let steps = match parallel {
            true => vec![Step::parallel(vec![attention, mlp("input_layernorm")])],
            false => vec![
                Step::of(attention),
                Step::of(mlp("post_attention_layernorm")),
            ],
        };
        Ok(Layer { steps })
    })?;
    decoder.norm = Some(parts.layer_norm("model", "norm", true));
    Ok(decoder)
}

/// A layer norm of each head of `name` with a weight of its own and no bias.
fn own_norms(parts: &Parts<'_>, module: &str, name: &str) -> Option<HeadNorm> {
    let norm = Norm::layer("", parts.sizes[2], parts.epsilon, false).plain();
    let weight = format!("{module}.self_attn.{name}.norms.weight");
    Some(HeadNorm::Own(norm, weight))
}
