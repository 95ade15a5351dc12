//! Hunyuan, dense: norms of query and key heads after rotary embedding, which may be stretched by `alpha`.

use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::Decoder;

pub(super) const FAMILY: Family = Family {
    model_types: &["hunyuan_v1_dense"],
    title: "Hunyuan",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = Parts::read(
        reader,
        Defaults {
            epsilon: 1e-5,
            ..Defaults::default()
        },
    )?;
    let parts = Parts {
        mlp_bias: false,
        ..parts
    };
    parts.decoder(|_, module| {
        let [query, key] = parts.head_norms(module, ["query_layernorm", "key_layernorm"]);
        let mut attention = parts.attention(module).with_head_norms(query, key);
        attention.norm_after_rope = true;
        Ok(parts.pre_norm(module, attention, parts.gated(module)))
    })
}
