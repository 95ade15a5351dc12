//! Rotary embedding in its three spellings.

use super::{Fields, limit};
use crate::LoadError;
use mlxcel_ir::RopeScaling;

/// The settings of rotary embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeConfig {
    /// Base of the geometric row of frequencies.
    pub base: f64,
    /// How frequencies are stretched.
    pub scaling: RopeScaling,
}

impl RopeConfig {
    /// Reads `rope_parameters` (transformers 5), or `rope_theta` and `rope_scaling` (before; the
    /// kind stands under `rope_type` or `type`). A kind that is not known is an error: ignoring it
    /// would give wrong numbers, not a worse model.
    pub(super) fn parse(fields: &Fields<'_>, context: usize) -> Result<Self, LoadError> {
        let outer = fields.positive("rope_theta")?;
        let new = fields.object("rope_parameters")?;
        let old = fields.object("rope_scaling")?;
        let Some(inner) = new.or(old) else {
            return Ok(Self {
                base: outer.unwrap_or(10_000.0),
                scaling: RopeScaling::None,
            });
        };
        let base = inner.positive("rope_theta")?.or(outer).unwrap_or(10_000.0);
        if let Some(share) = inner.positive("partial_rotary_factor")?
            && share != 1.0
        {
            let reason = format!("only 1 is supported for this family, is {share}");
            return Err(inner.error("partial_rotary_factor", reason));
        }
        let (field, kind) = match inner.text("rope_type")? {
            Some(kind) => ("rope_type", kind),
            None => ("type", inner.text("type")?.unwrap_or("default")),
        };
        let factor = |name: &str| {
            inner
                .positive(name)?
                .ok_or_else(|| inner.error(name, format!("is missing, and `{kind}` needs it")))
        };
        let scaling = match kind {
            "default" => RopeScaling::None,
            "linear" => RopeScaling::Linear {
                factor: factor("factor")?,
            },
            "llama3" => {
                let (low, high) = (factor("low_freq_factor")?, factor("high_freq_factor")?);
                if high <= low {
                    let reason = format!("must exceed low_freq_factor {low}, is {high}");
                    return Err(inner.error("high_freq_factor", reason));
                }
                let original =
                    inner.size("original_max_position_embeddings", 1..=limit::CONTEXT)?;
                RopeScaling::Llama3 {
                    factor: factor("factor")?,
                    low,
                    high,
                    original: original.unwrap_or(context) as f64,
                }
            }
            other => {
                return Err(inner.error(
                    field,
                    format!("`{other}` is not supported; supported are default, linear, llama3"),
                ));
            }
        };
        Ok(Self { base, scaling })
    }
}
