//! Mamba, Falcon-Mamba and Mamba-2: nothing but recurrent layers.

use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, alias, limit};
use crate::decoder::{
    Block, Branch, Convolution, Decoder, GatedNorm, Layer, Linear, Mamba, Mamba2, Norm,
};
use mlxcel_ir::Activation;
use serde_json::Value;

pub(super) const FAMILY: Family = Family {
    model_types: &["mamba"],
    title: "Mamba",
    category: Category::Recurrent,
    names: Names {
        root: "backbone",
        transposed: &[],
    },
    decoder: |reader| decoder(reader, |module| mamba(reader, module, inner(reader)?)),
};

pub(super) const FALCON: Family = Family {
    model_types: &["falcon_mamba"],
    title: "Falcon-Mamba",
    decoder: |reader| {
        let epsilon = reader.positive_or(&["mixer_rms_eps"], 1e-6)?;
        decoder(reader, |module| {
            let mut mamba = mamba(reader, module, inner(reader)?)?;
            let norm = |width| Norm::rms("", width, epsilon).plain();
            mamba.norms = Some([mamba.rank, mamba.state, mamba.state].map(norm));
            Ok(mamba)
        })
    },
    ..FAMILY
};

pub(super) const MAMBA2: Family = Family {
    model_types: &["mamba2"],
    title: "Mamba-2",
    decoder: |reader| decoder(reader, |module| mamba2(reader, module)),
    ..FAMILY
};

fn decoder<B: Block + 'static>(
    reader: &Reader<'_>,
    mixer: impl Fn(&str) -> Result<B, LoadError>,
) -> Result<Decoder, LoadError> {
    let hidden = reader.config.hidden;
    let epsilon = reader.positive_or(&["layer_norm_epsilon"], 1e-5)?;
    let norm = |name: &str| Norm::rms(name, hidden, epsilon);
    let layers = reader.layers("backbone.layers", |_, module| {
        let before = norm(&format!("{module}.norm"));
        let mixer = mixer(&format!("{module}.mixer"))?;
        Ok(Layer::sequential([Branch::new(before, mixer)]))
    })?;
    Ok(Decoder {
        embedding: reader.embedding("backbone.embeddings"),
        layers,
        norm: Some(norm("backbone.norm_f")),
        head: reader.head("lm_head"),
        context: None,
    })
}

/// The width of a model that is nothing but Mamba.
fn inner(reader: &Reader<'_>) -> Result<usize, LoadError> {
    let expand = reader.width_or(&["expand"], 2)?;
    reader.width_or(
        &["intermediate_size", "d_inner"],
        expand * reader.config.hidden,
    )
}

/// The Mamba layer `module` of `inner` channels, without norms; hybrid models have `mamba_` before
/// the names of its sizes.
pub(super) fn mamba(reader: &Reader<'_>, module: &str, inner: usize) -> Result<Mamba, LoadError> {
    let (fields, hidden) = (&reader.fields, reader.config.hidden);
    let state = reader.width_or(&["state_size", "mamba_d_state"], 16)?;
    let name = fields.any(&["time_step_rank", "mamba_dt_rank"]);
    let rank = match fields.get(name).and_then(Value::as_str) {
        Some("auto") => hidden.div_ceil(16),
        _ => reader.width_or(&[name], hidden.div_ceil(16))?,
    };
    let kernel = reader.width_or(alias::KERNEL, 4)?;
    let (bias, conv_bias) = (
        reader.flag_or(fields.any(alias::MAMBA_BIAS), false)?,
        reader.flag_or(fields.any(alias::KERNEL_BIAS), true)?,
    );
    let activation = Some(reader.activation(Activation::Silu)?);
    let linear =
        |name: &str, from, to, bias| Linear::new(format!("{module}.{name}"), from, to, bias);
    let conv = format!("{module}.conv1d");
    Ok(Mamba {
        module: module.into(),
        rank,
        state,
        input: linear("in_proj", hidden, 2 * inner, bias),
        convolution: Convolution::new(&conv, [inner, kernel], conv_bias, activation),
        choice: linear("x_proj", inner, rank + 2 * state, false),
        step: linear("dt_proj", rank, inner, true),
        output: linear("out_proj", inner, hidden, bias),
        norms: None,
    })
}

fn mamba2(reader: &Reader<'_>, module: &str) -> Result<Mamba2, LoadError> {
    let hidden = reader.config.hidden;
    let expand = reader.width_or(&["expand"], 2)?;
    let heads = reader.width_or(&["num_heads"], 128)?;
    let sizes = Sizes {
        heads,
        width: reader.width_or(&["head_dim"], expand * hidden / heads.max(1))?,
        groups: reader.width_or(&["n_groups"], 8)?,
        state: reader.width_or(&["state_size"], 128)?,
        kernel: reader.width_or(&["conv_kernel"], 4)?,
    };
    let bias = reader.flag_or("use_bias", false)?;
    let conv_bias = reader.flag_or("use_conv_bias", true)?;
    let epsilon = reader.positive_or(&["layer_norm_epsilon"], 1e-5)?;
    mixer(reader, module, sizes, [bias, conv_bias], Some(epsilon))
}

/// The sizes of a Mamba-2 layer.
pub(super) struct Sizes {
    pub(super) heads: usize,
    pub(super) width: usize,
    pub(super) groups: usize,
    pub(super) state: usize,
    pub(super) kernel: usize,
}

impl Sizes {
    /// As hybrid models name them.
    pub(super) fn hybrid(reader: &Reader<'_>) -> Result<Self, LoadError> {
        let hidden = reader.config.hidden;
        let heads = reader.width_or(&["mamba_n_heads", "n_mamba_heads", "mamba_num_heads"], 128)?;
        let expand = reader.width_or(&["mamba_expand"], 2)?;
        let inner = reader.width_or(&["mamba_d_ssm"], expand * hidden)?;
        let name = reader
            .fields
            .any(&["mamba_d_head", "mamba_headdim", "mamba_head_dim"]);
        let width = match reader.fields.text(name) {
            Ok(Some("auto")) => None,
            _ => reader.fields.size(name, 1..=limit::WIDTH)?,
        };
        Ok(Self {
            heads,
            width: width.unwrap_or(inner / heads),
            groups: reader.width_or(&["mamba_n_groups", "mamba_ngroups", "n_groups"], 1)?,
            state: reader.width_or(&["mamba_d_state", "ssm_state_size"], 256)?,
            kernel: reader.width_or(alias::KERNEL, 4)?,
        })
    }
}

/// A Mamba-2 layer with biases of its linear layers and of its convolution or without, and a norm
/// after the gate, of all heads together, with the epsilon given.
pub(super) fn mixer(
    reader: &Reader<'_>,
    module: &str,
    sizes: Sizes,
    [bias, conv_bias]: [bool; 2],
    epsilon: Option<f64>,
) -> Result<Mamba2, LoadError> {
    let hidden = reader.config.hidden;
    let Sizes {
        heads,
        width,
        groups,
        state,
        kernel,
    } = sizes;
    if !heads.is_multiple_of(groups) || width == 0 {
        let reason = format!("{heads} heads of width {width} have no {groups} equal groups");
        return Err(reader.fields.error("n_groups", reason));
    }
    let (inner, channels) = (heads * width, heads * width + 2 * groups * state);
    let linear = |name: &str, from, to| Linear::new(format!("{module}.{name}"), from, to, bias);
    // The one field of Zamba 2 is about its feed-forward parts.
    let name = match reader.config.model_type.as_str() {
        "zamba2" => "mamba_hidden_act",
        _ => reader.fields.any(&["mamba_hidden_act", "hidden_act"]),
    };
    let activation = Some(reader.activation_at(name, Activation::Silu)?);
    let conv = format!("{module}.conv1d");
    Ok(Mamba2 {
        module: module.into(),
        heads,
        width,
        groups,
        state,
        input: linear("in_proj", hidden, inner + channels + heads),
        convolution: Convolution::new(&conv, [channels, kernel], conv_bias, activation),
        output: linear("out_proj", inner, hidden),
        norm: epsilon.map(|epsilon| GatedNorm {
            norm: Norm::rms("", inner, epsilon).plain(),
            weight: format!("{module}.norm.weight"),
            first: false,
        }),
        steps: steps(reader)?,
        scales: [1.0; 5],
    })
}

/// The bounds of time steps. Infinity is spelled in several ways, none of them JSON's.
fn steps(reader: &Reader<'_>) -> Result<[f64; 2], LoadError> {
    let Some(value) = reader.fields.get("time_step_limit") else {
        return Ok([0.0, f64::INFINITY]);
    };
    let bounds = value.as_array().filter(|bounds| bounds.len() == 2);
    let low = bounds
        .and_then(|bounds| bounds[0].as_f64())
        .filter(|low| *low >= 0.0);
    let Some((low, high)) = low.zip(bounds.map(|bounds| &bounds[1])) else {
        return Err(reader
            .fields
            .expected("time_step_limit", "two numbers", value));
    };
    Ok([low, high.as_f64().unwrap_or(f64::INFINITY)])
}
