//! Stored numbers as `f32`: dense elements, scales and biases, and dequantised rows.

use crate::matrix::{Element, Format, Matrix, STEP};
use crate::simd::Simd;
use half::{bf16, f16};

/// `LANES` numbers of the element type that is number `E` of [`Element`].
///
/// # Safety
/// The instruction set of `S`, and `LANES` readable elements.
#[inline(always)]
pub(crate) unsafe fn load<S: Simd, const E: u8>(from: *const u8) -> S::V {
    // SAFETY: passed on.
    unsafe {
        if E == Element::F32 as u8 {
            S::load(from.cast())
        } else if E == Element::F16 as u8 {
            S::load_f16(from)
        } else {
            S::load_bf16(from)
        }
    }
}

/// One element.
///
/// # Safety
/// A readable element at `from`.
#[inline(always)]
pub(crate) unsafe fn one(element: Element, from: *const u8) -> f32 {
    // SAFETY: passed on.
    unsafe {
        match element {
            Element::F32 => f32::from_le_bytes(from.cast::<[u8; 4]>().read()),
            Element::F16 => f16::from_le_bytes(from.cast::<[u8; 2]>().read()).to_f32(),
            Element::BF16 => bf16::from_le_bytes(from.cast::<[u8; 2]>().read()).to_f32(),
        }
    }
}

/// `count` elements from `from` to `to`.
///
/// # Safety
/// The instruction set of `S`, `count` readable elements and `count` writable numbers.
#[inline(always)]
pub(crate) unsafe fn widen<S: Simd>(element: Element, from: *const u8, count: usize, to: *mut f32) {
    // SAFETY: passed on.
    unsafe {
        match element {
            Element::F32 => widen_as::<S, { Element::F32 as u8 }>(element, from, count, to),
            Element::F16 => widen_as::<S, { Element::F16 as u8 }>(element, from, count, to),
            Element::BF16 => widen_as::<S, { Element::BF16 as u8 }>(element, from, count, to),
        }
    }
}

#[inline(always)]
unsafe fn widen_as<S: Simd, const E: u8>(
    element: Element,
    from: *const u8,
    count: usize,
    to: *mut f32,
) {
    let size = element.size();
    let mut i = 0;
    // SAFETY: every index is below `count`.
    unsafe {
        while i + S::LANES <= count {
            S::store(to.add(i), load::<S, E>(from.add(i * size)));
            i += S::LANES;
        }
        while i < count {
            *to.add(i) = one(element, from.add(i * size));
            i += 1;
        }
    }
}

/// Columns `first .. first + count` of row `row` as numbers. For an affine matrix both bounds are
/// multiples of the group; `scratch` holds two numbers for each of its groups.
///
/// # Safety
/// The instruction set of `S`, a row and columns of the matrix, `count` writable numbers, and
/// `2 * count / group` writable numbers of scratch.
#[inline(always)]
pub(crate) unsafe fn row<S: Simd>(
    matrix: &Matrix<'_>,
    row: usize,
    first: usize,
    count: usize,
    to: *mut f32,
    scratch: *mut f32,
) {
    // SAFETY: the matrix's parts have the lengths that its constructor checked.
    unsafe {
        match matrix.format {
            Format::Dense { element, values } => {
                let offset = (row * matrix.columns + first) * element.size();
                widen::<S>(element, values.as_ptr().add(offset), count, to);
            }
            Format::Affine {
                bits,
                group,
                element,
                codes,
                scales,
                biases,
            } => {
                let groups = count / group;
                let side = (row * (matrix.columns / group) + first / group) * element.size();
                widen::<S>(element, scales.as_ptr().add(side), groups, scratch);
                let offsets = scratch.add(groups);
                widen::<S>(element, biases.as_ptr().add(side), groups, offsets);
                // Whole groups of at least 16 codes lie on whole bytes.
                let from = codes
                    .as_ptr()
                    .add((row * matrix.columns + first) * bits / 8);
                match bits {
                    2 => affine::<S, 2>(from, group, groups, scratch, offsets, to),
                    3 => affine::<S, 3>(from, group, groups, scratch, offsets, to),
                    4 => affine::<S, 4>(from, group, groups, scratch, offsets, to),
                    6 => affine::<S, 6>(from, group, groups, scratch, offsets, to),
                    _ => affine::<S, 8>(from, group, groups, scratch, offsets, to),
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn affine<S: Simd, const BITS: usize>(
    from: *const u8,
    group: usize,
    groups: usize,
    scales: *const f32,
    offsets: *const f32,
    to: *mut f32,
) {
    let (mut from, mut to) = (from, to);
    // SAFETY: the pointers move over exactly `groups * group` codes and numbers.
    unsafe {
        for g in 0..groups {
            let scale = S::splat(*scales.add(g));
            let offset = S::splat(*offsets.add(g));
            for _ in 0..group / STEP {
                for unit in 0..S::UNITS {
                    let codes = S::codes::<BITS>(from, unit);
                    S::store(to.add(unit * S::LANES), S::fma(codes, scale, offset));
                }
                from = from.add(2 * BITS);
                to = to.add(STEP);
            }
        }
    }
}
