//! Products of a few rows of x with panels of rows ([`mlxcel_ir::weight::panel`]): codes times digits
//! of x ([`crate::digits`]), whole numbers until a group's scale.

use crate::digits::{COLUMNS, Digits, PLACES};
use crate::dot::AHEAD;
use crate::input::Input;
use crate::linear::Target;
use crate::matrix::{Coded, Element, Matrix};
use crate::sides::Sides;
use crate::simd::Simd;
use crate::widen::{load, one};
use mlxcel_ir::weight::panel::PANEL;
use std::ops::Range;

/// Bytes of codes of a panel's [`COLUMNS`].
const BLOCK: usize = PANEL * COLUMNS / 2;
/// Bytes of a line of the cache.
const LINE: usize = 64;

/// A matrix of panels, taken apart.
#[derive(Clone, Copy)]
struct Panels<'a> {
    codes: &'a [u8],
    columns: usize,
    /// [`COLUMNS`] that share a scale, in units of them.
    shared: usize,
    scales: &'a [u8],
    /// Empty where a zero point takes their place.
    biases: &'a [u8],
    zero: i32,
}

/// Rows `range` of the matrix times every row of the input.
///
/// # Safety
/// As for [`crate::gemv::Gemv`], with digits in the input.
#[inline(always)]
pub(crate) unsafe fn product<S: Simd>(
    matrix: &Matrix<'_>,
    coded: Coded<'_>,
    input: &Input<'_>,
    range: Range<usize>,
    target: Target,
) {
    let (element, scales, biases, zero) = match coded.sides {
        Sides::Pairs {
            element,
            scales,
            biases,
        } => (element, scales, biases, 0),
        Sides::ZeroPoint {
            element,
            scales,
            below,
        } => (element, scales, &[][..], -below as i32),
        // No other sides stand in panels.
        _ => return,
    };
    let panels = Panels {
        codes: coded.codes,
        columns: matrix.columns,
        shared: coded.group / COLUMNS,
        scales,
        biases,
        zero,
    };
    // SAFETY: passed on.
    unsafe {
        match element {
            Element::F32 => panels.times::<S, { Element::F32 as u8 }>(4, input, range, target),
            Element::F16 => panels.times::<S, { Element::F16 as u8 }>(2, input, range, target),
            _ => panels.times::<S, { Element::BF16 as u8 }>(2, input, range, target),
        }
    }
}

impl Panels<'_> {
    #[inline(always)]
    unsafe fn times<S: Simd, const E: u8>(
        self,
        size: usize,
        input: &Input<'_>,
        range: Range<usize>,
        target: Target,
    ) {
        let blocks = self.columns / COLUMNS;
        let mut panel = range.start / PANEL;
        // SAFETY: panels of rows in the range lie in the matrix, and the input has `blocks` digits for
        // each of its rows.
        unsafe {
            while panel * PANEL < range.end {
                let first = panel * PANEL;
                for m in 0..input.rows {
                    let digits = input.digits.as_ptr().add(m * blocks);
                    let totals = self.panel::<S, E>(size, panel, digits, m == 0);
                    let mut sums = [0f32; PANEL];
                    S::store(sums.as_mut_ptr(), totals[0]);
                    if S::UNITS == 2 {
                        S::store(sums.as_mut_ptr().add(S::LANES), totals[1]);
                    }
                    let (from, to) = (range.start.max(first), range.end.min(first + PANEL));
                    let source = sums.as_ptr().add(from - first);
                    std::ptr::copy_nonoverlapping(source, target.at(m, from), to - from);
                }
                panel += 1;
            }
        }
    }

    /// The products of one panel with one row of x.
    #[inline(always)]
    unsafe fn panel<S: Simd, const E: u8>(
        self,
        size: usize,
        panel: usize,
        digits: *const Digits,
        ask: bool,
    ) -> [S::V; 2] {
        let blocks = self.columns / COLUMNS;
        let groups = blocks / self.shared;
        let mut digits = digits;
        // SAFETY: the parts cover the panel, whose groups have `shared` blocks each.
        unsafe {
            let mut codes = self.codes.as_ptr().add(panel * blocks * BLOCK);
            let side = panel * groups * PANEL * size;
            let mut scales = self.scales.as_ptr().add(side);
            let mut biases = self.biases.as_ptr().wrapping_add(side);
            let mut totals = [S::splat(0.0); 2];
            for _ in 0..groups {
                if ask {
                    S::prefetch(scales.wrapping_add(AHEAD / 4));
                }
                for _ in 0..self.shared {
                    if ask {
                        for line in 0..BLOCK / LINE {
                            S::prefetch(codes.wrapping_add(AHEAD + line * LINE));
                        }
                    }
                    let sums = &(*digits).sums;
                    let mut start = [0i32; PLACES];
                    for place in 0..PLACES {
                        start[place] = -self.zero * sums[place];
                    }
                    let places = (*digits).places.as_ptr().cast();
                    let products = S::panel(codes, places, start.as_ptr());
                    let scale = S::splat((*digits).scale);
                    let total = S::splat((*digits).total);
                    for unit in 0..S::UNITS {
                        let at = unit * S::LANES * size;
                        let scale = S::mul(load::<S, E>(scales.add(at)), scale);
                        totals[unit] = S::fma(products[unit], scale, totals[unit]);
                        if !self.biases.is_empty() {
                            let bias = load::<S, E>(biases.add(at));
                            totals[unit] = S::fma(bias, total, totals[unit]);
                        }
                    }
                    codes = codes.add(BLOCK);
                    digits = digits.add(1);
                }
                scales = scales.add(PANEL * size);
                biases = biases.wrapping_add(PANEL * size);
            }
            totals
        }
    }
}

/// Columns `first .. first + count` of row `row` as numbers, both multiples of the group.
///
/// # Safety
/// The instruction set of `S`, a row and columns of the matrix, and `count` writable numbers.
#[inline(always)]
pub(crate) unsafe fn row<S: Simd>(
    matrix: &Matrix<'_>,
    coded: Coded<'_>,
    row: usize,
    first: usize,
    count: usize,
    to: *mut f32,
) {
    let groups = matrix.columns / coded.group;
    let side = row / PANEL * PANEL * groups + row % PANEL;
    let word = row / PANEL * PANEL * matrix.columns / 8 + row % PANEL;
    let mut to = to;
    // SAFETY: the parts cover the row's panel.
    unsafe {
        let mut from = coded.codes.as_ptr().add(4 * (word + first / 8 * PANEL));
        for group in first / coded.group..(first + count) / coded.group {
            let at = side + group * PANEL;
            let (scale, bias) = match coded.sides {
                Sides::Pairs {
                    element,
                    scales,
                    biases,
                } => {
                    let at = at * element.size();
                    let bias = one(element, biases.as_ptr().add(at));
                    (one(element, scales.as_ptr().add(at)), bias)
                }
                Sides::ZeroPoint {
                    element,
                    scales,
                    below,
                } => {
                    let scale = one(element, scales.as_ptr().add(at * element.size()));
                    (scale, scale * below)
                }
                _ => (0.0, 0.0),
            };
            let (scale, bias) = (S::splat(scale), S::splat(bias));
            for _ in 0..coded.group / 16 {
                for unit in 0..S::UNITS {
                    let numbers = S::fma(S::panel_row(from, unit), scale, bias);
                    S::store(to.add(unit * S::LANES), numbers);
                }
                from = from.add(2 * LINE);
                to = to.add(16);
            }
        }
    }
}
