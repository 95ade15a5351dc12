//! OLMo 2: norms after attention and the feed-forward part in place of before, and norms over all
//! heads of queries and of keys together.

use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::{Attention, Branch, Decoder, Layer, Step};

pub(super) const FAMILY: Family = Family {
    model_types: &["olmo2"],
    title: "OLMo 2",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = parts(reader, 10_000.0)?;
    parts.decoder(|_, module| Ok(post_norm(&parts, module, attention(&parts, module))))
}

/// What OLMo 2 and 3 share.
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
        mlp_bias: false,
        ..parts
    })
}

/// Attention with norms over all heads together.
pub(super) fn attention(parts: &Parts<'_>, module: &str) -> Attention {
    let mut attention = parts.attention(module);
    [attention.query_norm, attention.key_norm] = parts.whole_norms(module, ["q_norm", "k_norm"]);
    attention
}

/// A layer whose norms stand at the ends of its branches.
pub(super) fn post_norm(parts: &Parts<'_>, module: &str, attention: Attention) -> Layer {
    let after = |name| parts.rms(module, name);
    let mlp = parts.gated(module);
    Layer {
        steps: vec![
            Step::of(Branch::new(None, attention).then(after("post_attention_layernorm"))),
            Step::of(Branch::new(None, mlp).then(after("post_feedforward_layernorm"))),
        ],
    }
}
