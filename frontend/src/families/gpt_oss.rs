//! gpt-oss: sinks, windows in every other layer, experts with biases and a clamped gate.

use super::llama::{attention, common, pre_norm};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, Rope};
use crate::decoder::{Decoder, Experts, Glu, Inner, Linear, Router, Scores, Stack};
use mlxcel_ir::Activation;

pub(super) const FAMILY: Family = Family {
    model_types: &["gpt_oss"],
    title: "gpt-oss",
    category: Category::Experts,
    names: Names {
        transposed: &["experts.gate_up_proj", "experts.down_proj"],
        ..Names::MODEL
    },
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let [_, _, width] = reader.heads()?;
    let rope = Rope::read(reader, width)?;
    let bias = reader.flag_or("attention_bias", true)?;
    let windows = reader.windows(|layer| layer.is_multiple_of(2))?;
    common(reader, rope.context, |index, module| {
        let within = format!("{module}.self_attn");
        let mut attention = attention(reader, &within, rope.clone(), [bias, bias])?;
        attention.window = windows[index];
        attention.sinks = Some(format!("{within}.sinks"));
        pre_norm(
            reader,
            module,
            attention,
            experts(reader, &format!("{module}.mlp"))?,
        )
    })
}

fn experts(reader: &Reader<'_>, module: &str) -> Result<Experts, LoadError> {
    let hidden = reader.config.hidden;
    let inner = reader.width("intermediate_size")?;
    let [count, chosen] = reader.experts()?;
    let gate = Linear::new(format!("{module}.router"), hidden, count, true);
    let router = Router::new(gate, chosen, Scores::SoftmaxChosen);
    let mut experts = Experts::new(
        reader.weights,
        module,
        router,
        [hidden, inner],
        Activation::Silu,
    );
    let name = |name: &str| format!("{module}.experts.{name}");
    let joined = name("gate_up_proj");
    if reader.weights.has(&joined) {
        let both = Stack::new(joined, count, hidden, 2 * inner);
        experts.inner = Inner::Interleaved(both.biased(name("gate_up_proj_bias")));
        let down = Stack::new(name("down_proj"), count, inner, hidden);
        experts.down = down.biased(name("down_proj_bias"));
    } else if let Inner::Gated(gate, up) = experts.inner {
        // As MLX splits them.
        let biased = |stack: Stack, layer: &str| stack.biased(name(&format!("{layer}.bias")));
        experts.inner = Inner::Gated(biased(gate, "gate_proj"), biased(up, "up_proj"));
        experts.down = biased(experts.down, "down_proj");
    }
    experts.glu = Glu::Clamped {
        alpha: reader.positive_or(&["swiglu_alpha"], 1.702)?,
        limit: reader.positive_or(&["swiglu_limit"], 7.0)?,
    };
    Ok(experts)
}
