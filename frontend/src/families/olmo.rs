//! OLMo 1: a Llama with layer norms without weights and a bound on queries, keys and values.

use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::{Branch, Decoder, Layer, Step};

pub(super) const FAMILY: Family = Family {
    model_types: &["olmo"],
    title: "OLMo",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = Parts {
        mlp_bias: false,
        // Not in the configuration.
        epsilon: 1e-5,
        ..Parts::read(reader, Defaults::default())?
    };
    let clip = reader.fields.positive("clip_qkv")?;
    let norm = parts.layer_norm("", "", false).plain();
    let mut decoder = parts.decoder(|_, module| {
        let mut attention = parts.attention(module);
        attention.clip = clip;
        Ok(Layer {
            steps: vec![
                Step::of(Branch::new(norm.clone(), attention)),
                Step::of(Branch::new(norm.clone(), parts.gated(module))),
            ],
        })
    })?;
    decoder.norm = Some(norm);
    Ok(decoder)
}
