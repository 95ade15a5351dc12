//! Convolutions over time: the one before a recurrence, and the short one that is a block of its own.

use super::{Block, Linear, Work};
use crate::LoadError;
use crate::weights::spelling::reshaped;
use mlxcel_ir::{Activation, ValueId};

/// A convolution of each channel with its own past.
#[derive(Clone, Debug)]
pub(crate) struct Convolution {
    /// The name of the weight: `[C, W]` after dimensions of 1 are taken away, wherever they stand.
    weight: String,
    bias: Option<String>,
    channels: usize,
    width: usize,
    activation: Option<Activation>,
}

impl Convolution {
    /// The convolution `module` of `channels` channels over `width` tokens, and `activation`.
    pub(crate) fn new(
        module: &str,
        [channels, width]: [usize; 2],
        bias: bool,
        activation: Option<Activation>,
    ) -> Self {
        Self::of(&format!("{module}.weight"), [channels, width], activation)
            .biased(bias.then(|| format!("{module}.bias")))
    }

    /// Of the weight `weight`.
    pub(crate) fn of(
        weight: &str,
        [channels, width]: [usize; 2],
        activation: Option<Activation>,
    ) -> Self {
        Self {
            weight: reshaped(weight, &[channels, width]),
            bias: None,
            channels,
            width,
            activation,
        }
    }

    fn biased(mut self, bias: Option<String>) -> Self {
        self.bias = bias;
        self
    }

    /// How many channels it has.
    pub(crate) fn channels(&self) -> usize {
        self.channels
    }

    /// The convolution of `x[B, T, C]`, with a memory told apart by `part`.
    pub(crate) fn build(
        &self,
        work: &mut Work<'_>,
        x: ValueId,
        part: &str,
    ) -> Result<ValueId, LoadError> {
        let (channels, width) = (self.channels, self.width);
        let weight = work.weight(&self.weight, &[channels, width])?;
        let bias = match &self.bias {
            Some(bias) => Some(work.weight(bias, &[channels])?),
            None => None,
        };
        let memory = work.memory(part, [1, width.saturating_sub(1), channels]);
        let length = work.length;
        let mut y = work.op(|b| b.causal_convolution(x, length, weight, bias, memory))?;
        if let Some(activation) = self.activation {
            y = work.op(|b| b.activate(y, activation))?;
        }
        work.named(y, part);
        Ok(y)
    }
}

/// `output(c * convolution(b * x))` with `b`, `c` and `x` of one layer (LFM2).
#[derive(Clone, Debug)]
pub(crate) struct ShortConvolution {
    /// Gives `b`, `c` and `x`, in this order.
    pub(crate) input: Linear,
    pub(crate) convolution: Convolution,
    pub(crate) output: Linear,
}

impl Block for ShortConvolution {
    fn build(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let width = self.input.to / 3;
        let all = work.linear(x, &self.input, "conv_in")?;
        let b = work.part(all, 0..width)?;
        let c = work.part(all, width..2 * width)?;
        let x = work.part(all, 2 * width..3 * width)?;
        let gated = work.op(|builder| builder.multiply(b, x))?;
        let y = self.convolution.build(work, gated, "conv")?;
        let y = work.op(|builder| builder.multiply(c, y))?;
        work.linear(y, &self.output, "conv_out")
    }
}
