//! Rotary position embedding in primitives.

use crate::builder::{BuildError, Builder};
use crate::graph::Node;
use crate::{DType, Dim, Op, Pairing, TensorType, ValueId};

pub(super) fn expand(builder: &mut Builder, node: &Node) -> Result<ValueId, BuildError> {
    let Op::Rope {
        dims,
        base,
        pairing,
        scaling,
        magnitude,
    } = &node.op
    else {
        return builder.push(node.op.clone(), node.operands.clone(), vec![], None);
    };
    let (x, start) = (node.operands[0], node.operands[1]);
    let ty = builder.ty(x).clone();
    let (dims, width) = (*dims, ty.shape[3].fixed().unwrap_or(0));
    let frequencies = crate::rope::frequencies(dims, *base, scaling);
    let angle = angles(builder, start, &ty, frequencies)?;
    let turned = match width == dims {
        true => x,
        false => builder.slice(x, 3, 0, dims, 1)?,
    };
    let turned = turn(builder, turned, angle, dims, (*pairing, *magnitude))?;
    match width == dims {
        true => Ok(turned),
        false => {
            let rest = builder.slice(x, 3, dims, width, 1)?;
            builder.concatenate(turned, rest, 3)
        }
    }
}

/// Angles `[B, T, pairs]`: position times frequency.
fn angles(
    builder: &mut Builder,
    start: ValueId,
    x: &TensorType,
    frequencies: Vec<f64>,
) -> Result<ValueId, BuildError> {
    let shape = vec![x.shape[0], x.shape[1], Dim::Fixed(frequencies.len())];
    let position = super::positions(builder, start, shape[0], shape[1])?;
    let position = builder.convert(position, DType::F32)?;
    let position = builder.broadcast(position, shape.clone(), vec![0, 1])?;
    let table = builder.table(frequencies, DType::F32)?;
    let table = builder.broadcast(table, shape, vec![2])?;
    builder.multiply(position, table)
}

/// Turns the pairs of `x[B, T, heads, dims]` by `angle[B, T, dims / 2]`.
fn turn(
    builder: &mut Builder,
    x: ValueId,
    angle: ValueId,
    dims: usize,
    (pairing, magnitude): (Pairing, f64),
) -> Result<ValueId, BuildError> {
    let pairs = dims / 2;
    let ty = builder.ty(x).clone();
    let (first, second) = match pairing {
        Pairing::Half => (
            builder.slice(x, 3, 0, pairs, 1)?,
            builder.slice(x, 3, pairs, dims, 1)?,
        ),
        Pairing::Interleaved => (
            builder.slice(x, 3, 0, dims, 2)?,
            builder.slice(x, 3, 1, dims, 2)?,
        ),
    };
    let shape = builder.ty(first).shape.clone();
    let sine = builder.sin(angle)?;
    let sine = grow(builder, sine, magnitude)?;
    let sine = repeat(builder, sine, &ty, &shape)?;
    let cosine = builder.cos(angle)?;
    let cosine = grow(builder, cosine, magnitude)?;
    let cosine = repeat(builder, cosine, &ty, &shape)?;
    let (a, b) = (
        builder.multiply(first, cosine)?,
        builder.multiply(second, sine)?,
    );
    let turned_first = builder.subtract(a, b)?;
    let (a, b) = (
        builder.multiply(second, cosine)?,
        builder.multiply(first, sine)?,
    );
    let turned_second = builder.add(a, b)?;
    match pairing {
        Pairing::Half => builder.concatenate(turned_first, turned_second, 3),
        Pairing::Interleaved => {
            let mut column = shape.clone();
            column.push(Dim::Fixed(1));
            let left = builder.reshape(turned_first, column.clone())?;
            let right = builder.reshape(turned_second, column)?;
            let both = builder.concatenate(left, right, 4)?;
            builder.reshape(both, ty.shape)
        }
    }
}

fn grow(builder: &mut Builder, x: ValueId, magnitude: f64) -> Result<ValueId, BuildError> {
    if magnitude == 1.0 {
        return Ok(x);
    }
    let magnitude = super::full(builder, x, magnitude)?;
    builder.multiply(x, magnitude)
}

/// A function of the angles in the element type of `x`, the same for each head.
fn repeat(
    builder: &mut Builder,
    value: ValueId,
    x: &TensorType,
    shape: &[Dim],
) -> Result<ValueId, BuildError> {
    let value = super::convert(builder, value, x.dtype)?;
    builder.broadcast(value, shape.to_vec(), vec![0, 1, 3])
}
