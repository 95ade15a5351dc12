//! General contraction by MLX's batched matrix product.

use crate::fail::Fail;
use crate::weight::dims;
use mlxcel_mlx_sys::{Array, Stream, ops};

/// A tensor, its batch dimensions and its contracted ones.
type Side<'a> = (&'a Array, &'a [usize], &'a [usize]);

/// Sums of products, with the dimensions in the order of [`mlxcel_ir::Op::Dot`].
pub(super) fn record(
    (lhs, lhs_batch, lhs_contract): Side<'_>,
    (rhs, rhs_batch, rhs_contract): Side<'_>,
    shape: &[i32],
    stream: &Stream,
) -> Result<Array, Fail> {
    let lhs_free = free(lhs, lhs_batch, lhs_contract);
    let rhs_free = free(rhs, rhs_batch, rhs_contract);
    let lhs = matrices(lhs, [lhs_batch, &lhs_free, lhs_contract], stream)?;
    let rhs = matrices(rhs, [rhs_batch, rhs_contract, &rhs_free], stream)?;
    let product = ops::matmul(&lhs, &rhs, stream)?;
    Ok(ops::reshape(&product, shape, stream)?)
}

fn free(x: &Array, batch: &[usize], contract: &[usize]) -> Vec<usize> {
    (0..x.shape().len())
        .filter(|dim| !batch.contains(dim) && !contract.contains(dim))
        .collect()
}

/// `x` with its dimensions in three groups, each made one dimension.
fn matrices(x: &Array, groups: [&[usize]; 3], stream: &Stream) -> Result<Array, Fail> {
    let size = |group: &[usize]| group.iter().map(|&dim| x.shape()[dim]).product::<i32>();
    let shape = groups.map(size);
    let permutation = dims(&groups.concat())?;
    let moved = ops::transpose(x, &permutation, stream)?;
    Ok(ops::reshape(&moved, &shape, stream)?)
}
