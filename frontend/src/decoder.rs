//! What a decoder consists of, as a family reads it from a configuration, and the graph of it.
//!
//! A family fills in a [`Decoder`]: an embedding, layers, a norm and a head. A layer is a list of
//! [`Step`]s, each of which adds the sum of some [`Branch`]es to the residual stream, so sequential,
//! parallel, pre-norm, post-norm and sandwich layers differ in data only. What a branch computes is a
//! [`Block`]; each kind of block (attention, feed-forward, experts, ...) is one file.

mod attention;
mod convolution;
mod experts;
mod gated_delta;
mod gated_linear;
mod head;
mod latent;
mod lightning;
mod mamba;
mod mamba2;
mod mlp;
mod parts;
mod per_layer;
mod relative;
mod router;
mod rwkv;
mod rwkv7;
mod scaled;
mod shared_hybrid;
mod streams;
mod work;

pub(crate) use attention::{Attention, HeadNorm, Projections, Sharing, alibi};
pub(crate) use convolution::{Convolution, ShortConvolution};
pub(crate) use experts::{Experts, Glu, Inner, Stack};
pub(crate) use gated_delta::GatedDelta;
pub(crate) use gated_linear::GatedLinear;
pub(crate) use latent::{Latent, Queries};
pub(crate) use lightning::Lightning;
pub(crate) use mamba::Mamba;
pub(crate) use mamba2::{GatedNorm, Mamba2};
pub(crate) use mlp::{Gated, Plain, Xielu};
pub(crate) use parts::{Embedding, Head, Linear, Norm, Positions};
pub(crate) use per_layer::{LayerInput, PerLayer, Scalar};
pub(crate) use relative::{Distances, RelativeAttention};
pub(crate) use router::{GroupRule, Groups, Normal, Router, Scores};
pub(crate) use rwkv::{ChannelMix, TimeMix};
pub(crate) use rwkv7::{DeltaTimeMix, Narrow, ShiftedMlp};
pub(crate) use scaled::Scaled;
pub(crate) use shared_hybrid::SharedHybrid;
pub(crate) use streams::{AlternatingUpdate, LowRankResidual, Streams};
pub(crate) use work::Work;

use crate::model::GraphOptions;
use crate::{LoadError, weights::Weights};
use mlxcel_ir::{Graph, ValueId, WeightId, step};
use std::fmt;

/// A decoder-only language model.
#[derive(Debug)]
pub(crate) struct Decoder {
    pub(crate) embedding: Embedding,
    pub(crate) layers: Vec<Layer>,
    /// The norm before the head.
    pub(crate) norm: Option<Norm>,
    pub(crate) head: Head,
    /// How long texts can be, where that is not what the configuration says.
    pub(crate) context: Option<Context>,
}

/// How long texts can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context {
    /// Tokens of a text that is processed in steps.
    pub(crate) growing: usize,
    /// Tokens of one that is processed at once: more, where rotary embedding turns the tokens of longer
    /// texts otherwise, because what a cache holds would then have turned by the wrong settings.
    pub(crate) whole: usize,
}

/// One layer.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) steps: Vec<Step>,
}

impl Layer {
    /// One branch after another, each added to what was before it.
    pub(crate) fn sequential(branches: impl IntoIterator<Item = Branch>) -> Self {
        Self {
            steps: branches.into_iter().map(Step::of).collect(),
        }
    }

    /// What the layer, the one with number `index`, makes of `x`.
    pub(crate) fn build(
        &self,
        work: &mut Work<'_>,
        mut x: ValueId,
        index: usize,
    ) -> Result<ValueId, LoadError> {
        work.enter(index);
        for (place, step) in self.steps.iter().enumerate() {
            x = step.build(work, x, place)?;
        }
        work.named(x, "output");
        Ok(x)
    }

    /// All branches of the same input, added to it.
    pub(crate) fn parallel(branches: Vec<Branch>) -> Self {
        Self {
            steps: vec![Step::parallel(branches)],
        }
    }
}

/// `x` becomes `after(carry · x + scale · (sum of the branches of x))`.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) branches: Vec<Branch>,
    /// Factor of the residual stream; 1 for most, 0 where the branches replace it.
    pub(crate) carry: f64,
    /// Whether the residual stream goes on from the norm before the first branch, not from `x`.
    pub(crate) carry_normed: bool,
    /// Factor of the branches' sum; 1 for most.
    pub(crate) scale: f64,
    pub(crate) after: Option<Norm>,
}

impl Step {
    /// `x + branch(x)`.
    pub(crate) fn of(branch: Branch) -> Self {
        Self::parallel(vec![branch])
    }

    /// `x +` the sum of `branches`.
    pub(crate) fn parallel(branches: Vec<Branch>) -> Self {
        Self {
            branches,
            carry: 1.0,
            carry_normed: false,
            scale: 1.0,
            after: None,
        }
    }

    /// `branch(x)` in place of `x`.
    pub(crate) fn replacing(branch: Branch) -> Self {
        Self {
            carry: 0.0,
            ..Self::of(branch)
        }
    }

    /// `carry · x`.
    pub(crate) fn carrying(carry: f64) -> Self {
        Self {
            carry,
            ..Self::parallel(Vec::new())
        }
    }

    /// The same with the branches' sum multiplied by `scale`.
    pub(crate) fn scaled(mut self, scale: f64) -> Self {
        self.scale = scale;
        self
    }

    /// The same with a norm of the result.
    pub(crate) fn then(mut self, norm: Norm) -> Self {
        self.after = Some(norm);
        self
    }
}

/// `after(body(before(x)))`.
#[derive(Debug)]
pub(crate) struct Branch {
    /// A norm of the branch's input. Branches of a step with the same norm share it.
    pub(crate) before: Option<Norm>,
    pub(crate) body: Box<dyn Block>,
    pub(crate) after: Option<Norm>,
}

impl Branch {
    /// `body(before(x))`.
    pub(crate) fn new(before: impl Into<Option<Norm>>, body: impl Block + 'static) -> Self {
        Self {
            before: before.into(),
            body: Box::new(body),
            after: None,
        }
    }

    /// The same with a norm of the result.
    pub(crate) fn then(mut self, norm: Norm) -> Self {
        self.after = Some(norm);
        self
    }
}

/// The sum of some branches, as a block of its own.
#[derive(Debug)]
pub(crate) struct Together(pub(crate) Vec<Branch>);

impl Block for Together {
    fn build(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        sum(work, x, &self.0).map(|[_, sum]| sum)
    }
}

/// A part of a layer that maps `[B, T, H]` to `[B, T, H]`.
pub(crate) trait Block: fmt::Debug + Send + Sync {
    /// Adds the block's nodes; those that a comparison should see are named by [`Work::named`].
    ///
    /// # Errors
    /// A tensor that is missing or of the wrong shape.
    fn build(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError>;
}

impl Block for Box<dyn Block> {
    fn build(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        self.as_ref().build(work, x)
    }
}

impl Decoder {
    /// The graph of the decoder over the tensors of `weights`.
    ///
    /// # Errors
    /// A tensor that is missing or of the wrong shape.
    pub(crate) fn graph(
        &self,
        model_type: &str,
        weights: &Weights,
        options: &GraphOptions,
    ) -> Result<Graph, LoadError> {
        let mut work = Work::new(&options.name, model_type, weights);
        let (x, table) = self.stream(&mut work, options.hidden)?;
        head::build(self, &mut work, x, table, options)?;
        Ok(work.builder.finish())
    }

    /// Adds the residual stream after the last layer, with `hidden` the outputs after each one, and
    /// the table of tokens.
    pub(crate) fn stream(
        &self,
        work: &mut Work<'_>,
        hidden: bool,
    ) -> Result<(ValueId, WeightId), LoadError> {
        let (mut x, table) = self.embedding.build(work)?;
        work.embedding = Some(x);
        for (index, layer) in self.layers.iter().enumerate() {
            x = layer.build(work, x, index)?;
            if hidden {
                let given = match &self.embedding.streams {
                    Some(streams) => streams.stacked(work, x)?,
                    None => x,
                };
                work.builder.output(step::hidden(index), given);
            }
        }
        work.leave();
        Ok((x, table))
    }
}

impl Step {
    fn build(&self, work: &mut Work<'_>, x: ValueId, place: usize) -> Result<ValueId, LoadError> {
        if self.branches.is_empty() {
            return work.scaled(x, self.carry);
        }
        let [first, sum] = sum(work, x, &self.branches)?;
        let stream = if self.carry_normed { first } else { x };
        let sum = work.scaled(sum, self.scale)?;
        let mut value = sum;
        if self.carry != 0.0 {
            let stream = work.scaled(stream, self.carry)?;
            value = work.op(|b| b.add(stream, sum))?;
        }
        work.named(value, &format!("residual.{place}"));
        if let Some(norm) = &self.after {
            value = work.norm(value, norm, "step_norm")?;
        }
        Ok(value)
    }
}

/// What the first norm of `branches` gives, else `x`, and the sum of what the branches make of `x`,
/// which is `x` where there are none.
fn sum(work: &mut Work<'_>, x: ValueId, branches: &[Branch]) -> Result<[ValueId; 2], LoadError> {
    let mut sum = None;
    let mut shared: Option<(&Norm, ValueId)> = None;
    for branch in branches {
        let input = match (&branch.before, shared) {
            (None, _) => x,
            (Some(norm), Some((known, value))) if known == norm => value,
            (Some(norm), _) => {
                let value = work.norm(x, norm, "norm")?;
                shared.get_or_insert((norm, value));
                value
            }
        };
        let mut value = branch.body.build(work, input)?;
        if let Some(norm) = &branch.after {
            value = work.norm(value, norm, "after_norm")?;
        }
        sum = Some(match sum {
            None => value,
            Some(sum) => work.op(|b| b.add(sum, value))?,
        });
    }
    Ok([shared.map_or(x, |(_, value)| value), sum.unwrap_or(x)])
}
