//! The vector operations that kernels are written in, once for all forms.
//!
//! A kernel is a [`Kernel`] whose `run` is generic over [`Simd`]; [`run`] calls it inside of a
//! function that is compiled for the form's instruction set. Everything below `run` must be
//! `#[inline(always)]` and free of closures, so that it is compiled for that set too.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use crate::Form;
pub(crate) use portable::Portable;

/// Vectors of `f32` in one instruction set.
///
/// # Safety
/// Every function needs the instruction set of the type. Pointers must be valid for what the
/// function's comment says; none needs alignment.
pub(crate) trait Simd: Copy {
    /// A vector of [`Simd::LANES`] numbers.
    type V: Copy;
    /// Numbers in a vector: 8 or 16.
    const LANES: usize;
    /// Vectors that hold 16 numbers.
    const UNITS: usize = 16 / Self::LANES;
    /// Rows of x and of the weight that the large matrix product holds in registers.
    const BLOCK: (usize, usize);

    /// Asks for the cache line at an address, which need not be valid.
    #[inline(always)]
    unsafe fn prefetch(_from: *const u8) {}
    unsafe fn splat(value: f32) -> Self::V;
    /// Reads `LANES` numbers.
    unsafe fn load(from: *const f32) -> Self::V;
    /// Reads `LANES` binary16 numbers.
    unsafe fn load_f16(from: *const u8) -> Self::V;
    /// Reads `LANES` bfloat16 numbers.
    unsafe fn load_bf16(from: *const u8) -> Self::V;
    /// Of 16 codes at `from` (two bytes for each bit of a code), the numbers of vector `unit`; see
    /// [`crate::matrix::bits`] for what `CODE` is.
    unsafe fn codes<const CODE: usize>(from: *const u8, unit: usize) -> Self::V;
    /// Of `LANES` bytes at `from`, the lower four bits and the whole bytes.
    unsafe fn nibbles(from: *const u8) -> (Self::V, Self::V);
    /// The product of 16 rows and 32 columns of a panel's codes with numbers of [`crate::digits::PLACES`] digits each, at
    /// `digits` ([`crate::digits`]), with `start` added to the sum of each digit's products. Lanes are
    /// rows; the second vector counts only where [`Simd::UNITS`] is 2.
    unsafe fn panel(codes: *const u8, digits: *const i8, start: *const i32) -> [Self::V; 2];
    /// Of 16 codes in two words of a panel, at `from` and 64 bytes on, the numbers of vector `unit`.
    unsafe fn panel_row(from: *const u8, unit: usize) -> Self::V;
    /// Writes `LANES` numbers.
    unsafe fn store(to: *mut f32, value: Self::V);
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn div(a: Self::V, b: Self::V) -> Self::V;
    /// `b` where either is NaN.
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V;
    /// `b` where either is NaN.
    unsafe fn min(a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`.
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The nearest whole number, ties to even.
    unsafe fn round(a: Self::V) -> Self::V;
    /// `2^a` for a whole `a` in `-126..=127`.
    unsafe fn power(a: Self::V) -> Self::V;
    /// `x` where `a < b`, else `y`.
    unsafe fn select(a: Self::V, b: Self::V, x: Self::V, y: Self::V) -> Self::V;
    /// The sum of the lanes.
    unsafe fn sum(a: Self::V) -> f32;
    /// The sums of the lanes of four vectors.
    unsafe fn sums(a: [Self::V; 4]) -> [f32; 4];
    /// The largest lane.
    unsafe fn largest(a: Self::V) -> f32;
}

/// Numbers in a vector of the form.
pub(crate) fn lanes(form: Form) -> usize {
    match form {
        Form::Portable => Portable::LANES,
        #[cfg(target_arch = "x86_64")]
        Form::Avx2 => avx2::Avx2::LANES,
        #[cfg(target_arch = "x86_64")]
        Form::Avx512 => avx512::Avx512::LANES,
        #[cfg(not(target_arch = "x86_64"))]
        _ => Portable::LANES,
    }
}

/// Work that is compiled once for each form.
pub(crate) trait Kernel {
    type Output;
    /// Does the work.
    ///
    /// # Safety
    /// The instruction set of `S` must be available, and what the kernel's own comment asks.
    unsafe fn run<S: Simd>(self) -> Self::Output;
}

/// Runs `kernel` in `form`.
///
/// # Safety
/// The form must be available ([`Form::checked`]), and what the kernel's own comment asks.
#[inline]
pub(crate) unsafe fn run<K: Kernel>(form: Form, kernel: K) -> K::Output {
    match form {
        // SAFETY: plain Rust needs no instruction set; the rest is the caller's promise.
        Form::Portable => unsafe { kernel.run::<Portable>() },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the caller promises that the form is available.
        Form::Avx2 => unsafe { run_avx2(kernel) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the caller promises that the form is available.
        Form::Avx512 => unsafe { run_avx512(kernel) },
        #[cfg(not(target_arch = "x86_64"))]
        // SAFETY: as for the portable form.
        _ => unsafe { kernel.run::<Portable>() },
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: this function has the instruction set; the rest is the caller's promise.
    unsafe { kernel.run::<avx2::Avx2>() }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn run_avx512<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: this function has the instruction set; the rest is the caller's promise.
    unsafe { kernel.run::<avx512::Avx512>() }
}
