//! BLOOM: ALiBi, a norm of the embedding, one layer for queries, keys and values by head.

use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::{Attention, Branch, Decoder, Layer, Linear, Norm, Plain, Projections, alibi};
use mlxcel_ir::Activation;

pub(super) const FAMILY: Family = Family {
    model_types: &["bloom"],
    title: "BLOOM",
    category: Category::Dense,
    names: Names {
        root: "transformer",
        transposed: &[],
    },
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let hidden = reader.config.hidden;
    let sizes = reader.own_heads()?;
    let epsilon = reader.positive_or(&["layer_norm_epsilon"], 1e-5)?;
    let normed = reader.flag_or("apply_residual_connection_post_layernorm", false)?;
    let norm = |name: String| Norm::layer(name, hidden, epsilon, true);
    let layers = reader.layers("transformer.h", |_, module| {
        let linear = |name: &str, from, to| Linear::new(format!("{module}.{name}"), from, to, true);
        let all = linear("self_attention.query_key_value", hidden, 3 * hidden);
        let output = linear("self_attention.dense", hidden, hidden);
        let projections = Projections::grouped(&all, sizes);
        let mut attention = Attention::new(sizes, projections, output, None);
        attention.slopes = alibi(sizes[0], 8.0);
        let mlp = Plain {
            up: linear("mlp.dense_h_to_4h", hidden, 4 * hidden),
            down: linear("mlp.dense_4h_to_h", 4 * hidden, hidden),
            activation: Activation::GeluTanh,
        };
        let mut layer = Layer::sequential([
            Branch::new(norm(format!("{module}.input_layernorm")), attention),
            Branch::new(norm(format!("{module}.post_attention_layernorm")), mlp),
        ]);
        for step in &mut layer.steps {
            step.carry_normed = normed;
        }
        Ok(layer)
    });
    let mut embedding = reader.embedding("transformer.word_embeddings");
    embedding.norm = Some(norm("transformer.word_embeddings_layernorm".into()));
    Ok(Decoder {
        embedding,
        layers: layers?,
        norm: Some(norm("transformer.ln_f".into())),
        head: reader.head("lm_head"),
        context: None,
    })
}
