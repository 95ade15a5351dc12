//! LFM2, dense and with experts: short convolutions, and attention in some layers.

use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, Rope, limit};
use crate::decoder::{
    Attention, Block, Branch, Convolution, Decoder, Experts, Gated, Layer, Linear, Norm, Normal,
    Projections, Router, Scores, ShortConvolution,
};
use mlxcel_ir::Activation;

pub(super) const FAMILY: Family = Family {
    model_types: &["lfm2"],
    title: "LFM2",
    category: Category::Recurrent,
    names: Names::MODEL,
    decoder: |reader| {
        let inner = inner(reader)?;
        decoder(reader, |_, module| {
            Ok(Box::new(gated(reader, module, inner)))
        })
    },
};

pub(super) const MOE: Family = Family {
    model_types: &["lfm2_moe"],
    title: "LFM2 MoE",
    decoder: |reader| {
        let dense = reader.count_or("num_dense_layers", 2)?;
        let inner = reader.width("intermediate_size")?;
        decoder(reader, |index, module| {
            Ok(match index < dense {
                true => Box::new(gated(reader, module, inner)),
                false => Box::new(experts(reader, module)?),
            })
        })
    },
    ..FAMILY
};

fn decoder(
    reader: &Reader<'_>,
    feed_forward: impl Fn(usize, &str) -> Result<Box<dyn Block>, LoadError>,
) -> Result<Decoder, LoadError> {
    let hidden = reader.config.hidden;
    let sizes = reader.heads()?;
    let [heads, _, width] = sizes;
    let epsilon = reader.positive_or(&["norm_eps", "block_norm_eps"], 1e-5)?;
    let rope = Rope::of_kind(reader, width, "full_attention", 1_000_000.0)?;
    let kernel = reader.width_or(&["conv_L_cache"], 3)?;
    let bias = reader.flag_or("conv_bias", false)?;
    let attends = attends(reader)?;
    let layers = reader.layers("model.layers", |index, module| {
        let linear =
            |name: &str, from, to, bias| Linear::new(format!("{module}.{name}"), from, to, bias);
        let norm = |name: &str, width| Norm::rms(format!("{module}.{name}"), width, epsilon);
        let mixer: Box<dyn Block> = if attends[index] {
            let within = format!("{module}.self_attn");
            let projections = Projections::new(&within, hidden, sizes, false);
            let output = linear("self_attn.out_proj", heads * width, hidden, false);
            let norm = |name: &str| norm(&format!("self_attn.{name}"), width);
            let attention = Attention::new(sizes, projections, output, Some(rope.clone()));
            Box::new(attention.with_head_norms(norm("q_layernorm"), norm("k_layernorm")))
        } else {
            let conv = format!("{module}.conv.conv");
            Box::new(ShortConvolution {
                input: linear("conv.in_proj", hidden, 3 * hidden, bias),
                convolution: Convolution::new(&conv, [hidden, kernel], bias, None),
                output: linear("conv.out_proj", hidden, hidden, bias),
            })
        };
        let feed_forward = feed_forward(index, &format!("{module}.feed_forward"))?;
        Ok(Layer::sequential([
            Branch::new(norm("operator_norm", hidden), mixer),
            Branch::new(norm("ffn_norm", hidden), feed_forward),
        ]))
    })?;
    let mut head = reader.head("lm_head");
    if reader.config.tied.is_none() && reader.fields.flag("tie_embedding")?.unwrap_or(true) {
        head.linear = None;
    }
    Ok(Decoder {
        embedding: reader.embedding("model.embed_tokens"),
        layers,
        norm: Some(Norm::rms("model.embedding_norm", hidden, epsilon)),
        head,
        context: rope.context,
    })
}

/// Which layers have attention.
fn attends(reader: &Reader<'_>) -> Result<Vec<bool>, LoadError> {
    if let Some(kinds) = reader.kinds("layer_types")? {
        return Ok(kinds
            .into_iter()
            .map(|kind| kind == "full_attention")
            .collect());
    }
    let listed = reader.sizes("full_attn_idxs", 0..=limit::LAYERS)?;
    let layers = 0..reader.config.layers;
    Ok(match listed {
        Some(listed) => layers.map(|layer| listed.contains(&layer)).collect(),
        None => vec![true; reader.config.layers],
    })
}

/// The width within the feed-forward part, which the configuration may give before it is adjusted.
fn inner(reader: &Reader<'_>) -> Result<usize, LoadError> {
    let inner = reader.width(reader.fields.any(&["intermediate_size", "block_ff_dim"]))?;
    if !reader.flag_or("block_auto_adjust_ff_dim", true)? {
        return Ok(inner);
    }
    let name = "block_ffn_dim_multiplier";
    let factor = reader.positive_or(&[name], 1.0)?;
    let multiple = reader.width_or(&["block_multiple_of"], 256)?;
    let inner = reader.scaled(name, 2 * inner / 3, factor)?;
    Ok(inner.next_multiple_of(multiple))
}

fn gated(reader: &Reader<'_>, module: &str, inner: usize) -> Gated {
    let hidden = reader.config.hidden;
    let linear = |name: &str, from, to| Linear::new(format!("{module}.{name}"), from, to, false);
    let (gate, up) = (linear("w1", hidden, inner), linear("w3", hidden, inner));
    Gated::of(gate, up, linear("w2", inner, hidden), Activation::Silu)
}

fn experts(reader: &Reader<'_>, module: &str) -> Result<Experts, LoadError> {
    let hidden = reader.config.hidden;
    let [count, chosen] = reader.experts()?;
    let gate = Linear::new(format!("{module}.gate"), hidden, count, false);
    let mut router = Router::new(gate, chosen, Scores::Sigmoid);
    let correction = format!("{module}.expert_bias");
    router.correction = reader
        .flag_or("use_expert_bias", true)?
        .then_some(correction);
    router.normal = match reader.flag_or("norm_topk_prob", true)? {
        true => Normal::Sum(1e-6),
        false => Normal::None,
    };
    router.scale = reader.number_or("routed_scaling_factor", 1.0)?;
    let sizes = [hidden, reader.width("moe_intermediate_size")?];
    Ok(Experts::new(
        reader.weights,
        module,
        router,
        sizes,
        Activation::Silu,
    ))
}
