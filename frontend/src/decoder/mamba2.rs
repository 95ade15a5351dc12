//! Mamba-2 (Dao and Gu, 2024): a recurrence whose heads each decay by one factor.

use super::{Block, Convolution, Linear, Norm, Work};
use crate::LoadError;
use mlxcel_ir::{Activation, ValueId};

/// A norm of what the recurrence gives, and the gate's `silu`.
#[derive(Clone, Debug)]
pub(crate) struct GatedNorm {
    /// Its weight is as wide as all heads; its width is that of what is normed together.
    pub(crate) norm: Norm,
    /// The name of the weight.
    pub(crate) weight: String,
    /// Whether the norm comes before the gate.
    pub(crate) first: bool,
}

/// A Mamba-2 layer.
#[derive(Clone, Debug)]
pub(crate) struct Mamba2 {
    /// Where `A_log`, `D` and `dt_bias` are.
    pub(crate) module: String,
    pub(crate) heads: usize,
    /// Width of a head.
    pub(crate) width: usize,
    pub(crate) groups: usize,
    /// Numbers that a head remembers for each element of its width.
    pub(crate) state: usize,
    /// Gives the gate, what is convolved (`x`, `B`, `C`) and the time steps.
    pub(crate) input: Linear,
    pub(crate) convolution: Convolution,
    pub(crate) output: Linear,
    pub(crate) norm: Option<GatedNorm>,
    /// Bounds of the time steps.
    pub(crate) steps: [f64; 2],
    /// Factors of the gate, `x`, `B`, `C` and the time steps.
    pub(crate) scales: [f64; 5],
}

impl Mamba2 {
    /// Width of `x` and of the gate.
    pub(crate) fn inner(&self) -> usize {
        self.heads * self.width
    }

    /// What the input layer gives, each part by its factor.
    fn scaled(&self, work: &mut Work<'_>, all: ValueId) -> Result<ValueId, LoadError> {
        if self.scales == [1.0; 5] {
            return Ok(all);
        }
        let (inner, shared) = (self.inner(), self.groups * self.state);
        let widths = [inner, inner, shared, shared, self.heads];
        let factors = widths
            .iter()
            .zip(self.scales)
            .flat_map(|(&width, scale)| std::iter::repeat_n(scale, width))
            .collect();
        let factors = work.op(|b| b.table(factors, mlxcel_ir::DType::F32))?;
        let shape = work.ty(all).shape;
        let factors = work.op(|b| b.broadcast(factors, shape, vec![2]))?;
        work.op(|b| b.multiply(all, factors))
    }

    fn gated(&self, work: &mut Work<'_>, y: ValueId, gate: ValueId) -> Result<ValueId, LoadError> {
        let inner = self.inner();
        let silu = |work: &mut Work<'_>, y| work.op(|b| b.gated(gate, y, Activation::Silu));
        let Some(GatedNorm {
            norm,
            weight,
            first,
        }) = &self.norm
        else {
            return silu(work, y);
        };
        let mut y = match first {
            true => y,
            false => silu(work, y)?,
        };
        y = work.split(y, &[inner / norm.width, norm.width])?;
        y = work.norm(y, norm, "mixer_norm")?;
        y = work.split(y, &[inner])?;
        let weight = work.row(weight, y)?;
        y = work.op(|b| b.multiply(y, weight))?;
        match first {
            true => silu(work, y),
            false => Ok(y),
        }
    }
}

impl Block for Mamba2 {
    fn build(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let (heads, width, groups, state) = (self.heads, self.width, self.groups, self.state);
        let (inner, shared) = (self.inner(), groups * state);
        let named = |name: &str| format!("{}.{name}", self.module);
        let all = work.linear(x, &self.input, "mixer_in")?;
        let all = self.scaled(work, all)?;
        let end = 2 * inner + 2 * shared;
        let gate = work.part(all, 0..inner)?;
        let convolved = work.part(all, inner..end)?;
        let convolved = self.convolution.build(work, convolved, "conv")?;
        let x = work.part(convolved, 0..inner)?;
        let x = work.split(x, &[heads, width])?;
        let key = work.part(convolved, inner..inner + shared)?;
        let key = work.split(key, &[groups, state])?;
        let query = work.part(convolved, inner + shared..inner + 2 * shared)?;
        let query = work.split(query, &[groups, state])?;

        let step = work.part(all, end..end + heads)?;
        let bias = work.row(&named("dt_bias"), step)?;
        let step = work.op(|b| b.add(step, bias))?;
        let step = time_step(work, step, self.steps)?;
        let log = work.row(&named("A_log"), step)?;
        let rate = work.op(|b| b.exp(log))?;
        let rate = work.op(|b| b.negate(rate))?;
        let decay = work.op(|b| b.multiply(step, rate))?;
        let decay = work.op(|b| b.exp(decay))?;
        let decay = work.split(decay, &[heads, 1])?;
        let step = work.split(step, &[heads, 1])?;
        let step = work.spread(step, x)?;
        let value = work.op(|b| b.multiply(step, x))?;
        let memory = work.memory("", [heads, state, width]);
        let length = work.length;
        let y = work.op(|b| b.recurrence(query, key, value, decay, length, memory))?;
        work.named(y, "recurrence");

        let pass = work.parameter(&named("D"), &[heads])?;
        let shape = work.ty(x).shape;
        let pass = work.op(|b| b.broadcast(pass, shape, vec![2]))?;
        let pass = work.op(|b| b.multiply(pass, x))?;
        let y = work.op(|b| b.add(y, pass))?;
        let y = work.split(y, &[inner])?;
        let y = self.gated(work, y, gate)?;
        work.linear(y, &self.output, "mixer_out")
    }
}

/// `softplus(x)` within `bounds`.
fn time_step(work: &mut Work<'_>, x: ValueId, [low, high]: [f64; 2]) -> Result<ValueId, LoadError> {
    let mut step = work.op(|b| b.activate(x, Activation::Softplus))?;
    // Softplus is above zero by itself.
    if low > 0.0 {
        let low = work.full(step, low)?;
        step = work.op(|b| b.maximum(step, low))?;
    }
    if high.is_finite() {
        let high = work.full(step, high)?;
        step = work.op(|b| b.minimum(step, high))?;
    }
    Ok(step)
}
