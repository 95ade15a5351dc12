//! Products with up to four rows of x, straight from the stored weights: bound by memory.

use crate::dot::{AHEAD, Rows, dot, dot_pairs};
use crate::input::Input;
use crate::linear::{Target, put_scratch, take_scratch};
use crate::matrix::{Coded, Element, FLOAT, Format, Matrix, STEP, bits, for_code};
use crate::panel;
use crate::simd::{Kernel, Simd};
use crate::widen::{load, one};
use std::ops::Range;

/// Rows whose scales are widened together.
const BLOCK: usize = 8;

/// Rows `range` of the matrix times every row of the input.
///
/// Safe to run if the input has the matrix's columns and at most [`crate::linear::GEMV_ROWS`] rows,
/// the range lies in the matrix and the target may be written there.
pub(crate) struct Gemv<'a> {
    pub(crate) matrix: &'a Matrix<'a>,
    pub(crate) input: &'a Input<'a>,
    pub(crate) range: Range<usize>,
    pub(crate) target: Target,
}

impl Kernel for Gemv<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: passed on.
        unsafe {
            match self.matrix.format {
                Format::Dense { element, .. } => match element {
                    Element::F32 => self.dense::<S, { Element::F32 as u8 }>(),
                    Element::F16 => self.dense::<S, { Element::F16 as u8 }>(),
                    _ => self.dense::<S, { Element::BF16 as u8 }>(),
                },
                Format::Coded(coded) if coded.panels => {
                    let Gemv {
                        matrix,
                        input,
                        range,
                        target,
                    } = self;
                    panel::product::<S>(matrix, coded, input, range, target);
                }
                Format::Coded(coded) => {
                    for_code!(coded.code, CODE => self.coded::<S, CODE>(coded))
                }
            }
        }
    }
}

impl Gemv<'_> {
    #[inline(always)]
    unsafe fn coded<S: Simd, const CODE: usize>(&self, coded: Coded<'_>) {
        let Coded {
            group,
            codes,
            sides,
            ..
        } = coded;
        let columns = self.matrix.columns;
        let groups = columns / group;
        let steps = group / STEP;
        let row_bytes = columns * bits(CODE) / 8;
        let mut scratch = take_scratch((2 * BLOCK + 1) * groups);
        // SAFETY: the parts of the matrix cover its rows, the scratch covers a block's scales,
        // biases and the sums of x, and the target is the caller's promise.
        unsafe {
            let wide_scales = scratch.as_mut_ptr();
            let wide_biases = wide_scales.add(BLOCK * groups);
            let sums = wide_biases.add(BLOCK * groups);
            if self.input.rows == 1 {
                for g in 0..groups {
                    let mut sum = 0.0;
                    for step in 0..steps {
                        sum += *self.input.sums.get_unchecked(g * steps + step);
                    }
                    *sums.add(g) = sum;
                }
            }
            let mut first = self.range.start;
            while first < self.range.end {
                let count = BLOCK.min(self.range.end - first);
                sides.prefetch::<S>(first + BLOCK..first + 2 * BLOCK, groups);
                let to = (wide_scales, wide_biases);
                sides.widen::<S>(first, groups, 0, count * groups, to);
                let rows = Rows {
                    codes: codes.as_ptr().add(first * row_bytes),
                    row_bytes,
                    scales: wide_scales,
                    biases: wide_biases,
                    groups,
                    steps,
                };
                match self.input.rows {
                    1 => self.single::<S, CODE>(rows, first, count, sums),
                    2 => self.several::<S, CODE, 2>(rows, first, count),
                    3 => self.several::<S, CODE, 3>(rows, first, count),
                    _ => self.several::<S, CODE, 4>(rows, first, count),
                }
                first += count;
            }
        }
        put_scratch(scratch);
    }

    /// One row of x: `sum over groups of scale * (codes · x) + bias * sum(x)`.
    #[inline(always)]
    unsafe fn single<S: Simd, const CODE: usize>(
        &self,
        rows: Rows,
        first: usize,
        count: usize,
        sums: *const f32,
    ) {
        let x = self.input.x.as_ptr();
        let mut r = 0;
        // SAFETY: passed on.
        unsafe {
            while r + 4 <= count {
                let part = rows.after(r);
                let results = if CODE == 4 && rows.steps.is_multiple_of(2 / S::UNITS) {
                    let pairs = self.input.pairs.as_ptr();
                    match rows.steps {
                        2 => dot_pairs::<S, 4, 2>(part, pairs, sums),
                        4 => dot_pairs::<S, 4, 4>(part, pairs, sums),
                        _ => dot_pairs::<S, 4, 0>(part, pairs, sums),
                    }
                } else {
                    match rows.steps {
                        2 => dot::<S, CODE, 4, 2>(part, x, sums),
                        4 => dot::<S, CODE, 4, 4>(part, x, sums),
                        _ => dot::<S, CODE, 4, 0>(part, x, sums),
                    }
                };
                for (i, result) in results.iter().enumerate() {
                    *self.target.at(0, first + r + i) = *result;
                }
                r += 4;
            }
            while r < count {
                let [result] = dot::<S, CODE, 1, 0>(rows.after(r), x, sums);
                *self.target.at(0, first + r) = result;
                r += 1;
            }
        }
    }

    /// `M` rows of x times `count` rows of the weight.
    #[inline(always)]
    unsafe fn several<S: Simd, const CODE: usize, const M: usize>(
        &self,
        rows: Rows,
        first: usize,
        count: usize,
    ) {
        let mut r = 0;
        // SAFETY: passed on.
        unsafe {
            while r + 2 <= count {
                let part = rows.after(r);
                self.few::<S, CODE, M, 2>(part, first + r);
                r += 2;
            }
            if r < count {
                self.few::<S, CODE, M, 1>(rows.after(r), first + r);
            }
        }
    }

    /// `M` rows of x times `R` rows of the weight, each of its numbers dequantised once.
    #[inline(always)]
    unsafe fn few<S: Simd, const CODE: usize, const M: usize, const R: usize>(
        &self,
        rows: Rows,
        n: usize,
    ) {
        let stride = self.input.stride;
        let mut codes = rows.codes;
        let mut ahead = codes.wrapping_add(AHEAD);
        let mut x = self.input.x.as_ptr();
        // SAFETY: passed on.
        unsafe {
            let mut sums = [[S::splat(0.0); M]; R];
            for g in 0..rows.groups {
                let mut scales = [S::splat(0.0); R];
                let mut biases = [S::splat(0.0); R];
                for r in 0..R {
                    scales[r] = S::splat(*rows.scales.add(r * rows.groups + g));
                    if CODE < FLOAT {
                        biases[r] = S::splat(*rows.biases.add(r * rows.groups + g));
                    }
                }
                for _ in 0..rows.steps {
                    S::prefetch(ahead);
                    ahead = ahead.wrapping_add(R * 2 * bits(CODE));
                    for unit in 0..S::UNITS {
                        let mut weights = [S::splat(0.0); R];
                        for r in 0..R {
                            let codes = S::codes::<CODE>(codes.add(r * rows.row_bytes), unit);
                            weights[r] = match CODE < FLOAT {
                                true => S::fma(codes, scales[r], biases[r]),
                                false => S::mul(codes, scales[r]),
                            };
                        }
                        for m in 0..M {
                            let x = S::load(x.add(m * stride + unit * S::LANES));
                            for r in 0..R {
                                sums[r][m] = S::fma(weights[r], x, sums[r][m]);
                            }
                        }
                    }
                    codes = codes.add(2 * bits(CODE));
                    x = x.add(STEP);
                }
            }
            for r in 0..R {
                for m in 0..M {
                    *self.target.at(m, n + r) = S::sum(sums[r][m]);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn dense<S: Simd, const E: u8>(&self) {
        let mut n = self.range.start;
        // SAFETY: passed on.
        unsafe {
            if self.input.rows == 1 {
                while n + 4 <= self.range.end {
                    self.dense_rows::<S, E, 4, 1>(n);
                    n += 4;
                }
            }
            while n < self.range.end {
                match self.input.rows {
                    1 => self.dense_rows::<S, E, 1, 1>(n),
                    2 => self.dense_rows::<S, E, 1, 2>(n),
                    3 => self.dense_rows::<S, E, 1, 3>(n),
                    _ => self.dense_rows::<S, E, 1, 4>(n),
                }
                n += 1;
            }
        }
    }

    /// `R` rows of a dense matrix from row `n` on, times `M` rows of x.
    #[inline(always)]
    unsafe fn dense_rows<S: Simd, const E: u8, const R: usize, const M: usize>(&self, n: usize) {
        let Format::Dense { element, values } = self.matrix.format else {
            return;
        };
        let (columns, stride) = (self.matrix.columns, self.input.stride);
        let size = element.size();
        let x = self.input.x.as_ptr();
        // SAFETY: the columns read are below the matrix's, the rows inside of the range.
        unsafe {
            let from = values.as_ptr().add(n * columns * size);
            let mut sums = [[[S::splat(0.0); 2]; M]; R];
            let mut k = 0;
            while k + 2 * S::LANES <= columns {
                for half in 0..2 {
                    let k = k + half * S::LANES;
                    for r in 0..R {
                        let weight = load::<S, E>(from.add((r * columns + k) * size));
                        for m in 0..M {
                            let x = S::load(x.add(m * stride + k));
                            sums[r][m][half] = S::fma(weight, x, sums[r][m][half]);
                        }
                    }
                }
                k += 2 * S::LANES;
            }
            for r in 0..R {
                for m in 0..M {
                    let mut sum = S::sum(S::add(sums[r][m][0], sums[r][m][1]));
                    for k in k..columns {
                        sum += one(element, from.add((r * columns + k) * size))
                            * *x.add(m * stride + k);
                    }
                    *self.target.at(m, n + r) = sum;
                }
            }
        }
    }
}
