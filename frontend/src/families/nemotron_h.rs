//! Nemotron-H: layers that are each one of Mamba-2, attention without positions, a feed-forward part
//! and experts.

use super::deepseek::sigmoid_router;
use super::mamba::{Sizes, mixer};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, limit};
use crate::decoder::{
    Attention, Block, Branch, Decoder, Experts, Inner, Layer, Linear, Mamba2, Norm, Plain,
    Projections, Stack,
};
use mlxcel_ir::Activation;
use serde_json::Value;

pub(super) const FAMILY: Family = Family {
    model_types: &["nemotron_h"],
    title: "Nemotron-H",
    category: Category::Recurrent,
    names: Names {
        root: "backbone",
        transposed: &[],
    },
    decoder,
};

/// What a layer is, its letter in the older spelling and its words in the newer one.
const KINDS: &[(Kind, char, &[&str])] = &[
    (Kind::Mamba, 'M', &["linear_attention", "mamba"]),
    (Kind::Attention, '*', &["full_attention", "attention"]),
    (Kind::Plain, '-', &["mlp"]),
    (Kind::Experts, 'E', &["moe"]),
];

#[derive(Clone, Copy)]
enum Kind {
    Mamba,
    Attention,
    Plain,
    Experts,
}

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let hidden = reader.config.hidden;
    let epsilon = reader.positive_or(&["layer_norm_epsilon"], 1e-5)?;
    let norm = |name: &str| Norm::rms(name, hidden, epsilon);
    let kinds = kinds(reader)?;
    let layers = reader.layers("backbone.layers", |index, module| {
        let within = format!("{module}.mixer");
        let body: Box<dyn Block> = match kinds[index] {
            Kind::Mamba => Box::new(mamba(reader, &within, epsilon)?),
            Kind::Attention => Box::new(attention(reader, &within)?),
            Kind::Plain => {
                let inner = reader.width("intermediate_size")?;
                Box::new(plain(reader, &within, inner)?)
            }
            Kind::Experts => Box::new(experts(reader, &within)?),
        };
        let before = norm(&format!("{module}.norm"));
        Ok(Layer::sequential([Branch::new(before, body)]))
    })?;
    Ok(Decoder {
        embedding: reader.embedding("backbone.embeddings"),
        layers,
        norm: Some(norm("backbone.norm_f")),
        head: reader.head("lm_head"),
        context: None,
    })
}

/// What each layer is: as a list of words says, else as a letter each does.
fn kinds(reader: &Reader<'_>) -> Result<Vec<Kind>, LoadError> {
    let fields = &reader.fields;
    let unknown = |name: &str, found: &str| {
        let what = "linear_attention (M), full_attention (*), mlp (-) or moe (E) in each place";
        fields.expected(name, what, &Value::from(found))
    };
    let name = fields.any(&["layers_block_type", "layer_types"]);
    if let Some(words) = reader.kinds(name)? {
        let kind = |word: &str| {
            let found = KINDS.iter().find(|(_, _, words)| words.contains(&word));
            found
                .map(|&(kind, ..)| kind)
                .ok_or_else(|| unknown(name, word))
        };
        return words.into_iter().map(kind).collect();
    }
    let name = "hybrid_override_pattern";
    let pattern = fields.text(name)?.ok_or_else(|| fields.missing(name))?;
    let kind = |letter: char| {
        let found = KINDS.iter().find(|&&(_, known, _)| known == letter);
        found
            .map(|&(kind, ..)| kind)
            .ok_or_else(|| unknown(name, pattern))
    };
    let kinds: Vec<Kind> = pattern.chars().map(kind).collect::<Result<_, _>>()?;
    match kinds.len() == reader.config.layers {
        true => Ok(kinds),
        false => Err(unknown(name, pattern)),
    }
}

fn mamba(reader: &Reader<'_>, module: &str, epsilon: f64) -> Result<Mamba2, LoadError> {
    let biases = [
        reader.flag_or("use_bias", false)?,
        reader.flag_or("use_conv_bias", true)?,
    ];
    let sizes = Sizes {
        state: reader.width_or(&["ssm_state_size"], 128)?,
        groups: reader.width_or(&["n_groups"], 8)?,
        ..Sizes::hybrid(reader)?
    };
    let mut mamba = mixer(reader, module, sizes, biases, Some(epsilon))?;
    // As in Zamba2.
    mamba.steps = [reader.number_or("time_step_min", 0.001)?, f64::INFINITY];
    let width = mamba.inner() / mamba.groups;
    if let Some(gated) = &mut mamba.norm {
        gated.norm.width = width;
    }
    Ok(mamba)
}

fn attention(reader: &Reader<'_>, module: &str) -> Result<Attention, LoadError> {
    let width = reader.fields.any(&["head_dim", "attention_head_dim"]);
    let width = reader.fields.size(width, 1..=limit::HEADS)?.unwrap_or(128);
    let [heads, kv_heads] = reader.head_counts()?;
    let (hidden, sizes) = (reader.config.hidden, [heads, kv_heads, width]);
    let projections = Projections::new(module, hidden, sizes, false);
    let output = Linear::new(format!("{module}.o_proj"), heads * width, hidden, false);
    Ok(Attention::new(sizes, projections, output, None))
}

fn activation(reader: &Reader<'_>) -> Result<Activation, LoadError> {
    reader.activation_at("mlp_hidden_act", Activation::Relu2)
}

fn plain(reader: &Reader<'_>, module: &str, inner: usize) -> Result<Plain, LoadError> {
    let (hidden, bias) = (reader.config.hidden, reader.flag_or("mlp_bias", false)?);
    let linear = |name: &str, from, to| Linear::new(format!("{module}.{name}"), from, to, bias);
    Ok(Plain {
        up: linear("up_proj", hidden, inner),
        down: linear("down_proj", inner, hidden),
        activation: activation(reader)?,
    })
}

/// Experts without a gate, which may work on a narrower input.
fn experts(reader: &Reader<'_>, module: &str) -> Result<Experts, LoadError> {
    let (hidden, inner) = (reader.config.hidden, reader.width("moe_intermediate_size")?);
    let narrow = reader.fields.size("moe_latent_size", 1..=limit::WIDTH)?;
    let bias = reader.flag_or("mlp_bias", false)?;
    let width = narrow.unwrap_or(hidden);
    let router = sigmoid_router(reader, module)?;
    let count = router.linear.to;
    let activation = activation(reader)?;
    let mut experts = Experts::new(reader.weights, module, router, [width, inner], activation);
    let up = format!("{module}.experts.up_proj");
    experts.inner = Inner::Plain(Stack::named(reader.weights, &up, count, width, inner));
    experts.narrow = narrow.map(|width| {
        let linear = |name: &str, from, to| Linear::new(format!("{module}.{name}"), from, to, bias);
        [
            linear("fc1_latent_proj", hidden, width),
            linear("fc2_latent_proj", width, hidden),
        ]
    });
    let shared = reader.width("moe_shared_expert_intermediate_size")?;
    let shared = plain(reader, &format!("{module}.shared_experts"), shared)?;
    Ok(experts.with_shared(shared, None))
}
