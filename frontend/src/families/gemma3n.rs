//! Gemma 3n, its language model: several residual streams, of which a layer works on one; an input of
//! each layer's own; gates of which few numbers count; last layers that use earlier keys and values.

use super::gemma4::{inputs, sharing};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, Rope, limit};
use crate::decoder::{
    AlternatingUpdate, Attention, Branch, Decoder, Gated, Layer, LayerInput, Linear,
    LowRankResidual, Norm, Projections, Step, Streams,
};
use mlxcel_ir::Activation;

pub(super) const FAMILY: Family = Family {
    model_types: &["gemma3n_text", "gemma3n"],
    title: "Gemma 3n",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let hidden = reader.config.hidden;
    let count = reader.width_or(&["altup_num_inputs"], 4)?;
    let active = reader.count_or("altup_active_idx", 0)?;
    if active >= count || count > limit::LAYERS {
        let reason = format!("is {active}, which is none of the {count} streams");
        return Err(reader.fields.error("altup_active_idx", reason));
    }
    let own = reader.width_or(&["hidden_size_per_layer_input"], 256)?;
    let inputs = inputs(reader, own)?;
    let (epsilon, rank) = (reader.epsilon()?, reader.width_or(&["laurel_rank"], 64)?);
    let scaled = reader.flag_or("altup_correct_scale", true)?;
    let activation = reader.activation(Activation::GeluTanh)?;
    let sliding = reader.sliding(|layer| !(layer + 1).is_multiple_of(5))?;
    let sharing = sharing(reader, &sliding, 15)?;
    let (inner, cutoffs) = (inner(reader)?, cutoffs(reader)?);
    let layers = reader.layers("model.layers", |index, module| {
        let linear =
            |name: &str, from, to| Linear::new(format!("{module}.{name}"), from, to, false);
        let norm = |name: &str| Norm::rms(format!("{module}.{name}"), hidden, epsilon);
        let mut attention = attention(reader, module, sliding[index])?;
        attention.sharing = sharing[index].clone();
        let before = norm("input_layernorm");
        let beside = LowRankResidual {
            down: linear("laurel.linear_left", hidden, rank),
            up: linear("laurel.linear_right", rank, hidden),
            norm: norm("laurel.post_laurel_norm"),
        };
        let mut first = Step::parallel(vec![
            Branch::new(before.clone(), attention).then(norm("post_attention_layernorm")),
            Branch::new(before, beside),
        ]);
        (first.carry, first.scale) = (0.5f64.sqrt(), 0.5f64.sqrt());
        let sizes = [hidden, inner[index]];
        let mut mlp = Gated::new(&format!("{module}.mlp"), sizes, false, activation);
        mlp.cutoff = cutoffs[index];
        let mlp = Branch::new(norm("pre_feedforward_layernorm"), mlp)
            .then(norm("post_feedforward_layernorm"));
        let input = LayerInput {
            inputs: inputs.clone(),
            index,
            gate: linear("per_layer_input_gate", hidden, own),
            output: linear("per_layer_projection", own, hidden),
            activation,
        };
        let update = AlternatingUpdate {
            count,
            active,
            router: (
                norm("altup.router_norm"),
                linear("altup.modality_router", hidden, count),
            ),
            guess: linear("altup.prediction_coefs", count, count * count),
            correction: linear("altup.correction_coefs", count, count),
            steps: vec![first, Step::of(mlp)],
            scale: scaled.then(|| format!("{module}.altup.correct_output_scale")),
            input: (input, norm("post_per_layer_input_norm")),
        };
        Ok(Layer {
            steps: vec![Step::replacing(Branch::new(None, update))],
        })
    })?;
    let streams = |name: &str| Streams {
        layers: (0..count - 1)
            .map(|index| Linear::new(format!("model.{name}.{index}"), hidden, hidden, false))
            .collect(),
    };
    let mut embedding = reader.embedding("model.embed_tokens");
    embedding.scale = (hidden as f64).sqrt();
    embedding.streams = Some(streams("altup_projections"));
    let mut head = reader.head("lm_head");
    head.streams = Some(streams("altup_unembed_projections"));
    let cap = reader.positive_or(&["final_logit_softcapping"], 30.0)?;
    head.softcap = Some(cap).filter(|_| !reader.fields.is_null("final_logit_softcapping"));
    Ok(Decoder {
        embedding,
        layers,
        norm: Some(Norm::rms("model.norm", hidden, epsilon)),
        head,
        context: None,
    })
}

fn attention(reader: &Reader<'_>, module: &str, slides: bool) -> Result<Attention, LoadError> {
    let hidden = reader.config.hidden;
    let [heads, kv_heads] = reader.head_counts()?;
    let width = reader.fields.size("head_dim", 1..=limit::HEADS)?;
    let width = width.unwrap_or(256);
    let sizes = [heads, kv_heads, width];
    let rope = match slides {
        true if reader.fields.get("rope_parameters").is_none() => {
            Rope::plain(width, reader.positive_or(&["rope_local_base_freq"], 1e4)?)
        }
        true => Rope::of_kind(reader, width, "sliding_attention", 1e4)?,
        false => Rope::of_kind(reader, width, "full_attention", 1e6)?,
    };
    let (bias, epsilon) = (reader.flag_or("attention_bias", false)?, reader.epsilon()?);
    let within = format!("{module}.self_attn");
    let norm = |name: &str| Norm::rms(format!("{within}.{name}"), width, epsilon);
    let projections = Projections::new(&within, hidden, sizes, bias);
    let output = Linear::new(format!("{within}.o_proj"), heads * width, hidden, bias);
    let mut attention = Attention::new(sizes, projections, output, Some(rope))
        .with_head_norms(norm("q_norm"), norm("k_norm"));
    attention.value_norm = Some(norm("").plain());
    attention.scale = 1.0;
    let window = reader.window()?.unwrap_or(512);
    attention.window = slides.then_some(window);
    Ok(attention)
}

/// The width within each layer's feed-forward part.
fn inner(reader: &Reader<'_>) -> Result<Vec<usize>, LoadError> {
    let (name, layers) = ("intermediate_size", reader.config.layers);
    let Some(value) = reader.fields.get(name).filter(|value| value.is_array()) else {
        return Ok(vec![reader.width_or(&[name], 16_384)?; layers]);
    };
    let sizes = reader.sizes(name, 1..=limit::WIDTH)?.unwrap_or_default();
    match sizes.len() == layers {
        true => Ok(sizes),
        false => {
            let what = format!("a number or a list of {layers}");
            Err(reader.fields.expected(name, &what, value))
        }
    }
}

/// How far above the mean each layer's gate starts to count, so that the share of its numbers that
/// `activation_sparsity_pattern` gives does not, were they normally distributed.
fn cutoffs(reader: &Reader<'_>) -> Result<Vec<Option<f64>>, LoadError> {
    let (name, layers) = ("activation_sparsity_pattern", reader.config.layers);
    let shares: Vec<f64> = match reader.fields.get(name) {
        None => {
            let sparse = if layers > 10 { 10 } else { 0 };
            (0..layers)
                .map(|layer| if layer < sparse { 0.95 } else { 0.0 })
                .collect()
        }
        Some(value) => {
            let items = value.as_array().into_iter().flatten();
            let shares: Option<Vec<f64>> = match value.as_f64() {
                Some(all) => Some(vec![all; layers]),
                None => items.map(|item| item.as_f64()).collect(),
            };
            let shares = shares.filter(|shares| {
                shares.len() == layers && shares.iter().all(|share| (0.0..1.0).contains(share))
            });
            shares.ok_or_else(|| {
                let what = format!("a list of {layers} numbers from 0 to below 1");
                reader.fields.expected(name, &what, value)
            })?
        }
    };
    let cutoff = |share: f64| (share > 0.0).then(|| quantile(share));
    Ok(shares.into_iter().map(cutoff).collect())
}

/// The number that a normally distributed one of mean 0 and variance 1 exceeds with the probability
/// `1 - share`.
fn quantile(share: f64) -> f64 {
    let (mut low, mut high) = (-40.0, 40.0);
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        match 0.5 * libm::erfc(-middle * 0.5f64.sqrt()) < share {
            true => low = middle,
            false => high = middle,
        }
    }
    0.5 * (low + high)
}
