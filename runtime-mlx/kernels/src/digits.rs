//! Numbers as digits to the base 256, so that products with codes are whole numbers.
//!
//! Each of 32 columns is a multiple of 2^-29 of the power of two that their largest reaches: a whole
//! number of 31 bits, which is exact unless the number is less than a 64th of the largest. Digits have
//! signs; sums of their products with codes of four bits are exact in 32 bits.

use crate::Form;
use crate::simd::{self, Kernel, Simd};

/// Columns that share a scale.
pub(crate) const COLUMNS: usize = 32;
/// Digits of a number.
pub(crate) const PLACES: usize = 4;
/// The power of two by which whole numbers are larger than numbers whose largest is from 1 to 2.
const SHIFT: f32 = (1 << 29) as f32;
/// Below this, numbers are as zeros to what they are added to; a scale and its inverse are normal numbers.
const SMALLEST: f32 = 1e-28;

/// The digits of [`COLUMNS`] numbers of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digits {
    /// The digits of each place, the lowest first.
    pub(crate) places: [[i8; COLUMNS]; PLACES],
    /// The sum of each place.
    pub(crate) sums: [i32; PLACES],
    /// What the whole numbers are to be multiplied with; NaN if one of the numbers is not finite.
    pub(crate) scale: f32,
    /// The sum of the numbers.
    pub(crate) total: f32,
}

impl Default for Digits {
    fn default() -> Self {
        Self {
            places: [[0; COLUMNS]; PLACES],
            sums: [0; PLACES],
            scale: 0.0,
            total: 0.0,
        }
    }
}

/// The digits of rows of `columns` numbers; columns are a multiple of [`COLUMNS`].
pub(crate) fn split(form: Form, x: &[f32], columns: usize, digits: &mut [Digits]) {
    debug_assert!(columns.is_multiple_of(COLUMNS));
    let kernel = Split { x, digits };
    // SAFETY: a pool's form is available.
    unsafe { simd::run(form, kernel) }
}

struct Split<'a> {
    x: &'a [f32],
    digits: &'a mut [Digits],
}

impl Kernel for Split<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for (x, digits) in self.x.chunks_exact(COLUMNS).zip(self.digits) {
            let mut numbers = [0f32; COLUMNS];
            numbers.copy_from_slice(x);
            one(&numbers, digits);
        }
    }
}

#[inline(always)]
fn one(x: &[f32; COLUMNS], digits: &mut Digits) {
    const LANES: usize = 16;
    let (mut largest, mut odd, mut totals) = ([SMALLEST; LANES], [0f32; LANES], [0f32; LANES]);
    for half in 0..COLUMNS / LANES {
        for lane in 0..LANES {
            let number = x[half * LANES + lane];
            let size = number.abs();
            largest[lane] = if size > largest[lane] {
                size
            } else {
                largest[lane]
            };
            // Nothing, but NaN where the number is not finite.
            odd[lane] += number * 0.0;
            totals[lane] += number;
        }
    }
    let (mut most, mut none, mut total) = (SMALLEST, 0.0, 0.0);
    for lane in 0..LANES {
        most = if largest[lane] > most {
            largest[lane]
        } else {
            most
        };
        none += odd[lane];
        total += totals[lane];
    }
    // The power of two: the number without its fraction.
    let power = f32::from_bits(most.to_bits() & 0x7f80_0000);
    digits.scale = power / SHIFT + none;
    digits.total = total;
    let inverse = SHIFT / power;
    let mut whole = [0i32; COLUMNS];
    for (whole, number) in whole.iter_mut().zip(x) {
        *whole = (number * inverse).round_ties_even() as i32;
    }
    for place in 0..PLACES {
        let mut sum = 0;
        for (digit, whole) in digits.places[place].iter_mut().zip(&mut whole) {
            let low = *whole as i8;
            *digit = low;
            sum += i32::from(low);
            *whole = (*whole - i32::from(low)) >> 8;
        }
        digits.sums[place] = sum;
    }
}
