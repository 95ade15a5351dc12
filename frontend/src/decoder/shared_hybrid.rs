//! The layers of Zamba2 that have attention: what a transformer layer, shared by several of them,
//! makes of the residual stream and the embedding goes into a recurrent layer.

use super::{Attention, Block, Linear, Norm, Work};
use crate::LoadError;
use mlxcel_ir::{Activation, ValueId};

/// `body(norm(x + linear(shared(x, embedding))))`.
#[derive(Debug)]
pub(crate) struct SharedHybrid<B> {
    /// Of the stream and the embedding side by side.
    pub(crate) before: Norm,
    pub(crate) attention: Attention,
    /// Of what attention gives.
    pub(crate) middle: Norm,
    /// Gives gate and up, one after the other.
    pub(crate) gate_up: Linear,
    pub(crate) down: Linear,
    pub(crate) activation: Activation,
    pub(crate) linear: Linear,
    pub(crate) norm: Norm,
    pub(crate) body: B,
}

impl<B: Block> Block for SharedHybrid<B> {
    fn build(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let embedding = work.embedding.unwrap_or(x);
        let both = work.op(|b| b.concatenate(x, embedding, 2))?;
        let both = work.norm(both, &self.before, "shared_norm")?;
        let y = self.attention.build(work, both)?;
        let y = work.norm(y, &self.middle, "shared_middle_norm")?;
        let all = work.linear(y, &self.gate_up, "gate_up")?;
        let inner = self.gate_up.to / 2;
        let gate = work.part(all, 0..inner)?;
        let up = work.part(all, inner..2 * inner)?;
        let activation = self.activation;
        let y = work.op(|b| b.gated(gate, up, activation))?;
        let y = work.linear(y, &self.down, "down")?;
        let y = work.linear(y, &self.linear, "shared_out")?;
        let y = work.op(|b| b.add(x, y))?;
        let y = work.norm(y, &self.norm, "mixer_input_norm")?;
        self.body.build(work, y)
    }
}
