//! Vectors of sixteen numbers with AVX-512.

use super::Simd;
use crate::digits::PLACES;
use crate::matrix::{E2M1, E4M3, bits as width};
use std::arch::x86_64::*;

/// The AVX-512 form.
#[derive(Clone, Copy)]
pub(crate) struct Avx512;

#[inline(always)]
unsafe fn word(from: *const u8) -> i32 {
    // SAFETY: the caller promises four readable bytes.
    unsafe { from.cast::<i32>().read_unaligned() }
}

/// Sixteen lanes whose groups of four repeat the words `a` to `d`.
#[inline(always)]
unsafe fn quarters(a: i32, b: i32, c: i32, d: i32) -> __m512i {
    // SAFETY: the caller promises the instruction set.
    unsafe {
        let words = _mm512_castsi128_si512(_mm_setr_epi32(a, b, c, d));
        let lanes = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
        _mm512_permutexvar_epi32(lanes, words)
    }
}

// SAFETY of every block: the trait's callers promise the instruction set and valid pointers.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Simd for Avx512 {
    type V = __m512;
    const LANES: usize = 16;
    const BLOCK: (usize, usize) = (4, 6);

    #[inline(always)]
    unsafe fn prefetch(from: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
    }
    #[inline(always)]
    unsafe fn splat(value: f32) -> __m512 {
        unsafe { _mm512_set1_ps(value) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m512 {
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u8) -> __m512 {
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u8) -> __m512 {
        unsafe {
            let bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits))
        }
    }
    #[inline(always)]
    unsafe fn codes<const CODE: usize>(from: *const u8, _unit: usize) -> __m512 {
        unsafe {
            let (bits, shifts) = match CODE {
                2 => (
                    _mm512_set1_epi32(word(from)),
                    _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
                ),
                3 => {
                    let high = _mm512_set1_epi32(word(from.add(2)));
                    let bits = _mm512_mask_set1_epi32(high, 0x00ff, word(from));
                    let shifts = _mm512_setr_epi32(
                        0, 3, 6, 9, 12, 15, 18, 21, 8, 11, 14, 17, 20, 23, 26, 29,
                    );
                    (bits, shifts)
                }
                4 => {
                    let high = _mm512_set1_epi32(word(from.add(4)));
                    let bits = _mm512_mask_set1_epi32(high, 0x00ff, word(from));
                    let shifts =
                        _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
                    (bits, shifts)
                }
                5 => {
                    let bits = quarters(
                        word(from),
                        word(from.add(1)),
                        word(from.add(5)),
                        word(from.add(6)),
                    );
                    let shifts = _mm512_setr_epi32(
                        0, 5, 10, 15, 12, 17, 22, 27, 0, 5, 10, 15, 12, 17, 22, 27,
                    );
                    (bits, shifts)
                }
                E2M1 => {
                    let high = _mm512_set1_epi32(word(from.add(4)));
                    let bits = _mm512_mask_set1_epi32(high, 0x00ff, word(from));
                    let shifts =
                        _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
                    // A look-up reads the lower four bits of an index.
                    let numbers = _mm512_setr_ps(
                        0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0,
                        -4.0, -6.0,
                    );
                    return _mm512_permutexvar_ps(_mm512_srlv_epi32(bits, shifts), numbers);
                }
                E4M3 => {
                    // As binary16, whose exponents are 8 smaller: the bits stand 7 higher.
                    let codes = _mm256_cvtepu8_epi16(_mm_loadu_si128(from.cast()));
                    let sizes = _mm256_and_si256(codes, _mm256_set1_epi16(0x7f));
                    let none = _mm256_cmpeq_epi16(sizes, _mm256_set1_epi16(0x7f));
                    let signs = _mm256_and_si256(codes, _mm256_set1_epi16(0x80));
                    let halves = _mm256_or_si256(
                        _mm256_slli_epi16::<7>(sizes),
                        _mm256_slli_epi16::<8>(signs),
                    );
                    let numbers = _mm512_cvtph_ps(_mm256_or_si256(halves, none));
                    return _mm512_mul_ps(numbers, _mm512_set1_ps(256.0));
                }
                6 => {
                    let bits = quarters(
                        word(from),
                        word(from.add(2)),
                        word(from.add(6)),
                        word(from.add(8)),
                    );
                    let shifts =
                        _mm512_setr_epi32(0, 6, 12, 18, 8, 14, 20, 26, 0, 6, 12, 18, 8, 14, 20, 26);
                    (bits, shifts)
                }
                _ => {
                    let bytes = _mm_loadu_si128(from.cast());
                    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
                }
            };
            let mask = _mm512_set1_epi32((1 << width(CODE)) - 1);
            _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srlv_epi32(bits, shifts), mask))
        }
    }
    #[inline(always)]
    unsafe fn nibbles(from: *const u8) -> (__m512, __m512) {
        unsafe {
            let bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast()));
            // A look-up reads the lower four bits of an index: mask and conversion in one.
            let table = _mm512_setr_ps(
                0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0,
                15.0,
            );
            (
                _mm512_permutexvar_ps(bytes, table),
                _mm512_cvtepi32_ps(bytes),
            )
        }
    }
    #[inline(always)]
    unsafe fn panel(codes: *const u8, digits: *const i8, start: *const i32) -> [__m512; 2] {
        unsafe {
            let mask = _mm512_set1_epi8(15);
            let mut sums = [_mm512_setzero_si512(); PLACES];
            for (place, sum) in sums.iter_mut().enumerate() {
                *sum = _mm512_set1_epi32(start.add(place).read());
            }
            for word in 0..4 {
                let bytes = _mm512_loadu_si512(codes.add(64 * word).cast());
                let low = _mm512_and_si512(bytes, mask);
                let high = _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), mask);
                for (place, sum) in sums.iter_mut().enumerate() {
                    let digits = digits.add(32 * place + 8 * word).cast::<i32>();
                    let first = _mm512_set1_epi32(digits.read_unaligned());
                    let second = _mm512_set1_epi32(digits.add(1).read_unaligned());
                    *sum = _mm512_dpbusd_epi32(*sum, low, first);
                    *sum = _mm512_dpbusd_epi32(*sum, high, second);
                }
            }
            let mut number = _mm512_setzero_ps();
            let mut base = 1.0;
            for sum in sums {
                let sum = _mm512_cvtepi32_ps(sum);
                number = _mm512_fmadd_ps(sum, _mm512_set1_ps(base), number);
                base *= 256.0;
            }
            [number; 2]
        }
    }
    #[inline(always)]
    unsafe fn panel_row(from: *const u8, _unit: usize) -> __m512 {
        unsafe {
            let high = _mm512_set1_epi32(word(from.add(64)));
            let bits = _mm512_mask_set1_epi32(high, 0x00ff, word(from));
            let shifts =
                _mm512_setr_epi32(0, 8, 16, 24, 4, 12, 20, 28, 0, 8, 16, 24, 4, 12, 20, 28);
            let codes = _mm512_and_si512(_mm512_srlv_epi32(bits, shifts), _mm512_set1_epi32(15));
            _mm512_cvtepi32_ps(codes)
        }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, value: __m512) {
        unsafe { _mm512_storeu_ps(to, value) }
    }
    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn div(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_div_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn max(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn min(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_min_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn round(a: __m512) -> __m512 {
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    unsafe fn power(a: __m512) -> __m512 {
        unsafe {
            let exponent = _mm512_add_epi32(_mm512_cvtps_epi32(a), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(exponent))
        }
    }
    #[inline(always)]
    unsafe fn select(a: __m512, b: __m512, x: __m512, y: __m512) -> __m512 {
        unsafe { _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), y, x) }
    }
    #[inline(always)]
    unsafe fn sum(a: __m512) -> f32 {
        unsafe { _mm512_reduce_add_ps(a) }
    }
    #[inline(always)]
    unsafe fn sums(a: [__m512; 4]) -> [f32; 4] {
        unsafe {
            // Interleave pairs and add, twice: each quarter of 128 bits then holds four partial sums.
            let ab = _mm512_add_ps(
                _mm512_unpacklo_ps(a[0], a[1]),
                _mm512_unpackhi_ps(a[0], a[1]),
            );
            let cd = _mm512_add_ps(
                _mm512_unpacklo_ps(a[2], a[3]),
                _mm512_unpackhi_ps(a[2], a[3]),
            );
            let (ab, cd) = (_mm512_castps_pd(ab), _mm512_castps_pd(cd));
            let low = _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd));
            let high = _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd));
            let quarters = _mm512_add_ps(low, high);
            let halves = _mm256_add_ps(
                _mm512_castps512_ps256(quarters),
                _mm512_extractf32x8_ps::<1>(quarters),
            );
            let sums = _mm_add_ps(
                _mm256_castps256_ps128(halves),
                _mm256_extractf128_ps::<1>(halves),
            );
            std::mem::transmute::<__m128, [f32; 4]>(sums)
        }
    }
    #[inline(always)]
    unsafe fn largest(a: __m512) -> f32 {
        unsafe { _mm512_reduce_max_ps(a) }
    }
}
