//! Products with many rows of x: panels of the weight are dequantised into the cache, and blocks of
//! rows of x and of the panel are multiplied in registers, along K.

use crate::input::Input;
use crate::linear::{Target, put_scratch, take_scratch};
use crate::matrix::{Format, Matrix, STEP};
use crate::simd::{Kernel, Simd};
use crate::widen;
use std::ops::Range;

/// The most columns of a panel, so that a block of rows of x stays in the first-level cache.
const PANEL_COLUMNS: usize = 1024;
/// Numbers between the rows of a panel, so that they do not fall on the same cache sets.
const GAP: usize = 16;

/// Rows `range` of the matrix times every row of the input.
///
/// Safe to run if the input has the matrix's columns, the range lies in the matrix and the target
/// may be written there.
pub(crate) struct Gemm<'a> {
    pub(crate) matrix: &'a Matrix<'a>,
    pub(crate) input: &'a Input<'a>,
    pub(crate) range: Range<usize>,
    pub(crate) target: Target,
}

/// Some columns of the rows in `range`, as numbers.
#[derive(Clone, Copy)]
struct Panel {
    numbers: *const f32,
    stride: usize,
    /// The first column in the matrix.
    first: usize,
    /// Columns, rounded up to a multiple of [`STEP`] with zeros.
    columns: usize,
}

impl Kernel for Gemm<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: passed on.
        unsafe {
            match S::BLOCK {
                (4, 6) => self.panels::<S, 4, 6>(),
                (4, 3) => self.panels::<S, 4, 3>(),
                _ => self.panels::<S, 2, 2>(),
            }
        }
    }
}

impl Gemm<'_> {
    #[inline(always)]
    unsafe fn panels<S: Simd, const MR: usize, const NR: usize>(&self) {
        let columns = self.matrix.columns;
        // A panel takes whole groups.
        let group = match self.matrix.format {
            Format::Dense { .. } => STEP,
            Format::Coded(coded) => coded.group,
        };
        let most = (PANEL_COLUMNS / group * group).max(group);
        let stride = most.min(columns.next_multiple_of(STEP)) + GAP;
        let count = self.range.len();
        let mut scratch = take_scratch(count * stride + 2 * (most / group));
        let numbers = scratch.as_mut_ptr();
        let mut first = 0;
        while first < columns {
            let width = most.min(columns - first);
            let padded = width.next_multiple_of(STEP);
            // SAFETY: the scratch covers `count` rows of `stride` numbers and the scales and biases
            // of `most` columns.
            unsafe {
                let side = numbers.add(count * stride);
                for n in 0..count {
                    let to = numbers.add(n * stride);
                    widen::row::<S>(self.matrix, self.range.start + n, first, width, to, side);
                    for k in width..padded {
                        *to.add(k) = 0.0;
                    }
                }
                let panel = Panel {
                    numbers,
                    stride,
                    first,
                    columns: padded,
                };
                self.product::<S, MR, NR>(panel);
            }
            first += width;
        }
        put_scratch(scratch);
    }

    /// Every row of x times the panel.
    #[inline(always)]
    unsafe fn product<S: Simd, const MR: usize, const NR: usize>(&self, panel: Panel) {
        let rows = self.input.rows;
        let mut m = 0;
        // SAFETY: passed on.
        unsafe {
            while m + MR <= rows {
                self.block::<S, MR, NR>(panel, m);
                m += MR;
            }
            while m + 2 <= rows {
                self.block::<S, 2, NR>(panel, m);
                m += 2;
            }
            while m < rows {
                self.block::<S, 1, NR>(panel, m);
                m += 1;
            }
        }
    }

    /// `MR` rows of x from row `m` on times the panel.
    #[inline(always)]
    unsafe fn block<S: Simd, const MR: usize, const NR: usize>(&self, panel: Panel, m: usize) {
        let count = self.range.len();
        let mut n = 0;
        // SAFETY: passed on.
        unsafe {
            while n + NR <= count {
                self.tile::<S, MR, NR>(panel, m, n);
                n += NR;
            }
            while n < count {
                self.tile::<S, MR, 1>(panel, m, n);
                n += 1;
            }
        }
    }

    /// `MR` rows of x times `NR` rows of the panel, in registers.
    #[inline(always)]
    unsafe fn tile<S: Simd, const MR: usize, const NR: usize>(
        &self,
        panel: Panel,
        m: usize,
        n: usize,
    ) {
        let x_stride = self.input.stride;
        // SAFETY: x and the panel have the rows and columns read, the target those written.
        unsafe {
            let x = self.input.x.as_ptr().add(m * x_stride + panel.first);
            let weights = panel.numbers.add(n * panel.stride);
            let mut sums = [[S::splat(0.0); MR]; NR];
            let mut k = 0;
            while k < panel.columns {
                let mut weight = [S::splat(0.0); NR];
                for j in 0..NR {
                    weight[j] = S::load(weights.add(j * panel.stride + k));
                }
                for i in 0..MR {
                    let x = S::load(x.add(i * x_stride + k));
                    for j in 0..NR {
                        sums[j][i] = S::fma(x, weight[j], sums[j][i]);
                    }
                }
                k += S::LANES;
            }
            for j in 0..NR {
                let to = self.target.at(m, self.range.start + n + j);
                let mut results = [0f32; MR];
                if MR == 4 {
                    let four = S::sums([
                        sums[j][0],
                        sums[j][1 % MR],
                        sums[j][2 % MR],
                        sums[j][3 % MR],
                    ]);
                    for i in 0..MR {
                        results[i] = four[i % 4];
                    }
                } else {
                    for i in 0..MR {
                        results[i] = S::sum(sums[j][i]);
                    }
                }
                for i in 0..MR {
                    let to = to.wrapping_add(i * self.target.stride);
                    if panel.first == 0 {
                        *to = results[i];
                    } else {
                        *to += results[i];
                    }
                }
            }
        }
    }
}
