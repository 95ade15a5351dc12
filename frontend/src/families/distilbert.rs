//! DistilBERT: BERT with half of the layers, no kinds of tokens and no pooler.

use super::bert::{post_norm, two_layers};
use super::{EncoderFamily, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::{Attention, Linear, Norm, Plain, Positions, Projections};
use crate::encoder::{Encoder, Tokens};
use mlxcel_ir::Activation;

pub(super) const FAMILY: EncoderFamily = EncoderFamily {
    model_types: &["distilbert"],
    title: "DistilBERT",
    names: Names {
        root: "distilbert",
        transposed: &[],
    },
    encoder,
};

const EPSILON: f64 = 1e-12;

fn encoder(reader: &Reader<'_>) -> Result<Encoder, LoadError> {
    let hidden = reader.config.hidden;
    let sizes = reader.own_heads()?;
    let inner = reader.width_or(&["hidden_dim"], 4 * hidden)?;
    let activation = reader.activation(Activation::Gelu)?;
    let layers = reader.layers("distilbert.transformer.layer", |_, module| {
        let linear = |name: &str, from, to| Linear::new(format!("{module}.{name}"), from, to, true);
        let projections = Projections {
            q: linear("attention.q_lin", hidden, hidden),
            k: linear("attention.k_lin", hidden, hidden),
            v: linear("attention.v_lin", hidden, hidden),
        };
        let output = linear("attention.out_lin", hidden, hidden);
        let attention = Attention::new(sizes, projections, output, None).mutual();
        let mlp = Plain {
            up: linear("ffn.lin1", hidden, inner),
            down: linear("ffn.lin2", inner, hidden),
            activation,
        };
        let norms = ["sa_layer_norm", "output_layer_norm"];
        let norm = |name| Norm::layer(format!("{module}.{name}"), hidden, EPSILON, true);
        Ok(post_norm(attention, mlp, norms.map(norm)))
    });
    let within = |name: &str| format!("distilbert.embeddings.{name}");
    Ok(Encoder {
        embedding: Tokens {
            words: within("word_embeddings"),
            rows: reader.config.vocabulary,
            width: hidden,
            types: None,
            positions: Some(Positions {
                module: within("position_embeddings"),
                rows: reader.config.context,
                offset: 0,
            }),
            norm: Some(Norm::layer(within("LayerNorm"), hidden, EPSILON, true)),
            projection: None,
        },
        layers: layers?,
        norm: None,
        pooler: None,
        classifier: two_layers(reader, ["pre_classifier", "classifier"], Activation::Relu)?,
        context: reader.config.context,
    })
}
