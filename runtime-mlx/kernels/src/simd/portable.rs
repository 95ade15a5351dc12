//! Vectors as arrays, which the compiler maps to whatever the target has.

use super::Simd;
use crate::digits::PLACES;
use crate::matrix::{E2M1, E4M3, bits};
use crate::widen::E4M3_NUMBERS;

/// Eight numbers in an array.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

const LANES: usize = 8;
type V = [f32; LANES];

/// Applies `$body` to each lane `$i`.
macro_rules! lanes {
    ($i:ident => $body:expr) => {{
        let mut result = [0f32; LANES];
        let mut $i = 0;
        while $i < LANES {
            result[$i] = $body;
            $i += 1;
        }
        result
    }};
}

#[inline(always)]
unsafe fn word(from: *const u8) -> u32 {
    // SAFETY: the caller promises four readable bytes.
    u32::from_le(unsafe { from.cast::<u32>().read_unaligned() })
}

#[inline(always)]
fn fused(a: f32, b: f32, c: f32) -> f32 {
    // Without the instruction a fused product is a slow library call.
    if cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
        a.mul_add(b, c)
    } else {
        a * b + c
    }
}

/// What the digits of each place count.
const BASES: [f32; PLACES] = [1.0, 256.0, 65536.0, 16_777_216.0];
/// The columns of a word of a panel, by the lane that they are to be in.
const SHIFTS: [u32; LANES] = [0, 8, 16, 24, 4, 12, 20, 28];

impl Simd for Portable {
    type V = V;
    const LANES: usize = LANES;
    const BLOCK: (usize, usize) = (2, 2);

    #[inline(always)]
    unsafe fn splat(value: f32) -> V {
        [value; LANES]
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> V {
        // SAFETY: the caller promises `LANES` readable numbers.
        unsafe { from.cast::<V>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u8) -> V {
        // SAFETY: the caller promises `LANES` readable numbers.
        let bits = unsafe { from.cast::<[u16; LANES]>().read_unaligned() };
        lanes!(i => half::f16::from_bits(u16::from_le(bits[i])).to_f32())
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u8) -> V {
        // SAFETY: the caller promises `LANES` readable numbers.
        let bits = unsafe { from.cast::<[u16; LANES]>().read_unaligned() };
        lanes!(i => f32::from_bits(u32::from(u16::from_le(bits[i])) << 16))
    }
    #[inline(always)]
    unsafe fn codes<const CODE: usize>(from: *const u8, unit: usize) -> V {
        /// The number of each code of four bits.
        const NUMBERS: [f32; 16] = {
            let mut numbers = [0.0; 16];
            let mut code = 0;
            while code < 16 {
                numbers[code] = mlxcel_ir::weight::e2m1(code as u8);
                code += 1;
            }
            numbers
        };
        let mask = (1u32 << bits(CODE)) - 1;
        // SAFETY: the caller promises the bytes of 16 codes; each word lies within them.
        unsafe {
            match CODE {
                2 => {
                    let bits = word(from) >> (16 * unit);
                    lanes!(i => ((bits >> (2 * i)) & mask) as i32 as f32)
                }
                3 => {
                    let bits = word(from.add(2 * unit)) >> (8 * unit);
                    lanes!(i => ((bits >> (3 * i)) & mask) as i32 as f32)
                }
                4 => {
                    let bits = word(from.add(4 * unit));
                    lanes!(i => ((bits >> (4 * i)) & mask) as i32 as f32)
                }
                5 => {
                    let from = from.add(5 * unit);
                    let (low, high) = (word(from), word(from.add(1)) >> 12);
                    lanes!(i => {
                        let bits = if i < 4 { low } else { high };
                        ((bits >> (5 * (i % 4))) & mask) as i32 as f32
                    })
                }
                E2M1 => {
                    let bits = word(from.add(4 * unit));
                    lanes!(i => NUMBERS[((bits >> (4 * i)) & 15) as usize])
                }
                E4M3 => {
                    let bytes = from.add(8 * unit).cast::<[u8; LANES]>().read();
                    lanes!(i => E4M3_NUMBERS[usize::from(bytes[i])])
                }
                6 => {
                    let from = from.add(6 * unit);
                    let (low, high) = (word(from), word(from.add(2)) >> 8);
                    lanes!(i => {
                        let bits = if i < 4 { low } else { high };
                        ((bits >> (6 * (i % 4))) & mask) as i32 as f32
                    })
                }
                _ => {
                    let bytes = from.add(8 * unit).cast::<[u8; LANES]>().read();
                    lanes!(i => i32::from(bytes[i]) as f32)
                }
            }
        }
    }
    #[inline(always)]
    unsafe fn nibbles(from: *const u8) -> (V, V) {
        // SAFETY: the caller promises `LANES` readable bytes.
        let bytes = unsafe { from.cast::<[u8; LANES]>().read() };
        (
            lanes!(i => i32::from(bytes[i] & 15) as f32),
            lanes!(i => i32::from(bytes[i]) as f32),
        )
    }
    #[inline(always)]
    unsafe fn panel(codes: *const u8, digits: *const i8, start: *const i32) -> [V; 2] {
        // SAFETY: the caller promises 256 bytes of codes, the digits and their starts.
        let (codes, digits, start) = unsafe {
            (
                codes.cast::<[[[u8; 4]; 16]; 4]>().read(),
                digits.cast::<[[[i8; 4]; 8]; PLACES]>().read(),
                start.cast::<[i32; PLACES]>().read_unaligned(),
            )
        };
        let mut numbers = [[0f32; LANES]; 2];
        for row in 0..16 {
            let mut total = 0f32;
            for (place, digits) in digits.iter().enumerate() {
                let mut sum = start[place];
                for (words, digits) in codes.iter().zip(digits.chunks_exact(2)) {
                    for (index, byte) in words[row].iter().enumerate() {
                        sum += i32::from(byte & 15) * i32::from(digits[0][index]);
                        sum += i32::from(byte >> 4) * i32::from(digits[1][index]);
                    }
                }
                total += sum as f32 * BASES[place];
            }
            numbers[row / LANES][row % LANES] = total;
        }
        numbers
    }
    #[inline(always)]
    unsafe fn panel_row(from: *const u8, unit: usize) -> V {
        // SAFETY: the caller promises both words.
        let word = unsafe { word(from.add(64 * unit)) };
        lanes!(i => (word >> SHIFTS[i] & 15) as f32)
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, value: V) {
        // SAFETY: the caller promises `LANES` writable numbers.
        unsafe { to.cast::<V>().write_unaligned(value) }
    }
    #[inline(always)]
    unsafe fn add(a: V, b: V) -> V {
        lanes!(i => a[i] + b[i])
    }
    #[inline(always)]
    unsafe fn sub(a: V, b: V) -> V {
        lanes!(i => a[i] - b[i])
    }
    #[inline(always)]
    unsafe fn mul(a: V, b: V) -> V {
        lanes!(i => a[i] * b[i])
    }
    #[inline(always)]
    unsafe fn div(a: V, b: V) -> V {
        lanes!(i => a[i] / b[i])
    }
    #[inline(always)]
    unsafe fn max(a: V, b: V) -> V {
        lanes!(i => if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    unsafe fn min(a: V, b: V) -> V {
        lanes!(i => if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    unsafe fn fma(a: V, b: V, c: V) -> V {
        lanes!(i => fused(a[i], b[i], c[i]))
    }
    #[inline(always)]
    unsafe fn round(a: V) -> V {
        // Adding and subtracting 1.5 * 2^23 rounds what the kernels round: |a| < 2^22.
        const MAGIC: f32 = 12_582_912.0;
        lanes!(i => (a[i] + MAGIC) - MAGIC)
    }
    #[inline(always)]
    unsafe fn power(a: V) -> V {
        lanes!(i => f32::from_bits((((a[i] as i32) + 127) as u32) << 23))
    }
    #[inline(always)]
    unsafe fn select(a: V, b: V, x: V, y: V) -> V {
        lanes!(i => if a[i] < b[i] { x[i] } else { y[i] })
    }
    #[inline(always)]
    unsafe fn sum(a: V) -> f32 {
        ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]))
    }
    #[inline(always)]
    unsafe fn sums(a: [V; 4]) -> [f32; 4] {
        // SAFETY: plain Rust.
        unsafe {
            [
                Self::sum(a[0]),
                Self::sum(a[1]),
                Self::sum(a[2]),
                Self::sum(a[3]),
            ]
        }
    }
    #[inline(always)]
    unsafe fn largest(a: V) -> f32 {
        let mut largest = a[0];
        let mut i = 1;
        while i < LANES {
            largest = if largest > a[i] { largest } else { a[i] };
            i += 1;
        }
        largest
    }
}
