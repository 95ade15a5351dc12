//! From the bytes of a weight to those of one made from it.

use super::Words;
use super::spelling::{Slice, Step};
use mlxcel_ir::{WeightDecl, WeightFormat};
use rayon::prelude::*;

/// One part of a weight: its values, scales or biases.
pub(crate) enum Part<'a> {
    /// Bytes that are there.
    Kept(&'a [u8]),
    /// Bytes that had to be made.
    Made(Words),
}

impl Part<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Part::Kept(bytes) => bytes,
            Part::Made(words) => words.bytes(),
        }
    }
}

/// Dimensions from the end that the format treats as a unit: they can be neither cut nor reshaped.
fn unit(format: WeightFormat) -> usize {
    match format {
        WeightFormat::Dense(_) => 0,
        // Scales stand for blocks of rows and columns.
        WeightFormat::Fp8Block { .. } => 2,
        // Codes and groups run along the last dimension.
        _ => 1,
    }
}

/// The shape that `step` makes of the weight `base`.
///
/// # Errors
/// Why it cannot be applied.
pub(crate) fn shape(base: &WeightDecl, step: &Step) -> Result<Vec<usize>, String> {
    let WeightDecl { shape, format, .. } = base;
    let rank = shape.len();
    let refuse = |what: &str| {
        let name = &base.name;
        Err(format!(
            "`{name}` of shape {shape:?} stored as {format} {what}"
        ))
    };
    match step {
        Step::Transpose => match (rank, format) {
            (2.., WeightFormat::Dense(_)) => {
                let mut shape = shape.clone();
                shape.swap(rank - 1, rank - 2);
                Ok(shape)
            }
            _ => refuse("cannot be transposed"),
        },
        Step::Reshape(wanted) => {
            let unit = unit(*format);
            let elements = wanted
                .iter()
                .try_fold(1usize, |product, &dim| product.checked_mul(dim));
            let kept = wanted.len() >= unit
                && rank >= unit
                && wanted[wanted.len() - unit..] == shape[rank - unit..];
            match elements == Some(base.elements()) && kept {
                true => Ok(wanted.clone()),
                false => refuse(&format!("cannot take shape {wanted:?}")),
            }
        }
        Step::Slice(slice) => {
            if slice.axis >= rank.saturating_sub(unit(*format)) {
                return refuse(&format!("cannot be cut along dimension {}", slice.axis));
            }
            if slice.range.end > shape[slice.axis] {
                return refuse(&format!("has no {}", Step::Slice(slice.clone())));
            }
            let mut shape = shape.clone();
            shape[slice.axis] = slice.count();
            Ok(shape)
        }
    }
}

/// The parts that `step` makes of `parts`, those of `base`; [`shape`] must have allowed it.
pub(crate) fn parts<'a>(base: &WeightDecl, step: &Step, parts: [Part<'a>; 3]) -> [Part<'a>; 3] {
    match step {
        Step::Reshape(_) => parts,
        Step::Transpose => {
            let size = match base.format {
                WeightFormat::Dense(dtype) => dtype.size(),
                _ => return parts,
            };
            let rank = base.shape.len();
            let matrix = [base.shape[rank - 2], base.shape[rank - 1]];
            parts.map(|part| Part::Made(transpose(part.bytes(), matrix, size)))
        }
        Step::Slice(slice) => {
            let outer = base.shape[..slice.axis].iter().product();
            let size = base.shape[slice.axis];
            parts.map(|part| cut(part, slice, outer, size))
        }
    }
}

/// Of `outer` times `size` equal pieces of `part`, those that `slice` picks of each `size`.
fn cut<'a>(part: Part<'a>, slice: &Slice, outer: usize, size: usize) -> Part<'a> {
    let piece = part.bytes().len() / (outer * size).max(1);
    let within = |run: std::ops::Range<usize>| run.start * piece..run.end * piece;
    if let (1, true, Part::Kept(bytes)) = (outer, slice.is_contiguous(), &part) {
        return Part::Kept(&bytes[within(slice.range.clone())]);
    }
    let mut picked = Words::zeros(outer * slice.count() * piece);
    if picked.bytes().is_empty() {
        return Part::Made(picked);
    }
    picked
        .bytes_mut()
        .par_chunks_mut(slice.count() * piece)
        .zip(part.bytes().par_chunks(size * piece))
        .for_each(|(to, from)| {
            let mut filled = 0;
            for run in slice.runs() {
                let bytes = &from[within(run)];
                to[filled..filled + bytes.len()].copy_from_slice(bytes);
                filled += bytes.len();
            }
        });
    Part::Made(picked)
}

/// Matrices `[rows, columns]` of elements of `size` bytes, each transposed.
fn transpose(bytes: &[u8], [rows, columns]: [usize; 2], size: usize) -> Words {
    /// Rows of the result that are made together, so that each line of the source that is read
    /// gives more than one element.
    const TILE: usize = 32;
    let mut turned = Words::zeros(bytes.len());
    let (matrix, row) = (rows * columns * size, rows * size);
    if matrix == 0 {
        return turned;
    }
    let matrices = turned.bytes_mut().chunks_mut(matrix);
    for (turned, bytes) in matrices.zip(bytes.chunks(matrix)) {
        let tiles = turned.par_chunks_mut(row * TILE).enumerate();
        tiles.for_each(|(tile, to)| {
            let count = to.len() / row;
            for (index, line) in bytes.chunks_exact(columns * size).enumerate() {
                let line = &line[tile * TILE * size..][..count * size];
                for (column, element) in line.chunks_exact(size).enumerate() {
                    to[column * row + index * size..][..size].copy_from_slice(element);
                }
            }
        });
    }
    turned
}
