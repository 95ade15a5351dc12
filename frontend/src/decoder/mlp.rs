//! Feed-forward parts.

use super::{Block, Linear, Norm, Work};
use crate::LoadError;
use mlxcel_ir::{Activation, Comparison, ValueId};

/// `down(norm(activation(gate x) * up x))`.
#[derive(Clone, Debug)]
pub(crate) struct Gated {
    pub(crate) gate: Linear,
    pub(crate) up: Linear,
    pub(crate) down: Linear,
    pub(crate) activation: Activation,
    /// A norm before the last layer.
    pub(crate) norm: Option<Norm>,
    /// Factors of the gate, before its activation, and of the result.
    pub(crate) scales: [f64; 2],
    /// How many standard deviations above their mean the gate's numbers start to count.
    pub(crate) cutoff: Option<f64>,
}

impl Gated {
    /// The layers `gate_proj`, `up_proj` and `down_proj` of `module`.
    pub(crate) fn new(
        module: &str,
        [hidden, inner]: [usize; 2],
        bias: bool,
        activation: Activation,
    ) -> Self {
        let up = |name| Linear::new(format!("{module}.{name}"), hidden, inner, bias);
        Self::of(
            up("gate_proj"),
            up("up_proj"),
            Linear::new(format!("{module}.down_proj"), inner, hidden, bias),
            activation,
        )
    }

    /// Of three layers.
    pub(crate) fn of(gate: Linear, up: Linear, down: Linear, activation: Activation) -> Self {
        Self {
            gate,
            up,
            down,
            activation,
            norm: None,
            scales: [1.0, 1.0],
            cutoff: None,
        }
    }

    /// Of a layer whose rows are first those of the gate, then those of `up`.
    pub(crate) fn fused(both: &Linear, down: Linear, activation: Activation) -> Self {
        let inner = both.to / 2;
        Self::of(
            both.rows(0..inner),
            both.rows(inner..both.to),
            down,
            activation,
        )
    }
}

impl Block for Gated {
    fn build(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let gate = work.linear(x, &self.gate, "gate")?;
        let mut gate = work.scaled(gate, self.scales[0])?;
        if let Some(cutoff) = self.cutoff {
            gate = above(work, gate, cutoff)?;
        }
        let up = work.linear(x, &self.up, "up")?;
        let activation = self.activation;
        let mut gated = work.op(|b| b.gated(gate, up, activation))?;
        work.named(gated, "gated");
        if let Some(norm) = &self.norm {
            gated = work.norm(gated, norm, "gated_norm")?;
        }
        let down = work.linear(gated, &self.down, "down")?;
        work.scaled(down, self.scales[1])
    }
}

/// By how much the numbers of each row of `x[B, T, F]` exceed its mean and `cutoff` standard
/// deviations; 0 for those that do not.
fn above(work: &mut Work<'_>, x: ValueId, cutoff: f64) -> Result<ValueId, LoadError> {
    let width = work.ty(x).shape[2].fixed().unwrap_or(1) as f64;
    let mean = work.sum(x, 2)?;
    let mean = work.scaled(mean, 1.0 / width)?;
    let mean = work.spread(mean, x)?;
    let x = work.op(|b| b.subtract(x, mean))?;
    let square = work.op(|b| b.multiply(x, x))?;
    let variance = work.sum(square, 2)?;
    let variance = work.scaled(variance, 1.0 / width)?;
    let deviation = work.op(|b| b.sqrt(variance))?;
    let bound = work.scaled(deviation, cutoff)?;
    let bound = work.spread(bound, x)?;
    let x = work.op(|b| b.subtract(x, bound))?;
    work.op(|b| b.activate(x, Activation::Relu))
}

/// `down(activation(up x))`.
#[derive(Clone, Debug)]
pub(crate) struct Plain {
    pub(crate) up: Linear,
    pub(crate) down: Linear,
    pub(crate) activation: Activation,
}

impl Block for Plain {
    fn build(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let up = work.linear(x, &self.up, "up")?;
        let activation = self.activation;
        let active = work.op(|b| b.activate(up, activation))?;
        work.named(active, "active");
        work.linear(active, &self.down, "down")
    }
}

/// `down(xielu(up x))`, where the nonlinearity has slopes of its own:
/// `p x² + x / 2` above zero and `n (e^x - 1 - x) + x / 2` below, with `p` the softplus of the tensor
/// `module.alpha_p` and `n` half more than that of `module.alpha_n` (arXiv 2411.13010).
#[derive(Clone, Debug)]
pub(crate) struct Xielu {
    module: String,
    plain: Plain,
}

impl Xielu {
    /// With the slopes `module.alpha_p` and `module.alpha_n` in place of the activation of `plain`.
    pub(crate) fn new(module: String, plain: Plain) -> Self {
        Self { module, plain }
    }

    /// `offset` more than the softplus of the tensor `name`, in the shape of `like`.
    fn slope(
        &self,
        work: &mut Work<'_>,
        name: &str,
        offset: f64,
        like: ValueId,
    ) -> Result<ValueId, LoadError> {
        let slope = work.parameter(&format!("{}.{name}", self.module), &[1])?;
        let slope = work.op(|b| b.activate(slope, Activation::Softplus))?;
        let offset = work.full(slope, offset)?;
        let slope = work.op(|b| b.add(slope, offset))?;
        let shape = work.ty(like).shape;
        let last = shape.len().saturating_sub(1);
        work.op(|b| b.broadcast(slope, shape, vec![last]))
    }
}

/// Below zero xIELU is taken at this at most, where `e^x - 1 - x` is zero to any precision.
const NEARLY_ZERO: f64 = -1e-6;

impl Block for Xielu {
    fn build(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let up = work.linear(x, &self.plain.up, "up")?;
        let (rise, fall) = (
            self.slope(work, "alpha_p", 0.0, up)?,
            self.slope(work, "alpha_n", 0.5, up)?,
        );
        let square = work.op(|b| b.multiply(up, up))?;
        let above = work.op(|b| b.multiply(rise, square))?;
        let bound = work.full(up, NEARLY_ZERO)?;
        let below = work.op(|b| b.minimum(up, bound))?;
        let below = expm1(work, below)?;
        let below = work.op(|b| b.subtract(below, up))?;
        let below = work.op(|b| b.multiply(fall, below))?;
        let zero = work.full(up, 0.0)?;
        let is_above = work.op(|b| b.compare(up, zero, Comparison::Greater))?;
        let curve = work.op(|b| b.select(is_above, above, below))?;
        let line = work.scaled(up, 0.5)?;
        let active = work.op(|b| b.add(curve, line))?;
        work.named(active, "active");
        work.linear(active, &self.plain.down, "down")
    }
}

/// `e^x - 1` with no loss of precision near zero: `2 tanh(x / 2) / (1 - tanh(x / 2))`.
fn expm1(work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
    let half = work.scaled(x, 0.5)?;
    let tanh = work.op(|b| b.tanh(half))?;
    let one = work.full(tanh, 1.0)?;
    let rest = work.op(|b| b.subtract(one, tanh))?;
    let twice = work.scaled(tanh, 2.0)?;
    work.op(|b| b.divide(twice, rest))
}
