//! AFMoE (Arcee Trinity): gated attention, norms before and after each part, experts by sigmoids.

use super::deepseek::{experts, mlp};
use super::llama::{attention, common};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, Rope};
use crate::decoder::{Block, Branch, Decoder, Layer, Linear, Norm, Normal, Router, Scores, Step};

pub(super) const FAMILY: Family = Family {
    model_types: &["afmoe"],
    title: "AFMoE (Trinity)",
    category: Category::Experts,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let hidden = reader.config.hidden;
    let [heads, _, width] = reader.heads()?;
    let epsilon = reader.positive_or(&["rms_norm_eps"], 1e-5)?;
    let rope = Rope::read(reader, width)?;
    let bias = reader.flag_or("attention_bias", false)?;
    let period = reader.width_or(&["global_attn_every_n_layers"], 4)?;
    let sliding = reader.sliding(|layer| !(layer + 1).is_multiple_of(period))?;
    let window = reader.window()?;
    let dense = reader.count_or("num_dense_layers", 1)?;
    let mut decoder = common(reader, rope.context, |index, module| {
        let within = format!("{module}.self_attn");
        let head_norm = |name: &str| Norm::rms(format!("{within}.{name}"), width, epsilon);
        let rope = sliding[index].then(|| rope.clone());
        let mut attention = attention(reader, &within, rope, [bias, bias])?
            .with_head_norms(head_norm("q_norm"), head_norm("k_norm"));
        attention.window = window.filter(|_| sliding[index]);
        let gate = format!("{within}.gate_proj");
        attention.gate = Some(Linear::new(gate, hidden, heads * width, false));
        let within = format!("{module}.mlp");
        let feed_forward: Box<dyn Block> = match index < dense {
            true => Box::new(mlp(reader, &within, reader.width("intermediate_size")?)?),
            false => Box::new(experts(reader, &within, router(reader, &within)?)?),
        };
        let norm = |name: &str| Norm::rms(format!("{module}.{name}"), hidden, epsilon);
        let attention = Branch::new(norm("input_layernorm"), attention);
        let feed_forward = Branch::new(norm("pre_mlp_layernorm"), feed_forward);
        Ok(Layer {
            steps: vec![
                Step::of(attention.then(norm("post_attention_layernorm"))),
                Step::of(feed_forward.then(norm("post_mlp_layernorm"))),
            ],
        })
    })?;
    if reader.flag_or("mup_enabled", false)? {
        decoder.embedding.scale = (hidden as f64).sqrt();
    }
    Ok(decoder)
}

fn router(reader: &Reader<'_>, module: &str) -> Result<Router, LoadError> {
    let [count, chosen] = reader.experts()?;
    let gate = format!("{module}.router.gate");
    let gate = Linear::new(gate, reader.config.hidden, count, false);
    let mut router = Router::new(gate, chosen, Scores::Sigmoid);
    router.correction = Some(format!("{module}.expert_bias"));
    router.normal = Normal::Sum(1e-20);
    router.scale = reader.number_or("route_scale", 1.0)?;
    Ok(router)
}
