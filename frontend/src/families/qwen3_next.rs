//! Qwen3-Next and Qwen3.5, dense and with experts: gated attention in some layers, a gated delta rule
//! in the others.

use super::parts::{Defaults, Parts};
use super::qwen2_moe::{shared_experts, sparse};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::{Block, Branch, Convolution, Decoder, GatedDelta, Layer, Linear, Norm};
use mlxcel_ir::Activation;

pub(super) const FAMILY: Family = Family {
    model_types: &["qwen3_next"],
    title: "Qwen3-Next",
    category: Category::Recurrent,
    names: Names::MODEL,
    decoder: |reader| decoder(reader, Some(sparse(reader)?)),
};

pub(super) const DENSE: Family = Family {
    model_types: &["qwen3_5_text", "qwen3_5"],
    title: "Qwen3.5",
    decoder: |reader| decoder(reader, None),
    ..FAMILY
};

pub(super) const MOE: Family = Family {
    model_types: &["qwen3_5_moe_text", "qwen3_5_moe"],
    title: "Qwen3.5 MoE",
    decoder: |reader| decoder(reader, Some(vec![true; reader.config.layers])),
    ..FAMILY
};

fn decoder(reader: &Reader<'_>, sparse: Option<Vec<bool>>) -> Result<Decoder, LoadError> {
    let inner = reader.width_or(&["intermediate_size", "moe_intermediate_size"], 1)?;
    let turning = 0.25;
    let mut parts = Parts::with_inner(
        reader,
        Defaults {
            turning,
            ..Defaults::default()
        },
        inner,
    )?;
    parts.mlp_bias = false;
    let attends = attends(reader)?;
    let mut decoder = parts.decoder(|index, module| {
        let mixer: Box<dyn Block> = match attends[index] {
            true => Box::new(attention(&parts, module)),
            false => Box::new(delta(&parts, &format!("{module}.linear_attn"))?),
        };
        let feed_forward: Box<dyn Block> = match &sparse {
            Some(sparse) if sparse[index] => {
                Box::new(shared_experts(reader, &format!("{module}.mlp"), true)?)
            }
            _ => Box::new(parts.gated(module)),
        };
        let norm = |name: &str| parts.rms(module, name).about_one();
        Ok(Layer::sequential([
            Branch::new(norm("input_layernorm"), mixer),
            Branch::new(norm("post_attention_layernorm"), feed_forward),
        ]))
    })?;
    decoder.norm = decoder.norm.map(Norm::about_one);
    Ok(decoder)
}

/// Which layers have attention: every fourth where the configuration does not say.
pub(super) fn attends(reader: &Reader<'_>) -> Result<Vec<bool>, LoadError> {
    let period = reader.width_or(&["full_attention_interval"], 4)?;
    Ok(match reader.kinds("layer_types")? {
        Some(kinds) => kinds
            .into_iter()
            .map(|kind| kind == "full_attention")
            .collect(),
        None => (1..=reader.config.layers)
            .map(|layer| layer.is_multiple_of(period))
            .collect(),
    })
}

/// Attention whose query layer gives, for each head, its query and then a gate.
fn attention(parts: &Parts<'_>, module: &str) -> impl Block + use<> {
    let [heads, _, width] = parts.sizes;
    let mut attention = parts.attention(module);
    let name = format!("{module}.self_attn.q_proj");
    let both = Linear::new(name, parts.hidden, 2 * heads * width, parts.bias);
    attention.projections.q = both.blocks(0..both.to, 2 * width, width);
    attention.gate = Some(both.blocks(width..both.to, 2 * width, width));
    let [q, k] = parts.head_norms(module, ["q_norm", "k_norm"]);
    attention.with_head_norms(q.about_one(), k.about_one())
}

/// The sizes of a gated delta rule: heads of keys and of values, and their widths.
pub(super) fn sizes(reader: &Reader<'_>) -> Result<[usize; 4], LoadError> {
    let keys = reader.width("linear_num_key_heads")?;
    let values = reader.width("linear_num_value_heads")?;
    if !values.is_multiple_of(keys) {
        let reason = format!("{values} is no multiple of the {keys} key heads");
        return Err(reader.fields.error("linear_num_value_heads", reason));
    }
    let widths = ["linear_key_head_dim", "linear_value_head_dim"].map(|name| reader.width(name));
    let [key, value] = widths;
    Ok([keys, values, key?, value?])
}

fn delta(parts: &Parts<'_>, module: &str) -> Result<GatedDelta, LoadError> {
    let (reader, hidden) = (parts.reader, parts.hidden);
    let [key_heads, value_heads, key, value] = sizes(reader)?;
    let (keys, values) = (key_heads * key, value_heads * value);
    let named = |name: &str| format!("{module}.{name}");
    let linear = |name: &str, to| Linear::new(named(name), hidden, to, false);
    // Qwen3-Next has two layers, whose rows are each key head's of all.
    let each = value_heads / key_heads;
    let fused = reader.weights.has(&named("in_proj_qkvz.weight"));
    let (projections, gate, share, decay) = if fused {
        let stride = 2 * key + 2 * each * value;
        let all = linear("in_proj_qkvz", key_heads * stride);
        let block = |start, width| all.blocks(start..all.to, stride, width);
        let both = linear("in_proj_ba", 2 * value_heads);
        let one = |start: usize| both.blocks(start..both.to, 2 * each, each);
        let qkv = vec![block(0, key), block(key, key), block(2 * key, each * value)];
        (
            qkv,
            block(2 * key + each * value, each * value),
            one(0),
            one(each),
        )
    } else {
        let qkv = vec![linear("in_proj_qkv", 2 * keys + values)];
        let one = |name| linear(name, value_heads);
        (
            qkv,
            linear("in_proj_z", values),
            one("in_proj_b"),
            one("in_proj_a"),
        )
    };
    let kernel = reader.width_or(&["linear_conv_kernel_dim"], 4)?;
    let channels = [2 * keys + values, kernel];
    let activation = Some(parts.activation);
    Ok(GatedDelta {
        key_heads,
        value_heads,
        widths: [key, value],
        projections,
        convolutions: vec![Convolution::new(
            &named("conv1d"),
            channels,
            false,
            activation,
        )],
        share,
        share_scale: 1.0,
        decay: vec![decay],
        rate: [named("A_log"), named("dt_bias")],
        gate: vec![gate],
        gate_activation: Activation::Silu,
        norm: Norm::rms(named("norm"), value, parts.epsilon),
        output: Linear::new(named("out_proj"), values, hidden, false),
    })
}
