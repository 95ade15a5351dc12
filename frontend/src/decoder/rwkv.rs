//! RWKV-4 (Peng et al., 2023): tokens mixed with the one before, and averages that fade over time.

use super::{Block, Linear, Work};
use crate::LoadError;
use crate::weights::spelling::reshaped;
use mlxcel_ir::{Activation, DType, ValueId};

/// Keys above this are cut to it: `e^60` is far above any weight that a sum in f32 still tells from
/// all of it. The training code of RWKV-4 cuts at the same.
const KEY_BOUND: f64 = 60.0;

/// `output(sigmoid(receptance) * average of values)`.
#[derive(Clone, Debug)]
pub(crate) struct TimeMix {
    /// Where `time_decay`, `time_first` and `time_mix_*` are.
    pub(crate) module: String,
    pub(crate) receptance: Linear,
    pub(crate) key: Linear,
    pub(crate) value: Linear,
    pub(crate) output: Linear,
}

/// `sigmoid(receptance) * value(relu(key)²)`.
#[derive(Clone, Debug)]
pub(crate) struct ChannelMix {
    /// Where `time_mix_*` are.
    pub(crate) module: String,
    pub(crate) receptance: Linear,
    pub(crate) key: Linear,
    pub(crate) value: Linear,
}

/// The constant `[B, T, 1, 2]` of two numbers.
fn pair(work: &mut Work<'_>, numbers: [f64; 2]) -> Result<ValueId, LoadError> {
    let table = work.op(|b| b.table(numbers.to_vec(), DType::F32))?;
    let shape = work.with_tail(&[1, 2]);
    work.op(|b| b.broadcast(table, shape, vec![3]))
}

/// What a memory of two places held before the token: `[B, T, H, V]` of `value`, likewise. The first
/// place becomes `kept · decay ⊙ it + value`, the second `decay ⊙ the first`, which is what is read;
/// `decay` is `[B, T, H, 2]` with 0 in the second place.
fn before(
    work: &mut Work<'_>,
    value: ValueId,
    decay: ValueId,
    part: &str,
    [heads, width]: [usize; 2],
    kept: f64,
) -> Result<ValueId, LoadError> {
    let (first, second) = (pair(work, [1.0, 0.0])?, pair(work, [0.0, 1.0])?);
    let write = pair(work, [1.0 - kept, -1.0])?;
    let memory = work.memory(part, [heads, 2, width]);
    let length = work.length;
    work.op(|b| b.delta_recurrence(second, first, value, decay, first, write, length, memory))
}

/// `x` of the token before.
pub(super) fn shifted(work: &mut Work<'_>, x: ValueId, width: usize) -> Result<ValueId, LoadError> {
    let row = work.split(x, &[1, width])?;
    let decay = pair(work, [1.0, 0.0])?;
    let y = before(work, row, decay, "shift", [1, width], 0.0)?;
    work.split(y, &[width])
}

/// `mix * x + (1 - mix) * last` with the numbers of the weight `mix`.
fn mixed(
    work: &mut Work<'_>,
    x: ValueId,
    last: ValueId,
    mix: &str,
    width: usize,
) -> Result<ValueId, LoadError> {
    let mix = work.row(&reshaped(mix, &[width]), x)?;
    let one = work.full(mix, 1.0)?;
    let rest = work.op(|b| b.subtract(one, mix))?;
    let x = work.op(|b| b.multiply(x, mix))?;
    let last = work.op(|b| b.multiply(last, rest))?;
    work.op(|b| b.add(x, last))
}

impl Block for TimeMix {
    fn build(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let (hidden, channels) = (self.key.from, self.key.to);
        let named = |name: &str| format!("{}.{name}", self.module);
        let last = shifted(work, x, hidden)?;
        let mut part = |linear: &Linear, name: &str| {
            let mix = named(&format!("time_mix_{name}"));
            let x = mixed(work, x, last, &mix, hidden)?;
            work.linear(x, linear, name)
        };
        let key = part(&self.key, "key")?;
        let value = part(&self.value, "value")?;
        let receptance = part(&self.receptance, "receptance")?;

        let bound = work.full(key, KEY_BOUND)?;
        let key = work.op(|b| b.minimum(key, bound))?;
        let weight = work.op(|b| b.exp(key))?;
        // Weighed values and weights, side by side.
        let join = |work: &mut Work<'_>, weight: ValueId| {
            let weighed = work.op(|b| b.multiply(weight, value))?;
            let weighed = work.split(weighed, &[channels, 1])?;
            let weight = work.split(weight, &[channels, 1])?;
            work.op(|b| b.concatenate(weighed, weight, 3))
        };
        let both = join(work, weight)?;
        let rate = work.row(&reshaped(&named("time_decay"), &[channels]), key)?;
        let rate = work.op(|b| b.exp(rate))?;
        let decay = work.op(|b| b.negate(rate))?;
        let decay = work.op(|b| b.exp(decay))?;
        let decay = work.split(decay, &[channels, 1])?;
        let none = work.full(decay, 0.0)?;
        let decay = work.op(|b| b.concatenate(decay, none, 3))?;
        let past = before(work, both, decay, "average", [channels, 2], 1.0)?;
        // The past has faded once more than it should have for this token, and so must the token:
        // the quotient is the same.
        let first = work.row(&reshaped(&named("time_first"), &[channels]), key)?;
        let own = work.op(|b| b.add(key, first))?;
        let own = work.op(|b| b.subtract(own, rate))?;
        let own = work.op(|b| b.exp(own))?;
        let own = join(work, own)?;
        let sums = work.op(|b| b.add(past, own))?;
        let above = work.part(sums, 0..1)?;
        let below = work.part(sums, 1..2)?;
        let average = work.op(|b| b.divide(above, below))?;
        let average = work.split(average, &[channels])?;
        let y = work.op(|b| b.gated(receptance, average, Activation::Sigmoid))?;
        work.linear(y, &self.output, "mixer_out")
    }
}

impl Block for ChannelMix {
    fn build(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let hidden = self.key.from;
        let last = shifted(work, x, hidden)?;
        let mut part = |linear: &Linear, name: &str| {
            let mix = format!("{}.time_mix_{name}", self.module);
            let x = mixed(work, x, last, &mix, hidden)?;
            work.linear(x, linear, name)
        };
        let key = part(&self.key, "key")?;
        let receptance = part(&self.receptance, "receptance")?;
        let key = work.op(|b| b.activate(key, Activation::Relu2))?;
        let value = work.linear(key, &self.value, "value")?;
        work.op(|b| b.gated(receptance, value, Activation::Sigmoid))
    }
}
