//! Attention and cache updates by operations of MLX, row by row: rows are of different sequences,
//! with caches of different lengths.

use super::{narrow, parameter, widen};
use crate::fail::Fail;
use crate::machine::{Cache, Machine};
use crate::plan::{Plan, Step};
use crate::weight::dims;
use mlxcel_ir::{Mask, Op, StateDecl, StatePart, Symbol};
use mlxcel_mlx_sys::ops::AttentionMask;
use mlxcel_mlx_sys::{Array, Binary, Dtype, Stream, Unary, ops};

/// What [`Op::Attention`] says.
struct Rule {
    scale: f64,
    mask: Mask,
    window: Option<usize>,
    chunk: Option<usize>,
    softcap: Option<f64>,
    /// By query head, f32.
    slopes: Option<Array>,
    sinks: Option<Array>,
}

pub(super) fn state<'a>(plan: &'a Plan, step: &Step) -> Result<(usize, &'a StateDecl), Fail> {
    let id = plan.graph.nodes[step.node].state.ok_or("needs a state")?;
    let state = plan.graph.state(id).ok_or("needs a state")?;
    Ok((id.0 as usize, state))
}

/// Row `row` of `x[B, ...]` as `[1, ...]`.
pub(super) fn row_of(x: &Array, row: usize, stream: &Stream) -> Result<Array, Fail> {
    if x.shape().first() == Some(&1) {
        return Ok(x.clone());
    }
    let row = row as i32;
    let mut start = vec![0; x.shape().len()];
    let mut stop = x.shape().to_vec();
    (start[0], stop[0]) = (row, row + 1);
    Ok(ops::slice(x, &start, &stop, &vec![1; stop.len()], stream)?)
}

pub(super) fn stacked(rows: &[Array], stream: &Stream) -> Result<Array, Fail> {
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
        Some(_) => Err("this state is not a cache of MLX".into()),
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
        chunk,
        softcap,
        ref slopes,
    } = node.op
    else {
        return Err("is no attention".into());
    };
    let (id, state) = state(plan, step)?;
    let stream = machine.stream;
    let rule = Rule {
        scale,
        mask,
        window,
        chunk,
        softcap,
        slopes: match slopes.is_empty() {
            true => None,
            false => Some(vector(slopes)?),
        },
        sinks: match node.weights.is_empty() {
            true => None,
            false => Some(parameter(plan, step, 0)?),
        },
    };
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

/// Numbers as an array.
fn vector(numbers: &[f64]) -> Result<Array, Fail> {
    let numbers: Vec<f32> = numbers.iter().map(|&number| number as f32).collect();
    let bytes = bytemuck::cast_slice(&numbers);
    Ok(Array::from_bytes(
        bytes,
        &dims(&[numbers.len()])?,
        Dtype::F32,
    )?)
}

/// Records [`Op::MutualAttention`].
pub(super) fn mutual(plan: &Plan, step: &Step, machine: &mut Machine<'_>) -> Result<Array, Fail> {
    let node = &plan.graph.nodes[step.node];
    let Op::MutualAttention { scale, window } = node.op else {
        return Err("is no mutual attention".into());
    };
    let s = machine.stream;
    let operand = |index: usize| {
        let x = widen(machine.value(step.operands[index])?, machine)?;
        Ok::<_, Fail>(ops::transpose(&x, &[0, 2, 1, 3], s)?)
    };
    let (q, k, v) = (operand(0)?, operand(1)?, operand(2)?);
    let &[rows, _, tokens, _] = q.shape() else {
        return Err("attention takes 4 dimensions".into());
    };
    let places = ops::arange(tokens, Dtype::I32, s)?;
    let key = ops::reshape(&places, &[1, 1, 1, tokens], s)?;
    let query = ops::reshape(&places, &[1, 1, tokens, 1], s)?;
    let length = ops::reshape(machine.value(step.operands[3])?, &[rows, 1, 1, 1], s)?;
    let real = ops::binary(Binary::Less, &key, &length, s)?;
    let own = ops::binary(Binary::Equal, &key, &query, s)?;
    let mut visible = ops::binary(Binary::Or, &real, &own, s)?;
    if let Some(window) = window {
        let window = window.min(tokens as usize) as f64;
        let width = ops::full(window, &[], Dtype::I32, s)?;
        let distance = ops::binary(Binary::Subtract, &key, &query, s)?;
        let distance = ops::unary(Unary::Abs, &distance, s)?;
        let near = ops::binary(Binary::LessEqual, &distance, &width, s)?;
        visible = ops::binary(Binary::And, &visible, &near, s)?;
    }
    let mask = AttentionMask::Given(&visible);
    let mixed = ops::attention(&q, &k, &v, scale as f32, mask, None, s)?;
    let mixed = ops::transpose(&mixed, &[0, 2, 1, 3], s)?;
    let mixed = ops::reshape(&mixed, &machine.shape(&node.ty)?, s)?;
    narrow(mixed, node.ty.dtype, machine)
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
    if rule.softcap.is_none() && rule.slopes.is_none() {
        let mask = match &visible {
            Some(visible) => AttentionMask::Given(visible),
            None if causal => AttentionMask::Causal,
            None => AttentionMask::None,
        };
        return Ok(ops::attention(
            q,
            k,
            v,
            rule.scale as f32,
            mask,
            rule.sinks.as_ref(),
            s,
        )?);
    }
    let visible = match visible {
        None if causal => Some(window_mask(start, tokens, rule, s)?),
        visible => visible,
    };
    capped(q, k, v, rule, visible.as_ref(), s)
}

/// The mask `[T, S]` where the plain forms do not do.
fn visible(rule: &Rule, start: usize, tokens: usize, s: &Stream) -> Result<Option<Array>, Fail> {
    let shorter = |limit: Option<usize>| limit.is_some_and(|limit| limit < start + tokens);
    match shorter(rule.window) || shorter(rule.chunk) {
        true => Ok(Some(window_mask(start, tokens, rule, s)?)),
        false => Ok(None),
    }
}

fn window_mask(start: usize, tokens: usize, rule: &Rule, s: &Stream) -> Result<Array, Fail> {
    let size = |size: usize| i32::try_from(size).map_err(|_| "the cache is too long");
    let (from, to) = (size(start)?, size(start + tokens)?);
    let cached = ops::arange(to, Dtype::I32, s)?;
    let cached = ops::reshape(&cached, &[1, to], s)?;
    let position = ops::slice(&cached, &[0, from], &[1, to], &[1, 1], s)?;
    let position = ops::reshape(&position, &[to - from, 1], s)?;
    let mut visible = match rule.mask == Mask::Causal {
        true => ops::binary(Binary::LessEqual, &cached, &position, s)?,
        false => {
            let far = ops::full(f64::from(to), &[1, 1], Dtype::I32, s)?;
            let all = ops::binary(Binary::Less, &cached, &far, s)?;
            ops::broadcast(&all, &[to - from, to], s)?
        }
    };
    let number = |limit: usize| {
        let limit = size(limit.min(start + tokens))?;
        Ok::<_, Fail>(ops::full(f64::from(limit), &[1, 1], Dtype::I32, s)?)
    };
    if let Some(window) = rule.window {
        let edge = ops::binary(Binary::Subtract, &position, &number(window)?, s)?;
        let near = ops::binary(Binary::Greater, &cached, &edge, s)?;
        visible = ops::binary(Binary::And, &visible, &near, s)?;
    }
    if let Some(chunk) = rule.chunk {
        let chunk = number(chunk)?;
        let chunk_of = |place: &Array| ops::binary(Binary::FloorDivide, place, &chunk, s);
        let same = ops::binary(Binary::Equal, &chunk_of(&cached)?, &chunk_of(&position)?, s)?;
        visible = ops::binary(Binary::And, &visible, &same, s)?;
    }
    Ok(visible)
}

/// Attention with a soft-cap or slopes, which MLX has no operation for.
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
    if let Some(slopes) = &rule.slopes {
        let slopes = ops::reshape(slopes, &[kv_heads, group, 1, 1], s)?;
        let places = ops::arange(length, Dtype::F32, s)?;
        let bias = ops::binary(Binary::Multiply, &slopes, &places, s)?;
        scores = ops::binary(Binary::Add, &scores, &bias, s)?;
    }
    if let Some(visible) = visible {
        scores = ops::select(visible, &scores, &number(f64::NEG_INFINITY)?, s)?;
    }
    if let Some(sinks) = &rule.sinks {
        let sinks = ops::reshape(sinks, &[kv_heads, group, 1, 1], s)?;
        let sinks = ops::broadcast(&sinks, &[kv_heads, group, tokens, 1], s)?;
        scores = ops::concatenate([&scores, &sinks], 3, s)?;
    }
    let mut shares = ops::softmax(&scores, -1, s)?;
    if rule.sinks.is_some() {
        let stop = [kv_heads, group, tokens, length];
        shares = ops::slice(&shares, &[0; 4], &stop, &[1; 4], s)?;
    }
    let value_width = v.shape()[3];
    let v = ops::reshape(v, &[kv_heads, 1, length, value_width], s)?;
    let mixed = ops::matmul(&shares, &v, s)?;
    Ok(ops::reshape(&mixed, &[1, heads, tokens, value_width], s)?)
}
