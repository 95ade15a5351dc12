//! StarCoder2: grouped queries with rotary embedding, layer norms, biases and a plain feed-forward part.

use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, Rope};
use crate::decoder::{Attention, Branch, Decoder, Layer, Linear, Norm, Plain, Projections};
use mlxcel_ir::Activation;

pub(super) const FAMILY: Family = Family {
    model_types: &["starcoder2"],
    title: "StarCoder2",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let hidden = reader.config.hidden;
    let sizes = reader.heads()?;
    let rope = Rope::read(reader, sizes[2])?;
    let epsilon = reader.positive_or(&["norm_epsilon"], 1e-5)?;
    let inner = reader.width("intermediate_size")?;
    let activation = reader.activation(Activation::GeluTanh)?;
    let bias = reader.flag_or("use_bias", true)?;
    let window = reader.window()?;
    let norm = |name: String| Norm::layer(name, hidden, epsilon, true);
    let layers = reader.layers("model.layers", |_, module| {
        let linear = |name: &str, from, to| Linear::new(format!("{module}.{name}"), from, to, bias);
        let projections = Projections::new(&format!("{module}.self_attn"), hidden, sizes, bias);
        let output = linear("self_attn.o_proj", sizes[0] * sizes[2], hidden);
        let mut attention = Attention::new(sizes, projections, output, Some(rope.clone()));
        attention.window = window;
        let mlp = Plain {
            up: linear("mlp.c_fc", hidden, inner),
            down: linear("mlp.c_proj", inner, hidden),
            activation,
        };
        Ok(Layer::sequential([
            Branch::new(norm(format!("{module}.input_layernorm")), attention),
            Branch::new(norm(format!("{module}.post_attention_layernorm")), mlp),
        ]))
    });
    Ok(Decoder {
        embedding: reader.embedding("model.embed_tokens"),
        layers: layers?,
        norm: Some(norm("model.norm".into())),
        head: reader.head("lm_head"),
        context: rope.context,
    })
}
