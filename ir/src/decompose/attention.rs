//! Attention over a key-value cache in primitives.

use super::{full, positions, related, softmax};
use crate::builder::{BuildError, Builder};
use crate::graph::Node;
use crate::{Comparison, DType, Dim, Mask, Op, StatePart, ValueId};

pub(super) fn expand(builder: &mut Builder, node: &Node) -> Result<ValueId, BuildError> {
    let (
        Op::Attention {
            scale,
            mask,
            window,
            softcap,
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
    let keys = builder.cache_append(k, start, state, StatePart::Key)?;
    let values = builder.cache_append(v, start, state, StatePart::Value)?;
    let shape = builder.ty(q).shape.clone();
    let (rows, tokens) = (shape[0], shape[1]);
    let [_, capacity, kv_heads, _] = builder.ty(keys).shape[..] else {
        return Ok(q);
    };
    // Heads in groups that share a key-value head: [B, T, kv_heads, group, D].
    let heads = shape[2].fixed().unwrap_or(0);
    let group = Dim::Fixed(heads / kv_heads.fixed().unwrap_or(1).max(1));
    let grouped = builder.reshape(q, vec![rows, tokens, kv_heads, group, shape[3]])?;
    // [B, kv_heads, T, group, S]
    let scores = builder.dot(grouped, keys, vec![0, 2], vec![0, 2], vec![4], vec![3])?;
    let factor = full(builder, scores, *scale)?;
    let mut scores = builder.multiply(scores, factor)?;
    if let Some(cap) = softcap {
        let cap = full(builder, scores, *cap)?;
        let share = builder.divide(scores, cap)?;
        let bent = builder.tanh(share)?;
        scores = builder.multiply(bent, cap)?;
    }
    let visible = visible(builder, start, [rows, tokens, capacity], *mask, *window)?;
    let ty = builder.ty(scores).clone();
    let visible = builder.broadcast(visible, ty.shape, vec![0, 2, 4])?;
    let hidden = full(builder, scores, f64::NEG_INFINITY)?;
    let scores = builder.select(visible, scores, hidden)?;
    let shares = softmax(builder, scores)?;
    // [B, kv_heads, T, group, D]
    let mixed = builder.dot(shares, values, vec![0, 1], vec![0, 2], vec![4], vec![1])?;
    let mixed = builder.transpose(mixed, vec![0, 2, 1, 3, 4])?;
    builder.reshape(mixed, node.ty.shape.clone())
}

/// Whether the token `t` of row `b` sees the cache position `s`: `bool[B, T, S]`.
fn visible(
    builder: &mut Builder,
    start: ValueId,
    [rows, tokens, capacity]: [Dim; 3],
    mask: Mask,
    window: Option<usize>,
) -> Result<ValueId, BuildError> {
    let shape = [rows, tokens, capacity];
    let cached = builder.iota(0, DType::I32, vec![capacity])?;
    let position = positions(builder, start, rows, tokens)?;
    let mut visible = match mask {
        Mask::Causal => related(
            builder,
            (cached, vec![2]),
            (position, vec![0, 1]),
            &shape,
            Comparison::LessEqual,
        )?,
        Mask::Full => {
            // The row ends after its last new token, whose position is the largest.
            let end = builder.reduce(position, crate::Reduction::Max, 1)?;
            related(
                builder,
                (cached, vec![2]),
                (end, vec![0, 1]),
                &shape,
                Comparison::LessEqual,
            )?
        }
    };
    if let Some(window) = window {
        let width = full(builder, position, window.min(i32::MAX as usize) as f64)?;
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
    Ok(visible)
}
