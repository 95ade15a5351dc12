//! Products of a few rows of codes with one row of x.

use crate::matrix::{FLOAT, STEP, bits};
use crate::simd::Simd;

/// The stored codes of some rows, and their scales and biases.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) codes: *const u8,
    /// Bytes from one row's codes to the next.
    pub(crate) row_bytes: usize,
    /// Widened scales and biases, `groups` for each row; no biases of codes that are [`FLOAT`].
    pub(crate) scales: *const f32,
    pub(crate) biases: *const f32,
    pub(crate) groups: usize,
    /// Steps of 16 codes in a group.
    pub(crate) steps: usize,
}

/// Bytes between the codes that are multiplied and those that are asked for: memory's latency times
/// what a thread reads in it, a few times over.
pub(crate) const AHEAD: usize = 4096;

impl Rows {
    /// The rows from row `r` on.
    #[inline(always)]
    pub(crate) fn after(self, r: usize) -> Rows {
        Rows {
            codes: self.codes.wrapping_add(r * self.row_bytes),
            scales: self.scales.wrapping_add(r * self.groups),
            biases: self.biases.wrapping_add(r * self.groups),
            ..self
        }
    }
}

/// The products of `R` rows with x; `STEPS` is the number of steps in a group, or 0 if it is only
/// known at run time.
#[inline(always)]
pub(crate) unsafe fn dot<S: Simd, const CODE: usize, const R: usize, const STEPS: usize>(
    rows: Rows,
    x: *const f32,
    sums: *const f32,
) -> [f32; R] {
    let steps = if STEPS == 0 { rows.steps } else { STEPS };
    let mut codes = rows.codes;
    let mut x = x;
    // SAFETY: the pointers move over the codes of `R` rows, the scales of all groups and x.
    unsafe {
        let mut totals = [S::splat(0.0); R];
        let mut ahead = rows.codes.wrapping_add(AHEAD);
        for g in 0..rows.groups {
            let mut products = [S::splat(0.0); R];
            for _ in 0..steps {
                S::prefetch(ahead);
                ahead = ahead.wrapping_add(R * 2 * bits(CODE));
                for unit in 0..S::UNITS {
                    let x = S::load(x.add(unit * S::LANES));
                    for r in 0..R {
                        let codes = S::codes::<CODE>(codes.add(r * rows.row_bytes), unit);
                        products[r] = S::fma(codes, x, products[r]);
                    }
                }
                codes = codes.add(2 * bits(CODE));
                x = x.add(STEP);
            }
            for r in 0..R {
                let scale = S::splat(*rows.scales.add(r * rows.groups + g));
                totals[r] = S::fma(scale, products[r], totals[r]);
            }
        }
        finish::<S, CODE, R>(rows, totals, sums)
    }
}

/// As [`dot`] for codes of four bits, two in a byte; x as pairs ([`crate::input`]).
#[inline(always)]
pub(crate) unsafe fn dot_pairs<S: Simd, const R: usize, const STEPS: usize>(
    rows: Rows,
    pairs: *const f32,
    sums: *const f32,
) -> [f32; R] {
    let steps = if STEPS == 0 { rows.steps } else { STEPS };
    let mut codes = rows.codes;
    let mut pairs = pairs;
    // SAFETY: as in `dot`; a group has a multiple of `2 * LANES` codes.
    unsafe {
        let mut totals = [S::splat(0.0); R];
        let mut ahead = rows.codes.wrapping_add(AHEAD);
        for g in 0..rows.groups {
            let mut products = [S::splat(0.0); R];
            for _ in 0..steps * S::UNITS / 2 {
                // Together the rows' codes of one step are as many bytes as this moves on.
                S::prefetch(ahead);
                ahead = ahead.wrapping_add(R * S::LANES);
                let x_low = S::load(pairs);
                let x_byte = S::load(pairs.add(S::LANES));
                for r in 0..R {
                    let (low, byte) = S::nibbles(codes.add(r * rows.row_bytes));
                    products[r] = S::fma(low, x_low, products[r]);
                    products[r] = S::fma(byte, x_byte, products[r]);
                }
                codes = codes.add(S::LANES);
                pairs = pairs.add(2 * S::LANES);
            }
            for r in 0..R {
                let scale = S::splat(*rows.scales.add(r * rows.groups + g));
                totals[r] = S::fma(scale, products[r], totals[r]);
            }
        }
        finish::<S, 4, R>(rows, totals, sums)
    }
}

/// The sums of `totals` with the biases' part added.
#[inline(always)]
unsafe fn finish<S: Simd, const CODE: usize, const R: usize>(
    rows: Rows,
    totals: [S::V; R],
    sums: *const f32,
) -> [f32; R] {
    let mut totals = totals;
    if CODE >= FLOAT {
        let mut results = [0f32; R];
        for r in 0..R {
            // SAFETY: passed on.
            results[r] = unsafe { S::sum(totals[r]) };
        }
        return results;
    }
    // SAFETY: the rows have a bias for each group, and so have the sums.
    unsafe {
        let mut g = 0;
        while g + S::LANES <= rows.groups {
            let sum = S::load(sums.add(g));
            for r in 0..R {
                let bias = S::load(rows.biases.add(r * rows.groups + g));
                totals[r] = S::fma(bias, sum, totals[r]);
            }
            g += S::LANES;
        }
        let mut results = [0f32; R];
        for r in 0..R {
            let mut rest = 0.0;
            for g in g..rows.groups {
                rest += *rows.biases.add(r * rows.groups + g) * *sums.add(g);
            }
            results[r] = S::sum(totals[r]) + rest;
        }
        results
    }
}
