//! RWKV-7 (Peng et al., 2025): a delta rule whose decay, replacement and value are each given by a
//! narrow layer of the token mixed with the one before.

use super::rwkv::shifted;
use super::{Block, Linear, Norm, Work};
use crate::LoadError;
use crate::weights::spelling::reshaped;
use mlxcel_ir::{Activation, ValueId};

/// `up(activation(down x))`.
#[derive(Clone, Debug)]
pub(crate) struct Narrow {
    pub(crate) down: Linear,
    pub(crate) activation: Option<Activation>,
    pub(crate) up: Linear,
}

/// The part of a layer that mixes tokens.
#[derive(Clone, Debug)]
pub(crate) struct DeltaTimeMix {
    /// Where `x_*`, `k_k`, `k_a`, `r_k` and `g_norm` are.
    pub(crate) module: String,
    pub(crate) heads: usize,
    /// Width of a head.
    pub(crate) width: usize,
    pub(crate) receptance: Linear,
    pub(crate) key: Linear,
    pub(crate) value: Linear,
    pub(crate) output: Linear,
    pub(crate) decay: Narrow,
    pub(crate) replacement: Narrow,
    pub(crate) gate: Narrow,
    /// How much of the first layer's value there is; `None` in that layer itself.
    pub(crate) residual: Option<Narrow>,
    /// Of each head of the result, without a weight.
    pub(crate) norm: Norm,
}

/// `value(relu(key x)²)` of the token mixed with the one before.
#[derive(Clone, Debug)]
pub(crate) struct ShiftedMlp {
    /// Where `x_k` is.
    pub(crate) module: String,
    pub(crate) key: Linear,
    pub(crate) value: Linear,
}

/// A layer that reads a token and the one before.
struct Shifted<'a> {
    module: &'a str,
    x: ValueId,
    /// From the token to the one before.
    change: ValueId,
}

impl<'a> Shifted<'a> {
    fn new(
        work: &mut Work<'_>,
        module: &'a str,
        x: ValueId,
        width: usize,
    ) -> Result<Self, LoadError> {
        let last = shifted(work, x, width)?;
        let change = work.op(|b| b.subtract(last, x))?;
        Ok(Self { module, x, change })
    }

    /// `x + x_name * change`.
    fn mixed(&self, work: &mut Work<'_>, name: &str) -> Result<ValueId, LoadError> {
        let share = vector(work, self.module, &format!("x_{name}"), self.x)?;
        let change = work.op(|b| b.multiply(share, self.change))?;
        work.op(|b| b.add(self.x, change))
    }
}

/// The numbers of the weight `module.name`, as many as the last dimension of `like` has, whatever
/// dimensions they are stored in, repeated to its shape.
fn vector(
    work: &mut Work<'_>,
    module: &str,
    name: &str,
    like: ValueId,
) -> Result<ValueId, LoadError> {
    let width = work.ty(like).shape.last().and_then(|dim| dim.fixed());
    let name = reshaped(&format!("{module}.{name}"), &[width.unwrap_or(0)]);
    work.row(&name, like)
}

impl Narrow {
    fn build(&self, work: &mut Work<'_>, x: ValueId, part: &str) -> Result<ValueId, LoadError> {
        let mut low = work.linear(x, &self.down, &format!("{part}_down"))?;
        if let Some(activation) = self.activation {
            low = work.op(|b| b.activate(low, activation))?;
        }
        work.linear(low, &self.up, part)
    }
}

impl DeltaTimeMix {
    /// The name that the first layer's value is kept under.
    const FIRST: &str = "first_value";

    /// What each element of a key's memory keeps, from what its layer gave: `e^(-e^-½ σ(y))`.
    fn decays(&self, work: &mut Work<'_>, y: ValueId) -> Result<ValueId, LoadError> {
        let share = work.op(|b| b.sigmoid(y))?;
        let log = work.scaled(share, -(-0.5f64).exp())?;
        work.op(|b| b.exp(log))
    }

    /// The value, of which a share is the first layer's.
    fn mixed_value(
        &self,
        work: &mut Work<'_>,
        value: ValueId,
        x: ValueId,
    ) -> Result<ValueId, LoadError> {
        let (Some(residual), Some(first)) = (&self.residual, work.kept(&[Self::FIRST])) else {
            work.keep(&[Self::FIRST], value);
            return Ok(value);
        };
        let share = residual.build(work, x, "residual_value")?;
        let share = work.op(|b| b.sigmoid(share))?;
        let change = work.op(|b| b.subtract(first, value))?;
        let change = work.op(|b| b.multiply(share, change))?;
        work.op(|b| b.add(value, change))
    }

    /// `key * (1 + (share - 1) * k_a)`.
    fn written_key(
        &self,
        work: &mut Work<'_>,
        key: ValueId,
        share: ValueId,
    ) -> Result<ValueId, LoadError> {
        let weight = vector(work, &self.module, "k_a", key)?;
        let one = work.full(share, 1.0)?;
        let rest = work.op(|b| b.subtract(share, one))?;
        let factor = work.op(|b| b.multiply(rest, weight))?;
        let factor = work.op(|b| b.add(one, factor))?;
        work.op(|b| b.multiply(key, factor))
    }

    /// The key that is replaced, of length 1 in each head.
    fn replaced_key(&self, work: &mut Work<'_>, key: ValueId) -> Result<ValueId, LoadError> {
        /// Added to the square of the length.
        const EPSILON: f64 = 1e-24;
        let weight = vector(work, &self.module, "k_k", key)?;
        let key = work.op(|b| b.multiply(key, weight))?;
        let key = work.split(key, &[self.heads, self.width])?;
        // An RMS norm divides by the mean, not by the sum.
        let width = self.width as f64;
        let key = work.op(|b| b.rms_norm(key, None, EPSILON / width, 0.0))?;
        work.scaled(key, 1.0 / width.sqrt())
    }

    /// The norm of each head of `y`, and the token's own value by how much receptance and key agree.
    fn finished(
        &self,
        work: &mut Work<'_>,
        y: ValueId,
        [receptance, key, value]: [ValueId; 3],
    ) -> Result<ValueId, LoadError> {
        let all = self.heads * self.width;
        let y = work.norm(y, &self.norm, "mixer_norm")?;
        let y = work.split(y, &[all])?;
        let weight = vector(work, &self.module, "g_norm.weight", y)?;
        let y = work.op(|b| b.multiply(y, weight))?;
        let bias = vector(work, &self.module, "g_norm.bias", y)?;
        let y = work.op(|b| b.add(y, bias))?;
        let both = work.op(|b| b.multiply(receptance, key))?;
        let both = work.split(both, &[all])?;
        let weight = vector(work, &self.module, "r_k", both)?;
        let both = work.op(|b| b.multiply(both, weight))?;
        let both = work.split(both, &[self.heads, self.width])?;
        let sum = work.sum(both, 3)?;
        let sum = work.spread(sum, value)?;
        let own = work.op(|b| b.multiply(sum, value))?;
        let own = work.split(own, &[all])?;
        work.op(|b| b.add(y, own))
    }
}

impl Block for DeltaTimeMix {
    fn build(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let (heads, width) = (self.heads, self.width);
        let mixed = Shifted::new(work, &self.module, x, self.key.from)?;
        let x = mixed.mixed(work, "r")?;
        let receptance = work.linear(x, &self.receptance, "receptance")?;
        let x = mixed.mixed(work, "w")?;
        let decay = self.decay.build(work, x, "decay")?;
        let decay = self.decays(work, decay)?;
        let x = mixed.mixed(work, "k")?;
        let key = work.linear(x, &self.key, "key")?;
        let x = mixed.mixed(work, "v")?;
        let value = work.linear(x, &self.value, "value")?;
        let value = self.mixed_value(work, value, x)?;
        let x = mixed.mixed(work, "a")?;
        let share = self.replacement.build(work, x, "replacement")?;
        let share = work.op(|b| b.sigmoid(share))?;
        let x = mixed.mixed(work, "g")?;
        let gate = self.gate.build(work, x, "gate")?;

        let replaced = self.replaced_key(work, key)?;
        let key = self.written_key(work, key, share)?;
        let split = |work: &mut Work<'_>, x| work.split(x, &[heads, width]);
        let (share, decay) = (split(work, share)?, split(work, decay)?);
        let (receptance, key) = (split(work, receptance)?, split(work, key)?);
        let value = split(work, value)?;
        // The rule reads the memory before it decays, the op reads it after.
        let erase = work.op(|b| b.divide(replaced, decay))?;
        let write = work.op(|b| b.multiply(replaced, share))?;
        let memory = work.memory("", [heads, width, width]);
        let length = work.length;
        let y = work.op(|b| {
            b.delta_recurrence(receptance, key, value, decay, erase, write, length, memory)
        })?;
        work.named(y, "recurrence");
        let y = self.finished(work, y, [receptance, key, value])?;
        let y = work.op(|b| b.multiply(y, gate))?;
        work.linear(y, &self.output, "mixer_out")
    }
}

impl Block for ShiftedMlp {
    fn build(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let mixed = Shifted::new(work, &self.module, x, self.key.from)?;
        let x = mixed.mixed(work, "k")?;
        let key = work.linear(x, &self.key, "key")?;
        let key = work.op(|b| b.activate(key, Activation::Relu2))?;
        work.linear(key, &self.value, "value")
    }
}
