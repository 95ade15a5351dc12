//! RecurrentGemma: Griffin, which is gated linear recurrences and, in every third layer, attention with
//! a window.

use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, Rope, limit};
use crate::decoder::{
    Attention, Block, Branch, Convolution, Decoder, Gated, GatedLinear, Layer, Linear, Norm,
    Projections,
};
use mlxcel_ir::Activation;

pub(super) const FAMILY: Family = Family {
    model_types: &["recurrent_gemma"],
    title: "RecurrentGemma",
    category: Category::Recurrent,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let hidden = reader.config.hidden;
    let epsilon = reader.positive_or(&["rms_norm_eps"], 1e-6)?;
    let sizes = reader.heads()?;
    let rope = Rope::with(reader, sizes[2], "full_attention", 10_000.0, 0.5)?;
    // The configuration counts gate and up together.
    let inner = reader.width_or(&["intermediate_size"], 3 * hidden)? / 2;
    let activation = reader.activation(Activation::GeluTanh)?;
    let norm = |name: String| Norm::rms(name, hidden, epsilon).about_one();
    let attends = attends(reader)?;
    let layers = reader.layers("model.layers", |index, module| {
        let within = format!("{module}.temporal_block");
        let mixer: Box<dyn Block> = match attends(index) {
            true => Box::new(attention(reader, &within, sizes, &rope)?),
            false => Box::new(recurrent(reader, &within, sizes[0], activation)?),
        };
        let mlp = format!("{module}.mlp_block");
        let mlp = Gated::new(&mlp, [hidden, inner], true, activation);
        Ok(Layer::sequential([
            Branch::new(norm(format!("{module}.temporal_pre_norm")), mixer),
            Branch::new(norm(format!("{module}.channel_pre_norm")), mlp),
        ]))
    })?;
    let mut embedding = reader.embedding("model.embed_tokens");
    // The factor is a number of the format that these models were trained in.
    embedding.scale = half::bf16::from_f64((hidden as f64).sqrt()).to_f64();
    let mut head = reader.head("lm_head");
    head.softcap = Some(reader.positive_or(&["logits_soft_cap"], 30.0)?);
    Ok(Decoder {
        embedding,
        layers,
        norm: Some(norm("model.final_norm".into())),
        head,
        context: rope.context,
    })
}

/// Whether a layer has attention: by the list `block_types`, which is repeated.
fn attends(reader: &Reader<'_>) -> Result<impl Fn(usize) -> bool, LoadError> {
    let name = "block_types";
    let kinds: Vec<bool> = match reader.fields.get(name) {
        None => vec![false, false, true],
        Some(value) => {
            let kinds = value.as_array().into_iter().flatten();
            let kinds = kinds.map(|kind| match kind.as_str() {
                Some("attention") => Some(true),
                Some("recurrent") => Some(false),
                _ => None,
            });
            let kinds: Option<Vec<bool>> = kinds.collect();
            let kinds = kinds.filter(|kinds| !kinds.is_empty());
            kinds.ok_or_else(|| {
                let what = "a list of `recurrent` and `attention`";
                reader.fields.expected(name, what, value)
            })?
        }
    };
    Ok(move |layer: usize| kinds[layer % kinds.len()])
}

fn attention(
    reader: &Reader<'_>,
    module: &str,
    sizes: [usize; 3],
    rope: &Rope,
) -> Result<Attention, LoadError> {
    let ([heads, _, width], hidden) = (sizes, reader.config.hidden);
    let bias = reader.flag_or("attention_bias", false)?;
    let projections = Projections::new(module, hidden, sizes, bias);
    let output = Linear::new(format!("{module}.o_proj"), heads * width, hidden, true);
    let mut attention = Attention::new(sizes, projections, output, Some(rope.clone()));
    let window = reader
        .fields
        .size("attention_window_size", 1..=limit::CONTEXT)?;
    attention.window = Some(window.unwrap_or(2048));
    Ok(attention)
}

fn recurrent(
    reader: &Reader<'_>,
    module: &str,
    blocks: usize,
    activation: Activation,
) -> Result<GatedLinear, LoadError> {
    let hidden = reader.config.hidden;
    let channels = reader.width_or(&["lru_width"], hidden)?;
    let kernel = reader.width_or(&["conv1d_width"], 4)?;
    if !channels.is_multiple_of(blocks) {
        let reason = format!("the {blocks} attention heads do not divide {channels}");
        return Err(reader.fields.error("lru_width", reason));
    }
    let linear = |name: &str, from, to| Linear::new(format!("{module}.{name}"), from, to, true);
    let convolution = format!("{module}.conv_1d");
    Ok(GatedLinear {
        module: format!("{module}.rg_lru"),
        blocks,
        gate: linear("linear_y", hidden, channels),
        activation,
        input: linear("linear_x", hidden, channels),
        convolution: Convolution::new(&convolution, [channels, kernel], true, None),
        output: linear("linear_out", channels, hidden),
    })
}
