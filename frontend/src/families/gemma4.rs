//! Gemma 4, its language models: Gemma 3 with plain norms, also of values; an input of each
//! layer's own; and last layers that use the keys and values of earlier ones.

use super::llama::common;
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, Rope, limit};
use crate::decoder::{
    Attention, Branch, Decoder, Experts, Gated, Layer, LayerInput, Linear, Norm, PerLayer,
    Projections, Router, Scalar, Scores, Sharing, Step, Together,
};
use mlxcel_ir::Activation;

pub(super) const FAMILY: Family = Family {
    model_types: &["gemma4_text", "gemma4"],
    title: "Gemma 4",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

/// Heads, key-value heads and width of a head in layer `index`, which `full` attention gives sizes of
/// its own: by number under `per_layer_config`, or as `global_head_dim` and, where keys are values
/// too, `num_global_key_value_heads`.
fn sizes(reader: &Reader<'_>, index: usize, full: bool) -> Result<[usize; 3], LoadError> {
    let [heads, mut kv_heads, mut width] = reader.heads()?;
    let range = 1..=limit::HEADS;
    let fields = &reader.fields;
    if let Some(all) = fields.object("per_layer_config")? {
        if let Some(own) = all.object(&index.to_string())? {
            width = own.size("head_dim", range.clone())?.unwrap_or(width);
            kv_heads = own.size("num_key_value_heads", range)?.unwrap_or(kv_heads);
        }
    } else if full {
        width = fields
            .size("global_head_dim", range.clone())?
            .unwrap_or(512);
        if reader.flag_or("attention_k_eq_v", false)? {
            let own = fields.size("num_global_key_value_heads", range)?;
            kv_heads = own.unwrap_or(kv_heads);
        }
    }
    match heads.is_multiple_of(kv_heads) {
        true => Ok([heads, kv_heads, width]),
        false => {
            let reason = format!("{kv_heads} does not divide the {heads} attention heads");
            Err(fields.error("num_key_value_heads", reason))
        }
    }
}

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let fields = &reader.fields;
    if fields.text("use_bidirectional_attention")? == Some("all") {
        let reason = "is `all`: such a model gives no text";
        return Err(fields.error("use_bidirectional_attention", reason));
    }
    let hidden = reader.config.hidden;
    let mut sliding = reader.sliding(|layer| !(layer + 1).is_multiple_of(6))?;
    if let Some(last) = sliding.last_mut() {
        *last = false;
    }
    let window = reader.window()?.unwrap_or(512);
    let sharing = sharing(reader, &sliding, 0)?;
    let (own_width, inner) = (
        reader.count_or("hidden_size_per_layer_input", 256)?,
        reader.width("intermediate_size")?,
    );
    let inputs = (own_width > 0)
        .then(|| inputs(reader, own_width))
        .transpose()?;
    let activation = reader.activation(Activation::GeluTanh)?;
    let (epsilon, bias) = (reader.epsilon()?, reader.flag_or("attention_bias", false)?);
    let same = reader.flag_or("attention_k_eq_v", false)?;
    let wide = reader.flag_or("use_double_wide_mlp", false)?;
    let sparse = reader.flag_or("enable_moe_block", false)?;
    let mut decoder = common(reader, None, |index, module| {
        let full = !sliding[index];
        let sizes = sizes(reader, index, full)?;
        let width = sizes[2];
        let rope = match full {
            true => Rope::of_kind(reader, width, "full_attention", 1e6)?,
            false => Rope::of_kind(reader, width, "sliding_attention", 1e4)?,
        };
        let norm = |name: &str, width| Norm::rms(format!("{module}.{name}"), width, epsilon);
        let mut projections = Projections::new(&format!("{module}.self_attn"), hidden, sizes, bias);
        if same && full {
            projections.v = projections.k.clone();
        }
        let output = format!("{module}.self_attn.o_proj");
        let output = Linear::new(output, sizes[0] * width, hidden, bias);
        let mut attention = Attention::new(sizes, projections, output, Some(rope)).with_head_norms(
            norm("self_attn.q_norm", width),
            norm("self_attn.k_norm", width),
        );
        attention.value_norm = Some(norm("", width).plain());
        attention.scale = 1.0;
        attention.window = sliding[index].then_some(window);
        attention.sharing = sharing[index].clone();
        let doubled = wide && matches!(sharing[index], Some(Sharing::Uses(_)));
        let inner = if doubled { 2 * inner } else { inner };
        let mlp = Gated::new(&format!("{module}.mlp"), [hidden, inner], false, activation);
        let norm = |name: &str| norm(name, hidden);
        let attention =
            Branch::new(norm("input_layernorm"), attention).then(norm("post_attention_layernorm"));
        let mut mlp = Branch::new(norm("pre_feedforward_layernorm"), mlp);
        if sparse {
            let experts = experts(reader, module, activation, epsilon)?;
            let experts = Branch::new(None, experts).then(norm("post_feedforward_layernorm_2"));
            let mlp_normed = mlp.then(norm("post_feedforward_layernorm_1"));
            mlp = Branch::new(None, Together(vec![mlp_normed, experts]));
        }
        let mlp = mlp.then(norm("post_feedforward_layernorm"));
        let mut steps = vec![Step::of(attention), Step::of(mlp)];
        if let Some(inputs) = &inputs {
            let linear =
                |name: &str, from, to| Linear::new(format!("{module}.{name}"), from, to, false);
            let input = LayerInput {
                inputs: inputs.clone(),
                index,
                gate: linear("per_layer_input_gate", hidden, own_width),
                output: linear("per_layer_projection", own_width, hidden),
                activation,
            };
            let after = norm("post_per_layer_input_norm");
            steps.push(Step::of(Branch::new(None, input).then(after)));
        }
        let scalar = format!("{module}.layer_scalar");
        if reader.weights.has(&scalar) {
            steps.push(Step::replacing(Branch::new(None, Scalar(scalar))));
        }
        Ok(Layer { steps })
    })?;
    decoder.embedding.scale = (hidden as f64).sqrt();
    decoder.head.softcap = fields.positive("final_logit_softcapping")?;
    Ok(decoder)
}

/// The experts of the layer `module`, which read its residual stream by norms of their own.
fn experts(
    reader: &Reader<'_>,
    module: &str,
    activation: Activation,
    epsilon: f64,
) -> Result<Experts, LoadError> {
    let hidden = reader.config.hidden;
    let [count, chosen] = reader.experts()?;
    let linear = Linear::new(format!("{module}.router.proj"), hidden, count, false);
    let mut router = Router::new(linear, chosen, Scores::Softmax).normalised(true);
    router.norm = Some(Norm {
        weight: Some(format!("{module}.router.scale")),
        ..Norm::rms("", hidden, epsilon)
    });
    router.sharpness = 1.0 / (hidden as f64).sqrt();
    router.expert_scale = Some(format!("{module}.router.per_expert_scale"));
    let sizes = [hidden, reader.width("moe_intermediate_size")?];
    let mut experts = Experts::new(reader.weights, module, router, sizes, activation);
    let name = format!("{module}.pre_feedforward_layernorm_2");
    experts.norm = Some(Norm::rms(name, hidden, epsilon));
    Ok(experts)
}

/// The last `num_kv_shared_layers` layers, or `otherwise` of them, use the keys and values of the last layer before them that
/// is of their kind.
pub(super) fn sharing(
    reader: &Reader<'_>,
    sliding: &[bool],
    otherwise: usize,
) -> Result<Vec<Option<Sharing>>, LoadError> {
    let field = "num_kv_shared_layers";
    let shared = reader.count_or(field, otherwise)?;
    let first = sliding.len().saturating_sub(shared);
    let name = |slides: bool| if slides { "sliding" } else { "full" }.to_string();
    let mut found = vec![None; sliding.len()];
    for (index, &slides) in sliding.iter().enumerate().skip(first) {
        let Some(keeper) = (0..first).rev().find(|&layer| sliding[layer] == slides) else {
            let reason =
                format!("is {shared}: layer {index} has no layer of its kind before those");
            return Err(reader.fields.error(field, reason));
        };
        found[index] = Some(Sharing::Uses(name(slides)));
        found[keeper] = Some(Sharing::Keeps(name(slides)));
    }
    Ok(found)
}

/// The inputs of all layers, each of `width` elements.
pub(super) fn inputs(reader: &Reader<'_>, width: usize) -> Result<PerLayer, LoadError> {
    let (layers, hidden) = (reader.config.layers, reader.config.hidden);
    let rows = reader.width_or(&["vocab_size_per_layer_input"], reader.config.vocabulary)?;
    let projection = "model.per_layer_model_projection";
    Ok(PerLayer {
        layers,
        width,
        table: "model.embed_tokens_per_layer".into(),
        rows,
        short: rows < reader.config.vocabulary,
        projection: Linear::new(projection, hidden, layers * width, false),
        norm: Norm::rms("model.per_layer_projection_norm", width, reader.epsilon()?),
        scales: [
            1.0 / (hidden as f64).sqrt(),
            (width as f64).sqrt(),
            0.5f64.sqrt(),
        ],
    })
}
