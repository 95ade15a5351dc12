//! Stored numbers as `f32`: dense elements, scales and biases, and dequantised rows.

use crate::matrix::{Coded, Element, FLOAT, Format, Matrix, STEP, bits, for_code};
use crate::panel;
use crate::simd::Simd;
use half::{bf16, f16};
use mlxcel_ir::weight::{e4m3, e8m0};

/// The number of each byte.
pub(crate) const E4M3_NUMBERS: [f32; 256] = {
    let mut numbers = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        numbers[code] = e4m3(code as u8);
        code += 1;
    }
    numbers
};

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
            Element::E8M0 => e8m0(*from),
            Element::E4M3 => e4m3(*from),
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
            Element::E8M0 => {
                for i in 0..count {
                    *to.add(i) = e8m0(*from.add(i));
                }
            }
            Element::E4M3 => {
                for i in 0..count {
                    *to.add(i) = E4M3_NUMBERS[usize::from(*from.add(i))];
                }
            }
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

/// Columns `first .. first + count` of row `row` as numbers. For a matrix of codes both bounds are
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
            Format::Coded(coded) if coded.panels => {
                panel::row::<S>(matrix, coded, row, first, count, to)
            }
            Format::Coded(Coded {
                code,
                group,
                codes,
                sides,
                ..
            }) => {
                let (groups, row_groups) = (count / group, matrix.columns / group);
                let offsets = scratch.add(groups);
                let first_group = first / group;
                sides.widen::<S>(row, row_groups, first_group, groups, (scratch, offsets));
                // Whole groups of at least 16 codes lie on whole bytes.
                let place = (row * matrix.columns + first) * bits(code) / 8;
                let from = codes.as_ptr().add(place);
                for_code!(code, CODE => coded::<S, CODE>(from, group, groups, scratch, offsets, to))
            }
        }
    }
}

#[inline(always)]
unsafe fn coded<S: Simd, const CODE: usize>(
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
            let offset = match CODE < FLOAT {
                true => S::splat(*offsets.add(g)),
                false => S::splat(0.0),
            };
            for _ in 0..group / STEP {
                for unit in 0..S::UNITS {
                    let codes = S::codes::<CODE>(from, unit);
                    let numbers = match CODE < FLOAT {
                        true => S::fma(codes, scale, offset),
                        false => S::mul(codes, scale),
                    };
                    S::store(to.add(unit * S::LANES), numbers);
                }
                from = from.add(2 * bits(CODE));
                to = to.add(STEP);
            }
        }
    }
}
