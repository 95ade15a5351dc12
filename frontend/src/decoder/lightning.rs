//! Lightning attention (MiniMax-01): linear attention whose heads each forget at a fixed rate.

use super::{Block, Linear, Norm, Work};
use crate::LoadError;
use mlxcel_ir::{Activation, DType, ValueId};

/// `output(sigmoid(gate x) * norm(attention))`.
#[derive(Clone, Debug)]
pub(crate) struct Lightning {
    /// Width of a head.
    pub(crate) width: usize,
    /// Gives each head's query, key and value.
    pub(crate) input: Linear,
    pub(crate) activation: Activation,
    /// What is left of each head's memory after a token.
    pub(crate) decay: Vec<f64>,
    pub(crate) norm: Norm,
    pub(crate) gate: Linear,
    pub(crate) output: Linear,
}

impl Block for Lightning {
    fn build(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let (heads, width) = (self.decay.len(), self.width);
        let all = work.linear(x, &self.input, "qkv")?;
        let activation = self.activation;
        let all = work.op(|b| b.activate(all, activation))?;
        let all = work.split(all, &[heads, 3 * width])?;
        let query = work.part(all, 0..width)?;
        let key = work.part(all, width..2 * width)?;
        let value = work.part(all, 2 * width..3 * width)?;
        let decay = self.decay.clone();
        let decay = work.op(|b| b.table(decay, DType::F32))?;
        let shape = work.with_tail(&[heads, 1]);
        let decay = work.op(|b| b.broadcast(decay, shape, vec![2]))?;
        let memory = work.memory("", [heads, width, width]);
        let length = work.length;
        let y = work.op(|b| b.recurrence(query, key, value, decay, length, memory))?;
        work.named(y, "recurrence");
        let y = work.split(y, &[heads * width])?;
        let y = work.norm(y, &self.norm, "mixer_norm")?;
        let gate = work.linear(x, &self.gate, "gate")?;
        let y = work.op(|b| b.gated(gate, y, Activation::Sigmoid))?;
        work.linear(y, &self.output, "mixer_out")
    }
}
