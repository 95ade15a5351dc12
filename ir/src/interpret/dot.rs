//! Contraction: the one primitive that takes time.

use super::Float;
use super::tensor::{Tensor, strided, strides};
use rayon::prelude::*;
use std::borrow::Cow;

/// Rows of `rhs` that one task keeps in its cache while it goes over the rows of `lhs`.
const BLOCK: usize = 32;

/// The operand with its dimensions in the order batch, free, contracted, and the sizes of these.
struct Arranged<'a, F: Float> {
    elements: Cow<'a, [F]>,
    batch: Vec<usize>,
    free: Vec<usize>,
    contracted: usize,
}

fn arrange<'a, F: Float>(
    tensor: &'a Tensor<F>,
    batch: &[usize],
    contract: &[usize],
) -> Result<Arranged<'a, F>, String> {
    let free: Vec<usize> = (0..tensor.shape.len())
        .filter(|dim| !batch.contains(dim) && !contract.contains(dim))
        .collect();
    let order: Vec<usize> = batch.iter().chain(&free).chain(contract).copied().collect();
    let elements = tensor.floats()?;
    let sizes = |dims: &[usize]| {
        dims.iter()
            .map(|&dim| tensor.shape[dim])
            .collect::<Vec<_>>()
    };
    let in_place = order.iter().copied().eq(0..order.len());
    Ok(Arranged {
        elements: match in_place {
            true => Cow::Borrowed(elements),
            false => {
                let natural = strides(&tensor.shape);
                let strides: Vec<usize> = order.iter().map(|&dim| natural[dim]).collect();
                Cow::Owned(strided(elements, &sizes(&order), &strides, 0))
            }
        },
        batch: sizes(batch),
        free: sizes(&free),
        contracted: sizes(contract).iter().product(),
    })
}

/// See the op `dot`.
pub(super) fn dot<F: Float>(
    lhs: &Tensor<F>,
    rhs: &Tensor<F>,
    (lhs_batch, rhs_batch): (&[usize], &[usize]),
    (lhs_contract, rhs_contract): (&[usize], &[usize]),
) -> Result<Tensor<F>, String> {
    let left = arrange(lhs, lhs_batch, lhs_contract)?;
    let right = arrange(rhs, rhs_batch, rhs_contract)?;
    let length = left.contracted;
    let (rows, columns): (usize, usize) = (left.free.iter().product(), right.free.iter().product());
    let batches: usize = left.batch.iter().product();
    let shape = [left.batch, left.free, right.free].concat();
    let mut result = vec![F::default(); batches * rows * columns];
    if length > 0 && !result.is_empty() {
        let blocks = columns.div_ceil(BLOCK);
        let computed: Vec<Vec<F>> = (0..batches * blocks)
            .into_par_iter()
            .map(|task| {
                let (batch, first) = (task / blocks, task % blocks * BLOCK);
                let last = columns.min(first + BLOCK);
                let lhs = &left.elements[batch * rows * length..][..rows * length];
                let rhs = &right.elements[(batch * columns + first) * length..]
                    [..(last - first) * length];
                lhs.chunks_exact(length)
                    .flat_map(|row| rhs.chunks_exact(length).map(|other| F::product(row, other)))
                    .collect()
            })
            .collect();
        for (task, block) in computed.iter().enumerate() {
            let (batch, first) = (task / blocks, task % blocks * BLOCK);
            let width = columns.min(first + BLOCK) - first;
            for (row, part) in block.chunks_exact(width).enumerate() {
                let at = (batch * rows + row) * columns + first;
                result[at..at + width].copy_from_slice(part);
            }
        }
    }
    Ok(Tensor::float(lhs.dtype, shape, result))
}
