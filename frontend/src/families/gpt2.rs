//! GPT-2: learned positions, layer norms, and linear layers stored as `[inputs, outputs]`.

use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::{
    Attention, Branch, Decoder, Layer, Linear, Norm, Plain, Positions, Projections,
};
use mlxcel_ir::Activation;

pub(super) const FAMILY: Family = Family {
    model_types: &["gpt2"],
    title: "GPT-2",
    category: Category::Dense,
    names: Names {
        root: "transformer",
        transposed: &["c_attn.weight", "c_proj.weight", "c_fc.weight"],
    },
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let sizes = reader.own_heads()?;
    base(reader, sizes, Projections::fused)
}

/// A decoder in the names of GPT-2 with the given heads and the given way to take their layer apart.
pub(super) fn base(
    reader: &Reader<'_>,
    sizes: [usize; 3],
    apart: fn(&Linear, [usize; 3]) -> Projections,
) -> Result<Decoder, LoadError> {
    let (hidden, [heads, kv_heads, width]) = (reader.config.hidden, sizes);
    let epsilon = reader.positive_or(&["layer_norm_epsilon"], 1e-5)?;
    let inner = reader.width_or(&["n_inner"], 4 * hidden)?;
    let activation = reader.activation(Activation::GeluTanh)?;
    let scaled = reader.flag_or("scale_attn_weights", true)?;
    let by_layer = reader.flag_or("scale_attn_by_inverse_layer_idx", false)?;
    let layers = reader.layers("transformer.h", |index, module| {
        let norm = |name: &str| Norm::layer(format!("{module}.{name}"), hidden, epsilon, true);
        let linear = |name: &str, from, to| Linear::new(format!("{module}.{name}"), from, to, true);
        let all = linear("attn.c_attn", hidden, (heads + 2 * kv_heads) * width);
        let output = linear("attn.c_proj", heads * width, hidden);
        let mut attention = Attention::new(sizes, apart(&all, sizes), output, None);
        if !scaled {
            attention.scale = 1.0;
        }
        if by_layer {
            attention.scale /= (index + 1) as f64;
        }
        let mlp = Plain {
            up: linear("mlp.c_fc", hidden, inner),
            down: linear("mlp.c_proj", inner, hidden),
            activation,
        };
        Ok(Layer::sequential([
            Branch::new(norm("ln_1"), attention),
            Branch::new(norm("ln_2"), mlp),
        ]))
    });
    let mut embedding = reader.embedding("transformer.wte");
    embedding.positions = Some(Positions {
        module: "transformer.wpe".into(),
        rows: reader.config.context,
        offset: 0,
    });
    Ok(Decoder {
        embedding,
        layers: layers?,
        norm: Some(Norm::layer("transformer.ln_f", hidden, epsilon, true)),
        head: reader.head("lm_head"),
        context: None,
    })
}
