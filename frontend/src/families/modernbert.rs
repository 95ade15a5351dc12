//! ModernBERT: rotary embedding, norms before each part, gated feed-forward parts; most layers see a
//! window only, with a base of rotary embedding of their own.

use super::bert::output;
use super::{EncoderFamily, Names};
use crate::LoadError;
use crate::config::{Reader, Rope};
use crate::decoder::{Attention, Branch, Gated, Layer, Linear, Norm, Projections};
use crate::encoder::{Classifier, Encoder, Reduce, Tokens};
use mlxcel_ir::Activation;
use serde_json::Value;

pub(super) const FAMILY: EncoderFamily = EncoderFamily {
    model_types: &["modernbert"],
    title: "ModernBERT",
    names: Names::MODEL,
    encoder,
};

fn encoder(reader: &Reader<'_>) -> Result<Encoder, LoadError> {
    let hidden = reader.config.hidden;
    let sizes = reader.own_heads()?;
    let epsilon = reader.positive_or(&["norm_eps"], 1e-5)?;
    let norm_bias = reader.flag_or("norm_bias", false)?;
    let norm = |name: String| Norm::layer(name, hidden, epsilon, norm_bias);
    let inner = reader.width("intermediate_size")?;
    let activation = reader.activation(Activation::Gelu)?;
    let (attention_bias, mlp_bias) = (
        reader.flag_or("attention_bias", false)?,
        reader.flag_or("mlp_bias", false)?,
    );
    let every = reader.width_or(&["global_attn_every_n_layers"], 3)?;
    let sliding = reader.sliding(|layer| !layer.is_multiple_of(every))?;
    let reach = reader.width_or(&["local_attention"], 128)? / 2;
    let [global, local] = ropes(reader, sizes[2])?;
    let layers = reader.layers("model.layers", |index, module| {
        let linear =
            |name: &str, from, to, bias| Linear::new(format!("{module}.{name}"), from, to, bias);
        let all = linear("attn.Wqkv", hidden, 3 * hidden, attention_bias);
        let output = linear("attn.Wo", hidden, hidden, attention_bias);
        let rope = if sliding[index] { &local } else { &global };
        let projections = Projections::fused(&all, sizes);
        let mut attention = Attention::new(sizes, projections, output, Some(rope.clone())).mutual();
        attention.window = sliding[index].then_some(reach);
        let both = linear("mlp.Wi", hidden, 2 * inner, mlp_bias);
        let mlp = Gated::fused(&both, linear("mlp.Wo", inner, hidden, mlp_bias), activation);
        // The embedding's norm is that of the first layer too.
        let first = (index > 0).then(|| norm(format!("{module}.attn_norm")));
        Ok(Layer::sequential([
            Branch::new(first, attention),
            Branch::new(norm(format!("{module}.mlp_norm")), mlp),
        ]))
    });
    Ok(Encoder {
        embedding: Tokens {
            words: "model.embeddings.tok_embeddings".into(),
            rows: reader.config.vocabulary,
            width: hidden,
            types: None,
            positions: None,
            norm: Some(norm("model.embeddings.norm".into())),
            projection: None,
        },
        layers: layers?,
        norm: Some(norm("model.final_norm".into())),
        pooler: None,
        classifier: classifier(reader, norm("head.norm".into()))?,
        context: reader.config.context,
    })
}

/// Rotary embedding of layers without a window and of those with one.
fn ropes(reader: &Reader<'_>, width: usize) -> Result<[Rope; 2], LoadError> {
    if reader.fields.object("rope_parameters")?.is_some() {
        return Ok([
            Rope::of_kind(reader, width, "full_attention", 160_000.0)?,
            Rope::of_kind(reader, width, "sliding_attention", 10_000.0)?,
        ]);
    }
    let base = |name: &str, base| reader.positive_or(&[name], base);
    Ok([
        Rope::plain(width, base("global_rope_theta", 160_000.0)?),
        Rope::plain(width, base("local_rope_theta", 10_000.0)?),
    ])
}

fn classifier(reader: &Reader<'_>, norm: Norm) -> Result<Option<Classifier>, LoadError> {
    let Some(output) = output(reader, "classifier")? else {
        return Ok(None);
    };
    let (name, hidden) = ("classifier_pooling", reader.config.hidden);
    let of = match reader.fields.text(name)?.unwrap_or("cls") {
        "cls" => Reduce::First,
        "mean" => Reduce::Mean,
        other => {
            return Err(reader
                .fields
                .expected(name, "cls or mean", &Value::from(other)));
        }
    };
    let bias = reader.flag_or("classifier_bias", false)?;
    let activation = reader.activation_at("classifier_activation", Activation::Gelu)?;
    Ok(Some(Classifier {
        of,
        dense: Some((Linear::new("head.dense", hidden, hidden, bias), activation)),
        norm: Some(norm),
        output,
    }))
}
