//! Command R: attention and the feed-forward part side by side on one layer norm without a bias,
//! rotary embedding of neighbouring pairs, a factor of the logits.

use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::{Attention, Branch, Decoder, HeadNorm, Layer, Norm, Step};

pub(super) const FAMILY: Family = Family {
    model_types: &["cohere"],
    title: "Command R",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = parts(reader, 500_000.0)?;
    let normed = reader.flag_or("use_qk_norm", false)?;
    let decoder = parts.decoder(|_, module| {
        let mut attention = parts.attention(module);
        if normed {
            let norm = |name: &str| own_norm(&parts, &format!("{module}.self_attn.{name}.weight"));
            (attention.query_norm, attention.key_norm) = (norm("q_norm"), norm("k_norm"));
        }
        Ok(parallel(&parts, module, attention))
    })?;
    finished(&parts, decoder)
}

/// A layer norm of each head with the weights `weight` of its own.
fn own_norm(parts: &Parts<'_>, weight: &str) -> Option<HeadNorm> {
    let norm = Norm::layer("", parts.sizes[2], parts.epsilon, false).plain();
    Some(HeadNorm::Own(norm, weight.into()))
}

/// What Command R and R7B share.
pub(super) fn parts<'a>(reader: &'a Reader<'a>, base: f64) -> Result<Parts<'a>, LoadError> {
    let parts = Parts::read(
        reader,
        Defaults {
            epsilon: 1e-5,
            base,
            ..Defaults::default()
        },
    )?;
    Ok(Parts {
        rope: parts.rope.clone().interleaved(),
        mlp_bias: false,
        ..parts
    })
}

/// Attention and the feed-forward part side by side.
pub(super) fn parallel(parts: &Parts<'_>, module: &str, attention: Attention) -> Layer {
    let norm = parts.layer_norm(module, "input_layernorm", false);
    Layer {
        steps: vec![Step::parallel(vec![
            Branch::new(norm.clone(), attention),
            Branch::new(norm, parts.gated(module)),
        ])],
    }
}

/// `decoder` with the final norm and the factor of logits.
pub(super) fn finished(parts: &Parts<'_>, mut decoder: Decoder) -> Result<Decoder, LoadError> {
    decoder.norm = Some(parts.layer_norm("model", "norm", false));
    decoder.head.scale = parts.reader.number_or("logit_scale", 0.0625)?;
    Ok(decoder)
}
