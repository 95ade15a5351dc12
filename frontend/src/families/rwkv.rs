//! RWKV-4.

use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::{Branch, ChannelMix, Decoder, Layer, Linear, Norm, Step, TimeMix};

pub(super) const FAMILY: Family = Family {
    model_types: &["rwkv"],
    title: "RWKV-4",
    category: Category::Recurrent,
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
    // So that half precision holds the residual stream, it is halved after every so many layers, and
    // so is what the layers after them add. That shows, as norms have an epsilon.
    let every = reader.count_or("rescale_every", 6)?;
    let halved = |layer: usize| every > 0 && layer > 0 && layer.is_multiple_of(every);
    let norm = |name: String| Norm::layer(name, hidden, epsilon, true);
    let layers = reader.layers("rwkv.blocks", |index, module| {
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
        let scale = (0..=index).filter(|&layer| halved(layer)).count();
        let scale = 0.5f64.powi(scale as i32);
        let branches = [
            Branch::new(norm(format!("{module}.ln1")), time),
            Branch::new(norm(format!("{module}.ln2")), channel),
        ];
        let before = halved(index).then(|| Step::carrying(0.5));
        let branches = branches.map(|branch| Step::of(branch).scaled(scale));
        Ok(Layer {
            steps: before.into_iter().chain(branches).collect(),
        })
    })?;
    let mut embedding = reader.embedding("rwkv.embeddings");
    embedding.norm = Some(norm("rwkv.blocks.0.pre_ln".into()));
    // Whatever the epsilon of the other norms.
    let mut last = Norm::layer("rwkv.ln_out", hidden, 1e-5, true);
    if halved(layers.len()) {
        // The norm of a half is the norm of the whole with four times the epsilon.
        last.epsilon *= 4.0;
    }
    Ok(Decoder {
        embedding,
        layers,
        norm: Some(last),
        head: reader.head("head"),
        context: None,
    })
}
