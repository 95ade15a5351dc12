//! Jamba: Mamba with norms in most layers, attention without positions in some, experts in every other.

use super::mamba::mamba;
use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::{
    Block, Branch, Decoder, Experts, Gated, Layer, Linear, Mamba, Norm, Router, Scores,
};

pub(super) const FAMILY: Family = Family {
    model_types: &["jamba"],
    title: "Jamba",
    category: Category::Recurrent,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = Parts::read(reader, Defaults::default())?;
    let attends = every(reader, "attn_layer", [8, 4])?;
    let sparse = every(reader, "expert_layer", [2, 1])?;
    let count = reader.width_or(&["num_experts", "num_local_experts"], 16)?;
    let mut decoder = parts.decoder(|index, module| {
        let mixer: Box<dyn Block> = match attends(index) {
            true => {
                let mut attention = parts.attention(module);
                attention.rope = None;
                Box::new(attention)
            }
            false => Box::new(normed(&parts, &format!("{module}.mamba"))?),
        };
        let within = format!("{module}.feed_forward");
        let sizes = [parts.hidden, parts.inner];
        let feed_forward: Box<dyn Block> = match sparse(index) && count > 1 {
            true => Box::new(experts(&parts, &within, count)?),
            false => Box::new(Gated::new(&within, sizes, false, parts.activation)),
        };
        Ok(Layer::sequential([
            Branch::new(parts.rms(module, "input_layernorm"), mixer),
            Branch::new(parts.rms(module, "pre_ff_layernorm"), feed_forward),
        ]))
    })?;
    decoder.norm = Some(parts.rms("model", "final_layernorm"));
    Ok(decoder)
}

/// Whether a layer is one of every `name_period`, counted from `name_offset`.
fn every(
    reader: &Reader<'_>,
    name: &str,
    [period, offset]: [usize; 2],
) -> Result<impl Fn(usize) -> bool, LoadError> {
    let period = reader.width_or(&[&format!("{name}_period")], period)?;
    let offset = reader.count_or(&format!("{name}_offset"), offset)?;
    Ok(move |layer: usize| layer % period == offset)
}

/// The Mamba layer `module` with norms of its time steps, of `B` and of `C`.
fn normed(parts: &Parts<'_>, module: &str) -> Result<Mamba, LoadError> {
    let expand = parts.reader.width_or(&["mamba_expand"], 2)?;
    let mut mamba = mamba(parts.reader, module, expand * parts.hidden)?;
    let norm = |name: &str, width| {
        let name = format!("{module}.{name}_layernorm");
        Norm::rms(name, width, parts.epsilon)
    };
    mamba.norms = Some([
        norm("dt", mamba.rank),
        norm("b", mamba.state),
        norm("c", mamba.state),
    ]);
    Ok(mamba)
}

fn experts(parts: &Parts<'_>, module: &str, count: usize) -> Result<Experts, LoadError> {
    let reader = parts.reader;
    let chosen = reader.fields.size("num_experts_per_tok", 1..=count)?;
    let gate = Linear::new(format!("{module}.router"), parts.hidden, count, false);
    let router = Router::new(gate, chosen.unwrap_or(2.min(count)), Scores::Softmax);
    let sizes = [parts.hidden, parts.inner];
    Ok(Experts::new(
        reader.weights,
        module,
        router,
        sizes,
        parts.activation,
    ))
}
