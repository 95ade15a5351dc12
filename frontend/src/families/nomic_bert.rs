//! Nomic BERT: BERT with rotary embedding, one layer for queries, keys and values, and gated
//! feed-forward parts.

use super::bert::post_norm;
use super::{EncoderFamily, Names};
use crate::LoadError;
use crate::config::{Reader, Rope};
use crate::decoder::{Attention, Gated, Linear, Norm, Projections};
use crate::encoder::{Encoder, Tokens};
use mlxcel_ir::Activation;

pub(super) const FAMILY: EncoderFamily = EncoderFamily {
    model_types: &["nomic_bert"],
    title: "Nomic BERT",
    names: Names {
        root: "bert",
        transposed: &[],
    },
    encoder,
};

fn encoder(reader: &Reader<'_>) -> Result<Encoder, LoadError> {
    let hidden = reader.config.hidden;
    let sizes = reader.own_heads()?;
    let epsilon = reader.positive_or(&["layer_norm_eps", "layer_norm_epsilon"], 1e-12)?;
    let inner = reader.width_or(&["intermediate_size", "n_inner"], 4 * hidden)?;
    let activation = reader.activation(Activation::Silu)?;
    let rope = Rope::of_kind(reader, sizes[2], "full_attention", 1000.0)?;
    let qkv_bias = reader.flag_or("qkv_proj_bias", false)?;
    let biases = [
        reader.flag_or("mlp_fc1_bias", false)?,
        reader.flag_or("mlp_fc2_bias", false)?,
    ];
    for (name, wanted) in [("prenorm", false), ("rotary_emb_interleaved", false)] {
        if reader.flag_or(name, wanted)? != wanted {
            return Err(reader.fields.error(name, format!("must be {wanted}")));
        }
    }
    let layers = reader.layers("bert.encoder.layers", |_, module| {
        let linear =
            |name: &str, from, to, bias| Linear::new(format!("{module}.{name}"), from, to, bias);
        let all = linear("attn.Wqkv", hidden, 3 * hidden, qkv_bias);
        let output = linear("attn.out_proj", hidden, hidden, qkv_bias);
        let projections = Projections::fused(&all, sizes);
        let attention = Attention::new(sizes, projections, output, Some(rope.clone())).mutual();
        let mlp = Gated::of(
            linear("mlp.fc12", hidden, inner, biases[0]),
            linear("mlp.fc11", hidden, inner, biases[0]),
            linear("mlp.fc2", inner, hidden, biases[1]),
            activation,
        );
        let norm = |name| Norm::layer(format!("{module}.{name}"), hidden, epsilon, true);
        Ok(post_norm(attention, mlp, ["norm1", "norm2"].map(norm)))
    });
    let types = reader.count_or("type_vocab_size", 2)?;
    Ok(Encoder {
        embedding: Tokens {
            words: "bert.embeddings.word_embeddings".into(),
            rows: reader.config.vocabulary,
            width: hidden,
            types: (types > 0).then(|| ("bert.embeddings.token_type_embeddings".into(), types)),
            positions: None,
            norm: Some(Norm::layer("bert.emb_ln", hidden, epsilon, true)),
            projection: None,
        },
        layers: layers?,
        norm: None,
        pooler: None,
        classifier: None,
        context: reader.config.context,
    })
}
