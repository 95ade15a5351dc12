//! Linear layers: `x · weightᵀ + bias` over any weight format, several at once.

use crate::activation::gate;
use crate::gemm::Gemm;
use crate::gemv::Gemv;
use crate::input::{Input, Prepared};
use crate::matrix::{Coded, Format};
use crate::{Error, Matrix, Pool, error, simd};
use mlxcel_ir::Activation;
use mlxcel_ir::weight::panel::PANEL;
use std::cell::RefCell;
use std::ops::Range;

/// Bytes of weights that one claim of a thread covers, at least and at most: a claim costs two threads
/// that meet at it more than 0.1 µs, in which one of them reads 3 kB.
const GRAIN_BYTES: [usize; 2] = [12 << 10, 128 << 10];
/// Claims of each thread in a matrix that is neither small nor large: with fewer, the last ones leave
/// a thread idle.
const CLAIMS: usize = 8;
/// The most rows of x that are multiplied straight from the quantised weights.
pub(crate) const GEMV_ROWS: usize = 4;
/// The same for panels, whose products cost less than making numbers of their codes.
pub(crate) const PANEL_ROWS: usize = 12;

/// One linear layer.
#[derive(Clone, Copy, Debug)]
pub struct Linear<'a> {
    /// The weight `[N, K]`.
    pub matrix: Matrix<'a>,
    /// The bias `[N]`.
    pub bias: Option<&'a [f32]>,
}

/// Where rows of a product go: element `(m, n)` at `m * stride + n`.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) to: *mut f32,
    pub(crate) stride: usize,
}

impl Target {
    /// Where element `(m, n)` goes.
    #[inline(always)]
    pub(crate) fn at(self, m: usize, n: usize) -> *mut f32 {
        self.to.wrapping_add(m * self.stride + n)
    }
}

// SAFETY: threads write disjoint columns of the slice that a target was made from.
unsafe impl Sync for Target {}
// SAFETY: as above.
unsafe impl Send for Target {}

thread_local! {
    /// Space that the products of a thread reuse.
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
    /// A thread's part of the up projection of a gated layer.
    static UPS: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Several layers over the same rows `x[M, K]`: `outs[i][M, N_i] = x · matrix_iᵀ + bias_i`.
///
/// # Errors
/// [`Error::Length`] if a slice does not fit the matrices, [`Error::Panic`] on a bug.
pub fn linear_group(
    pool: &Pool,
    x: &[f32],
    layers: &[Linear<'_>],
    outs: &mut [&mut [f32]],
) -> Result<(), Error> {
    error::length("outs", outs.len(), layers.len())?;
    let Some(first) = layers.first() else {
        return Ok(());
    };
    let columns = first.matrix.columns;
    let rows = row_count(x, columns)?;
    let mut parts = Vec::with_capacity(layers.len());
    let mut end = 0;
    for (layer, out) in layers.iter().zip(outs.iter_mut()) {
        check(layer, columns)?;
        error::length("an output of linear", out.len(), rows * layer.matrix.rows)?;
        let stride = layer.matrix.rows;
        let grain = grain(pool, &layer.matrix, rows);
        let first = end;
        end += stride.div_ceil(grain);
        let to = out.as_mut_ptr();
        parts.push((first, grain, layer, Target { to, stride }));
    }
    let prepared = prepared(pool, layers.iter().map(|layer| &layer.matrix));
    Input::with(prepared, x, rows, columns, |input| {
        pool.ranges(end, 1, |range| {
            for item in range {
                let part = parts.partition_point(|(first, ..)| *first <= item) - 1;
                let (first, grain, layer, target) = &parts[part];
                let range = row_range(item - first, *grain, layer.matrix.rows);
                // SAFETY: the form is the pool's; x and the output have the lengths checked above,
                // and no other item has these rows of the layer.
                unsafe { product(pool, input, layer, range, *target) };
            }
        })
    })
}

/// One layer: `out[M, N] = x · matrixᵀ + bias + residual`.
///
/// # Errors
/// As [`linear_group`].
pub fn linear(
    pool: &Pool,
    x: &[f32],
    layer: Linear<'_>,
    residual: Option<&[f32]>,
    out: &mut [f32],
) -> Result<(), Error> {
    let Some(residual) = residual else {
        return linear_group(pool, x, &[layer], &mut [out]);
    };
    let (width, columns) = (layer.matrix.rows, layer.matrix.columns);
    let rows = row_count(x, columns)?;
    check(&layer, columns)?;
    error::length("the output of linear", out.len(), rows * width)?;
    error::length("the residual of linear", residual.len(), rows * width)?;
    let grain = grain(pool, &layer.matrix, rows);
    let target = Target {
        to: out.as_mut_ptr(),
        stride: width,
    };
    let prepared = prepared(pool, [&layer.matrix]);
    Input::with(prepared, x, rows, columns, |input| {
        pool.ranges(width.div_ceil(grain), 1, |range| {
            for item in range {
                let range = row_range(item, grain, width);
                // SAFETY: as in `linear_group`; the sums stay inside the rows of this item.
                unsafe {
                    product(pool, input, &layer, range.clone(), target);
                    for m in 0..rows {
                        for n in range.clone() {
                            *target.at(m, n) += residual[m * width + n];
                        }
                    }
                }
            }
        })
    })
}

/// The two layers of a gated unit in one pass: `out[M, N] = activation(gate(x)) * up(x)`.
///
/// # Errors
/// As [`linear_group`]; gate and up must have the same shape.
pub fn gated_linear(
    pool: &Pool,
    x: &[f32],
    gate_layer: Linear<'_>,
    up_layer: Linear<'_>,
    activation: Activation,
    out: &mut [f32],
) -> Result<(), Error> {
    let (width, columns) = (gate_layer.matrix.rows, gate_layer.matrix.columns);
    let rows = row_count(x, columns)?;
    check(&gate_layer, columns)?;
    check(&up_layer, columns)?;
    error::length("the rows of up", up_layer.matrix.rows, width)?;
    error::length("the output of gated_linear", out.len(), rows * width)?;
    let grain = grain(pool, &gate_layer.matrix, rows);
    let target = Target {
        to: out.as_mut_ptr(),
        stride: width,
    };
    let prepared = prepared(pool, [&gate_layer.matrix, &up_layer.matrix]);
    Input::with(prepared, x, rows, columns, |input| {
        pool.ranges(width.div_ceil(grain), 1, |range| {
            for item in range {
                let range = row_range(item, grain, width);
                let part = range.len();
                let mut ups = UPS.take();
                if ups.len() < rows * part {
                    ups.resize(rows * part, 0.0);
                }
                // Row `range.start` of up goes to the start of its space.
                let to = ups.as_mut_ptr().wrapping_sub(range.start);
                let up = Target { to, stride: part };
                // SAFETY: as in `linear_group`; `up` covers rows * part numbers.
                unsafe {
                    product(pool, input, &gate_layer, range.clone(), target);
                    product(pool, input, &up_layer, range.clone(), up);
                    for m in 0..rows {
                        let to = target.at(m, range.start);
                        let up = &ups[m * part..][..part];
                        gate(pool.form(), activation, to, up.as_ptr(), to, part);
                    }
                }
                UPS.set(ups);
            }
        })
    })
}

/// Rows `range` of the layer's product with every row of the input.
///
/// # Safety
/// The pool's form is available, the input has the matrix's columns, and `target` may be written
/// at columns `range` for every row of the input.
pub(crate) unsafe fn product(
    pool: &Pool,
    input: &Input<'_>,
    layer: &Linear<'_>,
    range: Range<usize>,
    target: Target,
) {
    let Linear { matrix, bias } = *layer;
    // SAFETY: passed on.
    unsafe {
        if is_few(&matrix, input.rows) {
            let kernel = Gemv {
                matrix: &matrix,
                input,
                range: range.clone(),
                target,
            };
            simd::run(pool.form(), kernel);
        } else {
            let kernel = Gemm {
                matrix: &matrix,
                input,
                range: range.clone(),
                target,
            };
            simd::run(pool.form(), kernel);
        }
        if let Some(bias) = bias {
            for m in 0..input.rows {
                for n in range.clone() {
                    *target.at(m, n) += bias[n];
                }
            }
        }
    }
}

/// Takes the thread's scratch space, with at least `count` numbers; a second taker before it is
/// put back gets fresh memory.
pub(crate) fn take_scratch(count: usize) -> Vec<f32> {
    let mut space = SCRATCH.take();
    if space.len() < count {
        space.resize(count, 0.0);
    }
    space
}

/// Puts the scratch space back for the next taker.
pub(crate) fn put_scratch(space: Vec<f32>) {
    SCRATCH.with_borrow_mut(|kept| {
        if kept.len() < space.len() {
            *kept = space;
        }
    });
}

/// What an input must hold beside its rows for products with `matrices`.
pub(crate) fn prepared<'a>(
    pool: &Pool,
    matrices: impl IntoIterator<Item = &'a Matrix<'a>>,
) -> Prepared {
    let mut prepared = Prepared {
        form: pool.form(),
        pairs: false,
        digits: false,
    };
    for matrix in matrices {
        match matrix.format {
            Format::Coded(Coded { panels: true, .. }) => prepared.digits = true,
            Format::Coded(Coded { code: 4, .. }) => prepared.pairs = true,
            _ => {}
        }
    }
    prepared
}

fn row_count(x: &[f32], columns: usize) -> Result<usize, Error> {
    let rows = x.len() / columns;
    error::length("the input of linear", x.len(), rows * columns)?;
    Ok(rows)
}

fn check(layer: &Linear<'_>, columns: usize) -> Result<(), Error> {
    error::length("the columns of a matrix", layer.matrix.columns, columns)?;
    match layer.bias {
        Some(bias) => error::length("the bias", bias.len(), layer.matrix.rows),
        None => Ok(()),
    }
}

/// Whether `rows` rows of x are multiplied straight from the stored weights.
fn is_few(matrix: &Matrix<'_>, rows: usize) -> bool {
    let most = match matrix.format {
        Format::Coded(Coded { panels: true, .. }) => PANEL_ROWS,
        _ => GEMV_ROWS,
    };
    rows <= most
}

/// Rows of the matrix in one claim: a multiple of every form's block.
pub(crate) fn grain(pool: &Pool, matrix: &Matrix<'_>, rows: usize) -> usize {
    if !is_few(matrix, rows) {
        return 48;
    }
    let row = (matrix.bytes() / matrix.rows).max(1);
    let [least, most] = GRAIN_BYTES;
    let bytes = (matrix.bytes() / (pool.threads() * CLAIMS)).clamp(least, most);
    (bytes / row).next_multiple_of(PANEL).max(PANEL)
}

pub(crate) fn row_range(item: usize, grain: usize, rows: usize) -> Range<usize> {
    item * grain..rows.min((item + 1) * grain)
}
