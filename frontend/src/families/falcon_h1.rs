//! Falcon-H1: attention and Mamba-2 beside each other in every layer, with factors everywhere.

use super::mamba::{Sizes, mixer};
use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::{Branch, Decoder, Gated, Layer, Linear, Norm, Scaled, Step};

pub(super) const FAMILY: Family = Family {
    model_types: &["falcon_h1"],
    title: "Falcon-H1",
    category: Category::Recurrent,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = Parts::read(
        reader,
        Defaults {
            epsilon: 1e-5,
            ..Defaults::default()
        },
    )?;
    let hidden = parts.hidden;
    let factor = |name: &str| reader.number_or(name, 1.0);
    let biases = [
        reader.flag_or("mamba_proj_bias", false)?,
        reader.flag_or("mamba_conv_bias", true)?,
    ];
    let mlp_scales = factors(reader, "mlp_multipliers")?;
    let scales = factors(reader, "ssm_multipliers")?;
    let normed = reader
        .flag_or("mamba_rms_norm", false)?
        .then_some(parts.epsilon);
    let mut decoder = parts.decoder(|_, module| {
        let mut attention = parts.attention(module);
        attention.key_scale = factor("key_multiplier")?;
        let within = format!("{module}.mamba");
        let mut mamba = mixer(reader, &within, Sizes::hybrid(reader)?, biases, normed)?;
        mamba.scales = scales;
        let inner = mamba.inner();
        mamba.output = Linear::new(
            format!("{within}.out_proj"),
            inner,
            hidden,
            reader.flag_or("projectors_bias", false)?,
        );
        if let Some(gated) = &mut mamba.norm {
            gated.norm.width = inner / mamba.groups;
            gated.first = reader.flag_or("mamba_norm_before_gate", true)?;
        }
        let before = parts.rms(module, "input_layernorm");
        let attention = Scaled {
            before: factor("attention_in_multiplier")?,
            body: attention,
            after: factor("attention_out_multiplier")?,
        };
        let mamba = Scaled {
            before: factor("ssm_in_multiplier")?,
            body: mamba,
            after: factor("ssm_out_multiplier")?,
        };
        let within = format!("{module}.feed_forward");
        let sizes = [hidden, parts.inner];
        let mut mlp = Gated::new(&within, sizes, parts.mlp_bias, parts.activation);
        mlp.scales = mlp_scales;
        let mixers = vec![
            Branch::new(before.clone(), mamba),
            Branch::new(before, attention),
        ];
        let feed_forward = Branch::new(parts.rms(module, "pre_ff_layernorm"), mlp);
        Ok(Layer {
            steps: vec![Step::parallel(mixers), Step::of(feed_forward)],
        })
    })?;
    decoder.norm = Some(Norm::rms("model.final_layernorm", hidden, parts.epsilon));
    decoder.embedding.scale = factor("embedding_multiplier")?;
    decoder.head.scale = factor("lm_head_multiplier")?;
    Ok(decoder)
}

/// The `N` numbers at `name`; 1 where there are none.
fn factors<const N: usize>(reader: &Reader<'_>, name: &str) -> Result<[f64; N], LoadError> {
    let Some(value) = reader.fields.get(name) else {
        return Ok([1.0; N]);
    };
    let numbers: Option<Vec<f64>> = value
        .as_array()
        .and_then(|numbers| numbers.iter().map(|number| number.as_f64()).collect());
    numbers
        .and_then(|numbers| <[f64; N]>::try_from(numbers).ok())
        .ok_or_else(|| {
            reader
                .fields
                .expected(name, &format!("a list of {N} numbers"), value)
        })
}
