//! Attention in primitives: over a key-value cache, and of the tokens of a step to each other.

use super::{convert, full, positions, related, softmax};
use crate::builder::{BuildError, Builder};
use crate::graph::Node;
use crate::{Comparison, DType, Dim, Mask, Op, Reduction, StatePart, ValueId};

/// Queries in groups that share a key-value head, and the sizes that all parts of attention need.
struct Heads {
    rows: Dim,
    tokens: Dim,
    kv_heads: Dim,
    group: Dim,
    /// The queries, `[B, T, kv_heads, group, D]`.
    q: ValueId,
}

impl Heads {
    fn split(builder: &mut Builder, q: ValueId, kv_heads: Dim) -> Result<Self, BuildError> {
        let shape = builder.ty(q).shape.clone();
        let (rows, tokens) = (shape[0], shape[1]);
        let heads = shape[2].fixed().unwrap_or(0);
        let group = Dim::Fixed(heads / kv_heads.fixed().unwrap_or(1).max(1));
        let q = builder.reshape(q, vec![rows, tokens, kv_heads, group, shape[3]])?;
        Ok(Self {
            rows,
            tokens,
            kv_heads,
            group,
            q,
        })
    }

    /// `scale * q · keysᵀ`, `[B, kv_heads, T, group, S]`.
    fn scores(
        &self,
        builder: &mut Builder,
        keys: ValueId,
        scale: f64,
    ) -> Result<ValueId, BuildError> {
        let scores = builder.dot(self.q, keys, vec![0, 2], vec![0, 2], vec![4], vec![3])?;
        let factor = full(builder, scores, scale)?;
        builder.multiply(scores, factor)
    }

    /// `shares · values` as `shape`, `[B, T, heads, D]`.
    fn mix(
        &self,
        builder: &mut Builder,
        shares: ValueId,
        values: ValueId,
        shape: Vec<Dim>,
    ) -> Result<ValueId, BuildError> {
        // [B, kv_heads, T, group, D]
        let mixed = builder.dot(shares, values, vec![0, 1], vec![0, 2], vec![4], vec![1])?;
        let mixed = builder.transpose(mixed, vec![0, 2, 1, 3, 4])?;
        builder.reshape(mixed, shape)
    }
}

/// `-inf` where `visible[B, T, S]` does not hold.
fn hide(builder: &mut Builder, scores: ValueId, visible: ValueId) -> Result<ValueId, BuildError> {
    let ty = builder.ty(scores).clone();
    let visible = builder.broadcast(visible, ty.shape, vec![0, 2, 4])?;
    let hidden = full(builder, scores, f64::NEG_INFINITY)?;
    builder.select(visible, scores, hidden)
}

pub(super) fn expand(builder: &mut Builder, node: &Node) -> Result<ValueId, BuildError> {
    let (
        Op::Attention {
            scale,
            mask,
            window,
            chunk,
            softcap,
            slopes,
        },
        Some(state),
        &[q, k, v, start],
    ) = (&node.op, node.state, &node.operands[..])
    else {
        return builder.push(
            node.op.clone(),
            node.operands.clone(),
            node.weights.clone(),
            node.state,
        );
    };
    let (dtype, kept) = (builder.ty(q).dtype, builder.graph().state(state));
    let kept = kept.map_or(dtype, |state| state.dtype);
    let mut append = |new: ValueId, part: StatePart| {
        let new = convert(builder, new, kept)?;
        let cached = builder.cache_append(new, start, state, part)?;
        convert(builder, cached, dtype)
    };
    let keys = append(k, StatePart::Key)?;
    let values = append(v, StatePart::Value)?;
    let [_, capacity, kv_heads, _] = builder.ty(keys).shape[..] else {
        return Ok(q);
    };
    let heads = Heads::split(builder, q, kv_heads)?;
    let mut scores = heads.scores(builder, keys, *scale)?;
    if let Some(cap) = softcap {
        let cap = full(builder, scores, *cap)?;
        let share = builder.divide(scores, cap)?;
        let bent = builder.tanh(share)?;
        scores = builder.multiply(bent, cap)?;
    }
    if !slopes.is_empty() {
        scores = slope(builder, &heads, scores, capacity, slopes)?;
    }
    let sight = Sight {
        mask: *mask,
        window: *window,
        chunk: *chunk,
    };
    let visible = visible(builder, start, [heads.rows, heads.tokens, capacity], sight)?;
    let scores = hide(builder, scores, visible)?;
    let shares = match node.weights.first() {
        Some(&sinks) => {
            let sinks = builder.parameter(sinks)?;
            softmax_with(builder, &heads, scores, sinks)?
        }
        None => softmax(builder, scores)?,
    };
    heads.mix(builder, shares, values, node.ty.shape.clone())
}

/// Adds `slope * position` of each head to its scores.
fn slope(
    builder: &mut Builder,
    heads: &Heads,
    scores: ValueId,
    capacity: Dim,
    slopes: &[f64],
) -> Result<ValueId, BuildError> {
    let ty = builder.ty(scores).clone();
    let shape = vec![heads.kv_heads, heads.group, capacity];
    let position = builder.iota(2, DType::F32, shape.clone())?;
    let slopes = builder.table(slopes.to_vec(), DType::F32)?;
    let slopes = builder.reshape(slopes, vec![heads.kv_heads, heads.group])?;
    let slopes = builder.broadcast(slopes, shape, vec![0, 1])?;
    let bias = builder.multiply(position, slopes)?;
    let bias = convert(builder, bias, ty.dtype)?;
    let bias = builder.broadcast(bias, ty.shape, vec![1, 3, 4])?;
    builder.add(scores, bias)
}

/// Softmax along the last dimension with one more score for each head, whose share is dropped.
fn softmax_with(
    builder: &mut Builder,
    heads: &Heads,
    scores: ValueId,
    sinks: ValueId,
) -> Result<ValueId, BuildError> {
    let ty = builder.ty(scores).clone();
    let last = ty.rank() - 1;
    let largest = builder.reduce(scores, Reduction::Max, last)?;
    let column = builder.ty(largest).shape.clone();
    let sinks = convert(builder, sinks, ty.dtype)?;
    let sinks = builder.reshape(sinks, vec![heads.kv_heads, heads.group])?;
    let sinks = builder.broadcast(sinks, column, vec![1, 3])?;
    let largest = builder.maximum(largest, sinks)?;
    let sink = builder.subtract(sinks, largest)?;
    let sink = builder.exp(sink)?;
    let largest = super::spread(builder, largest, scores)?;
    let shifted = builder.subtract(scores, largest)?;
    let exponential = builder.exp(shifted)?;
    let sum = builder.reduce(exponential, Reduction::Sum, last)?;
    let sum = builder.add(sum, sink)?;
    let sum = super::spread(builder, sum, scores)?;
    builder.divide(exponential, sum)
}

/// Which positions of the cache a token sees.
struct Sight {
    mask: Mask,
    window: Option<usize>,
    chunk: Option<usize>,
}

/// Whether the token `t` of row `b` sees the cache position `s`: `bool[B, T, S]`.
fn visible(
    builder: &mut Builder,
    start: ValueId,
    [rows, tokens, capacity]: [Dim; 3],
    sight: Sight,
) -> Result<ValueId, BuildError> {
    let shape = [rows, tokens, capacity];
    let cached = builder.iota(0, DType::I32, vec![capacity])?;
    let position = positions(builder, start, rows, tokens)?;
    let mut visible = match sight.mask {
        Mask::Causal => related(
            builder,
            (cached, vec![2]),
            (position, vec![0, 1]),
            &shape,
            Comparison::LessEqual,
        )?,
        Mask::Full => {
            // The row ends after its last new token, whose position is the largest.
            let end = builder.reduce(position, Reduction::Max, 1)?;
            related(
                builder,
                (cached, vec![2]),
                (end, vec![0, 1]),
                &shape,
                Comparison::LessEqual,
            )?
        }
    };
    if let Some(window) = sight.window {
        let width = full(builder, position, bounded(window))?;
        let before = builder.subtract(position, width)?;
        let near = related(
            builder,
            (cached, vec![2]),
            (before, vec![0, 1]),
            &shape,
            Comparison::Greater,
        )?;
        visible = builder.and(visible, near)?;
    }
    if let Some(chunk) = sight.chunk {
        let of = |builder: &mut Builder, position: ValueId| {
            let size = full(builder, position, bounded(chunk))?;
            builder.divide(position, size)
        };
        let (cached, own) = (of(builder, cached)?, of(builder, position)?);
        let same = related(
            builder,
            (cached, vec![2]),
            (own, vec![0, 1]),
            &shape,
            Comparison::Equal,
        )?;
        visible = builder.and(visible, same)?;
    }
    Ok(visible)
}

/// A width as a number of type i32.
fn bounded(width: usize) -> f64 {
    width.min(i32::MAX as usize) as f64
}

pub(super) fn expand_mutual(builder: &mut Builder, node: &Node) -> Result<ValueId, BuildError> {
    let (Op::MutualAttention { scale, window }, &[q, k, v, length]) =
        (&node.op, &node.operands[..])
    else {
        return builder.push(node.op.clone(), node.operands.clone(), vec![], None);
    };
    let kv_heads = builder.ty(k).shape[2];
    let heads = Heads::split(builder, q, kv_heads)?;
    let scores = heads.scores(builder, k, *scale)?;
    let shape = [heads.rows, heads.tokens, heads.tokens];
    let position = builder.iota(0, DType::I32, vec![heads.tokens])?;
    let mut visible = related(
        builder,
        (position, vec![2]),
        (length, vec![0]),
        &shape,
        Comparison::Less,
    )?;
    // A padding token sees itself, so that its row is a number.
    let own = related(
        builder,
        (position, vec![2]),
        (position, vec![1]),
        &shape,
        Comparison::Equal,
    )?;
    visible = builder.or(visible, own)?;
    if let Some(window) = window {
        let width = full(builder, position, bounded(*window))?;
        let first = builder.subtract(position, width)?;
        let after = related(
            builder,
            (position, vec![2]),
            (first, vec![1]),
            &shape,
            Comparison::GreaterEqual,
        )?;
        let before = related(
            builder,
            (first, vec![2]),
            (position, vec![1]),
            &shape,
            Comparison::LessEqual,
        )?;
        let near = builder.and(after, before)?;
        visible = builder.and(visible, near)?;
    }
    let scores = hide(builder, scores, visible)?;
    let shares = softmax(builder, scores)?;
    heads.mix(builder, shares, v, node.ty.shape.clone())
}
