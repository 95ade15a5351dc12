//! MiniMax-Text-01: lightning attention in most layers, attention in some, experts in all.

use super::mixtral::experts;
use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::{Block, Branch, Decoder, Layer, Lightning, Linear, Norm, Step};

pub(super) const FAMILY: Family = Family {
    model_types: &["minimax", "minimax_text_01"],
    title: "MiniMax-Text-01",
    category: Category::Recurrent,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let [_, _, width] = reader.heads()?;
    let turning = match reader.count_or("rotary_dim", width)? {
        turning if turning <= width => turning as f64 / width as f64,
        _ => 1.0,
    };
    let parts = Parts::read(
        reader,
        Defaults {
            epsilon: 1e-5,
            base: 1_000_000.0,
            turning,
            ..Defaults::default()
        },
    )?;
    let attends = attends(reader)?;
    let window = reader.window()?;
    let factor = |kind: &str, end: &str| {
        let name = format!("{kind}_{end}_factor");
        let kind = kind.replace("_attn", "_attention");
        let published = format!("layernorm_{kind}_{end}");
        reader.number_or(reader.fields.any(&[&name, &published]), 1.0)
    };
    parts.decoder(|index, module| {
        let (kind, mixer): (_, Box<dyn Block>) = match attends[index] {
            true => {
                let mut attention = parts.attention(module);
                attention.window = window;
                ("full_attn", Box::new(attention))
            }
            false => ("linear_attn", Box::new(lightning(&parts, index, module))),
        };
        let step = |norm: &str, body: Box<dyn Block>, kind: &str| {
            Ok::<_, LoadError>(Step {
                carry: factor(kind, "alpha")?,
                carry_normed: true,
                ..Step::of(Branch::new(parts.rms(module, norm), body)).scaled(factor(kind, "beta")?)
            })
        };
        let experts = Box::new(experts(reader, &format!("{module}.block_sparse_moe"))?);
        Ok(Layer {
            steps: vec![
                step("input_layernorm", mixer, kind)?,
                step("post_attention_layernorm", experts, "mlp")?,
            ],
        })
    })
}

/// Which layers have attention: by name, or by a list of 0 and 1.
fn attends(reader: &Reader<'_>) -> Result<Vec<bool>, LoadError> {
    let layers = reader.config.layers;
    if let Some(kinds) = reader.kinds("layer_types")? {
        return Ok(kinds
            .into_iter()
            .map(|kind| kind == "full_attention")
            .collect());
    }
    match reader.sizes("attn_type_list", 0..=1)? {
        Some(kinds) if kinds.len() == layers => Ok(kinds.iter().map(|&kind| kind == 1).collect()),
        Some(_) => {
            let reason = format!("must have {layers} elements");
            Err(reader.fields.error("attn_type_list", reason))
        }
        None => Ok((1..=layers).map(|layer| !layer.is_multiple_of(2)).collect()),
    }
}

/// Lightning attention of layer `index`. Its heads forget at rates like ALiBi's slopes, slower in
/// later layers.
fn lightning(parts: &Parts<'_>, index: usize, module: &str) -> Lightning {
    let ([heads, _, width], hidden) = (parts.sizes, parts.hidden);
    let last = parts.reader.config.layers as f64 - 1.0;
    let factor = 1.0 - index as f64 / (last + 1e-5) + 1e-5;
    let rate = |head: usize| (-8.0 * (head + 1) as f64 / heads as f64).exp2() * factor;
    let named = |name: &str| format!("{module}.self_attn.{name}");
    Lightning {
        width,
        input: Linear::new(named("qkv_proj"), hidden, 3 * heads * width, false),
        activation: parts.activation,
        decay: (0..heads).map(|head| (-rate(head)).exp()).collect(),
        norm: Norm::rms(named("norm"), heads * width, 1e-6),
        gate: Linear::new(named("output_gate"), hidden, heads * width, false),
        output: Linear::new(named("out_proj"), heads * width, hidden, false),
    }
}
