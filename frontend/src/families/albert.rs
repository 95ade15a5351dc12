//! ALBERT: BERT whose layers share their weights in groups, with an embedding of a width of its own.

use super::bert::{embedding, output, pooler, post_norm};
use super::{EncoderFamily, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::{Attention, Layer, Linear, Norm, Plain, Projections};
use crate::encoder::{Classifier, Encoder, Reduce};
use mlxcel_ir::Activation;

pub(super) const FAMILY: EncoderFamily = EncoderFamily {
    model_types: &["albert"],
    title: "ALBERT",
    names: Names {
        root: "albert",
        transposed: &[],
    },
    encoder,
};

fn encoder(reader: &Reader<'_>) -> Result<Encoder, LoadError> {
    let (hidden, count) = (reader.config.hidden, reader.config.layers);
    let epsilon = reader.positive_or(&["layer_norm_eps"], 1e-12)?;
    let groups = reader.width_or(&["num_hidden_groups"], 1)?.min(count);
    let within = reader.width_or(&["inner_group_num"], 1)?;
    let layers = reader.layers("albert", |index, _| {
        let group = format!(
            "albert.encoder.albert_layer_groups.{}",
            index * groups / count
        );
        let mut steps = Vec::new();
        for inner in 0..within {
            let module = format!("{group}.albert_layers.{inner}");
            steps.extend(layer(reader, &module, epsilon)?.steps);
        }
        Ok(Layer { steps })
    });
    let mut embedding = embedding(reader, "albert", 0, epsilon)?;
    let mapping = "albert.encoder.embedding_hidden_mapping_in";
    embedding.projection = Some(Linear::new(mapping, embedding.width, hidden, true));
    let pooler = pooler(reader, "albert.pooler");
    let classifier = output(reader, "classifier")?.map(|output| Classifier {
        of: Reduce::First,
        dense: pooler.clone(),
        norm: None,
        output,
    });
    Ok(Encoder {
        embedding,
        layers: layers?,
        norm: None,
        pooler,
        classifier,
        context: reader.config.context,
    })
}

fn layer(reader: &Reader<'_>, module: &str, epsilon: f64) -> Result<Layer, LoadError> {
    let hidden = reader.config.hidden;
    let sizes = reader.own_heads()?;
    let inner = reader.width_or(&["intermediate_size"], 4 * hidden)?;
    let activation = reader.activation(Activation::GeluTanh)?;
    let linear = |name: &str, from, to| Linear::new(format!("{module}.{name}"), from, to, true);
    let projections = Projections {
        q: linear("attention.query", hidden, hidden),
        k: linear("attention.key", hidden, hidden),
        v: linear("attention.value", hidden, hidden),
    };
    let output = linear("attention.dense", hidden, hidden);
    let attention = Attention::new(sizes, projections, output, None).mutual();
    let mlp = Plain {
        up: linear("ffn", hidden, inner),
        down: linear("ffn_output", inner, hidden),
        activation,
    };
    let norms = ["attention.LayerNorm", "full_layer_layer_norm"];
    let norm = |name| Norm::layer(format!("{module}.{name}"), hidden, epsilon, true);
    Ok(post_norm(attention, mlp, norms.map(norm)))
}
