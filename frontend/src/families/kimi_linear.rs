//! Kimi Linear: a delta rule with a decay for each element of a key in most layers, latent attention
//! without positions in the others, experts in all but the first.

use super::deepseek::{dense_layers, experts, latent, mlp, sigmoid_router};
use super::llama::{common, pre_norm};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, limit};
use crate::decoder::{Block, Convolution, Decoder, GatedDelta, Linear, Norm};
use mlxcel_ir::Activation;

pub(super) const FAMILY: Family = Family {
    model_types: &["kimi_linear"],
    title: "Kimi Linear",
    category: Category::Recurrent,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let attends = attends(reader)?;
    let dense = dense_layers(reader, 1)?;
    common(reader, None, |index, module| {
        let within = format!("{module}.self_attn");
        let mixer: Box<dyn Block> = match attends[index] {
            true => Box::new(latent(reader, &within, None)?),
            false => Box::new(delta(reader, &within)?),
        };
        let sparse = format!("{module}.block_sparse_moe");
        let plain = format!("{module}.mlp");
        let feed_forward: Box<dyn Block> = match dense[index] {
            true => {
                let inner = reader.width("intermediate_size")?;
                let has_plain = reader.weights.has(&format!("{plain}.up_proj.weight"));
                let module = if has_plain { &plain } else { &sparse };
                Box::new(mlp(reader, module, inner)?)
            }
            false => Box::new(experts(reader, &sparse, sigmoid_router(reader, &sparse)?)?),
        };
        pre_norm(reader, module, mixer, feed_forward)
    })
}

/// Which layers have attention: by name, or by a list of numbers from 1.
fn attends(reader: &Reader<'_>) -> Result<Vec<bool>, LoadError> {
    if let Some(kinds) = reader.kinds("layer_types")? {
        return Ok(kinds
            .into_iter()
            .map(|kind| kind == "full_attention")
            .collect());
    }
    let inner = reader.fields.object("linear_attn_config")?;
    let listed = inner
        .as_ref()
        .and_then(|inner| inner.get("full_attn_layers"));
    let Some(listed) = listed.and_then(|listed| listed.as_array()) else {
        return Err(reader.fields.missing("layer_types"));
    };
    let is_listed = |layer: usize| {
        listed
            .iter()
            .any(|item| item.as_u64() == Some(layer as u64))
    };
    Ok((1..=reader.config.layers).map(is_listed).collect())
}

fn delta(reader: &Reader<'_>, module: &str) -> Result<GatedDelta, LoadError> {
    let hidden = reader.config.hidden;
    let inner = reader.fields.object("linear_attn_config")?;
    let size = |outer: &str, name: &str, default: usize| {
        let published = match &inner {
            Some(inner) => inner.size(name, 1..=limit::HEADS)?,
            None => None,
        };
        let own = reader.fields.size(outer, 1..=limit::HEADS)?;
        Ok::<_, LoadError>(published.or(own).unwrap_or(default))
    };
    let heads = size("linear_num_heads", "num_heads", 32)?;
    let width = size("linear_head_dim", "head_dim", 128)?;
    let kernel = size("linear_conv_kernel_dim", "short_conv_kernel_size", 4)?;
    let activation = Some(reader.activation(Activation::Silu)?);
    let all = heads * width;
    let named = |name: &str| format!("{module}.{name}");
    let linear = |name: &str, from, to| Linear::new(named(name), from, to, false);
    let conv = |name: &str| Convolution::new(&named(name), [all, kernel], false, activation);
    Ok(GatedDelta {
        key_heads: heads,
        value_heads: heads,
        widths: [width, width],
        projections: ["q_proj", "k_proj", "v_proj"]
            .map(|name| linear(name, hidden, all))
            .into(),
        convolutions: ["q_conv1d", "k_conv1d", "v_conv1d"].map(conv).into(),
        share: linear("b_proj", hidden, heads),
        share_scale: 1.0,
        decay: vec![
            linear("f_a_proj", hidden, width),
            linear("f_b_proj", width, all),
        ],
        rate: [named("A_log"), named("dt_bias")],
        gate: vec![
            linear("g_a_proj", hidden, width),
            linear("g_b_proj", width, all),
        ],
        gate_activation: Activation::Sigmoid,
        norm: Norm::rms(named("o_norm"), width, reader.epsilon()?),
        output: linear("o_proj", all, hidden),
    })
}
