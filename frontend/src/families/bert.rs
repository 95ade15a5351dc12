//! BERT and those built like it: learned positions, kinds of tokens, norms after each part.

use super::EncoderFamily;
use super::Names;
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::{Attention, Branch, Layer, Linear, Norm, Plain, Positions, Projections, Step};
use crate::encoder::{Classifier, Encoder, Reduce, Tokens};
use mlxcel_ir::Activation;
use serde_json::Value;

pub(super) const FAMILY: EncoderFamily = EncoderFamily {
    model_types: &["bert"],
    title: "BERT",
    names: Names {
        root: "bert",
        transposed: &[],
    },
    encoder,
};

fn encoder(reader: &Reader<'_>) -> Result<Encoder, LoadError> {
    let mut encoder = base(reader, "bert", 0)?;
    // The classifier stands on the pooler.
    if let Some(output) = output(reader, "classifier")? {
        encoder.classifier = Some(Classifier {
            of: Reduce::First,
            dense: encoder.pooler.clone(),
            norm: None,
            output,
        });
    }
    Ok(encoder)
}

/// An encoder in the names of BERT under `root`, whose first token has the position `offset`.
pub(super) fn base(reader: &Reader<'_>, root: &str, offset: usize) -> Result<Encoder, LoadError> {
    let kind = reader.fields.text("position_embedding_type")?;
    if let Some(kind) = kind.filter(|&kind| kind != "absolute") {
        let reason = format!("`{kind}` is not supported; absolute is");
        return Err(reader.fields.error("position_embedding_type", reason));
    }
    let epsilon = reader.positive_or(&["layer_norm_eps"], 1e-12)?;
    let layers = reader.layers(&format!("{root}.encoder.layer"), |_, module| {
        layer(reader, module, epsilon)
    });
    Ok(Encoder {
        embedding: embedding(reader, root, offset, epsilon)?,
        layers: layers?,
        norm: None,
        pooler: pooler(reader, &format!("{root}.pooler.dense")),
        classifier: None,
        context: reader.config.context.saturating_sub(offset),
    })
}

/// The embedding under `root`, whose first token has the position `offset`.
pub(super) fn embedding(
    reader: &Reader<'_>,
    root: &str,
    offset: usize,
    epsilon: f64,
) -> Result<Tokens, LoadError> {
    let width = reader.width_or(&["embedding_size"], reader.config.hidden)?;
    let within = |name: &str| format!("{root}.embeddings.{name}");
    let types = reader.count_or("type_vocab_size", 2)?;
    Ok(Tokens {
        words: within("word_embeddings"),
        rows: reader.config.vocabulary,
        width,
        types: (types > 0).then(|| (within("token_type_embeddings"), types)),
        positions: Some(Positions {
            module: within("position_embeddings"),
            rows: reader.config.context,
            offset,
        }),
        norm: Some(Norm::layer(within("LayerNorm"), width, epsilon, true)),
        projection: None,
    })
}

/// The pooler `module`, where the checkpoint has it.
pub(super) fn pooler(reader: &Reader<'_>, module: &str) -> Option<(Linear, Activation)> {
    let hidden = reader.config.hidden;
    let there = reader.weights.has(&format!("{module}.weight"));
    there.then(|| (Linear::new(module, hidden, hidden, true), Activation::Tanh))
}

fn layer(reader: &Reader<'_>, module: &str, epsilon: f64) -> Result<Layer, LoadError> {
    let hidden = reader.config.hidden;
    let sizes = reader.own_heads()?;
    let inner = reader.width_or(&["intermediate_size"], 4 * hidden)?;
    let activation = reader.activation(Activation::Gelu)?;
    let linear = |name: &str, from, to| Linear::new(format!("{module}.{name}"), from, to, true);
    let projections = Projections {
        q: linear("attention.self.query", hidden, hidden),
        k: linear("attention.self.key", hidden, hidden),
        v: linear("attention.self.value", hidden, hidden),
    };
    let output = linear("attention.output.dense", hidden, hidden);
    let attention = Attention::new(sizes, projections, output, None).mutual();
    let mlp = Plain {
        up: linear("intermediate.dense", hidden, inner),
        down: linear("output.dense", inner, hidden),
        activation,
    };
    let norms = ["attention.output.LayerNorm", "output.LayerNorm"];
    let norms = norms.map(|name| Norm::layer(format!("{module}.{name}"), hidden, epsilon, true));
    Ok(post_norm(attention, mlp, norms))
}

/// Attention and a feed-forward part, each added to its input, and a norm after each sum.
pub(super) fn post_norm(
    attention: impl crate::decoder::Block + 'static,
    feed_forward: impl crate::decoder::Block + 'static,
    [first, second]: [Norm; 2],
) -> Layer {
    Layer {
        steps: vec![
            Step::of(Branch::new(None, attention)).then(first),
            Step::of(Branch::new(None, feed_forward)).then(second),
        ],
    }
}

/// The layer `module` that gives scores, where the checkpoint has it: as many as there are labels.
pub(super) fn output(reader: &Reader<'_>, module: &str) -> Result<Option<Linear>, LoadError> {
    if !reader.weights.has(&format!("{module}.weight")) {
        return Ok(None);
    }
    let fields = &reader.fields;
    let named = fields.get("id2label").and_then(Value::as_object);
    let count = match named.map(|labels| labels.len()).filter(|&count| count > 0) {
        Some(count) => count,
        None => reader.width_or(&["num_labels"], 2)?,
    };
    let bias = reader.weights.has(&format!("{module}.bias"));
    Ok(Some(Linear::new(module, reader.config.hidden, count, bias)))
}

/// A classifier on a layer `dense` of the first token's state and `output`, where the checkpoint has
/// them.
pub(super) fn two_layers(
    reader: &Reader<'_>,
    [dense, output]: [&str; 2],
    activation: Activation,
) -> Result<Option<Classifier>, LoadError> {
    let hidden = reader.config.hidden;
    let output = self::output(reader, output)?;
    Ok(output.map(|output| Classifier {
        of: Reduce::First,
        dense: Some((Linear::new(dense, hidden, hidden, true), activation)),
        norm: None,
        output,
    }))
}
