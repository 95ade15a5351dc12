//! Kernels that work row by row or element by element.

use super::Fixed;
use super::body::{fixed, floats, integers, only};
use super::linear::Table;
use crate::fail::Fail;
use mlxcel_ir::{Activation, Op, TensorType, rope};
use mlxcel_kernels::{self as kernels, Pool};
use std::sync::Arc;

pub(super) fn embedding(pool: &Arc<Pool>, label: Arc<str>, table: Table) -> Fixed {
    let pool = pool.clone();
    fixed(label, move |inputs, outputs| {
        let tokens = integers(inputs, 0)?;
        Ok(kernels::embedding_rows(
            &pool,
            table.view(),
            tokens,
            only(outputs)?,
        )?)
    })
}

pub(super) fn rms_norm(pool: &Arc<Pool>, label: Arc<str>, weight: Vec<f32>, epsilon: f64) -> Fixed {
    let pool = pool.clone();
    let epsilon = epsilon as f32;
    fixed(label, move |inputs, outputs| {
        let x = floats(inputs, 0)?;
        Ok(kernels::rms_norm(
            &pool,
            x,
            &weight,
            epsilon,
            only(outputs)?,
        )?)
    })
}

pub(super) fn layer_norm(
    pool: &Arc<Pool>,
    label: Arc<str>,
    weight: Vec<f32>,
    bias: Vec<f32>,
    epsilon: f64,
) -> Fixed {
    let pool = pool.clone();
    let epsilon = epsilon as f32;
    fixed(label, move |inputs, outputs| {
        let (x, out) = (floats(inputs, 0)?, only(outputs)?);
        Ok(kernels::layer_norm(&pool, x, &weight, &bias, epsilon, out)?)
    })
}

/// The kernel of a rope node over `x` of type `ty`.
pub(super) fn rope(
    pool: &Arc<Pool>,
    label: Arc<str>,
    op: &Op,
    ty: &TensorType,
) -> Result<Fixed, Fail> {
    let &Op::Rope {
        dims,
        base,
        pairing,
        ref scaling,
        magnitude,
    } = op
    else {
        return Err("is no rope".into());
    };
    let size = |dim: usize| ty.shape.get(dim).and_then(|dim| dim.fixed());
    let (Some(heads), Some(dim)) = (size(2), size(3)) else {
        return Err("heads of an open size".into());
    };
    let frequencies = rope::frequencies(dims, base, scaling);
    let pool = pool.clone();
    Ok(fixed(label, move |inputs, outputs| {
        let (x, starts) = (floats(inputs, 0)?, integers(inputs, 1)?);
        let rope = kernels::Rope {
            heads,
            dim,
            dims,
            pairing,
            frequencies: &frequencies,
            magnitude,
        };
        Ok(kernels::rope(&pool, &rope, x, starts, only(outputs)?)?)
    }))
}

pub(super) fn activate(pool: &Arc<Pool>, label: Arc<str>, activation: Activation) -> Fixed {
    let pool = pool.clone();
    fixed(label, move |inputs, outputs| {
        let x = floats(inputs, 0)?;
        Ok(kernels::activate(&pool, activation, x, only(outputs)?)?)
    })
}

pub(super) fn gated(pool: &Arc<Pool>, label: Arc<str>, activation: Activation) -> Fixed {
    let pool = pool.clone();
    fixed(label, move |inputs, outputs| {
        let (gate, up) = (floats(inputs, 0)?, floats(inputs, 1)?);
        Ok(kernels::gated(&pool, activation, gate, up, only(outputs)?)?)
    })
}

/// Softmax over rows of `width` numbers.
pub(super) fn softmax(pool: &Arc<Pool>, label: Arc<str>, width: usize) -> Fixed {
    let pool = pool.clone();
    fixed(label, move |inputs, outputs| {
        let x = floats(inputs, 0)?;
        Ok(kernels::softmax(&pool, x, width, only(outputs)?)?)
    })
}

/// The index of the largest of each row of `width` numbers.
pub(super) fn argmax(pool: &Arc<Pool>, label: Arc<str>, width: usize) -> Fixed {
    let pool = pool.clone();
    fixed(label, move |inputs, outputs| {
        let x = floats(inputs, 0)?;
        let out = bytemuck::cast_slice_mut(only(outputs)?);
        Ok(kernels::argmax(&pool, x, width, out)?)
    })
}

/// The places of the `count` largest of each row of `width` numbers.
pub(super) fn top_k(pool: &Arc<Pool>, label: Arc<str>, width: usize, count: usize) -> Fixed {
    let pool = pool.clone();
    fixed(label, move |inputs, outputs| {
        let x = floats(inputs, 0)?;
        let out = bytemuck::cast_slice_mut(only(outputs)?);
        Ok(kernels::top_k(&pool, x, width, count, out)?)
    })
}

/// The elements of rows of `width` that rows of `count` indices name.
pub(super) fn take_along(label: Arc<str>, width: usize, count: usize) -> Fixed {
    fixed(label, move |inputs, outputs| {
        let (x, indices) = (floats(inputs, 0)?, integers(inputs, 1)?);
        let out = only(outputs)?;
        Ok(kernels::take_along(x, width, indices, count, out)?)
    })
}

/// The same elements.
pub(super) fn copy(label: Arc<str>) -> Fixed {
    fixed(label, move |inputs, outputs| {
        only(outputs)?.copy_from_slice(floats(inputs, 0)?);
        Ok(())
    })
}

/// `f` of two tensors, element by element.
pub(super) fn binary(
    label: Arc<str>,
    f: impl Fn(f32, f32) -> f32 + Send + Sync + 'static,
) -> Fixed {
    fixed(label, move |inputs, outputs| {
        let pairs = floats(inputs, 0)?.iter().zip(floats(inputs, 1)?);
        for (result, (&lhs, &rhs)) in only(outputs)?.iter_mut().zip(pairs) {
            *result = f(lhs, rhs);
        }
        Ok(())
    })
}

/// From each row `b` of `x[B, T, ...]`, with rows of `width` elements along T, that of `index[b]`.
pub(super) fn take_row(label: Arc<str>, width: usize) -> Fixed {
    fixed(label, move |inputs, outputs| {
        let (x, index) = (floats(inputs, 0)?, integers(inputs, 1)?);
        let out = only(outputs)?;
        let tokens = x.len() / (index.len() * width).max(1);
        let rows = x.chunks_exact((tokens * width).max(1));
        for ((x, &index), out) in rows.zip(index).zip(out.chunks_exact_mut(width)) {
            let found = usize::try_from(index).ok().filter(|&row| row < tokens);
            let row = found.ok_or_else(|| format!("index {index} is outside 0..{tokens}"))?;
            out.copy_from_slice(&x[row * width..][..width]);
        }
        Ok(())
    })
}
