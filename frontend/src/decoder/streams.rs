//! Several residual streams beside each other: alternating updates (Baykal et al., 2023). A layer works
//! on one of them; what it did to it corrects a guess of all.

use super::{Block, LayerInput, Linear, Norm, Step, Work};
use crate::LoadError;
use mlxcel_ir::ValueId;

/// The least mean square that a stream is divided by.
const FLOOR: f64 = 1e-5;

/// From one stream to several, or back to one: the first as it is, each other through a layer of its
/// own and then as large as the first.
#[derive(Clone, Debug)]
pub(crate) struct Streams {
    /// Of the streams after the first.
    pub(crate) layers: Vec<Linear>,
}

impl Streams {
    /// The streams that `x[B, T, H]` becomes, side by side: `[B, T, N * H]`.
    pub(crate) fn part(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let mut all = x;
        for layer in &self.layers {
            let stream = levelled(work, x, layer, x)?;
            all = work.op(|b| b.concatenate(all, stream, 2))?;
        }
        Ok(all)
    }

    /// The mean of the streams `x[..., N * H]`: `[..., H]`.
    pub(crate) fn join(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let width = self.layers.first().map_or(0, |layer| layer.from);
        let first = work.part(x, 0..width)?;
        let mut sum = first;
        for (index, layer) in self.layers.iter().enumerate() {
            let stream = work.part(x, (index + 1) * width..(index + 2) * width)?;
            let stream = levelled(work, stream, layer, first)?;
            sum = work.op(|b| b.add(sum, stream))?;
        }
        work.scaled(sum, 1.0 / (self.layers.len() + 1) as f64)
    }

    /// The streams `x[B, T, N * H]` one after the other: `[N, B, T, H]`.
    pub(crate) fn stacked(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let width = self.layers.first().map_or(0, |layer| layer.from);
        let x = work.split(x, &[self.layers.len() + 1, width])?;
        work.op(|b| b.transpose(x, vec![2, 0, 1, 3]))
    }
}

/// `layer(x)`, as large as `like`.
fn levelled(
    work: &mut Work<'_>,
    x: ValueId,
    layer: &Linear,
    like: ValueId,
) -> Result<ValueId, LoadError> {
    let y = work.linear(x, layer, "stream")?;
    let wanted = mean_square(work, like)?;
    let found = mean_square(work, y)?;
    let floor = work.full(found, FLOOR)?;
    let found = work.op(|b| b.maximum(found, floor))?;
    let ratio = work.op(|b| b.divide(wanted, found))?;
    let ratio = work.op(|b| b.sqrt(ratio))?;
    let ratio = work.spread(ratio, y)?;
    work.op(|b| b.multiply(y, ratio))
}

/// The mean square of `x` along its last dimension, which keeps size 1.
fn mean_square(work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
    let ty = work.ty(x);
    let width = ty.shape.last().and_then(|dim| dim.fixed()).unwrap_or(1);
    let square = work.op(|b| b.multiply(x, x))?;
    let sum = work.sum(square, ty.rank().saturating_sub(1))?;
    work.scaled(sum, 1.0 / width as f64)
}

/// A layer of several streams.
#[derive(Debug)]
pub(crate) struct AlternatingUpdate {
    pub(crate) count: usize,
    /// The stream that `steps` work on.
    pub(crate) active: usize,
    /// A norm of that stream, and the layer whose tanh says how much of each update there is.
    pub(crate) router: (Norm, Linear),
    /// Gives, for each stream, how much of each other one the guess has.
    pub(crate) guess: Linear,
    /// Gives how much of the correction each stream takes beside all of it.
    pub(crate) correction: Linear,
    pub(crate) steps: Vec<Step>,
    /// The name of factors `[H]` of the active stream before the layer's own input.
    pub(crate) scale: Option<String>,
    /// What is added to the other streams: made of the active one, and normed.
    pub(crate) input: (LayerInput, Norm),
}

impl AlternatingUpdate {
    /// How much of each update there is for the stream `x`, `[B, T, N]`.
    fn routed(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let (norm, layer) = &self.router;
        let x = work.norm(x, norm, "router_norm")?;
        let x = work.scaled(x, 1.0 / norm.width as f64)?;
        let y = work.linear(x, layer, "router")?;
        work.op(|b| b.tanh(y))
    }

    /// The stream `index` of `x[B, T, N * H]`.
    fn stream(&self, work: &mut Work<'_>, x: ValueId, index: usize) -> Result<ValueId, LoadError> {
        let width = self.router.0.width;
        work.part(x, index * width..(index + 1) * width)
    }

    /// `x` and, of each stream, the shares of all others that the router gives.
    fn guessed(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let (count, width) = (self.count, self.router.0.width);
        let active = self.stream(work, x, self.active)?;
        let routed = self.routed(work, active)?;
        let shares = work.linear(routed, &self.guess, "guess")?;
        let shares = work.split(shares, &[count, count, 1])?;
        let streams = work.split(x, &[1, count, width])?;
        let shape = work.with_tail(&[count, count, width]);
        let shares = work.op(|b| b.broadcast(shares, shape.clone(), vec![0, 1, 2, 3, 4]))?;
        let streams = work.op(|b| b.broadcast(streams, shape, vec![0, 1, 2, 3, 4]))?;
        let parts = work.op(|b| b.multiply(shares, streams))?;
        let sum = work.sum(parts, 3)?;
        let sum = work.split(sum, &[count * width])?;
        work.op(|b| b.add(x, sum))
    }
}

impl Block for AlternatingUpdate {
    fn build(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let guessed = self.guessed(work, x)?;
        let guess = self.stream(work, guessed, self.active)?;
        let mut found = guess;
        for (place, step) in self.steps.iter().enumerate() {
            found = step.build(work, found, place)?;
        }
        let routed = self.routed(work, found)?;
        let shares = work.linear(routed, &self.correction, "correction")?;
        let one = work.full(shares, 1.0)?;
        let shares = work.op(|b| b.add(shares, one))?;
        let change = work.op(|b| b.subtract(found, guess))?;
        let mut streams = Vec::new();
        for index in 0..self.count {
            let stream = self.stream(work, guessed, index)?;
            let share = work.part(shares, index..index + 1)?;
            let share = work.spread(share, change)?;
            let change = work.op(|b| b.multiply(share, change))?;
            streams.push(work.op(|b| b.add(stream, change))?);
        }
        let mut active = streams[self.active];
        if let Some(scale) = &self.scale {
            let scale = work.row(scale, active)?;
            active = work.op(|b| b.multiply(active, scale))?;
        }
        let (input, norm) = &self.input;
        let input = input.build(work, active)?;
        let input = work.norm(input, norm, "input_norm")?;
        let mut all = streams[0];
        for &stream in &streams[1..] {
            let stream = work.op(|b| b.add(stream, input))?;
            all = work.op(|b| b.concatenate(all, stream, 2))?;
        }
        Ok(all)
    }
}

/// `x + norm(up(down x))`.
#[derive(Clone, Debug)]
pub(crate) struct LowRankResidual {
    pub(crate) down: Linear,
    pub(crate) up: Linear,
    pub(crate) norm: Norm,
}

impl Block for LowRankResidual {
    fn build(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let low = work.linear(x, &self.down, "low")?;
        let y = work.linear(low, &self.up, "low_up")?;
        let y = work.norm(y, &self.norm, "low_norm")?;
        work.op(|b| b.add(x, y))
    }
}
