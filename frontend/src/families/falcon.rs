//! Falcon: keys and values shared by all queries or by groups of them, attention and feed-forward
//! side by side on one norm or two, rotary embedding or ALiBi.

use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, Rope, limit};
use crate::decoder::{Attention, Branch, Decoder, Layer, Linear, Norm, Plain, Projections, alibi};
use mlxcel_ir::Activation;

pub(super) const FAMILY: Family = Family {
    model_types: &["falcon"],
    title: "Falcon",
    category: Category::Dense,
    names: Names {
        root: "transformer",
        transposed: &[],
    },
    decoder,
};

/// Heads, key-value heads and their width.
fn heads(reader: &Reader<'_>, grouped: bool) -> Result<[usize; 3], LoadError> {
    let [heads, _, width] = reader.own_heads()?;
    if !grouped && reader.flag_or("multi_query", true)? {
        return Ok([heads, 1, width]);
    }
    let name = reader.fields.any(&["num_kv_heads", "n_head_kv"]);
    let kv_heads = reader.fields.size(name, 1..=limit::HEADS)?.unwrap_or(heads);
    match heads.is_multiple_of(kv_heads) {
        true => Ok([heads, kv_heads, width]),
        false => {
            let reason = format!("{kv_heads} does not divide the {heads} attention heads");
            Err(reader.fields.error(name, reason))
        }
    }
}

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let hidden = reader.config.hidden;
    let new = reader.flag_or("new_decoder_architecture", false)?;
    let parallel = new || reader.flag_or("parallel_attn", true)?;
    let two_norms = new && reader.count_or("num_ln_in_parallel_attn", 2)? == 2;
    let sizes = heads(reader, new)?;
    let [heads, kv_heads, width] = sizes;
    let rope = match reader.flag_or("alibi", false)? {
        true => None,
        false => Some(Rope::read(reader, width)?),
    };
    let epsilon = reader.positive_or(&["layer_norm_epsilon"], 1e-5)?;
    let inner = reader.width_or(&["ffn_hidden_size"], 4 * hidden)?;
    let activation = reader.activation(Activation::Gelu)?;
    let bias = reader.flag_or("bias", false)?;
    let layers = reader.layers("transformer.h", |_, module| {
        let norm = |name: &str| Norm::layer(format!("{module}.{name}"), hidden, epsilon, true);
        let linear = |name: &str, from, to| Linear::new(format!("{module}.{name}"), from, to, bias);
        let rows = (heads + 2 * kv_heads) * width;
        let all = linear("self_attention.query_key_value", hidden, rows);
        let projections = Projections::grouped(&all, sizes);
        let output = linear("self_attention.dense", hidden, hidden);
        let mut attention = Attention::new(sizes, projections, output, rope.clone());
        if rope.is_none() {
            // What ALiBi adds is scaled like the scores.
            let slopes = alibi(heads, 8.0).into_iter();
            attention.slopes = slopes.map(|slope| slope * attention.scale).collect();
        }
        let mlp = Plain {
            up: linear("mlp.dense_h_to_4h", hidden, inner),
            down: linear("mlp.dense_4h_to_h", inner, hidden),
            activation,
        };
        let names = match (parallel, two_norms) {
            // GGUF files keep the name of the only norm for the second of two.
            (true, true) if !reader.weights.has(&format!("{module}.ln_mlp.weight")) => {
                ["ln_attn", "input_layernorm"]
            }
            (true, true) => ["ln_attn", "ln_mlp"],
            (true, false) => ["input_layernorm", "input_layernorm"],
            (false, _) => ["input_layernorm", "post_attention_layernorm"],
        };
        let branches = vec![
            Branch::new(norm(names[0]), attention),
            Branch::new(norm(names[1]), mlp),
        ];
        Ok(match parallel {
            true => Layer::parallel(branches),
            false => Layer::sequential(branches),
        })
    });
    Ok(Decoder {
        embedding: reader.embedding("transformer.word_embeddings"),
        layers: layers?,
        norm: Some(Norm::layer("transformer.ln_f", hidden, epsilon, true)),
        head: reader.head("lm_head"),
        context: rope.and_then(|rope| rope.context),
    })
}
