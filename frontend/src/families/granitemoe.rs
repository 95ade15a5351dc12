//! Granite 3 with experts, with shared ones or without.

use super::granite::scaled;
use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, limit};
use crate::decoder::{
    Block, Branch, Decoder, Experts, Gated, Glu, Inner, Linear, Router, Scores, Stack, Step,
};

pub(super) const FAMILY: Family = Family {
    model_types: &["granitemoe", "granitemoeshared"],
    title: "Granite MoE",
    category: Category::Experts,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = Parts::read(reader, Defaults::default())?;
    let scale = reader.number_or("attention_multiplier", 1.0)?;
    let decoder = parts.decoder(|_, module| {
        let mut attention = parts.attention(module);
        attention.scale = scale;
        let mut layer = parts.pre_norm(module, attention, experts(&parts, module)?);
        if let Some(shared) = shared(&parts, module)? {
            let norm = parts.rms(module, "post_attention_layernorm");
            let routed = Branch::new(norm.clone(), experts(&parts, module)?);
            layer.steps.pop();
            layer
                .steps
                .push(Step::parallel(vec![routed, Branch::new(norm, shared)]));
        }
        Ok(layer)
    })?;
    scaled(reader, decoder)
}

/// The experts `block_sparse_moe` of `module`.
pub(super) fn experts(parts: &Parts<'_>, module: &str) -> Result<Experts, LoadError> {
    let [count, chosen] = parts.reader.experts()?;
    let (hidden, inner) = (parts.hidden, parts.inner);
    let within = format!("{module}.block_sparse_moe");
    let gate = Linear::new(format!("{within}.router.layer"), hidden, count, false);
    let stack =
        |name: &str, from, to| Stack::new(format!("{within}.{name}.weight"), count, from, to);
    Ok(Experts {
        norm: None,
        router: Router::new(gate, chosen, Scores::SoftmaxChosen),
        inner: match parts.reader.weights.has(&format!("{within}.gate.weight")) {
            // As GGUF files split them.
            true => Inner::Gated(stack("gate", hidden, inner), stack("up", hidden, inner)),
            false => Inner::Joined(stack("input_linear", hidden, 2 * inner)),
        },
        down: stack("output_linear", inner, hidden),
        glu: Glu::Activation(parts.activation),
        narrow: None,
        shared: None,
        weigh_input: false,
    })
}

/// The feed-forward part `shared_mlp` of `module`, where it has one.
pub(super) fn shared(
    parts: &Parts<'_>,
    module: &str,
) -> Result<Option<impl Block + use<>>, LoadError> {
    let (hidden, fields) = (parts.hidden, &parts.reader.fields);
    let inner = fields.size("shared_intermediate_size", 0..=limit::WIDTH)?;
    Ok(inner.filter(|&inner| inner > 0).map(|inner| {
        let within = format!("{module}.shared_mlp");
        let both = Linear::new(format!("{within}.input_linear"), hidden, 2 * inner, false);
        let down = Linear::new(format!("{within}.output_linear"), inner, hidden, false);
        Gated::fused(&both, down, parts.activation)
    }))
}
