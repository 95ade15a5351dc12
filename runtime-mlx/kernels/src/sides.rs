//! Scales and biases of groups, in whatever way a format stores them, as `f32`.

use crate::Error;
use crate::matrix::{Element, fail};
use crate::simd::Simd;
use crate::widen::{one, widen};
use mlxcel_ir::WeightData;
use mlxcel_ir::weight::{Coded, FP8_BLOCK, SUPER_BLOCK, Sides as Declared};
use std::ops::Range;

/// Where the scales and biases of a matrix come from. The slices cover every row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sides<'a> {
    /// A scale and a bias for each group.
    Pairs {
        element: Element,
        scales: &'a [u8],
        biases: &'a [u8],
    },
    /// A scale for each group, and minus the code whose number is 0.
    ZeroPoint {
        element: Element,
        scales: &'a [u8],
        below: f32,
    },
    /// A scale for each group.
    Scales { element: Element, scales: &'a [u8] },
    /// A scale for each block of rows and columns.
    Blocks {
        element: Element,
        scales: &'a [u8],
        /// Rows of a matrix, where several stand one after the other.
        rows: usize,
        /// Groups that share a scale.
        groups: usize,
    },
    /// Scales of 256 numbers, and bytes for each group that they are multiplied with.
    Nested {
        outer: &'a [u8],
        inner: &'a [u8],
        /// The code whose number is 0, or `None` where groups have minimums.
        zero: Option<u8>,
        /// Groups in 256 numbers.
        groups: usize,
    },
}

impl<'a> Sides<'a> {
    /// The sides of a weight of the shape `declared`, whose parts have the right lengths, for
    /// kernels that take groups of `group`.
    pub(crate) fn new(
        coded: &Coded,
        group: usize,
        declared: &[usize],
        data: WeightData<'a>,
    ) -> Result<Self, Error> {
        let WeightData { scales, biases, .. } = data;
        let element = |dtype| {
            Element::of(dtype)
                .ok_or_else(|| fail(format!("scales are {dtype}; use f32, f16 or bf16")))
        };
        Ok(match coded.sides {
            Declared::Pairs(dtype) => Sides::Pairs {
                element: element(dtype)?,
                scales,
                biases,
            },
            Declared::Scales(dtype) => Sides::Scales {
                element: element(dtype)?,
                scales,
            },
            Declared::ZeroPoint(dtype, zero) => Sides::ZeroPoint {
                element: element(dtype)?,
                scales,
                below: -f32::from(zero),
            },
            Declared::E8M0 => Sides::Scales {
                element: Element::E8M0,
                scales,
            },
            Declared::E4M3 => Sides::Scales {
                element: Element::E4M3,
                scales,
            },
            Declared::Blocks(dtype) => Sides::Blocks {
                element: element(dtype)?,
                scales,
                rows: declared.iter().rev().nth(1).copied().unwrap_or(1),
                groups: FP8_BLOCK / group,
            },
            Declared::Nested { zero } => Sides::Nested {
                outer: scales,
                inner: biases,
                zero,
                groups: SUPER_BLOCK / group,
            },
        })
    }

    /// Bytes of the stored parts.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Sides::Pairs { scales, biases, .. } => scales.len() + biases.len(),
            Sides::ZeroPoint { scales, .. }
            | Sides::Scales { scales, .. }
            | Sides::Blocks { scales, .. } => scales.len(),
            Sides::Nested { outer, inner, .. } => outer.len() + inner.len(),
        }
    }

    /// Asks for the scales and biases of rows of `groups` groups, which need not be in the matrix.
    #[inline(always)]
    pub(crate) fn prefetch<S: Simd>(&self, rows: Range<usize>, groups: usize) {
        match *self {
            Sides::Pairs {
                element,
                scales,
                biases,
            } => {
                ask::<S>(scales, &rows, groups * element.size());
                ask::<S>(biases, &rows, groups * element.size());
            }
            Sides::ZeroPoint {
                element, scales, ..
            }
            | Sides::Scales { element, scales } => {
                ask::<S>(scales, &rows, groups * element.size());
            }
            // Few bytes, for many numbers each.
            Sides::Blocks { .. } | Sides::Nested { .. } => {}
        }
    }

    /// The scales and biases of `count` groups from group `first` of row `row` on, in rows of
    /// `groups`. Formats without biases leave theirs alone.
    ///
    /// Whole rows can be asked for together: with `first` 0 and `count` a multiple of `groups`,
    /// those of the rows that follow come after.
    ///
    /// # Safety
    /// The instruction set of `S`, groups of the matrix, and `count` writable numbers each.
    #[inline(always)]
    pub(crate) unsafe fn widen<S: Simd>(
        &self,
        row: usize,
        groups: usize,
        first: usize,
        count: usize,
        to: (*mut f32, *mut f32),
    ) {
        let at = row * groups + first;
        // SAFETY: the parts cover all groups, as the matrix's constructor checked.
        unsafe {
            match *self {
                Sides::Pairs {
                    element,
                    scales,
                    biases,
                } => {
                    let from = at * element.size();
                    widen::<S>(element, scales.as_ptr().add(from), count, to.0);
                    widen::<S>(element, biases.as_ptr().add(from), count, to.1);
                }
                Sides::Scales { element, scales } => {
                    let from = at * element.size();
                    widen::<S>(element, scales.as_ptr().add(from), count, to.0);
                }
                Sides::ZeroPoint {
                    element,
                    scales,
                    below,
                } => {
                    let from = at * element.size();
                    widen::<S>(element, scales.as_ptr().add(from), count, to.0);
                    for index in 0..count {
                        *to.1.add(index) = *to.0.add(index) * below;
                    }
                }
                _ => {
                    let mut done = 0;
                    while done < count {
                        let here = (groups - first).min(count - done);
                        let to = (to.0.add(done), to.1.add(done));
                        self.of_row(row + done / groups, groups, first, here, to);
                        done += here;
                    }
                }
            }
        }
    }

    /// Those of one row whose groups share something.
    #[inline(always)]
    unsafe fn of_row(
        &self,
        row: usize,
        groups: usize,
        first: usize,
        count: usize,
        to: (*mut f32, *mut f32),
    ) {
        // SAFETY: passed on.
        unsafe {
            match *self {
                Sides::Pairs { .. } | Sides::ZeroPoint { .. } | Sides::Scales { .. } => {}
                Sides::Blocks {
                    element,
                    scales,
                    rows,
                    groups: shared,
                } => {
                    let block = row / rows * rows.div_ceil(FP8_BLOCK) + row % rows / FP8_BLOCK;
                    let from = block * groups.div_ceil(shared);
                    for g in 0..count {
                        let at = (from + (first + g) / shared) * element.size();
                        *to.0.add(g) = one(element, scales.as_ptr().add(at));
                    }
                }
                Sides::Nested {
                    outer,
                    inner,
                    zero,
                    groups: shared,
                } => {
                    let sets = if zero.is_some() { 1 } else { 2 };
                    let blocks = groups / shared;
                    let inner = inner.as_ptr().add(row * groups * sets);
                    let outer = outer.as_ptr().add(2 * row * blocks * sets);
                    let mut g = 0;
                    while g < count {
                        let block = (first + g) / shared;
                        let end = count.min((block + 1) * shared - first);
                        let d = one(Element::F16, outer.add(2 * block));
                        match zero {
                            Some(zero) => {
                                let zero = -f32::from(zero);
                                for g in g..end {
                                    let scale = d * f32::from(*inner.add(first + g) as i8);
                                    *to.0.add(g) = scale;
                                    *to.1.add(g) = zero * scale;
                                }
                            }
                            None => {
                                let least = -one(Element::F16, outer.add(2 * (blocks + block)));
                                let minimums = inner.add(groups);
                                for g in g..end {
                                    *to.0.add(g) = d * f32::from(*inner.add(first + g));
                                    *to.1.add(g) = least * f32::from(*minimums.add(first + g));
                                }
                            }
                        }
                        g = end;
                    }
                }
            }
        }
    }
}

/// Asks for `rows` of a part.
#[inline(always)]
fn ask<S: Simd>(part: &[u8], rows: &Range<usize>, row_bytes: usize) {
    let (mut at, end) = (rows.start * row_bytes, rows.end * row_bytes);
    while at < end {
        // SAFETY: an address that is asked for need not be valid.
        unsafe { S::prefetch(part.as_ptr().wrapping_add(at)) }
        at += 64;
    }
}
