//! RWKV-4.

use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::{Branch, ChannelMix, Decoder, Layer, Linear, Norm, TimeMix};

pub(super) const FAMILY: Family = Family {
    model_types: &["rwkv"],
    title: "RWKV-4",
    category: Category::Recurrent,
    gguf: "",
    gguf_paired: false,
    names: Names {
        root: "rwkv",
        transposed: &[],
    },
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let hidden = reader.config.hidden;
    let epsilon = reader.positive_or(&["layer_norm_epsilon"], 1e-5)?;
    let channels = reader.width_or(&["attention_hidden_size"], hidden)?;
    let inner = reader.width_or(&["intermediate_size"], 4 * hidden)?;
    let norm = |name: String| Norm::layer(name, hidden, epsilon, true);
    let layers = reader.layers("rwkv.blocks", |_, module| {
        let linear =
            |name: &str, from, to| Linear::new(format!("{module}.{name}"), from, to, false);
        let time = TimeMix {
            module: format!("{module}.attention"),
            receptance: linear("attention.receptance", hidden, channels),
            key: linear("attention.key", hidden, channels),
            value: linear("attention.value", hidden, channels),
            output: linear("attention.output", channels, hidden),
        };
        let channel = ChannelMix {
            module: format!("{module}.feed_forward"),
            receptance: linear("feed_forward.receptance", hidden, hidden),
            key: linear("feed_forward.key", hidden, inner),
            value: linear("feed_forward.value", inner, hidden),
        };
        Ok(Layer::sequential([
            Branch::new(norm(format!("{module}.ln1")), time),
            Branch::new(norm(format!("{module}.ln2")), channel),
        ]))
    })?;
    let mut embedding = reader.embedding("rwkv.embeddings");
    embedding.norm = Some(norm("rwkv.blocks.0.pre_ln".into()));
    Ok(Decoder {
        embedding,
        layers,
        norm: Some(norm("rwkv.ln_out".into())),
        head: reader.head("head"),
        context: None,
    })
}
