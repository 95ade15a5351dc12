//! The choice of a token's experts and of their weights.

use super::{Linear, Norm, Work};
use crate::LoadError;
use mlxcel_ir::{Comparison, DType, Reduction, ValueId};

/// What becomes of the router's logits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scores {
    /// Softmax over all experts.
    Softmax,
    /// Softmax over those chosen.
    SoftmaxChosen,
    /// The sigmoid of each.
    Sigmoid,
    /// The sigmoid of those chosen by their logits.
    SigmoidChosen,
    /// The two best, each with its share of the softmax over those experts whose logit `s` is near
    /// the best `m`: `(m - s) / max(|s|, m) <= 2 * jitter`; for the second one the first is left
    /// out. The inference of SparseMixer (Liu et al., 2023).
    Mixer { jitter: f64 },
}

/// What the weights of the chosen are divided by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Normal {
    /// Nothing.
    None,
    /// Their sum and this.
    Sum(f64),
    /// Their sum, at least this.
    AtLeast(f64),
}

/// By what groups of experts are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupRule {
    /// The best expert.
    Best,
    /// The sum of the best two.
    BestTwo,
}

/// Experts in groups of equal size, of which only the best are chosen from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Groups {
    pub(crate) count: usize,
    pub(crate) kept: usize,
    pub(crate) rule: GroupRule,
}

/// A choice of experts.
#[derive(Clone, Debug)]
pub(crate) struct Router {
    /// A norm of what the layer reads.
    pub(crate) norm: Option<Norm>,
    /// The layer `[E, H]` that gives the logits.
    pub(crate) linear: Linear,
    /// Experts of each token.
    pub(crate) chosen: usize,
    pub(crate) scores: Scores,
    /// The name of what is added to the scores `[E]` for the choice, not for the weights.
    pub(crate) correction: Option<String>,
    pub(crate) groups: Option<Groups>,
    pub(crate) normal: Normal,
    /// Factor of the weights.
    pub(crate) scale: f64,
    /// Factor of the logits.
    pub(crate) sharpness: f64,
    /// The name of a factor of the weights for each expert, `[E]`.
    pub(crate) expert_scale: Option<String>,
}

impl Router {
    /// The `chosen` best by `scores` of the layer `linear`.
    pub(crate) fn new(linear: Linear, chosen: usize, scores: Scores) -> Self {
        Self {
            norm: None,
            linear,
            chosen,
            scores,
            correction: None,
            groups: None,
            normal: Normal::None,
            scale: 1.0,
            sharpness: 1.0,
            expert_scale: None,
        }
    }

    /// The same with weights that add up to 1.
    pub(crate) fn normalised(mut self, yes: bool) -> Self {
        self.normal = match yes {
            true => Normal::Sum(0.0),
            false => Normal::None,
        };
        self
    }

    /// The experts of each token, `i32[B, T, k]`, and their weights, `[B, T, k]`.
    pub(super) fn build(
        &self,
        work: &mut Work<'_>,
        x: ValueId,
    ) -> Result<(ValueId, ValueId), LoadError> {
        let x = match &self.norm {
            Some(norm) => work.norm(x, norm, "router_norm")?,
            None => x,
        };
        let logits = work.linear(x, &self.linear, "router")?;
        let logits = work.scaled(logits, self.sharpness)?;
        let chosen = self.chosen;
        let scores = match self.scores {
            Scores::Softmax => work.op(|b| b.softmax(logits))?,
            Scores::Sigmoid => work.op(|b| b.sigmoid(logits))?,
            Scores::SoftmaxChosen | Scores::SigmoidChosen | Scores::Mixer { .. } => logits,
        };
        let mut choice = scores;
        if let Some(name) = &self.correction {
            let correction = work.row(name, scores)?;
            choice = work.op(|b| b.add(scores, correction))?;
        }
        if let Some(groups) = self.groups.filter(|groups| groups.kept < groups.count) {
            choice = self.within_groups(work, choice, groups)?;
        }
        let experts = work.op(|b| b.top_k(choice, chosen))?;
        work.named(experts, "chosen");
        let mut share = work.op(|b| b.take_along(scores, experts))?;
        share = match self.scores {
            Scores::SoftmaxChosen => work.op(|b| b.softmax(share))?,
            Scores::SigmoidChosen => work.op(|b| b.sigmoid(share))?,
            Scores::Mixer { jitter } => mixed(work, logits, experts, share, jitter)?,
            Scores::Softmax | Scores::Sigmoid => share,
        };
        if self.normal != Normal::None {
            let mut sum = work.sum(share, 2)?;
            sum = match self.normal {
                Normal::Sum(more) if more > 0.0 => {
                    let more = work.full(sum, more)?;
                    work.op(|b| b.add(sum, more))?
                }
                Normal::AtLeast(floor) => {
                    let floor = work.full(sum, floor)?;
                    work.op(|b| b.maximum(sum, floor))?
                }
                _ => sum,
            };
            let sum = work.spread(sum, share)?;
            share = work.op(|b| b.divide(share, sum))?;
        }
        share = work.scaled(share, self.scale)?;
        if let Some(name) = &self.expert_scale {
            let factors = work.row(name, logits)?;
            let factors = work.op(|b| b.take_along(factors, experts))?;
            share = work.op(|b| b.multiply(share, factors))?;
        }
        work.named(share, "share");
        Ok((experts, share))
    }

    /// `choice` with minus infinity for the experts of groups that are not kept.
    fn within_groups(
        &self,
        work: &mut Work<'_>,
        choice: ValueId,
        groups: Groups,
    ) -> Result<ValueId, LoadError> {
        let experts = self.linear.to;
        let (count, size) = (groups.count, experts / groups.count);
        let grouped = work.split(choice, &[count, size])?;
        let best = match groups.rule {
            GroupRule::Best => work.op(|b| b.reduce(grouped, Reduction::Max, 3))?,
            GroupRule::BestTwo => {
                let two = work.op(|b| b.top_k(grouped, size.min(2)))?;
                let two = work.op(|b| b.take_along(grouped, two))?;
                work.sum(two, 3)?
            }
        };
        let best = work.split(best, &[count])?;
        let kept = work.op(|b| b.top_k(best, groups.kept))?;
        // 1 for each group that is among those kept.
        let shape = work.with_tail(&[groups.kept, count]);
        let kept = work.op(|b| b.broadcast(kept, shape.clone(), vec![0, 1, 2]))?;
        let group = work.op(|b| b.iota(3, DType::I32, shape))?;
        let equal = work.op(|b| b.compare(kept, group, Comparison::Equal))?;
        let equal = work.op(|b| b.convert(equal, DType::F32))?;
        let any = work.op(|b| b.reduce(equal, Reduction::Max, 2))?;
        let any = work.split(any, &[count, 1])?;
        let any = work.spread(any, grouped)?;
        let any = work.split(any, &[experts])?;
        let zero = work.full(any, 0.0)?;
        let open = work.op(|b| b.compare(any, zero, Comparison::Greater))?;
        let closed = work.full(choice, f64::NEG_INFINITY)?;
        work.op(|b| b.select(open, choice, closed))
    }
}

/// The weights of the two best `experts`, whose logits are `best`.
fn mixed(
    work: &mut Work<'_>,
    logits: ValueId,
    experts: ValueId,
    best: ValueId,
    jitter: f64,
) -> Result<ValueId, LoadError> {
    let shape = work.ty(logits).shape;
    let index = work.op(|b| b.iota(2, DType::I32, shape))?;
    let first = work.part(experts, 0..1)?;
    let first = work.spread(first, logits)?;
    let is_first = work.op(|b| b.compare(index, first, Comparison::Equal))?;
    let never = work.full(logits, f64::NEG_INFINITY)?;
    let size = work.op(|b| b.abs(logits))?;
    let mut share = |place: usize| {
        let top = work.part(best, place..place + 1)?;
        let wide = work.spread(top, logits)?;
        let gap = work.op(|b| b.subtract(wide, logits))?;
        let size = work.op(|b| b.maximum(size, wide))?;
        let gap = work.op(|b| b.divide(gap, size))?;
        let bound = work.full(gap, 2.0 * jitter)?;
        let far = work.op(|b| b.compare(gap, bound, Comparison::Greater))?;
        let mut near = work.op(|b| b.select(far, never, logits))?;
        if place > 0 {
            near = work.op(|b| b.select(is_first, never, near))?;
        }
        let near = work.op(|b| b.softmax(near))?;
        let place = work.part(experts, place..place + 1)?;
        work.op(|b| b.take_along(near, place))
    };
    let (first, second) = (share(0)?, share(1)?);
    work.op(|b| b.concatenate(first, second, 2))
}
