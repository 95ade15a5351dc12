//! Phi 1 to 2: attention and feed-forward side by side on one norm, biases everywhere, also in the
//! head; a share of each head turns.

use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, Rope};
use crate::decoder::{Attention, Branch, Decoder, Layer, Linear, Norm, Plain, Projections};
use mlxcel_ir::Activation;

pub(super) const FAMILY: Family = Family {
    model_types: &["phi"],
    title: "Phi",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let hidden = reader.config.hidden;
    let sizes = reader.heads()?;
    let rope = Rope::read(reader, sizes[2])?;
    let epsilon = reader.positive_or(&["layer_norm_eps"], 1e-5)?;
    let inner = reader.width("intermediate_size")?;
    let activation = reader.activation(Activation::GeluTanh)?;
    let head_norms = reader.flag_or("qk_layernorm", false)?;
    let layers = reader.layers("model.layers", |_, module| {
        let linear = |name: &str, from, to| Linear::new(format!("{module}.{name}"), from, to, true);
        let norm =
            |name: &str, width| Norm::layer(format!("{module}.{name}"), width, epsilon, true);
        let projections = Projections::new(&format!("{module}.self_attn"), hidden, sizes, true);
        let output = linear("self_attn.dense", sizes[0] * sizes[2], hidden);
        let mut attention = Attention::new(sizes, projections, output, Some(rope.clone()));
        if head_norms {
            let names = ["self_attn.q_layernorm", "self_attn.k_layernorm"];
            let [query, key] = names.map(|name| norm(name, sizes[2]));
            attention = attention.with_head_norms(query, key);
        }
        let mlp = Plain {
            up: linear("mlp.fc1", hidden, inner),
            down: linear("mlp.fc2", inner, hidden),
            activation,
        };
        let before = norm("input_layernorm", hidden);
        Ok(Layer::parallel(vec![
            Branch::new(before.clone(), attention),
            Branch::new(before, mlp),
        ]))
    });
    Ok(Decoder {
        embedding: reader.embedding("model.embed_tokens"),
        layers: layers?,
        norm: Some(Norm::layer("model.final_layernorm", hidden, epsilon, true)),
        head: reader.biased_head("lm_head"),
        context: rope.context,
    })
}
