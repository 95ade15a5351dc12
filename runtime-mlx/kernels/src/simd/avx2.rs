//! Vectors of eight numbers with AVX2, FMA and F16C.

use super::Simd;
use crate::digits::PLACES;
use crate::matrix::{E2M1, E4M3, bits as width};
use std::arch::x86_64::*;

/// The AVX2 form.
#[derive(Clone, Copy)]
pub(crate) struct Avx2;

#[inline(always)]
unsafe fn word(from: *const u8) -> i32 {
    // SAFETY: the caller promises four readable bytes.
    unsafe { from.cast::<i32>().read_unaligned() }
}

// SAFETY of every block: the trait's callers promise the instruction set and valid pointers.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Simd for Avx2 {
    type V = __m256;
    const LANES: usize = 8;
    const BLOCK: (usize, usize) = (4, 3);

    #[inline(always)]
    unsafe fn prefetch(from: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
    }
    #[inline(always)]
    unsafe fn splat(value: f32) -> __m256 {
        unsafe { _mm256_set1_ps(value) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m256 {
        unsafe { _mm256_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u8) -> __m256 {
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u8) -> __m256 {
        unsafe {
            let bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits))
        }
    }
    #[inline(always)]
    unsafe fn codes<const CODE: usize>(from: *const u8, unit: usize) -> __m256 {
        unsafe {
            let (bits, shifts) = match CODE {
                2 => {
                    let first = 16 * unit as i32;
                    let shifts = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
                    let shifts = _mm256_add_epi32(shifts, _mm256_set1_epi32(first));
                    (_mm256_set1_epi32(word(from)), shifts)
                }
                3 => {
                    let first = 8 * unit as i32;
                    let shifts = _mm256_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21);
                    let shifts = _mm256_add_epi32(shifts, _mm256_set1_epi32(first));
                    (_mm256_set1_epi32(word(from.add(2 * unit))), shifts)
                }
                4 => (
                    _mm256_set1_epi32(word(from.add(4 * unit))),
                    _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28),
                ),
                5 => {
                    let from = from.add(5 * unit);
                    let low = _mm_set1_epi32(word(from));
                    let high = _mm_set1_epi32(word(from.add(1)));
                    (
                        _mm256_set_m128i(high, low),
                        _mm256_setr_epi32(0, 5, 10, 15, 12, 17, 22, 27),
                    )
                }
                E2M1 => {
                    let bits = _mm256_set1_epi32(word(from.add(4 * unit)));
                    let shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
                    let codes = _mm256_srlv_epi32(bits, shifts);
                    let sizes = _mm256_setr_ps(0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0);
                    // A look-up reads the lower three bits of an index; the fourth is the sign.
                    let sizes = _mm256_permutevar8x32_ps(sizes, codes);
                    let signs = _mm256_slli_epi32::<28>(codes);
                    let signs = _mm256_and_ps(_mm256_castsi256_ps(signs), _mm256_set1_ps(-0.0));
                    return _mm256_xor_ps(sizes, signs);
                }
                E4M3 => {
                    // As binary16, whose exponents are 8 smaller: the bits stand 7 higher.
                    let bytes = _mm_loadl_epi64(from.add(8 * unit).cast());
                    let codes = _mm_cvtepu8_epi16(bytes);
                    let sizes = _mm_and_si128(codes, _mm_set1_epi16(0x7f));
                    let none = _mm_cmpeq_epi16(sizes, _mm_set1_epi16(0x7f));
                    let signs = _mm_and_si128(codes, _mm_set1_epi16(0x80));
                    let halves =
                        _mm_or_si128(_mm_slli_epi16::<7>(sizes), _mm_slli_epi16::<8>(signs));
                    let numbers = _mm256_cvtph_ps(_mm_or_si128(halves, none));
                    return _mm256_mul_ps(numbers, _mm256_set1_ps(256.0));
                }
                6 => {
                    let from = from.add(6 * unit);
                    let low = _mm_set1_epi32(word(from));
                    let high = _mm_set1_epi32(word(from.add(2)));
                    (
                        _mm256_set_m128i(high, low),
                        _mm256_setr_epi32(0, 6, 12, 18, 8, 14, 20, 26),
                    )
                }
                _ => {
                    let bytes = _mm_loadl_epi64(from.add(8 * unit).cast());
                    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
                }
            };
            let mask = _mm256_set1_epi32((1 << width(CODE)) - 1);
            _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srlv_epi32(bits, shifts), mask))
        }
    }
    #[inline(always)]
    unsafe fn nibbles(from: *const u8) -> (__m256, __m256) {
        unsafe {
            let bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.cast()));
            let low = _mm256_and_si256(bytes, _mm256_set1_epi32(15));
            (_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(bytes))
        }
    }
    #[inline(always)]
    unsafe fn panel(codes: *const u8, digits: *const i8, start: *const i32) -> [__m256; 2] {
        unsafe {
            let mask = _mm256_set1_epi8(15);
            let ones = _mm256_set1_epi16(1);
            let mut numbers = [_mm256_setzero_ps(); 2];
            for (unit, numbers) in numbers.iter_mut().enumerate() {
                // Eight products of pairs stay below 2^15: a pair is at most 2 * 15 * 128.
                let mut sums = [_mm256_setzero_si256(); PLACES];
                for word in 0..4 {
                    let bytes = _mm256_loadu_si256(codes.add(64 * word + 32 * unit).cast());
                    let low = _mm256_and_si256(bytes, mask);
                    let high = _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), mask);
                    for (place, sum) in sums.iter_mut().enumerate() {
                        let digits = digits.add(32 * place + 8 * word).cast::<i32>();
                        let first = _mm256_set1_epi32(digits.read_unaligned());
                        let second = _mm256_set1_epi32(digits.add(1).read_unaligned());
                        *sum = _mm256_add_epi16(*sum, _mm256_maddubs_epi16(low, first));
                        *sum = _mm256_add_epi16(*sum, _mm256_maddubs_epi16(high, second));
                    }
                }
                let mut base = 1.0;
                for (place, sum) in sums.into_iter().enumerate() {
                    let start = _mm256_set1_epi32(start.add(place).read());
                    let sum = _mm256_add_epi32(_mm256_madd_epi16(sum, ones), start);
                    let sum = _mm256_cvtepi32_ps(sum);
                    *numbers = _mm256_fmadd_ps(sum, _mm256_set1_ps(base), *numbers);
                    base *= 256.0;
                }
            }
            numbers
        }
    }
    #[inline(always)]
    unsafe fn panel_row(from: *const u8, unit: usize) -> __m256 {
        unsafe {
            let bits = _mm256_set1_epi32(word(from.add(64 * unit)));
            let shifts = _mm256_setr_epi32(0, 8, 16, 24, 4, 12, 20, 28);
            let codes = _mm256_and_si256(_mm256_srlv_epi32(bits, shifts), _mm256_set1_epi32(15));
            _mm256_cvtepi32_ps(codes)
        }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, value: __m256) {
        unsafe { _mm256_storeu_ps(to, value) }
    }
    #[inline(always)]
    unsafe fn add(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn div(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_div_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn max(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn min(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_min_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn round(a: __m256) -> __m256 {
        unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    unsafe fn power(a: __m256) -> __m256 {
        unsafe {
            let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(a), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent))
        }
    }
    #[inline(always)]
    unsafe fn select(a: __m256, b: __m256, x: __m256, y: __m256) -> __m256 {
        unsafe { _mm256_blendv_ps(y, x, _mm256_cmp_ps::<_CMP_LT_OQ>(a, b)) }
    }
    #[inline(always)]
    unsafe fn sum(a: __m256) -> f32 {
        unsafe {
            let a = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let a = _mm_add_ps(a, _mm_movehl_ps(a, a));
            _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)))
        }
    }
    #[inline(always)]
    unsafe fn sums(a: [__m256; 4]) -> [f32; 4] {
        unsafe {
            let pairs = _mm256_hadd_ps(_mm256_hadd_ps(a[0], a[1]), _mm256_hadd_ps(a[2], a[3]));
            let sums = _mm_add_ps(
                _mm256_castps256_ps128(pairs),
                _mm256_extractf128_ps::<1>(pairs),
            );
            std::mem::transmute::<__m128, [f32; 4]>(sums)
        }
    }
    #[inline(always)]
    unsafe fn largest(a: __m256) -> f32 {
        unsafe {
            let a = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let a = _mm_max_ps(a, _mm_movehl_ps(a, a));
            _mm_cvtss_f32(_mm_max_ss(a, _mm_movehdup_ps(a)))
        }
    }
}
