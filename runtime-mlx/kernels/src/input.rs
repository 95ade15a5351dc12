//! The left-hand side of a product, prepared once for all threads.

use crate::digits::{COLUMNS, Digits, split};
use crate::linear::PANEL_ROWS;
use crate::matrix::STEP;
use crate::{Error, Form, simd};
use std::cell::RefCell;
use std::ops::Range;

/// Rows of x whose length is a multiple of [`STEP`], with what the kernels need to know of them.
pub(crate) struct Input<'a> {
    /// `rows * stride` numbers; columns beyond the matrix's are zero.
    pub(crate) x: &'a [f32],
    pub(crate) rows: usize,
    /// The matrix's columns rounded up to a multiple of [`STEP`].
    pub(crate) stride: usize,
    /// Of a single row, the sum of every [`STEP`] numbers; empty for more rows.
    pub(crate) sums: &'a [f32],
    /// Of a single row, what bytes of two 4-bit codes are multiplied with, if asked for; see
    /// [`pair`]. Otherwise empty.
    pub(crate) pairs: &'a [f32],
    /// Of a few rows, their digits, row after row, if asked for; otherwise empty.
    pub(crate) digits: &'a [Digits],
}

/// What an input holds beside its rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prepared {
    /// The form of the kernels that read it.
    pub(crate) form: Form,
    pub(crate) pairs: bool,
    pub(crate) digits: bool,
}

thread_local! {
    static SPACE: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
    static DIGITS: RefCell<Vec<Digits>> = const { RefCell::new(Vec::new()) };
}

/// Where the parts of an input lie.
struct Extent {
    /// Its rows in x.
    rows: Range<usize>,
    /// In the space: the rows made longer, or nothing; sums; pairs.
    padded: Range<usize>,
    sums: Range<usize>,
    pairs: Range<usize>,
    /// In the digits.
    digits: Range<usize>,
}

impl Input<'_> {
    /// Prepares `x[rows, columns]` and hands it to `body`.
    pub(crate) fn with(
        prepared: Prepared,
        x: &[f32],
        rows: usize,
        columns: usize,
        body: impl FnOnce(&Input<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match rows {
            0 => Ok(()),
            _ => Self::with_each(prepared, x, &[rows], columns, |inputs| body(&inputs[0])),
        }
    }

    /// The same for several inputs, which have `sizes` of the rows of x one after the other, none of
    /// them 0.
    pub(crate) fn with_each(
        prepared: Prepared,
        x: &[f32],
        sizes: &[usize],
        columns: usize,
        body: impl FnOnce(&[Input<'_>]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let stride = columns.next_multiple_of(STEP);
        let mut space = SPACE.take();
        space.clear();
        let mut digits = DIGITS.take();
        digits.clear();
        let mut extents = Vec::with_capacity(sizes.len());
        let mut end = 0;
        for &rows in sizes {
            let first = end;
            end += rows * columns;
            let mut extent = extent(prepared, x, first..end, [columns, stride], &mut space);
            if prepared.digits && rows <= PANEL_ROWS {
                let before = digits.len();
                digits.resize(before + rows * columns.div_ceil(COLUMNS), Digits::default());
                split(
                    prepared.form,
                    &x[first..end],
                    columns,
                    &mut digits[before..],
                );
                extent.digits = before..digits.len();
            }
            extents.push(extent);
        }
        let inputs: Vec<Input<'_>> = extents
            .into_iter()
            .zip(sizes)
            .map(|(extent, &rows)| Input {
                x: match extent.padded.is_empty() {
                    true => &x[extent.rows],
                    false => &space[extent.padded],
                },
                rows,
                stride,
                sums: &space[extent.sums],
                pairs: &space[extent.pairs],
                digits: &digits[extent.digits],
            })
            .collect();
        let result = body(&inputs);
        SPACE.set(space);
        DIGITS.set(digits);
        result
    }
}

/// Adds what is made of the numbers `range` of x to `space`.
fn extent(
    prepared: Prepared,
    x: &[f32],
    range: Range<usize>,
    [columns, stride]: [usize; 2],
    space: &mut Vec<f32>,
) -> Extent {
    let x = &x[range.clone()];
    let start = space.len();
    if stride != columns {
        for row in x.chunks_exact(columns) {
            space.extend_from_slice(row);
            space.resize(space.len() + stride - columns, 0.0);
        }
    }
    let padded = start..space.len();
    let one = x.len() == columns;
    if one {
        space.resize(padded.end + stride / STEP, 0.0);
        let (before, sums) = space.split_at_mut(padded.end);
        let x = if padded.is_empty() {
            x
        } else {
            &before[padded.clone()]
        };
        for (sum, step) in sums.iter_mut().zip(x.chunks_exact(STEP)) {
            let mut lanes = [0f32; 4];
            for four in step.chunks_exact(4) {
                for (lane, value) in lanes.iter_mut().zip(four) {
                    *lane += value;
                }
            }
            *sum = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
        }
    }
    let sums = padded.end..space.len();
    if one && prepared.pairs {
        let lanes = simd::lanes(prepared.form);
        space.resize(sums.end + stride, 0.0);
        let (before, pairs) = space.split_at_mut(sums.end);
        let x = if padded.is_empty() {
            x
        } else {
            &before[padded.clone()]
        };
        pair(x, lanes, pairs);
    }
    Extent {
        rows: range,
        padded,
        pairs: sums.end..space.len(),
        sums,
        digits: 0..0,
    }
}

/// A byte `b` holds the codes `low` and `high = (b - low) / 16`. Their product with two numbers is
/// `low * (x0 - x1 / 16) + b * x1 / 16`: both factors come from the byte with one mask and without
/// a shift. For every `2 * lanes` numbers these are `lanes` factors of low codes, then `lanes`
/// factors of bytes.
fn pair(x: &[f32], lanes: usize, pairs: &mut [f32]) {
    let steps = x.chunks(2 * lanes).zip(pairs.chunks_mut(2 * lanes));
    for (x, pairs) in steps {
        let (low, bytes) = pairs.split_at_mut(x.len() / 2);
        for ((x, low), byte) in x.chunks_exact(2).zip(low).zip(bytes) {
            *byte = x[1] * 0.0625;
            *low = x[0] - *byte;
        }
    }
}
