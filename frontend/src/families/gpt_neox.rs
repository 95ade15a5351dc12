//! GPT-NeoX (Pythia): one layer for queries, keys and values by head, a share of each head turns,
//! attention and feed-forward side by side on a norm each.

use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, Rope};
use crate::decoder::{Attention, Branch, Decoder, Layer, Linear, Norm, Plain, Projections};
use mlxcel_ir::Activation;

pub(super) const FAMILY: Family = Family {
    model_types: &["gpt_neox"],
    title: "GPT-NeoX",
    category: Category::Dense,
    names: Names {
        root: "gpt_neox",
        transposed: &[],
    },
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let hidden = reader.config.hidden;
    let sizes = reader.own_heads()?;
    let rope = Rope::read(reader, sizes[2])?;
    let epsilon = reader.positive_or(&["layer_norm_eps"], 1e-5)?;
    let inner = reader.width_or(&["intermediate_size"], 4 * hidden)?;
    let activation = reader.activation(Activation::Gelu)?;
    let bias = reader.flag_or("attention_bias", true)?;
    let parallel = reader.flag_or("use_parallel_residual", true)?;
    let layers = reader.layers("gpt_neox.layers", |_, module| {
        let norm = |name: &str| Norm::layer(format!("{module}.{name}"), hidden, epsilon, true);
        let linear =
            |name: &str, from, to, bias| Linear::new(format!("{module}.{name}"), from, to, bias);
        let all = linear("attention.query_key_value", hidden, 3 * hidden, bias);
        let output = linear("attention.dense", hidden, hidden, bias);
        let projections = Projections::grouped(&all, sizes);
        let attention = Attention::new(sizes, projections, output, Some(rope.clone()));
        let mlp = Plain {
            up: linear("mlp.dense_h_to_4h", hidden, inner, true),
            down: linear("mlp.dense_4h_to_h", inner, hidden, true),
            activation,
        };
        let branches = vec![
            Branch::new(norm("input_layernorm"), attention),
            Branch::new(norm("post_attention_layernorm"), mlp),
        ];
        Ok(match parallel {
            true => Layer::parallel(branches),
            false => Layer::sequential(branches),
        })
    });
    let head = match reader.weights.has("embed_out.weight") {
        true => "embed_out",
        false => "lm_head",
    };
    Ok(Decoder {
        embedding: reader.embedding("gpt_neox.embed_in"),
        layers: layers?,
        norm: Some(Norm::layer(
            "gpt_neox.final_layer_norm",
            hidden,
            epsilon,
            true,
        )),
        head: reader.head(head),
        context: rope.context,
    })
}
