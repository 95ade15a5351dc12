//! DeepSeek-V2 and V3, and GLM-4.7-Flash: latent attention, and experts in groups beside shared ones.

use super::llama::{common, pre_norm};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, Rope, alias, limit, yarn_scale};
use crate::decoder::{
    Block, Decoder, Experts, Gated, GroupRule, Groups, Latent, Linear, Norm, Normal, Queries,
    Router, Scores,
};
use mlxcel_ir::Activation;

pub(super) const V2: Family = Family {
    model_types: &["deepseek_v2"],
    title: "DeepSeek-V2",
    category: Category::Experts,
    names: Names::MODEL,
    decoder: |reader| decoder(reader, true, 0, softmax_router),
};

pub(super) const V3: Family = Family {
    model_types: &["deepseek_v3"],
    title: "DeepSeek-V3",
    decoder: |reader| {
        let interleaved = reader.flag_or("rope_interleave", true)?;
        decoder(reader, interleaved, 3, sigmoid_router)
    },
    ..V2
};

pub(super) const GLM4_LITE: Family = Family {
    model_types: &["glm4_moe_lite"],
    title: "GLM-4.7-Flash",
    decoder: |reader| {
        let interleaved = reader.flag_or("rope_interleave", true)?;
        decoder(reader, interleaved, 1, sigmoid_router)
    },
    ..V2
};

type Routing = fn(&Reader<'_>, &str) -> Result<Router, LoadError>;

fn decoder(
    reader: &Reader<'_>,
    interleaved: bool,
    dense: usize,
    router: Routing,
) -> Result<Decoder, LoadError> {
    let mut rope = Rope::read(reader, reader.width("qk_rope_head_dim")?)?;
    if interleaved {
        rope = rope.interleaved();
    }
    let dense = dense_layers(reader, dense)?;
    let context = rope.context;
    common(reader, context, |index, module| {
        let attention = latent(reader, &format!("{module}.self_attn"), Some(rope.clone()))?;
        let within = format!("{module}.mlp");
        let feed_forward: Box<dyn Block> = match dense[index] {
            true => Box::new(mlp(reader, &within, reader.width("intermediate_size")?)?),
            false => Box::new(experts(reader, &within, router(reader, &within)?)?),
        };
        pre_norm(reader, module, attention, feed_forward)
    })
}

/// Which layers have no experts: as `mlp_layer_types` says, else the first `first_k_dense_replace`.
pub(super) fn dense_layers(reader: &Reader<'_>, default: usize) -> Result<Vec<bool>, LoadError> {
    let first = reader.count_or("first_k_dense_replace", default)?;
    Ok(match reader.kinds("mlp_layer_types")? {
        Some(kinds) => kinds.into_iter().map(|kind| kind == "dense").collect(),
        None => (0..reader.config.layers)
            .map(|layer| layer < first)
            .collect(),
    })
}

/// A gated feed-forward layer, with biases where the checkpoint has some.
pub(super) fn mlp(reader: &Reader<'_>, module: &str, inner: usize) -> Result<Gated, LoadError> {
    let activation = reader.activation(Activation::Silu)?;
    let bias = reader.weights.has(&format!("{module}.gate_proj.bias"));
    let sizes = [reader.config.hidden, inner];
    Ok(Gated::new(module, sizes, bias, activation))
}

/// The experts of `module`, chosen by `router`, and the shared ones.
pub(super) fn experts(
    reader: &Reader<'_>,
    module: &str,
    router: Router,
) -> Result<Experts, LoadError> {
    let inner = reader.width("moe_intermediate_size")?;
    let activation = reader.activation(Activation::Silu)?;
    let sizes = [reader.config.hidden, inner];
    let experts = Experts::new(reader.weights, module, router, sizes, activation);
    let shared = reader.fields.any(alias::SHARED);
    let shared = reader.fields.size(shared, 0..=limit::LAYERS)?;
    Ok(match shared.unwrap_or(0) {
        0 => experts,
        count => {
            let name = format!("{module}.shared_experts");
            experts.with_shared(mlp(reader, &name, count * inner)?, None)
        }
    })
}

fn groups(reader: &Reader<'_>, experts: usize, rule: GroupRule) -> Result<Groups, LoadError> {
    let count = reader.width_or(alias::GROUPS, 1)?;
    let kept = reader.width_or(&["topk_group"], count)?;
    let open = kept * (experts / count);
    if !experts.is_multiple_of(count) || kept > count {
        let reason = format!("{experts} experts have no {count} equal groups to keep {kept} of");
        return Err(reader.fields.error("n_group", reason));
    }
    let [_, chosen] = reader.experts()?;
    if chosen > open {
        let reason = format!("{kept} groups have {open} experts, but a token uses {chosen}");
        return Err(reader.fields.error("topk_group", reason));
    }
    Ok(Groups { count, kept, rule })
}

fn softmax_router(reader: &Reader<'_>, module: &str) -> Result<Router, LoadError> {
    let [count, chosen] = reader.experts()?;
    let gate = Linear::new(format!("{module}.gate"), reader.config.hidden, count, false);
    let mut router = Router::new(gate, chosen, Scores::Softmax);
    router.scale = reader.number_or("routed_scaling_factor", 1.0)?;
    router.groups = match reader.fields.text("topk_method")?.unwrap_or("greedy") {
        "greedy" => None,
        "group_limited_greedy" => Some(groups(reader, count, GroupRule::Best)?),
        other => {
            let reason = format!("must be greedy or group_limited_greedy, is {other}");
            return Err(reader.fields.error("topk_method", reason));
        }
    };
    Ok(router)
}

/// A choice by sigmoids and a correction, within the best groups.
pub(super) fn sigmoid_router(reader: &Reader<'_>, module: &str) -> Result<Router, LoadError> {
    let [count, chosen] = reader.experts()?;
    let gate = Linear::new(format!("{module}.gate"), reader.config.hidden, count, false);
    let mut router = Router::new(gate, chosen, Scores::Sigmoid);
    router.correction = Some(format!("{module}.gate.e_score_correction_bias"));
    router.groups = Some(groups(reader, count, GroupRule::BestTwo)?);
    router.normal = match reader.flag_or(reader.fields.any(alias::NORMALISED), true)? {
        true => Normal::Sum(1e-20),
        false => Normal::None,
    };
    router.scale = reader.number_or("routed_scaling_factor", 1.0)?;
    Ok(router)
}

/// Latent attention under `module`. Its scores grow by the square of `mscale_all_dim`'s YaRN factor.
pub(super) fn latent(
    reader: &Reader<'_>,
    module: &str,
    rope: Option<Rope>,
) -> Result<Latent, LoadError> {
    /// The epsilon of its norms, which no configuration names.
    const EPSILON: f64 = 1e-6;
    let fields = &reader.fields;
    let hidden = reader.config.hidden;
    let heads = fields.required(fields.any(alias::HEADS), 1..=limit::HEADS)?;
    let [plain, turned] = [
        reader.width("qk_nope_head_dim")?,
        reader.width("qk_rope_head_dim")?,
    ];
    let value = reader.width_or(&["v_head_dim"], hidden / heads)?;
    let latent = reader.width("kv_lora_rank")?;
    let bias = reader.flag_or("attention_bias", false)?;
    let width = plain + turned;
    let layer =
        |name: &str, from, to, bias| Linear::new(format!("{module}.{name}"), from, to, bias);
    let norm = |name: &str, width| Norm::rms(format!("{module}.{name}"), width, EPSILON);
    let queries = match fields.size("q_lora_rank", 1..=limit::WIDTH)? {
        None => Queries::Direct(layer("q_proj", hidden, heads * width, false)),
        Some(rank) => Queries::Latent(
            layer("q_a_proj", hidden, rank, bias),
            norm("q_a_layernorm", rank),
            layer("q_b_proj", rank, heads * width, false),
        ),
    };
    let mut scale = 1.0 / (width as f64).sqrt();
    for name in ["rope_parameters", "rope_scaling"] {
        let Some(inner) = fields.object(name)? else {
            continue;
        };
        if let (Some(factor), Some(all)) =
            (inner.positive("factor")?, inner.number("mscale_all_dim")?)
        {
            scale *= yarn_scale(factor, all).powi(2);
            break;
        }
    }
    Ok(Latent {
        heads,
        widths: [plain, turned, value],
        queries,
        down: layer("kv_a_proj_with_mqa", hidden, latent + turned, bias),
        norm: norm("kv_a_layernorm", latent),
        up: layer("kv_b_proj", latent, heads * (plain + value), false),
        output: layer("o_proj", heads * value, hidden, bias),
        rope,
        scale,
    })
}
