//! Zamba2: Mamba-2 in every layer, before it in some a transformer layer whose weights they share.

use super::mamba::{Sizes, mixer};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, Rope, alias, limit};
use crate::decoder::{
    Attention, Block, Branch, Decoder, Layer, Linear, Mamba2, Norm, Projections, SharedHybrid,
};
use mlxcel_ir::Activation;

pub(super) const FAMILY: Family = Family {
    model_types: &["zamba2"],
    title: "Zamba2",
    category: Category::Recurrent,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let (hidden, epsilon) = (
        reader.config.hidden,
        reader.positive_or(&["rms_norm_eps"], 1e-5)?,
    );
    let hybrid = hybrid(reader)?;
    let layers = reader.layers("model.layers", |index, module| {
        let norm = |name: &str| Norm::rms(format!("{module}.{name}"), hidden, epsilon);
        let Some(place) = hybrid.iter().position(|&layer| layer == index) else {
            let mamba = mamba(reader, &format!("{module}.mamba"))?;
            return Ok(Layer::sequential([Branch::new(
                norm("input_layernorm"),
                mamba,
            )]));
        };
        let body = mamba(reader, &format!("{module}.mamba_decoder.mamba"))?;
        let norm = norm("mamba_decoder.input_layernorm");
        let shared = shared(reader, &hybrid, place, [module, "linear"], norm, body)?;
        Ok(Layer::sequential([Branch::new(None, shared)]))
    })?;
    Ok(Decoder {
        embedding: reader.embedding("model.embed_tokens"),
        layers,
        norm: Some(Norm::rms("model.final_layernorm", hidden, epsilon)),
        head: reader.head("lm_head"),
        context: None,
    })
}

/// The numbers of the layers with attention.
fn hybrid(reader: &Reader<'_>) -> Result<Vec<usize>, LoadError> {
    if let Some(kinds) = reader.kinds("layers_block_type")? {
        let is_hybrid = |&(_, kind): &(usize, &str)| kind == "hybrid";
        return Ok(kinds
            .into_iter()
            .enumerate()
            .filter(is_hybrid)
            .map(|(layer, _)| layer)
            .collect());
    }
    let listed = reader.sizes("hybrid_layer_ids", 0..=limit::LAYERS)?;
    listed.ok_or_else(|| reader.fields.missing("layers_block_type"))
}

fn mamba(reader: &Reader<'_>, module: &str) -> Result<Mamba2, LoadError> {
    let bias = reader.flag_or("add_bias_linear", false)?;
    // The convolution has a bias, whatever `use_conv_bias` says.
    let mut mamba = mixer(
        reader,
        module,
        Sizes::hybrid(reader)?,
        [bias, true],
        Some(1e-5),
    )?;
    // The bound of its time steps is what others call the least one at initialisation.
    mamba.steps[0] = reader.number_or("time_step_min", 0.001)?;
    let width = mamba.inner() / mamba.groups;
    if let Some(gated) = &mut mamba.norm {
        gated.norm.width = width;
    }
    Ok(mamba)
}

fn shared<B: Block>(
    reader: &Reader<'_>,
    hybrid: &[usize],
    place: usize,
    [module, linear]: [&str; 2],
    norm: Norm,
    body: B,
) -> Result<SharedHybrid<B>, LoadError> {
    let fields = &reader.fields;
    let (hidden, epsilon) = (
        reader.config.hidden,
        reader.positive_or(&["rms_norm_eps"], 1e-5)?,
    );
    let heads = fields.required(fields.any(alias::HEADS), 1..=limit::HEADS)?;
    let kv_heads = fields
        .size("num_key_value_heads", 1..=limit::HEADS)?
        .unwrap_or(heads);
    let width = reader.width_or(&["attention_head_dim"], 2 * hidden / heads)?;
    if !heads.is_multiple_of(kv_heads) || width == 0 {
        let reason = format!("{kv_heads} does not divide the {heads} attention heads");
        return Err(fields.error("num_key_value_heads", reason));
    }
    // The weights stand in the first layer that uses them.
    let blocks = reader.width_or(&["num_mem_blocks"], 1)?;
    let owner = hybrid[place % blocks];
    let named = |name: &str| format!("model.layers.{owner}.shared_transformer.{name}");
    let sizes = [heads, kv_heads, width];
    let rank = reader.width_or(&["adapter_rank"], 128)?;
    // What this layer adds to a layer that several share.
    let adapted = |linear: Linear, list: &str| {
        let part = |part: usize, from, to| {
            let name = named(&format!("{list}_adapter_list.{place}.{part}"));
            Linear::new(name, from, to, false)
        };
        let change = [part(0, linear.from, rank), part(1, rank, linear.to)];
        linear.changed(change)
    };
    let mut projections = Projections::new(&named("self_attn"), 2 * hidden, sizes, false);
    if reader.flag_or("use_shared_attention_adapter", false)? {
        projections = Projections {
            q: adapted(projections.q, "self_attn.linear_q"),
            k: adapted(projections.k, "self_attn.linear_k"),
            v: adapted(projections.v, "self_attn.linear_v"),
        };
    }
    let output = Linear::new(named("self_attn.o_proj"), heads * width, hidden, false);
    let rope = match reader.flag_or("use_mem_rope", false)? {
        true => Some(Rope::read(reader, width)?),
        false => None,
    };
    let mut attention = Attention::new(sizes, projections, output, rope);
    attention.scale = (2.0 / width as f64).sqrt();
    let bias = reader.flag_or("add_bias_linear", false)?;
    let inner = reader.width_or(&["intermediate_size", "ffn_hidden_size"], 4 * hidden)?;
    let mlp =
        |name: &str, from, to| Linear::new(named(&format!("feed_forward.{name}")), from, to, bias);
    Ok(SharedHybrid {
        before: Norm::rms(named("input_layernorm"), 2 * hidden, epsilon),
        attention,
        middle: Norm::rms(named("pre_ff_layernorm"), hidden, epsilon),
        gate_up: adapted(
            mlp("gate_up_proj", hidden, 2 * inner),
            "feed_forward.gate_up_proj",
        ),
        down: mlp("down_proj", inner, hidden),
        activation: reader.activation(Activation::Gelu)?,
        linear: Linear::new(format!("{module}.{linear}"), hidden, hidden, false),
        norm,
        body,
    })
}
