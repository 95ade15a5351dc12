//! GPT BigCode (SantaCoder, StarCoder): GPT-2 with one key-value head for all queries.

use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::{Decoder, Projections};

pub(super) const FAMILY: Family = Family {
    model_types: &["gpt_bigcode"],
    title: "GPT BigCode",
    category: Category::Dense,
    names: Names {
        root: "transformer",
        transposed: &[],
    },
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let [heads, _, width] = reader.own_heads()?;
    let kv_heads = match reader.flag_or("multi_query", true)? {
        true => 1,
        false => heads,
    };
    super::gpt2::base(reader, [heads, kv_heads, width], Projections::grouped)
}
