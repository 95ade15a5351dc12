//! The left-hand side of a product, prepared once for all threads.

use crate::Error;
use crate::matrix::STEP;
use std::cell::RefCell;

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
}

thread_local! {
    static SPACE: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

impl Input<'_> {
    /// Prepares `x[rows, columns]` and hands it to `body`; with `lanes`, also pairs for vectors of
    /// that many numbers.
    pub(crate) fn with(
        lanes: Option<usize>,
        x: &[f32],
        rows: usize,
        columns: usize,
        body: impl FnOnce(&Input<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if rows == 0 {
            return Ok(());
        }
        let stride = columns.next_multiple_of(STEP);
        let mut space = SPACE.take();
        space.clear();
        if stride != columns {
            for row in x.chunks_exact(columns) {
                space.extend_from_slice(row);
                space.resize(space.len() + stride - columns, 0.0);
            }
        }
        let copied = space.len();
        if rows == 1 {
            let steps = stride / STEP;
            space.resize(copied + steps, 0.0);
            let (padded, sums) = space.split_at_mut(copied);
            let x = if copied == 0 { x } else { &*padded };
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
        let summed = space.len();
        if let (1, Some(lanes)) = (rows, lanes) {
            space.resize(summed + stride, 0.0);
            let (before, pairs) = space.split_at_mut(summed);
            pair(
                if copied == 0 { x } else { &before[..copied] },
                lanes,
                pairs,
            );
        }
        let result = body(&Input {
            x: if copied == 0 { x } else { &space[..copied] },
            rows,
            stride,
            sums: &space[copied..summed],
            pairs: &space[summed..],
        });
        SPACE.set(space);
        result
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
