//! Rotary embedding in its three spellings.

mod beyond;

use super::{Fields, Reader, alias, limit};
use crate::LoadError;
use crate::decoder::{Context, Work};
pub(crate) use beyond::{Beyond, Change};
use mlxcel_ir::{Pairing, RopeScaling, ValueId};
use serde_json::Value;

/// The settings of rotary embedding.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rope {
    /// How many elements of each head turn.
    pub(crate) dims: usize,
    /// Base of the geometric row of frequencies.
    pub(crate) base: f64,
    pub(crate) pairing: Pairing,
    /// How frequencies are stretched.
    pub(crate) scaling: RopeScaling,
    /// Factor of what is turned.
    pub(crate) magnitude: f64,
    /// What holds instead for longer texts.
    pub(crate) beyond: Option<Beyond>,
    /// How long texts can be, where that is not what the configuration says.
    pub(crate) context: Option<Context>,
}

impl Rope {
    /// The settings for heads of `width` elements: those under `rope_parameters` (transformers 5),
    /// or `rope_theta` and `rope_scaling` (before; the kind stands under `rope_type` or `type`). A
    /// kind that is not known is an error: ignoring it would give wrong numbers, not a worse model.
    pub(crate) fn read(reader: &Reader<'_>, width: usize) -> Result<Self, LoadError> {
        Self::of_kind(reader, width, "full_attention", 10_000.0)
    }

    /// The settings for layers of `kind`, where the configuration has some for each kind; `base` is
    /// what holds where it names none.
    pub(crate) fn of_kind(
        reader: &Reader<'_>,
        width: usize,
        kind: &str,
        base: f64,
    ) -> Result<Self, LoadError> {
        Self::with(reader, width, kind, base, 1.0)
    }

    /// The same, with `turning` as the share of each head that turns where the configuration names
    /// none.
    pub(crate) fn with(
        reader: &Reader<'_>,
        width: usize,
        kind: &str,
        base: f64,
        turning: f64,
    ) -> Result<Self, LoadError> {
        let fields = &reader.fields;
        let outer = fields.positive(fields.any(alias::ROPE_BASE))?;
        let new = match fields.object("rope_parameters")? {
            Some(all) => match all.object(kind)? {
                Some(inner) => Some(inner),
                None => Some(all),
            },
            None => None,
        };
        let old = fields.object("rope_scaling")?;
        let inner = new.or(old);
        let base = match &inner {
            Some(inner) => inner.positive("rope_theta")?.or(outer),
            None => outer,
        }
        .unwrap_or(base);
        let share = match &inner {
            Some(inner) => inner.positive("partial_rotary_factor")?,
            None => None,
        };
        let share = match share {
            Some(share) => share,
            None => reader.positive_or(alias::TURNING, turning)?,
        };
        if share > 1.0 {
            return Err(fields.error(
                "partial_rotary_factor",
                format!("must be at most 1, is {share}"),
            ));
        }
        if share == 1.0 && !width.is_multiple_of(2) {
            return Err(fields.error("head_dim", format!("must be even, is {width}")));
        }
        // Of an odd number the last turns too, and frequencies go by that number.
        let turning = (width as f64 * share) as usize;
        let dims = turning.next_multiple_of(2);
        let plain = match turning == dims {
            true => Self::plain(dims, base),
            false => Self::plain(dims, base.powf(dims as f64 / turning as f64)),
        };
        if plain.dims == 0 {
            let reason = format!("heads of {width} elements, of which {share} turn, cannot turn");
            return Err(fields.error("head_dim", reason));
        }
        match inner {
            Some(inner) => plain.stretched(reader, &inner, width, share),
            None => Ok(plain),
        }
    }

    /// The first `dims` elements turn, the first half with the second, at frequencies that are not
    /// stretched.
    pub(crate) fn plain(dims: usize, base: f64) -> Self {
        Self {
            dims,
            base,
            pairing: Pairing::Half,
            scaling: RopeScaling::None,
            magnitude: 1.0,
            beyond: None,
            context: None,
        }
    }

    /// The same with elements turning in neighbouring pairs.
    pub(crate) fn interleaved(mut self) -> Self {
        self.pairing = Pairing::Interleaved;
        self
    }

    fn stretched(
        mut self,
        reader: &Reader<'_>,
        inner: &Fields<'_>,
        width: usize,
        share: f64,
    ) -> Result<Self, LoadError> {
        let context = reader.config.context;
        let (field, kind) = match inner.text("rope_type")? {
            Some(kind) => ("rope_type", kind),
            None => ("type", inner.text("type")?.unwrap_or("default")),
        };
        let needed = |name: &str| {
            inner
                .positive(name)?
                .ok_or_else(|| inner.error(name, format!("is missing, and `{kind}` needs it")))
        };
        let name = "original_max_position_embeddings";
        // Where both are there and differ, the outer one counts.
        let original = match reader.fields.size(name, 1..=limit::CONTEXT)? {
            Some(original) => Some(original),
            None => inner.size(name, 1..=limit::CONTEXT)?,
        };
        match kind {
            "default" | "mrope" => {}
            "linear" => {
                let factor = needed("factor")?;
                self.scaling = RopeScaling::Linear { factor };
            }
            // With a fixed factor of the base there is nothing dynamic about it.
            "dynamic" if self.dims > 2 && inner.get("alpha").is_some() => {
                let dims = self.dims as f64;
                self.base *= needed("alpha")?.powf(dims / (dims - 2.0));
            }
            // The base grows once a text is longer than the configuration's context.
            "dynamic" => {
                let factor = needed("factor")?;
                let turning = (width as f64 * share) as usize;
                if turning > 2 {
                    let change = Change::Base { factor, turning };
                    self.beyond = Some(Beyond {
                        original: context,
                        change,
                    });
                }
                self.context = Some(Context {
                    growing: context,
                    whole: stretched(context, factor),
                });
            }
            "llama3" => {
                let (low, high) = (needed("low_freq_factor")?, needed("high_freq_factor")?);
                if high <= low {
                    let reason = format!("must exceed low_freq_factor {low}, is {high}");
                    return Err(inner.error("high_freq_factor", reason));
                }
                self.scaling = RopeScaling::Llama3 {
                    factor: needed("factor")?,
                    low,
                    high,
                    original: original.unwrap_or(context) as f64,
                };
            }
            // Phi-3 was first published with its own stretching under this name.
            "yarn" if inner.get("short_factor").is_none() => {
                let trained = original.unwrap_or(context);
                let grown = context as f64 / trained as f64;
                let factor = inner.positive("factor")?.unwrap_or(grown);
                let whole = context.max(stretched(trained, factor));
                self.context = Some(Context {
                    growing: whole,
                    whole,
                });
                self.magnitude = yarn_magnitude(inner, factor)?;
                // transformers reads this one beside settings for each kind of layer, not within them.
                let outer = reader.fields.object("rope_parameters")?;
                let whole_bounds = outer.as_ref().unwrap_or(inner).flag("truncate")?;
                self.scaling = RopeScaling::Yarn {
                    factor,
                    fast: inner.positive("beta_fast")?.unwrap_or(32.0),
                    slow: inner.positive("beta_slow")?.unwrap_or(1.0),
                    original: trained as f64,
                    whole: whole_bounds.unwrap_or(true),
                };
            }
            "longrope" | "su" | "yarn" => {
                let original = original.unwrap_or(context);
                let factor = inner.positive("factor")?;
                let factor = factor.unwrap_or(context as f64 / original as f64);
                let grown = match factor > 1.0 {
                    true => (1.0 + factor.ln() / (original as f64).ln()).sqrt(),
                    false => 1.0,
                };
                self.magnitude = inner.positive("attention_factor")?.unwrap_or(grown);
                // One table for a whole text: mixing both within one garbles it.
                self.scaling = RopeScaling::Factors(self.factors(inner, "short_factor")?);
                let long = RopeScaling::Factors(self.factors(inner, "long_factor")?);
                let whole = context.max(stretched(original, factor));
                let mut growing = whole;
                if long != self.scaling {
                    let change = Change::Frequencies(long);
                    self.beyond = Some(Beyond { original, change });
                    growing = original;
                }
                self.context = Some(Context { growing, whole });
            }
            // Only the first share of the pairs turns, at frequencies as if all did.
            "proportional" => {
                let factor = inner.positive("factor")?.unwrap_or(1.0);
                let turning = (share * width as f64 / 2.0) as usize;
                self.dims = width / 2 * 2;
                let factors = (0..self.dims / 2).map(|pair| match pair < turning {
                    true => factor,
                    false => f64::INFINITY,
                });
                self.scaling = RopeScaling::Factors(factors.collect());
            }
            other => {
                let known = "default, linear, dynamic, llama3, yarn, longrope, proportional";
                let reason = format!("`{other}` is not supported; supported are {known}");
                return Err(inner.error(field, reason));
            }
        }
        Ok(self)
    }

    /// The list at `name`, one number above 0 for each pair.
    fn factors(&self, inner: &Fields<'_>, name: &str) -> Result<Vec<f64>, LoadError> {
        let value = inner.get(name).ok_or_else(|| inner.missing(name))?;
        let factors: Option<Vec<f64>> = value.as_array().and_then(|items| {
            let above_zero = |item: &Value| item.as_f64().filter(|x| x.is_finite() && *x > 0.0);
            items.iter().map(above_zero).collect()
        });
        let pairs = self.dims / 2;
        factors
            .filter(|factors| factors.len() == pairs)
            .ok_or_else(|| {
                let what = format!("a list of {pairs} numbers greater than zero");
                inner.expected(name, &what, value)
            })
    }

    /// Adds the turning of `x[B, T, heads, D]`, whose rows start at `start`.
    pub(crate) fn build(
        &self,
        work: &mut Work<'_>,
        x: ValueId,
        start: ValueId,
    ) -> Result<ValueId, LoadError> {
        let (dims, base, pairing) = (self.dims, self.base, self.pairing);
        let magnitude = self.magnitude;
        let turn = |work: &mut Work<'_>, scaling: &RopeScaling| {
            work.op(|b| b.rope(x, start, dims, base, pairing, scaling.clone(), magnitude))
        };
        let plain = beyond::Plain {
            dims,
            base,
            pairing,
            magnitude,
        };
        match &self.beyond {
            Some(beyond) => beyond.build(work, [x, start], plain, turn, &self.scaling),
            None => turn(work, &self.scaling),
        }
    }
}

/// `factor` times as many positions as `original`.
fn stretched(original: usize, factor: f64) -> usize {
    ((original as f64 * factor.max(1.0)) as usize).clamp(1, limit::CONTEXT)
}

/// The factor that YaRN gives to what is turned.
fn yarn_magnitude(inner: &Fields<'_>, factor: f64) -> Result<f64, LoadError> {
    if let Some(given) = inner.positive("attention_factor")? {
        return Ok(given);
    }
    let all = inner
        .number("mscale_all_dim")?
        .filter(|&scale| scale != 0.0);
    match (inner.number("mscale")?.filter(|&scale| scale != 0.0), all) {
        (Some(one), Some(all)) => Ok(yarn_scale(factor, one) / yarn_scale(factor, all)),
        _ => Ok(yarn_scale(factor, 1.0)),
    }
}

/// By how much YaRN sharpens attention for a context `factor` times as long.
pub(crate) fn yarn_scale(factor: f64, weight: f64) -> f64 {
    match factor > 1.0 {
        true => 0.1 * weight * factor.ln() + 1.0,
        false => 1.0,
    }
}
