//! RWKV-7, in the names of the flash-linear-attention library.

use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, limit};
use crate::decoder::{Branch, Decoder, DeltaTimeMix, Layer, Linear, Narrow, Norm, ShiftedMlp};
use mlxcel_ir::Activation;

pub(super) const FAMILY: Family = Family {
    model_types: &["rwkv7"],
    title: "RWKV-7",
    category: Category::Recurrent,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let (fields, hidden) = (&reader.fields, reader.config.hidden);
    if fields.get("attn").is_some() {
        return Err(fields.error("attn", "is set: attention layers are not supported"));
    }
    if fields
        .text("hidden_act")?
        .is_some_and(|name| name != "sqrelu")
    {
        return Err(fields.error("hidden_act", "must be sqrelu"));
    }
    let epsilon = reader.positive_or(&["norm_eps"], 1e-5)?;
    let bias = reader.flag_or("norm_bias", true)?;
    let name = "hidden_ratio";
    let ratio = reader.positive_or(&[name], 4.0)?;
    let inner = reader.scaled(name, hidden, ratio)?;
    let inner = reader.width_or(&["intermediate_size"], inner.next_multiple_of(32))?;
    let norm = |name: String| Norm::layer(name, hidden, epsilon, bias);
    let layers = reader.layers("model.layers", |index, module| {
        let within = format!("{module}.ffn");
        let linear =
            |name: &str, from, to| Linear::new(format!("{within}.{name}"), from, to, false);
        let channel = ShiftedMlp {
            key: linear("key", hidden, inner),
            value: linear("value", inner, hidden),
            module: within.clone(),
        };
        let time = time(reader, &format!("{module}.attn"), index, epsilon)?;
        Ok(Layer::sequential([
            Branch::new(norm(format!("{module}.attn_norm")), time),
            Branch::new(norm(format!("{module}.ffn_norm")), channel),
        ]))
    })?;
    let mut embedding = reader.embedding("model.embeddings");
    if reader.flag_or("norm_first", true)? {
        embedding.norm = Some(norm("model.layers.0.pre_norm".into()));
    }
    Ok(Decoder {
        embedding,
        layers,
        norm: Some(norm("model.norm".into())),
        head: reader.head("lm_head"),
        context: None,
    })
}

fn time(
    reader: &Reader<'_>,
    module: &str,
    index: usize,
    epsilon: f64,
) -> Result<DeltaTimeMix, LoadError> {
    let (fields, hidden) = (&reader.fields, reader.config.hidden);
    let width = fields.size("head_dim", 1..=limit::HEADS)?.unwrap_or(64);
    if !hidden.is_multiple_of(width) {
        let reason = format!("{width} does not divide the width {hidden}");
        return Err(fields.error("head_dim", reason));
    }
    let heads = hidden / width;
    let linear = |name: &str| Linear::new(format!("{module}.{name}"), hidden, hidden, false);
    // A checkpoint has the width of a narrow layer, whether the configuration names it or not.
    let narrow = |name: &str, field: &str, activation, bias| {
        let part = |part: usize| format!("{module}.{name}_lora.lora.{part}");
        let rank = match fields.size(field, 1..=limit::WIDTH)? {
            Some(rank) => rank,
            None => {
                let found = reader.weights.rows(&format!("{}.weight", part(0)));
                found.ok_or_else(|| fields.missing(field))?
            }
        };
        Ok::<_, LoadError>(Narrow {
            down: Linear::new(part(0), hidden, rank, false),
            activation,
            up: Linear::new(part(2), rank, hidden, bias),
        })
    };
    let residual = || narrow("v", "v_low_rank_dim", None, true);
    Ok(DeltaTimeMix {
        module: module.into(),
        heads,
        width,
        receptance: linear("r_proj"),
        key: linear("k_proj"),
        value: linear("v_proj"),
        output: linear("o_proj"),
        decay: narrow("w", "decay_low_rank_dim", Some(Activation::Tanh), true)?,
        replacement: narrow("a", "a_low_rank_dim", None, true)?,
        gate: narrow("g", "gate_low_rank_dim", Some(Activation::Sigmoid), false)?,
        residual: (index > 0).then(residual).transpose()?,
        norm: Norm::layer("", width, width as f64 * epsilon, false).plain(),
    })
}
