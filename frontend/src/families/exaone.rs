//! EXAONE 3 and 3.5: a Llama in names of its own.

use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::{Branch, Decoder, Gated, Layer, Linear, Norm, Projections, Step};

pub(super) const FAMILY: Family = Family {
    model_types: &["exaone"],
    title: "EXAONE",
    category: Category::Dense,
    names: NAMES,
    decoder,
};

const NAMES: Names = Names {
    root: "transformer",
    ..Names::MODEL
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = Parts::read(
        reader,
        Defaults {
            epsilon: 1e-5,
            base: 500_000.0,
            ..Defaults::default()
        },
    )?;
    let mut decoder = parts.decoder(|index, _| Ok(layer(&parts, index)))?;
    decoder.embedding = reader.embedding("transformer.wte");
    decoder.norm = Some(Norm::rms("transformer.ln_f", parts.hidden, parts.epsilon));
    Ok(decoder)
}

fn layer(parts: &Parts<'_>, index: usize) -> Layer {
    let module = format!("transformer.h.{index}");
    let (hidden, inner, bias) = (parts.hidden, parts.inner, parts.mlp_bias);
    let linear = |name: &str, from, to| Linear::new(format!("{module}.mlp.{name}"), from, to, bias);
    let mlp = Gated::of(
        linear("c_fc_0", hidden, inner),
        linear("c_fc_1", hidden, inner),
        linear("c_proj", inner, hidden),
        parts.activation,
    );
    let [heads, _, width] = parts.sizes;
    let within = format!("{module}.attn.attention");
    let output = format!("{within}.out_proj");
    let mut attention = parts.attention(&module);
    attention.projections = Projections::new(&within, hidden, parts.sizes, parts.bias);
    attention.output = Linear::new(output, heads * width, hidden, parts.output_bias);
    Layer {
        steps: vec![
            Step::of(Branch::new(parts.rms(&module, "ln_1"), attention)),
            Step::of(Branch::new(parts.rms(&module, "ln_2"), mlp)),
        ],
    }
}
