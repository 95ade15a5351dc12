//! Kernels that work row by row or element by element.

use super::Fixed;
use super::body::{floats, integers, kernel, only};
use super::linear::Table;
use crate::fail::Fail;
use mlxcel_ir::{Activation, Op, TensorType, rope};
use mlxcel_kernels::{self as kernels, Pool};
use std::sync::Arc;

pub(super) fn embedding(pool: &Arc<Pool>, label: Arc<str>, table: Table) -> Fixed {
    let pool = pool.clone();
    let run = kernel(label, move |inputs, outputs| {
        let tokens = integers(inputs, 0)?;
        Ok(kernels::embedding_rows(
            &pool,
            table.view(),
            tokens,
            only(outputs)?,
        )?)
    });
    Fixed {
        name: "embedding",
        kernel: run,
    }
}

pub(super) fn rms_norm(pool: &Arc<Pool>, label: Arc<str>, weight: Vec<f32>, epsilon: f64) -> Fixed {
    let pool = pool.clone();
    let epsilon = epsilon as f32;
    let run = kernel(label, move |inputs, outputs| {
        let x = floats(inputs, 0)?;
        Ok(kernels::rms_norm(
            &pool,
            x,
            &weight,
            epsilon,
            only(outputs)?,
        )?)
    });
    Fixed {
        name: "rms_norm",
        kernel: run,
    }
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
        scaling,
    } = op
    else {
        return Err("is no rope".into());
    };
    let size = |dim: usize| ty.shape.get(dim).and_then(|dim| dim.fixed());
    let (Some(heads), Some(dim)) = (size(2), size(3)) else {
        return Err("heads of an open size".into());
    };
    let frequencies = rope::frequencies(dims, base, &scaling);
    let pool = pool.clone();
    let run = kernel(label, move |inputs, outputs| {
        let (x, starts) = (floats(inputs, 0)?, integers(inputs, 1)?);
        let rope = kernels::Rope {
            heads,
            dim,
            dims,
            pairing,
            frequencies: &frequencies,
        };
        Ok(kernels::rope(&pool, &rope, x, starts, only(outputs)?)?)
    });
    Ok(Fixed {
        name: "rope",
        kernel: run,
    })
}

pub(super) fn activate(pool: &Arc<Pool>, label: Arc<str>, activation: Activation) -> Fixed {
    let pool = pool.clone();
    let run = kernel(label, move |inputs, outputs| {
        let x = floats(inputs, 0)?;
        Ok(kernels::activate(&pool, activation, x, only(outputs)?)?)
    });
    Fixed {
        name: "activate",
        kernel: run,
    }
}

pub(super) fn gated(pool: &Arc<Pool>, label: Arc<str>, activation: Activation) -> Fixed {
    let pool = pool.clone();
    let run = kernel(label, move |inputs, outputs| {
        let (gate, up) = (floats(inputs, 0)?, floats(inputs, 1)?);
        Ok(kernels::gated(&pool, activation, gate, up, only(outputs)?)?)
    });
    Fixed {
        name: "gated",
        kernel: run,
    }
}

/// Softmax over rows of `width` numbers.
pub(super) fn softmax(pool: &Arc<Pool>, label: Arc<str>, width: usize) -> Fixed {
    let pool = pool.clone();
    let run = kernel(label, move |inputs, outputs| {
        let x = floats(inputs, 0)?;
        Ok(kernels::softmax(&pool, x, width, only(outputs)?)?)
    });
    Fixed {
        name: "softmax",
        kernel: run,
    }
}

/// The index of the largest of each row of `width` numbers.
pub(super) fn argmax(pool: &Arc<Pool>, label: Arc<str>, width: usize) -> Fixed {
    let pool = pool.clone();
    let run = kernel(label, move |inputs, outputs| {
        let x = floats(inputs, 0)?;
        match outputs {
            [output] => Ok(kernels::argmax(&pool, x, width, output.elements::<i32>()?)?),
            _ => Err("makes one result".into()),
        }
    });
    Fixed {
        name: "argmax",
        kernel: run,
    }
}
