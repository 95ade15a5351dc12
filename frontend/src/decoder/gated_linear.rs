//! The real-gated linear recurrent unit of Griffin (De et al., 2024), between a convolution and a gate.

use super::{Block, Convolution, Linear, Work};
use crate::LoadError;
use crate::weights::spelling::transposed;
use mlxcel_ir::{Activation, Comparison, DType, ValueId};

/// How much sharper the decay is than its gate says.
const SHARPNESS: f64 = 8.0;

/// `output(activation(gate x) * unit(convolution(input x)))`.
#[derive(Clone, Debug)]
pub(crate) struct GatedLinear {
    /// Where `input_gate_*`, `recurrent_gate_*` and `recurrent_param` are.
    pub(crate) module: String,
    /// Blocks of channels that the gates mix among themselves.
    pub(crate) blocks: usize,
    pub(crate) gate: Linear,
    pub(crate) activation: Activation,
    pub(crate) input: Linear,
    pub(crate) convolution: Convolution,
    pub(crate) output: Linear,
}

impl GatedLinear {
    /// The sigmoid of what the gate `name` makes of each block of `x`, `[B, T, W]`.
    fn share(&self, work: &mut Work<'_>, x: ValueId, name: &str) -> Result<ValueId, LoadError> {
        let (blocks, channels) = (self.blocks, self.input.to);
        let width = channels / blocks;
        let named = |part: &str| format!("{}.{name}_{part}", self.module);
        // A block is an expert that reads its own row.
        let weight = work.weight(&transposed(&named("weight")), &[blocks, width, width])?;
        let bias = work.weight(&named("bias"), &[blocks, width])?;
        let rows = work.split(x, &[blocks, width])?;
        let shape = work.with_tail(&[blocks]);
        let block = work.op(|b| b.iota(2, DType::I32, shape))?;
        let y = work.op(|b| b.expert_linear(rows, block, weight, Some(bias)))?;
        work.named(y, name);
        let y = work.split(y, &[channels])?;
        work.op(|b| b.sigmoid(y))
    }

    /// The recurrence over `x`. What enters is scaled so that its size stays that of `x`; the first
    /// token of a text enters whole.
    fn unit(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let channels = self.input.to;
        let enters = self.share(work, x, "input_gate")?;
        let stays = self.share(work, x, "recurrent_gate")?;
        let rate = work.row(&format!("{}.recurrent_param", self.module), x)?;
        let rate = work.op(|b| b.activate(rate, Activation::Softplus))?;
        let rate = work.scaled(rate, -SHARPNESS)?;
        let log = work.op(|b| b.multiply(stays, rate))?;
        let decay = work.op(|b| b.exp(log))?;
        let twice = work.scaled(log, 2.0)?;
        let square = work.op(|b| b.exp(twice))?;
        let one = work.full(square, 1.0)?;
        let rest = work.op(|b| b.subtract(one, square))?;
        let rest = work.op(|b| b.sqrt(rest))?;
        let position = work.positions(0)?;
        let position = work.spread(position, rest)?;
        let first = work.full(position, 0.0)?;
        let is_first = work.op(|b| b.compare(position, first, Comparison::Equal))?;
        let factor = work.op(|b| b.select(is_first, one, rest))?;
        let entering = work.op(|b| b.multiply(x, enters))?;
        let entering = work.op(|b| b.multiply(entering, factor))?;
        // Each channel is a head that remembers one number.
        let value = work.split(entering, &[channels, 1])?;
        let decay = work.split(decay, &[channels, 1])?;
        let shape = work.with_tail(&[1, 1]);
        let key = work.op(|b| b.constant(1.0, DType::F32, shape))?;
        let memory = work.memory("", [channels, 1, 1]);
        let length = work.length;
        let y = work.op(|b| b.recurrence(key, key, value, decay, length, memory))?;
        work.named(y, "recurrence");
        work.split(y, &[channels])
    }
}

impl Block for GatedLinear {
    fn build(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let gate = work.linear(x, &self.gate, "gate")?;
        let y = work.linear(x, &self.input, "mixer_in")?;
        let y = self.convolution.build(work, y, "conv")?;
        let y = self.unit(work, y)?;
        let activation = self.activation;
        let y = work.op(|b| b.gated(gate, y, activation))?;
        work.linear(y, &self.output, "mixer_out")
    }
}
