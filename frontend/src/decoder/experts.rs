//! Feed-forward layers of which a token uses a few: a router's choice, experts, shared experts.

use super::router::Router;
use super::{Block, Linear, Norm, Work};
use crate::LoadError;
use crate::weights::Weights;
use mlxcel_ir::{Activation, ValueId};

/// The linear layers of all experts: the names of their weights `[E, to, from]` and biases `[E, to]`.
#[derive(Clone, Debug)]
pub(crate) struct Stack {
    weight: String,
    bias: Option<String>,
    count: usize,
    from: usize,
    to: usize,
}

impl Stack {
    /// Of `count` experts with the weights `weight` and no biases.
    pub(crate) fn new(weight: impl Into<String>, count: usize, from: usize, to: usize) -> Self {
        Self {
            weight: weight.into(),
            bias: None,
            count,
            from,
            to,
        }
    }

    /// Of the layers `name` of `count` experts: a tensor for each, or one parameter, which has the
    /// name of no layer; with biases where the checkpoint has some.
    pub(crate) fn named(
        weights: &Weights,
        name: &str,
        count: usize,
        from: usize,
        to: usize,
    ) -> Self {
        let weight = format!("{name}.weight");
        let stack = match !weights.has(&weight) && weights.has(name) {
            true => Self::new(name, count, from, to),
            false => Self::new(weight, count, from, to),
        };
        let bias = format!("{name}.bias");
        match weights.has(&bias) {
            true => stack.biased(bias),
            false => stack,
        }
    }

    /// The same with the biases `bias`.
    pub(crate) fn biased(mut self, bias: impl Into<String>) -> Self {
        self.bias = Some(bias.into());
        self
    }

    fn build(
        &self,
        work: &mut Work<'_>,
        x: ValueId,
        experts: ValueId,
        part: &str,
    ) -> Result<ValueId, LoadError> {
        let weight = work.weight(&self.weight, &[self.count, self.to, self.from])?;
        let bias = match &self.bias {
            Some(bias) => Some(work.weight(bias, &[self.count, self.to])?),
            None => None,
        };
        let y = work.op(|b| b.expert_linear(x, experts, weight, bias))?;
        work.named(y, part);
        Ok(y)
    }
}

/// How the experts' layers before the nonlinearity are stored.
#[derive(Clone, Debug)]
pub(crate) enum Inner {
    /// The gate's and the other.
    Gated(Stack, Stack),
    /// One stack for both, whose rows are first all of the gate's.
    Joined(Stack),
    /// One stack for both, whose even rows are the gate's.
    Interleaved(Stack),
    /// No gate.
    Plain(Stack),
}

/// What becomes of gate and up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Glu {
    /// `activation(gate) * up`.
    Activation(Activation),
    /// `g * sigmoid(alpha g) * (u + 1)` with `g` of the gate at most `limit` and `u` of up between
    /// `-limit` and `limit`.
    Clamped { alpha: f64, limit: f64 },
}

/// A feed-forward layer that every token uses beside its experts.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) body: Box<dyn Block>,
    /// A layer `[1, H]` whose sigmoid multiplies it.
    pub(crate) gate: Option<Linear>,
}

/// The sum of the chosen experts, by the router's weights, and of what all tokens share.
#[derive(Debug)]
pub(crate) struct Experts {
    pub(crate) router: Router,
    /// A norm of what the experts read, not the router.
    pub(crate) norm: Option<Norm>,
    pub(crate) inner: Inner,
    pub(crate) down: Stack,
    pub(crate) glu: Glu,
    pub(crate) shared: Option<Shared>,
    /// To a narrow input of the experts and from their narrow result, where they are narrower than
    /// the residual stream.
    pub(crate) narrow: Option<[Linear; 2]>,
    /// Whether the router's weights multiply what the experts read, not what they give.
    pub(crate) weigh_input: bool,
}

impl Experts {
    /// The layers `gate_proj`, `up_proj` and `down_proj` under `module.experts`, each a tensor for
    /// each expert or one stack; or gate and up as one stack `gate_up_proj`.
    pub(crate) fn new(
        weights: &Weights,
        module: &str,
        router: Router,
        [hidden, inner]: [usize; 2],
        activation: Activation,
    ) -> Self {
        let count = router.linear.to;
        let stack = |name: &str, from, to| {
            let name = format!("{module}.experts.{name}");
            Stack::named(weights, &name, count, from, to)
        };
        let joined = stack("gate_up_proj", hidden, 2 * inner);
        let layer = |name: &str| stack(name, hidden, inner);
        Self {
            router,
            norm: None,
            inner: match weights.has(&joined.weight) {
                true => Inner::Joined(joined),
                false => Inner::Gated(layer("gate_proj"), layer("up_proj")),
            },
            down: stack("down_proj", inner, hidden),
            glu: Glu::Activation(activation),
            shared: None,
            narrow: None,
            weigh_input: false,
        }
    }

    /// The same with `body` for every token.
    pub(crate) fn with_shared(mut self, body: impl Block + 'static, gate: Option<Linear>) -> Self {
        self.shared = Some(Shared {
            body: Box::new(body),
            gate,
        });
        self
    }

    fn nonlinear(
        &self,
        work: &mut Work<'_>,
        gate: ValueId,
        up: ValueId,
    ) -> Result<ValueId, LoadError> {
        match self.glu {
            Glu::Activation(activation) => work.op(|b| b.gated(gate, up, activation)),
            Glu::Clamped { alpha, limit } => {
                let high = work.full(gate, limit)?;
                let gate = work.op(|b| b.minimum(gate, high))?;
                let sharp = work.scaled(gate, alpha)?;
                let share = work.op(|b| b.sigmoid(sharp))?;
                let gate = work.op(|b| b.multiply(gate, share))?;
                let up = work.clamped(up, limit)?;
                let one = work.full(up, 1.0)?;
                let up = work.op(|b| b.add(up, one))?;
                work.op(|b| b.multiply(gate, up))
            }
        }
    }

    /// What the chosen `experts` make of `x` before their last layer.
    fn active(
        &self,
        work: &mut Work<'_>,
        x: ValueId,
        experts: ValueId,
    ) -> Result<ValueId, LoadError> {
        let (gate, up) = match &self.inner {
            Inner::Gated(gate, up) => {
                let gate = gate.build(work, x, experts, "expert_gate")?;
                (gate, up.build(work, x, experts, "expert_up")?)
            }
            Inner::Joined(both) => {
                let y = both.build(work, x, experts, "expert_gate_up")?;
                let inner = both.to / 2;
                (work.part(y, 0..inner)?, work.part(y, inner..both.to)?)
            }
            Inner::Interleaved(both) => {
                let y = both.build(work, x, experts, "expert_gate_up")?;
                let gate = work.op(|b| b.slice(y, 3, 0, both.to, 2))?;
                (gate, work.op(|b| b.slice(y, 3, 1, both.to, 2))?)
            }
            Inner::Plain(up) => {
                let y = up.build(work, x, experts, "expert_up")?;
                let Glu::Activation(activation) = self.glu else {
                    return self.nonlinear(work, y, y);
                };
                return work.op(|b| b.activate(y, activation));
            }
        };
        self.nonlinear(work, gate, up)
    }
}

impl Block for Experts {
    fn build(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let (experts, share) = self.router.build(work, x)?;
        let chosen = self.router.chosen;
        let mut input = x;
        if let Some(norm) = &self.norm {
            input = work.norm(input, norm, "experts_norm")?;
        }
        if let Some([to, _]) = &self.narrow {
            input = work.linear(input, to, "narrow")?;
        }
        // A weight for each expert and token, as wide as what it multiplies.
        let weigh = |work: &mut Work<'_>, y: ValueId| {
            let share = work.split(share, &[chosen, 1])?;
            let share = work.spread(share, y)?;
            work.op(|b| b.multiply(y, share))
        };
        if self.weigh_input {
            let width = self.down.to;
            let row = work.split(input, &[1, width])?;
            let shape = work.with_tail(&[chosen, width]);
            let rows = work.op(|b| b.broadcast(row, shape, vec![0, 1, 2, 3]))?;
            input = weigh(work, rows)?;
        }
        let active = self.active(work, input, experts)?;
        work.named(active, "expert_gated");
        let mut y = self.down.build(work, active, experts, "expert_down")?;
        if !self.weigh_input {
            y = weigh(work, y)?;
        }
        let sum = work.sum(y, 2)?;
        let mut sum = work.split(sum, &[self.down.to])?;
        work.named(sum, "experts");
        if let Some([_, from]) = &self.narrow {
            sum = work.linear(sum, from, "wide")?;
        }
        if let Some(shared) = &self.shared {
            let mut y = shared.body.build(work, x)?;
            if let Some(gate) = &shared.gate {
                let share = work.linear(x, gate, "shared_gate")?;
                let share = work.op(|b| b.sigmoid(share))?;
                let share = work.spread(share, y)?;
                y = work.op(|b| b.multiply(share, y))?;
            }
            sum = work.op(|b| b.add(sum, y))?;
        }
        Ok(sum)
    }
}
