//! Attention and cache updates by operations of MLX, row by row: rows are of different sequences,
//! with caches of different lengths.

use super::{narrow, widen};
use crate::fail::Fail;
use crate::machine::{Cache, Machine};
use crate::plan::{Plan, Step};
use mlxcel_ir::{Mask, Op, StateDecl, StatePart, Symbol};
use mlxcel_mlx_sys::ops::AttentionMask;
use mlxcel_mlx_sys::{Array, Binary, Dtype, Stream, Unary, ops};

/// What [`Op::Attention`] says.
struct Rule {
    scale: f64,
    mask: Mask,
    window: Option<usize>,
    softcap: Option<f64>,
}

fn state<'a>(plan: &'a Plan, step: &Step) -> Result<(usize, &'a StateDecl), Fail> {
    let id = plan.graph.nodes[step.node].state.ok_or("needs a state")?;
    let state = plan.graph.state(id).ok_or("needs a state")?;
    Ok((id.0 as usize, state))
}

/// Row `row` of `x[B, ...]` as `[1, ...]`.
fn row_of(x: &Array, row: usize, stream: &Stream) -> Result<Array, Fail> {
    if x.shape().first() == Some(&1) {
        return Ok(x.clone());
    }
    let row = row as i32;
    let mut start = vec![0; x.shape().len()];
    let mut stop = x.shape().to_vec();
    (start[0], stop[0]) = (row, row + 1);
    Ok(ops::slice(x, &start, &stop, &vec![1; stop.len()], stream)?)
}

fn stacked(rows: &[Array], stream: &Stream) -> Result<Array, Fail> {
    match rows {
        [row] => Ok(row.clone()),
        rows => Ok(ops::concatenate(rows, 0, stream)?),
    }
}

/// Whether the rows fit a cache of the bound capacity.
fn check_room(machine: &Machine<'_>, start: usize, tokens: usize) -> Result<(), Fail> {
    match machine.bindings.get(Symbol::S) {
        Some(capacity) if start + tokens > capacity => Err(Fail(format!(
            "positions {start}..{} do not fit a cache of {capacity}",
            start + tokens
        ))),
        _ => Ok(()),
    }
}

/// Records [`Op::CacheAppend`].
pub(super) fn append(
    plan: &Plan,
    step: &Step,
    machine: &mut Machine<'_>,
    part: StatePart,
) -> Result<Array, Fail> {
    let (id, state) = state(plan, step)?;
    let stream = machine.stream;
    let x = widen(machine.value(step.operands[0])?, machine)?;
    let starts = machine.starts(step.operands[1])?;
    let ty = &plan.graph.nodes[step.node].ty;
    let capacity = machine.sizes(ty)?.get(1).copied().unwrap_or(0);
    let mut buffers = Vec::new();
    for (row, &start) in starts.iter().enumerate() {
        let rows = row_of(&x, row, stream)?;
        check_room(machine, start, rows.shape()[1] as usize)?;
        let cache = cache(machine, row, id)?;
        let all = cache.append(state, part, &rows, start, capacity, stream)?;
        buffers.push(ops::transpose(&all, &[0, 2, 1, 3], stream)?);
    }
    narrow(stacked(&buffers, stream)?, ty.dtype, machine)
}

fn cache<'a>(
    machine: &'a mut Machine<'_>,
    row: usize,
    id: usize,
) -> Result<&'a mut crate::cache::ArrayCache, Fail> {
    match machine.rows.get_mut(row).and_then(|row| row.get_mut(id)) {
        Some(Cache::Arrays(cache)) => Ok(cache),
        Some(Cache::Host(_)) => Err("this cache is kept for kernels, not for MLX".into()),
        None => Err(format!("row {row} has no cache {id}").into()),
    }
}

/// Records [`Op::Attention`].
pub(super) fn record(plan: &Plan, step: &Step, machine: &mut Machine<'_>) -> Result<Array, Fail> {
    let node = &plan.graph.nodes[step.node];
    let Op::Attention {
        scale,
        mask,
        window,
        softcap,
        ..
    } = node.op
    else {
        return Err("is no attention".into());
    };
    let rule = Rule {
        scale,
        mask,
        window,
        softcap,
    };
    let (id, state) = state(plan, step)?;
    let stream = machine.stream;
    let operand = |index: usize| widen(machine.value(step.operands[index])?, machine);
    let (q, k, v) = (operand(0)?, operand(1)?, operand(2)?);
    let starts = machine.starts(step.operands[3])?;
    let mut rows = Vec::new();
    for (row, &start) in starts.iter().enumerate() {
        let (q, k, v) = (
            row_of(&q, row, stream)?,
            row_of(&k, row, stream)?,
            row_of(&v, row, stream)?,
        );
        let tokens = q.shape()[1] as usize;
        check_room(machine, start, tokens)?;
        let length = start + tokens;
        let cache = cache(machine, row, id)?;
        let k = cache.append(state, StatePart::Key, &k, start, length, stream)?;
        let v = cache.append(state, StatePart::Value, &v, start, length, stream)?;
        let q = ops::transpose(&q, &[0, 2, 1, 3], stream)?;
        let mixed = attend(&q, &k, &v, &rule, start, stream)?;
        rows.push(ops::transpose(&mixed, &[0, 2, 1, 3], stream)?);
    }
    let all = stacked(&rows, stream)?;
    let all = ops::reshape(&all, &machine.shape(&node.ty)?, stream)?;
    narrow(all, node.ty.dtype, machine)
}

/// Attention of `q[1, heads, T, D]`, which stands at position `start`, over `[1, kv_heads, S, D]`
/// with `S = start + T`.
fn attend(
    q: &Array,
    k: &Array,
    v: &Array,
    rule: &Rule,
    start: usize,
    s: &Stream,
) -> Result<Array, Fail> {
    let tokens = q.shape()[2] as usize;
    let visible = visible(rule, start, tokens, s)?;
    let causal = rule.mask == Mask::Causal && tokens > 1;
    if rule.softcap.is_none() {
        let mask = match &visible {
            Some(visible) => AttentionMask::Given(visible),
            None if causal => AttentionMask::Causal,
            None => AttentionMask::None,
        };
        return Ok(ops::attention(q, k, v, rule.scale as f32, mask, s)?);
    }
    let visible = match visible {
        None if causal => Some(window_mask(start, tokens, None, true, s)?),
        visible => visible,
    };
    capped(q, k, v, rule, visible.as_ref(), s)
}

/// The mask `[T, S]` where the plain forms do not do.
fn visible(rule: &Rule, start: usize, tokens: usize, s: &Stream) -> Result<Option<Array>, Fail> {
    match rule.window {
        Some(window) if window < start + tokens => {
            let causal = rule.mask == Mask::Causal;
            Ok(Some(window_mask(start, tokens, Some(window), causal, s)?))
        }
        _ => Ok(None),
    }
}

fn window_mask(
    start: usize,
    tokens: usize,
    window: Option<usize>,
    causal: bool,
    s: &Stream,
) -> Result<Array, Fail> {
    let size = |size: usize| i32::try_from(size).map_err(|_| "the cache is too long");
    let (from, to) = (size(start)?, size(start + tokens)?);
    let cached = ops::arange(to, Dtype::I32, s)?;
    let cached = ops::reshape(&cached, &[1, to], s)?;
    let position = ops::slice(&cached, &[0, from], &[1, to], &[1, 1], s)?;
    let position = ops::reshape(&position, &[to - from, 1], s)?;
    let behind = match causal {
        true => ops::binary(Binary::LessEqual, &cached, &position, s)?,
        false => {
            let far = ops::full(f64::from(to), &[1, 1], Dtype::I32, s)?;
            let all = ops::binary(Binary::Less, &cached, &far, s)?;
            ops::broadcast(&all, &[to - from, to], s)?
        }
    };
    let Some(window) = window else {
        return Ok(behind);
    };
    let width = ops::full(f64::from(size(window)?), &[1, 1], Dtype::I32, s)?;
    let edge = ops::binary(Binary::Subtract, &position, &width, s)?;
    let near = ops::binary(Binary::Greater, &cached, &edge, s)?;
    Ok(ops::binary(Binary::And, &behind, &near, s)?)
}

/// Attention with a soft-cap, which MLX has no operation for.
fn capped(
    q: &Array,
    k: &Array,
    v: &Array,
    rule: &Rule,
    visible: Option<&Array>,
    s: &Stream,
) -> Result<Array, Fail> {
    let (&[_, heads, tokens, width], &[_, kv_heads, length, _]) = (q.shape(), k.shape()) else {
        return Err("attention takes 4 dimensions".into());
    };
    let number = |value: f64| ops::full(value, &[], Dtype::F32, s);
    let group = heads / kv_heads.max(1);
    let q = ops::reshape(q, &[kv_heads, group, tokens, width], s)?;
    let k = ops::reshape(k, &[kv_heads, 1, length, width], s)?;
    let k = ops::transpose(&k, &[0, 1, 3, 2], s)?;
    let q = ops::binary(Binary::Multiply, &q, &number(rule.scale)?, s)?;
    let mut scores = ops::matmul(&q, &k, s)?;
    if let Some(cap) = rule.softcap {
        let cap = number(cap)?;
        let share = ops::binary(Binary::Divide, &scores, &cap, s)?;
        let bent = ops::unary(Unary::Tanh, &share, s)?;
        scores = ops::binary(Binary::Multiply, &bent, &cap, s)?;
    }
    if let Some(visible) = visible {
        scores = ops::select(visible, &scores, &number(f64::NEG_INFINITY)?, s)?;
    }
    let shares = ops::softmax(&scores, -1, s)?;
    let value_width = v.shape()[3];
    let v = ops::reshape(v, &[kv_heads, 1, length, value_width], s)?;
    let mixed = ops::matmul(&shares, &v, s)?;
    Ok(ops::reshape(&mixed, &[1, heads, tokens, value_width], s)?)
}
