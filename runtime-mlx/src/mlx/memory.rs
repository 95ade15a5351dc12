//! Memories by operations of MLX, row by row and token by token.

use super::attention::{row_of, stacked, state};
use super::{narrow, parameter, widen};
use crate::fail::Fail;
use crate::machine::{Cache, Machine};
use crate::plan::{Plan, Step};
use crate::weight::dims;
use mlxcel_ir::Op;
use mlxcel_mlx_sys::{Array, Binary, Dtype, Reduction, Stream, ops};

/// How many of its `tokens` tokens each row counts.
fn lengths(machine: &Machine<'_>, value: usize, tokens: i32) -> Result<Vec<i32>, Fail> {
    let lengths = machine.integers(value)?;
    let inside = |&length: &i64| match i32::try_from(length) {
        Ok(length) if (0..=tokens).contains(&length) => Ok(length),
        _ => Err(Fail(format!("length {length} is outside 0..={tokens}"))),
    };
    lengths.iter().map(inside).collect()
}

/// The memory of row `row`, `[1, heads, key, value]`.
fn memory<'a>(
    machine: &'a mut Machine<'_>,
    row: usize,
    id: usize,
) -> Result<&'a mut Option<Array>, Fail> {
    match machine.rows.get_mut(row).and_then(|row| row.get_mut(id)) {
        Some(Cache::Memory(memory)) => Ok(memory),
        Some(_) => Err("this state is not a memory of MLX".into()),
        None => Err(format!("row {row} has no state {id}").into()),
    }
}

/// What the memory of row `row` holds, in the given shape.
fn held(machine: &mut Machine<'_>, row: usize, id: usize, shape: &[i32]) -> Result<Array, Fail> {
    let s = machine.stream;
    match memory(machine, row, id)? {
        Some(memory) => Ok(ops::reshape(memory, shape, s)?),
        None => Ok(ops::full(0.0, shape, Dtype::F32, s)?),
    }
}

fn times(x: &Array, y: &Array, s: &Stream) -> Result<Array, Fail> {
    Ok(ops::binary(Binary::Multiply, x, y, s)?)
}

fn plus(x: &Array, y: &Array, s: &Stream) -> Result<Array, Fail> {
    Ok(ops::binary(Binary::Add, x, y, s)?)
}

/// Records [`Op::CausalConvolution`].
pub(super) fn convolution(
    plan: &Plan,
    step: &Step,
    machine: &mut Machine<'_>,
) -> Result<Array, Fail> {
    let node = &plan.graph.nodes[step.node];
    let (id, state) = state(plan, step)?;
    let s = machine.stream;
    let x = widen(machine.value(step.operands[0])?, machine)?;
    let &[_, tokens, channels] = x.shape() else {
        return Err("takes 3 dimensions".into());
    };
    // The weights in the element type of x, by steps: [W, C].
    let rounded = |index: usize| {
        let numbers = narrow(parameter(plan, step, index)?, node.ty.dtype, machine)?;
        widen(&numbers, machine)
    };
    let weight = ops::transpose(&rounded(0)?, &[1, 0], s)?;
    let bias = match node.weights.len() {
        1 => None,
        _ => Some(rounded(1)?),
    };
    let past = i32::try_from(state.key_dim).map_err(|_| "the memory is too long")?;
    let counts = lengths(machine, step.operands[1], tokens)?;
    let mut results = Vec::new();
    for (row, &count) in counts.iter().enumerate() {
        let before = held(machine, row, id, &[1, past, channels])?;
        let line = ops::concatenate([&before, &row_of(&x, row, s)?], 1, s)?;
        let part = |from: i32, to: i32| {
            let (start, stop) = ([0, from, 0], [1, to, channels]);
            ops::slice(&line, &start, &stop, &[1; 3], s)
        };
        let mut sum: Option<Array> = None;
        for j in 0..=past {
            let factor = ops::slice(&weight, &[j, 0], &[j + 1, channels], &[1; 2], s)?;
            let product = times(&part(j, j + tokens)?, &factor, s)?;
            sum = Some(match sum {
                Some(sum) => plus(&sum, &product, s)?,
                None => product,
            });
        }
        let sum = sum.ok_or("is of no step")?;
        results.push(match &bias {
            Some(bias) => plus(&sum, bias, s)?,
            None => sum,
        });
        // A copy, so that the line itself does not stay.
        let kept = ops::contiguous(&part(count, count + past)?, s)?;
        *memory(machine, row, id)? = Some(ops::reshape(&kept, &[1, 1, past, channels], s)?);
    }
    narrow(stacked(&results, s)?, node.ty.dtype, machine)
}

/// Records [`Op::Recurrence`] and [`Op::DeltaRecurrence`].
pub(super) fn recurrence(
    plan: &Plan,
    step: &Step,
    machine: &mut Machine<'_>,
) -> Result<Array, Fail> {
    let node = &plan.graph.nodes[step.node];
    let (id, state) = state(plan, step)?;
    let s = machine.stream;
    let Some((&length, operands)) = step.operands.split_last() else {
        return Err("takes operands".into());
    };
    let vectors: Vec<Array> = operands
        .iter()
        .map(|&operand| widen(machine.value(operand)?, machine))
        .collect::<Result<_, _>>()?;
    let &[_, tokens, heads, width] = vectors[2].shape() else {
        return Err("takes 4 dimensions".into());
    };
    let shape = dims(&[state.heads, state.key_dim, state.value_dim])?;
    let delta = matches!(node.op, Op::DeltaRecurrence {});
    let counts = lengths(machine, length, tokens)?;
    let mut rows = Vec::new();
    for (row, &count) in counts.iter().enumerate() {
        let parts: Vec<Array> = vectors
            .iter()
            .map(|vectors| spread(&row_of(vectors, row, s)?, heads, s))
            .collect::<Result<_, _>>()?;
        let mut memory_now = held(machine, row, id, &shape)?;
        let mut results = Vec::new();
        for token in 0..count {
            // A vector of each head as a column [H, K, 1], the value as a line [H, 1, V].
            let column = |which: usize| token_of(&parts[which], token, s);
            let value = ops::transpose(&column(2)?, &[0, 2, 1], s)?;
            let mut next = times(&memory_now, &column(3)?, s)?;
            if delta {
                let erased = over_keys(&next, &column(4)?, s)?;
                let written = times(&column(5)?, &erased, s)?;
                next = ops::binary(Binary::Subtract, &next, &written, s)?;
            }
            next = plus(&next, &times(&column(1)?, &value, s)?, s)?;
            results.push(over_keys(&next, &column(0)?, s)?);
            memory_now = next;
        }
        let kept = [&[1], &shape[..]].concat();
        *memory(machine, row, id)? = Some(ops::reshape(&memory_now, &kept, s)?);
        if count < tokens {
            results.push(ops::full(
                0.0,
                &[heads, tokens - count, width],
                Dtype::F32,
                s,
            )?);
        }
        // [H, T, V] as [1, T, H, V].
        let result = ops::transpose(&ops::concatenate(&results, 1, s)?, &[1, 0, 2], s)?;
        rows.push(ops::reshape(&result, &[1, tokens, heads, width], s)?);
    }
    narrow(stacked(&rows, s)?, node.ty.dtype, machine)
}

/// `x[1, T, G, D]` with each group repeated for its heads, `[H, T, D]`.
fn spread(x: &Array, heads: i32, s: &Stream) -> Result<Array, Fail> {
    let &[_, tokens, groups, width] = x.shape() else {
        return Err("takes 4 dimensions".into());
    };
    let group = heads / groups.max(1);
    let x = ops::reshape(x, &[tokens, groups, 1, width], s)?;
    let x = ops::broadcast(&x, &[tokens, groups, group, width], s)?;
    let x = ops::reshape(&x, &[tokens, heads, width], s)?;
    Ok(ops::transpose(&x, &[1, 0, 2], s)?)
}

/// Token `token` of `x[H, T, D]` as columns `[H, D, 1]`.
fn token_of(x: &Array, token: i32, s: &Stream) -> Result<Array, Fail> {
    let &[heads, _, width] = x.shape() else {
        return Err("takes 3 dimensions".into());
    };
    let part = ops::slice(x, &[0, token, 0], &[heads, token + 1, width], &[1; 3], s)?;
    Ok(ops::transpose(&part, &[0, 2, 1], s)?)
}

/// The sum over the keys of `memory[H, K, V]` times `column[H, K, 1]`: `[H, 1, V]`.
fn over_keys(memory: &Array, column: &Array, s: &Stream) -> Result<Array, Fail> {
    Ok(ops::reduce(
        Reduction::Sum,
        &times(memory, column, s)?,
        1,
        s,
    )?)
}
