//! The primitives, one by one.

use super::{composites, dot, narrow, parameter, stateful, widen};
use crate::fail::Fail;
use crate::machine::Machine;
use crate::plan::{Plan, Step};
use crate::weight::{dims, dtype};
use mlxcel_ir::{Comparison, DType, Op, Reduction, TensorType};
use mlxcel_mlx_sys::{self as mlx, Array, Binary, Dtype, Unary, ops};

pub(super) fn record(plan: &Plan, step: &Step, machine: &Machine<'_>) -> Result<Array, Fail> {
    let node = &plan.graph.nodes[step.node];
    let s = machine.stream;
    let operand = |index: usize| machine.value(step.operands[index]);
    let unary = |kind| Ok(ops::unary(kind, operand(0)?, s)?);
    let binary = |kind| Ok(ops::binary(kind, operand(0)?, operand(1)?, s)?);
    let axis = |n: usize| i32::try_from(n).map_err(|_| Fail(format!("{n} is too large")));
    let ty = &node.ty;
    match &node.op {
        Op::Parameter {} => narrow(parameter(plan, step, 0)?, ty.dtype, machine),
        Op::Constant { value, .. } => {
            let shape = machine.shape(ty)?;
            Ok(ops::full(*value, &shape, dtype(ty.dtype), s)?)
        }
        Op::Table { values, .. } => table(values, ty, machine),
        Op::Iota { dim, .. } => iota(*dim, ty, machine),
        Op::Convert { .. } => Ok(ops::astype(operand(0)?, dtype(ty.dtype), s)?),
        Op::Negate {} => unary(Unary::Negate),
        Op::Abs {} => unary(Unary::Abs),
        Op::Exp {} => unary(Unary::Exp),
        Op::Log {} => unary(Unary::Log),
        Op::Log1p {} => unary(Unary::Log1p),
        Op::Rsqrt {} => unary(Unary::Rsqrt),
        Op::Sqrt {} => unary(Unary::Sqrt),
        Op::Sin {} => unary(Unary::Sin),
        Op::Cos {} => unary(Unary::Cos),
        Op::Tanh {} => unary(Unary::Tanh),
        Op::Sigmoid {} => unary(Unary::Sigmoid),
        Op::Erf {} => unary(Unary::Erf),
        Op::Add {} => binary(Binary::Add),
        Op::Subtract {} => binary(Binary::Subtract),
        Op::Multiply {} => binary(Binary::Multiply),
        Op::Divide {} if ty.dtype.is_float() => binary(Binary::Divide),
        Op::Divide {} => divide_integers(operand(0)?, operand(1)?, ty, machine),
        Op::Maximum {} => binary(Binary::Maximum),
        Op::Minimum {} => binary(Binary::Minimum),
        Op::Power {} => binary(Binary::Power),
        Op::Compare { comparison } => binary(match comparison {
            Comparison::Equal => Binary::Equal,
            Comparison::NotEqual => Binary::NotEqual,
            Comparison::Less => Binary::Less,
            Comparison::LessEqual => Binary::LessEqual,
            Comparison::Greater => Binary::Greater,
            Comparison::GreaterEqual => Binary::GreaterEqual,
        }),
        Op::And {} => binary(Binary::And),
        Op::Or {} => binary(Binary::Or),
        Op::Not {} => unary(Unary::Not),
        Op::Select {} => Ok(ops::select(operand(0)?, operand(1)?, operand(2)?, s)?),
        Op::Reshape { .. } => Ok(ops::reshape(operand(0)?, &machine.shape(ty)?, s)?),
        Op::Transpose { permutation } => Ok(ops::transpose(operand(0)?, &dims(permutation)?, s)?),
        Op::Broadcast { dims: placed, .. } => {
            let x = operand(0)?;
            let shape = machine.shape(ty)?;
            let mut spread = vec![1; shape.len()];
            for (&size, &to) in x.shape().iter().zip(placed) {
                *spread.get_mut(to).ok_or("a dimension out of range")? = size;
            }
            let spread = ops::reshape(x, &spread, s)?;
            Ok(ops::broadcast(&spread, &shape, s)?)
        }
        Op::Slice {
            dim,
            start,
            limit,
            stride,
        } => {
            let x = operand(0)?;
            let mut begin = vec![0; x.shape().len()];
            let mut end = x.shape().to_vec();
            let mut steps = vec![1; end.len()];
            let (from, to, by) = (axis(*start)?, axis(*limit)?, axis(*stride)?);
            if *dim >= end.len() || to > end[*dim] {
                return Err(format!("{start}..{limit} is outside of {:?}", x.shape()).into());
            }
            (begin[*dim], end[*dim], steps[*dim]) = (from, to, by);
            Ok(ops::slice(x, &begin, &end, &steps, s)?)
        }
        Op::Concatenate { dim } => Ok(ops::concatenate(
            [operand(0)?, operand(1)?],
            axis(*dim)?,
            s,
        )?),
        Op::Gather {} => {
            let (table, indices) = (operand(0)?, operand(1)?);
            check_indices(machine, step.operands[1], table.shape().first().copied())?;
            Ok(ops::take(table, indices, 0, s)?)
        }
        Op::TakeRow {} => {
            let (x, index) = (operand(0)?, operand(1)?);
            check_indices(machine, step.operands[1], x.shape().get(1).copied())?;
            let mut shape = vec![1; x.shape().len()];
            shape[0] = x.shape()[0];
            let index = ops::reshape(index, &shape, s)?;
            let mut full = x.shape().to_vec();
            full[1] = 1;
            let index = ops::broadcast(&index, &full, s)?;
            let taken = ops::take_along(x, &index, 1, s)?;
            Ok(ops::reshape(&taken, &machine.shape(ty)?, s)?)
        }
        Op::Dot {
            lhs_batch,
            rhs_batch,
            lhs_contract,
            rhs_contract,
        } => {
            let lhs = widen(operand(0)?, machine)?;
            let rhs = widen(operand(1)?, machine)?;
            let product = dot::record(
                (&lhs, lhs_batch, lhs_contract),
                (&rhs, rhs_batch, rhs_contract),
                &machine.shape(ty)?,
                s,
            )?;
            narrow(product, ty.dtype, machine)
        }
        Op::Reduce { reduction, dim } => {
            let kind = match reduction {
                Reduction::Sum => mlx::Reduction::Sum,
                Reduction::Max => mlx::Reduction::Max,
                Reduction::Min => mlx::Reduction::Min,
            };
            let x = operand(0)?;
            if !ty.dtype.is_float() {
                return Ok(ops::astype(
                    &ops::reduce(kind, x, axis(*dim)?, s)?,
                    dtype(ty.dtype),
                    s,
                )?);
            }
            // A sum of 16-bit floats is rounded once, at its end.
            let reduced = ops::reduce(kind, &widen(x, machine)?, axis(*dim)?, s)?;
            narrow(reduced, ty.dtype, machine)
        }
        Op::Argmax {} => {
            let index = ops::argmax(operand(0)?, -1, s)?;
            Ok(ops::astype(&index, dtype(ty.dtype), s)?)
        }
        Op::TakeAlong {} => {
            let (x, indices) = (operand(0)?, operand(1)?);
            check_indices(machine, step.operands[1], x.shape().last().copied())?;
            Ok(ops::take_along(x, indices, -1, s)?)
        }
        Op::TopK { count } => top_k(&widen(operand(0)?, machine)?, *count, machine),
        op @ (composites!() | stateful!()) => {
            Err(format!("`{}` is no primitive", op.info().name).into())
        }
    }
}

/// Holds the indices against the `limit` that they choose from, unless they are known to be right.
/// MLX itself would read past the end.
pub(super) fn check_indices(
    machine: &Machine<'_>,
    indices: usize,
    limit: Option<i32>,
) -> Result<(), Fail> {
    if !machine.checked {
        return Ok(());
    }
    let limit = i64::from(limit.unwrap_or(0));
    let indices = machine.integers(indices)?;
    match indices.iter().find(|index| !(0..limit).contains(index)) {
        Some(index) => Err(format!("index {index} is outside 0..{limit}").into()),
        None => Ok(()),
    }
}

/// The places of the `count` largest of each row of `x`, f32, the first of equals first, which MLX's
/// sort does not promise.
fn top_k(x: &Array, count: usize, machine: &Machine<'_>) -> Result<Array, Fail> {
    let s = machine.stream;
    let rank = x.shape().len();
    let &width = x.shape().last().ok_or("takes rows")?;
    let mut row = vec![1; rank];
    row[rank - 1] = width;
    let places = ops::reshape(&ops::arange(width, Dtype::I32, s)?, &row, s)?;
    let least = ops::full(f64::NEG_INFINITY, &[], Dtype::F32, s)?;
    // What was found becomes less than everything that was not.
    let finite = ops::full(f64::from(f32::MIN), &[], Dtype::F32, s)?;
    let mut left = ops::binary(Binary::Maximum, x, &finite, s)?;
    let mut found = Vec::with_capacity(count);
    let mut column = x.shape().to_vec();
    column[rank - 1] = 1;
    for _ in 0..count {
        let best = ops::astype(&ops::argmax(&left, -1, s)?, Dtype::I32, s)?;
        let best = ops::reshape(&best, &column, s)?;
        let taken = ops::binary(Binary::Equal, &places, &best, s)?;
        left = ops::select(&taken, &least, &left, s)?;
        found.push(best);
    }
    Ok(ops::concatenate(&found, rank as i32 - 1, s)?)
}

fn table(values: &[f64], ty: &TensorType, machine: &Machine<'_>) -> Result<Array, Fail> {
    let shape = machine.shape(ty)?;
    let (bytes, stored): (Vec<u8>, Dtype) = match ty.dtype {
        DType::I32 | DType::U32 => (
            values
                .iter()
                .flat_map(|&x| (x as i64 as u32).to_le_bytes())
                .collect(),
            dtype(ty.dtype),
        ),
        _ => (
            values
                .iter()
                .flat_map(|&x| (x as f32).to_le_bytes())
                .collect(),
            Dtype::F32,
        ),
    };
    let array = Array::from_bytes(&bytes, &shape, stored)?;
    if stored == dtype(ty.dtype) {
        return Ok(array);
    }
    Ok(ops::astype(&array, dtype(ty.dtype), machine.stream)?)
}

fn iota(dim: usize, ty: &TensorType, machine: &Machine<'_>) -> Result<Array, Fail> {
    let shape = machine.shape(ty)?;
    let &count = shape.get(dim).ok_or("a dimension out of range")?;
    let mut spread = vec![1; shape.len()];
    spread[dim] = count;
    // Counted in i32 and rounded to the element type, as MLX counts in the type itself.
    let index = ops::arange(count, Dtype::I32, machine.stream)?;
    let index = ops::astype(&index, dtype(ty.dtype), machine.stream)?;
    let index = ops::reshape(&index, &spread, machine.stream)?;
    Ok(ops::broadcast(&index, &shape, machine.stream)?)
}

/// The quotient of integers, truncated towards zero, however MLX rounds that of negative ones.
fn divide_integers(
    lhs: &Array,
    rhs: &Array,
    ty: &TensorType,
    machine: &Machine<'_>,
) -> Result<Array, Fail> {
    let s = machine.stream;
    if ty.dtype == DType::U32 {
        return Ok(ops::binary(Binary::FloorDivide, lhs, rhs, s)?);
    }
    let magnitude = ops::binary(
        Binary::FloorDivide,
        &ops::unary(Unary::Abs, lhs, s)?,
        &ops::unary(Unary::Abs, rhs, s)?,
        s,
    )?;
    let sign = ops::binary(
        Binary::Multiply,
        &ops::unary(Unary::Sign, lhs, s)?,
        &ops::unary(Unary::Sign, rhs, s)?,
        s,
    )?;
    Ok(ops::binary(Binary::Multiply, &magnitude, &sign, s)?)
}
