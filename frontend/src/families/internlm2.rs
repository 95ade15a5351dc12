//! InternLM 2 and 2.5: a Llama in names of its own, with one layer of queries, keys and values that holds each group of heads together.

use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::{Branch, Decoder, Gated, Layer, Linear, Projections, Step};

pub(super) const FAMILY: Family = Family {
    model_types: &["internlm2"],
    title: "InternLM2",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = Parts::read(reader, Defaults::default())?;
    let bias = reader.flag_or("bias", false)?;
    let (sizes, hidden, inner) = (parts.sizes, parts.hidden, parts.inner);
    let [heads, kv_heads, width] = sizes;
    let mut decoder = parts.decoder(|_, module| {
        let layer =
            |name: &str, from, to, bias| Linear::new(format!("{module}.{name}"), from, to, bias);
        let all = layer(
            "attention.wqkv",
            hidden,
            (heads + 2 * kv_heads) * width,
            bias,
        );
        let mut attention = parts.attention(module);
        attention.projections = Projections::grouped(&all, sizes);
        attention.output = layer("attention.wo", heads * width, hidden, bias);
        let mlp = Gated::of(
            layer("feed_forward.w1", hidden, inner, false),
            layer("feed_forward.w3", hidden, inner, false),
            layer("feed_forward.w2", inner, hidden, false),
            parts.activation,
        );
        Ok(Layer {
            steps: vec![
                Step::of(Branch::new(parts.rms(module, "attention_norm"), attention)),
                Step::of(Branch::new(parts.rms(module, "ffn_norm"), mlp)),
            ],
        })
    })?;
    decoder.embedding = reader.embedding("model.tok_embeddings");
    decoder.head = reader.head("output");
    Ok(decoder)
}
