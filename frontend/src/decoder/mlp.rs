//! Feed-forward parts.

use super::{Block, Linear, Norm, Work};
use crate::LoadError;
use mlxcel_ir::{Activation, ValueId};

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
        let gate = work.scaled(gate, self.scales[0])?;
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
