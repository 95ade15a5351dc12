//! Linear attention by the gated delta rule (Yang et al., 2024): a memory that decays and in which
//! each key's value is replaced, not added to. The decay is one factor for each head (Gated DeltaNet)
//! or for each element of a key (Kimi Delta Attention).

use super::{Block, Convolution, Linear, Norm, Work};
use crate::LoadError;
use crate::weights::spelling::reshaped;
use mlxcel_ir::{Activation, ValueId};

/// Linear attention by the gated delta rule.
#[derive(Clone, Debug)]
pub(crate) struct GatedDelta {
    pub(crate) key_heads: usize,
    pub(crate) value_heads: usize,
    /// Widths of a key and of a value.
    pub(crate) widths: [usize; 2],
    /// What they give, one after the other, is queries, keys and values.
    pub(crate) projections: Vec<Linear>,
    /// Over these, one after the other.
    pub(crate) convolutions: Vec<Convolution>,
    /// How much of a value is replaced: the sigmoid of one number for each value head, and a factor.
    pub(crate) share: Linear,
    pub(crate) share_scale: f64,
    /// Layers, one on the other, that give the time steps of the decay.
    pub(crate) decay: Vec<Linear>,
    /// The names of `A_log` and `dt_bias`.
    pub(crate) rate: [String; 2],
    /// Layers, one on the other, that give the gate of the result.
    pub(crate) gate: Vec<Linear>,
    pub(crate) gate_activation: Activation,
    /// Of each head of the result, before the gate.
    pub(crate) norm: Norm,
    pub(crate) output: Linear,
}

impl GatedDelta {
    /// Queries, keys and values after their convolutions.
    fn mixed(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let mut all: Option<ValueId> = None;
        for linear in &self.projections {
            let y = work.linear(x, linear, "qkv")?;
            all = Some(joined(work, all, y)?);
        }
        let Some(all) = all else {
            return Ok(x);
        };
        let mut start = 0;
        let mut mixed: Option<ValueId> = None;
        for (index, convolution) in self.convolutions.iter().enumerate() {
            let end = start + convolution.channels();
            let part = match self.convolutions.len() {
                1 => all,
                _ => work.part(all, start..end)?,
            };
            let y = convolution.build(work, part, &format!("conv.{index}"))?;
            mixed = Some(joined(work, mixed, y)?);
            start = end;
        }
        Ok(mixed.unwrap_or(all))
    }

    /// `x[B, T, G, K]` of length 1 along K, repeated for the value heads of its group.
    fn unit(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        /// Added to the sum of squares.
        const EPSILON: f64 = 1e-6;
        let (groups, heads, width) = (self.key_heads, self.value_heads, self.widths[0]);
        let x = work.split(x, &[groups, width])?;
        // An RMS norm divides by the mean, not by the sum.
        let x = work.op(|b| b.rms_norm(x, None, EPSILON / width as f64, 0.0))?;
        let x = work.scaled(x, 1.0 / (width as f64).sqrt())?;
        if groups == heads {
            return Ok(x);
        }
        let x = work.split(x, &[groups, 1, width])?;
        let shape = work.with_tail(&[groups, heads / groups, width]);
        let x = work.op(|b| b.broadcast(x, shape, vec![0, 1, 2, 3, 4]))?;
        work.split(x, &[heads, width])
    }

    /// The factors by which the memory decays, `[B, T, H, K]` or `[B, T, H, 1]`.
    fn decays(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let heads = self.value_heads;
        let step = chain(work, x, &self.decay, "decay")?;
        let [rate, bias] = &self.rate;
        let bias = work.row(bias, step)?;
        let step = work.op(|b| b.add(step, bias))?;
        let step = work.op(|b| b.activate(step, Activation::Softplus))?;
        let width = self.decay.last().map_or(heads, |linear| linear.to) / heads;
        let step = work.split(step, &[heads, width])?;
        let rate = work.parameter(&reshaped(rate, &[heads]), &[heads])?;
        let rate = work.op(|b| b.exp(rate))?;
        let rate = work.op(|b| b.negate(rate))?;
        let shape = work.ty(step).shape;
        let rate = work.op(|b| b.broadcast(rate, shape, vec![2]))?;
        let decay = work.op(|b| b.multiply(rate, step))?;
        work.op(|b| b.exp(decay))
    }
}

impl Block for GatedDelta {
    fn build(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let (heads, [key_width, width]) = (self.value_heads, self.widths);
        let (keys, values) = (self.key_heads * key_width, heads * width);
        let mixed = self.mixed(work, x)?;
        let query = work.part(mixed, 0..keys)?;
        let query = self.unit(work, query)?;
        let query = work.scaled(query, 1.0 / (key_width as f64).sqrt())?;
        let key = work.part(mixed, keys..2 * keys)?;
        let key = self.unit(work, key)?;
        let value = work.part(mixed, 2 * keys..2 * keys + values)?;
        let value = work.split(value, &[heads, width])?;

        let share = work.linear(x, &self.share, "share")?;
        let share = work.op(|b| b.sigmoid(share))?;
        let share = work.scaled(share, self.share_scale)?;
        let share = work.split(share, &[heads, 1])?;
        let wide = work.spread(share, key)?;
        let write = work.op(|b| b.multiply(wide, key))?;
        let wide = work.spread(share, value)?;
        let value = work.op(|b| b.multiply(wide, value))?;
        let decay = self.decays(work, x)?;
        let memory = work.memory("", [heads, key_width, width]);
        let length = work.length;
        let y =
            work.op(|b| b.delta_recurrence(query, key, value, decay, key, write, length, memory))?;
        work.named(y, "recurrence");

        let y = work.norm(y, &self.norm, "mixer_norm")?;
        let y = work.split(y, &[values])?;
        let gate = chain(work, x, &self.gate, "gate")?;
        let activation = self.gate_activation;
        let y = work.op(|b| b.gated(gate, y, activation))?;
        work.linear(y, &self.output, "mixer_out")
    }
}

/// `y` after `all` along the last dimension.
fn joined(work: &mut Work<'_>, all: Option<ValueId>, y: ValueId) -> Result<ValueId, LoadError> {
    match all {
        Some(all) => work.op(|b| b.concatenate(all, y, 2)),
        None => Ok(y),
    }
}

fn chain(
    work: &mut Work<'_>,
    mut x: ValueId,
    layers: &[Linear],
    part: &str,
) -> Result<ValueId, LoadError> {
    for layer in layers {
        x = work.linear(x, layer, part)?;
    }
    Ok(x)
}
