//! The left-hand side of a product, prepared once for all threads.

use crate::matrix::STEP;
use crate::{Error, Form};
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
}

thread_local! {
    static SPACE: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

impl Input<'_> {
    /// Prepares `x[rows, columns]` and hands it to `body`.
    pub(crate) fn with(
        _form: Form,
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
        let (padded, sums) = space.split_at(copied);
        let result = body(&Input {
            x: if copied == 0 { x } else { padded },
            rows,
            stride,
            sums,
        });
        SPACE.set(space);
        result
    }
}
