//! Mamba (Gu and Dao, 2023): a recurrence of each channel, whose numbers each decay by their own.

use super::{Block, Convolution, Linear, Norm, Work};
use crate::LoadError;
use mlxcel_ir::{Activation, ValueId};

/// A Mamba layer.
#[derive(Clone, Debug)]
pub(crate) struct Mamba {
    /// Where `A_log` and `D` are.
    pub(crate) module: String,
    /// Width of the time steps before `step`.
    pub(crate) rank: usize,
    /// Numbers that a channel remembers.
    pub(crate) state: usize,
    /// Gives what is convolved and the gate.
    pub(crate) input: Linear,
    pub(crate) convolution: Convolution,
    /// Gives the narrow time steps, `B` and `C`.
    pub(crate) choice: Linear,
    /// From the narrow time steps to each channel's.
    pub(crate) step: Linear,
    pub(crate) output: Linear,
    /// Norms of the narrow time steps, of `B` and of `C`.
    pub(crate) norms: Option<[Norm; 3]>,
}

impl Block for Mamba {
    fn build(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let (inner, rank, state) = (self.step.to, self.rank, self.state);
        let named = |name: &str| format!("{}.{name}", self.module);
        let all = work.linear(x, &self.input, "mixer_in")?;
        let x = work.part(all, 0..inner)?;
        let gate = work.part(all, inner..2 * inner)?;
        let x = self.convolution.build(work, x, "conv")?;
        let choice = work.linear(x, &self.choice, "mixer_choice")?;
        let mut parts = [
            work.part(choice, 0..rank)?,
            work.part(choice, rank..rank + state)?,
            work.part(choice, rank + state..rank + 2 * state)?,
        ];
        if let Some(norms) = &self.norms {
            for (part, norm) in parts.iter_mut().zip(norms) {
                *part = work.norm(*part, norm, "choice_norm")?;
            }
        }
        let [step, key, query] = parts;
        let step = work.linear(step, &self.step, "time_step")?;
        let step = work.op(|b| b.activate(step, Activation::Softplus))?;
        // Each channel is a head of width 1.
        let key = work.split(key, &[1, state])?;
        let query = work.split(query, &[1, state])?;
        let wide = work.with_tail(&[inner, state]);
        let log = work.parameter(&named("A_log"), &[inner, state])?;
        let rate = work.op(|b| b.exp(log))?;
        let rate = work.op(|b| b.negate(rate))?;
        let rate = work.op(|b| b.broadcast(rate, wide.clone(), vec![2, 3]))?;
        let steps = work.op(|b| b.broadcast(step, wide, vec![0, 1, 2]))?;
        let decay = work.op(|b| b.multiply(steps, rate))?;
        let decay = work.op(|b| b.exp(decay))?;
        let value = work.op(|b| b.multiply(step, x))?;
        let value = work.split(value, &[inner, 1])?;
        let memory = work.memory("", [inner, state, 1]);
        let length = work.length;
        let y = work.op(|b| b.recurrence(query, key, value, decay, length, memory))?;
        work.named(y, "recurrence");
        let y = work.split(y, &[inner])?;
        let pass = work.row(&named("D"), x)?;
        let pass = work.op(|b| b.multiply(pass, x))?;
        let y = work.op(|b| b.add(y, pass))?;
        let y = work.op(|b| b.gated(gate, y, Activation::Silu))?;
        work.linear(y, &self.output, "mixer_out")
    }
}
