//! Nonlinearities, with an own exponential.

use crate::simd::{self, Kernel, Simd};
use crate::{Error, Form, Pool, error};
use mlxcel_ir::Activation;

/// Numbers in one claim of a thread.
const GRAIN: usize = 1 << 14;

/// `out[i] = activation(x[i])`.
///
/// # Errors
/// [`Error::Length`] if the slices differ in length.
pub fn activate(
    pool: &Pool,
    activation: Activation,
    x: &[f32],
    out: &mut [f32],
) -> Result<(), Error> {
    error::length("the output of activate", out.len(), x.len())?;
    let to = Output(out.as_mut_ptr());
    pool.ranges(x.len(), GRAIN, |range| {
        let kernel = Gate {
            activation,
            gate: x[range.clone()].as_ptr(),
            up: std::ptr::null(),
            to: to.at(range.start),
            count: range.len(),
        };
        // SAFETY: the form is the pool's, and the range lies in both slices.
        unsafe { simd::run(pool.form(), kernel) }
    })
}

/// `out[i] = activation(gate[i]) * up[i]`.
///
/// # Errors
/// [`Error::Length`] if the slices differ in length.
pub fn gated(
    pool: &Pool,
    activation: Activation,
    gate: &[f32],
    up: &[f32],
    out: &mut [f32],
) -> Result<(), Error> {
    error::length("up", up.len(), gate.len())?;
    error::length("the output of gated", out.len(), gate.len())?;
    let to = Output(out.as_mut_ptr());
    pool.ranges(gate.len(), GRAIN, |range| {
        let kernel = Gate {
            activation,
            gate: gate[range.clone()].as_ptr(),
            up: up[range.clone()].as_ptr(),
            to: to.at(range.start),
            count: range.len(),
        };
        // SAFETY: the form is the pool's, and the range lies in the three slices.
        unsafe { simd::run(pool.form(), kernel) }
    })
}

/// `to[i] = activation(gate[i]) * up[i]`, on this thread.
///
/// # Safety
/// The form is available; `count` numbers may be read from `gate` and `up` and written to `to`,
/// which may be `gate`.
pub(crate) unsafe fn gate(
    form: Form,
    activation: Activation,
    gate: *const f32,
    up: *const f32,
    to: *mut f32,
    count: usize,
) {
    let kernel = Gate {
        activation,
        gate,
        up,
        to,
        count,
    };
    // SAFETY: passed on.
    unsafe { simd::run(form, kernel) }
}

/// A slice that threads write in disjoint ranges.
#[derive(Clone, Copy)]
pub(crate) struct Output<T>(pub(crate) *mut T);

// SAFETY: the kernels write disjoint ranges.
unsafe impl<T: Send> Sync for Output<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Output<T> {}

impl<T> Output<T> {
    pub(crate) fn at(&self, index: usize) -> *mut T {
        self.0.wrapping_add(index)
    }
}

/// `to = activation(gate) * up`, or without `up` if that is null.
struct Gate {
    activation: Activation,
    gate: *const f32,
    up: *const f32,
    to: *mut f32,
    count: usize,
}

impl Kernel for Gate {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: passed on.
        unsafe {
            match self.activation {
                Activation::Silu => self.all::<S, SILU>(),
                Activation::Gelu => self.all::<S, GELU>(),
                Activation::GeluTanh => self.all::<S, GELU_TANH>(),
                Activation::Relu => self.all::<S, RELU>(),
                Activation::Relu2 => self.all::<S, RELU2>(),
                Activation::QuickGelu => self.all::<S, QUICK_GELU>(),
                Activation::Sigmoid => self.all::<S, SIGMOID>(),
                // Rare, and not worth a vector form.
                Activation::Tanh => self.each(f32::tanh),
                Activation::Softplus => self.each(|x| x.max(0.0) + (-x.abs()).exp().ln_1p()),
            }
        }
    }
}

const SILU: u8 = 0;
const GELU: u8 = 1;
const GELU_TANH: u8 = 2;
const RELU: u8 = 3;
const RELU2: u8 = 4;
const QUICK_GELU: u8 = 5;
const SIGMOID: u8 = 6;

impl Gate {
    unsafe fn each(&self, activation: fn(f32) -> f32) {
        for i in 0..self.count {
            // SAFETY: the index is below `count`.
            unsafe {
                let up = if self.up.is_null() {
                    1.0
                } else {
                    *self.up.add(i)
                };
                *self.to.add(i) = activation(*self.gate.add(i)) * up;
            }
        }
    }

    #[inline(always)]
    unsafe fn all<S: Simd, const A: u8>(&self) {
        let mut i = 0;
        // SAFETY: the indices are below `count`; the tail goes through arrays of whole vectors.
        unsafe {
            while i + S::LANES <= self.count {
                let mut value = apply::<S, A>(S::load(self.gate.add(i)));
                if !self.up.is_null() {
                    value = S::mul(value, S::load(self.up.add(i)));
                }
                S::store(self.to.add(i), value);
                i += S::LANES;
            }
            if i < self.count {
                let rest = self.count - i;
                let (mut gate, mut up) = ([0f32; 16], [1f32; 16]);
                std::ptr::copy(self.gate.add(i), gate.as_mut_ptr(), rest);
                if !self.up.is_null() {
                    std::ptr::copy(self.up.add(i), up.as_mut_ptr(), rest);
                }
                let value = apply::<S, A>(S::load(gate.as_ptr()));
                S::store(gate.as_mut_ptr(), S::mul(value, S::load(up.as_ptr())));
                std::ptr::copy(gate.as_ptr(), self.to.add(i), rest);
            }
        }
    }
}

#[inline(always)]
unsafe fn apply<S: Simd, const A: u8>(x: S::V) -> S::V {
    // SAFETY: passed on.
    unsafe {
        let one = S::splat(1.0);
        let half = S::splat(0.5);
        match A {
            SILU => S::div(x, S::add(one, exp::<S>(S::sub(S::splat(0.0), x)))),
            GELU => {
                let zero = S::splat(0.0);
                let a = S::mul(x, S::splat(std::f32::consts::FRAC_1_SQRT_2));
                let a = S::max(a, S::sub(zero, a));
                let tail = erfc::<S>(a);
                // 1 + erf(x / sqrt(2)) without cancellation on either side.
                let twice = S::select(x, zero, tail, S::sub(S::splat(2.0), tail));
                S::mul(S::mul(half, x), twice)
            }
            GELU_TANH => {
                // 0.5 x (1 + tanh(u)) = x / (1 + e^(-2u)).
                let cube = S::mul(S::mul(x, x), x);
                let u = S::fma(cube, S::splat(0.044_715), x);
                let scale = -2.0 * (2.0f64 / std::f64::consts::PI).sqrt();
                let e = exp::<S>(S::mul(u, S::splat(scale as f32)));
                S::div(x, S::add(one, e))
            }
            QUICK_GELU => {
                let e = exp::<S>(S::mul(S::splat(-1.702), x));
                S::div(x, S::add(one, e))
            }
            SIGMOID => S::div(one, S::add(one, exp::<S>(S::sub(S::splat(0.0), x)))),
            RELU2 => {
                let positive = S::max(x, S::splat(0.0));
                S::mul(positive, positive)
            }
            _ => S::max(x, S::splat(0.0)),
        }
    }
}

/// `e^x` within about one unit in the last place of `f32` for results in the normal range; beyond
/// them 0 and infinity. NaN stays NaN.
#[inline(always)]
pub(crate) unsafe fn exp<S: Simd>(x: S::V) -> S::V {
    // SAFETY: passed on.
    unsafe {
        // Of NaN and a bound, `min` and `max` give their second operand.
        let clamped = S::max(S::splat(-104.0), S::min(S::splat(89.0), x));
        let n = S::round(S::mul(clamped, S::splat(std::f32::consts::LOG2_E)));
        // ln 2 in two parts, the first exact in products with n.
        let r = S::fma(n, S::splat(-355.0 / 512.0), clamped);
        let r = S::fma(n, S::splat(2.121_944_4e-4), r);
        // e^r on |r| <= ln(2) / 2: its Taylor series, whose next term is below 2^-26.
        let mut sum = S::splat(1.0 / 5040.0);
        sum = S::fma(sum, r, S::splat(1.0 / 720.0));
        sum = S::fma(sum, r, S::splat(1.0 / 120.0));
        sum = S::fma(sum, r, S::splat(1.0 / 24.0));
        sum = S::fma(sum, r, S::splat(1.0 / 6.0));
        sum = S::fma(sum, r, S::splat(0.5));
        let sum = S::add(S::fma(S::mul(r, r), sum, r), S::splat(1.0));
        // 2^n in two factors: n alone can leave the range of exponents.
        let half = S::round(S::mul(n, S::splat(0.5)));
        let rest = S::sub(n, half);
        S::mul(S::mul(sum, S::power(half)), S::power(rest))
    }
}

/// The complementary error function of `a >= 0`.
#[inline(always)]
unsafe fn erfc<S: Simd>(a: S::V) -> S::V {
    /// `erfc(a) * e^(a²)` as a polynomial in `1 / (1 + 0.4 a)`: interpolated at Chebyshev nodes for
    /// `a` in `0..=9.5`, relative error below 1e-8.
    const SERIES: [f64; 11] = [
        -1.370_353_536_021_119_5e-5,
        0.226_022_686_971_685_2,
        0.221_792_168_559_565_93,
        0.233_000_523_823_739_7,
        0.064_124_247_328_548_56,
        0.429_563_925_061_256,
        -0.538_628_966_669_398_4,
        0.820_207_471_241_654_5,
        -0.685_226_422_129_365_1,
        0.271_425_194_446_105_97,
        -0.042_267_125_390_465_54,
    ];
    // SAFETY: passed on.
    unsafe {
        let one = S::splat(1.0);
        let t = S::div(one, S::fma(a, S::splat(0.4), one));
        let mut sum = S::splat(SERIES[10] as f32);
        let mut i = 10;
        while i > 0 {
            i -= 1;
            sum = S::fma(sum, t, S::splat(SERIES[i] as f32));
        }
        let square = S::mul(a, a);
        // What rounding the square lost, put back to first order.
        let rest = S::fma(a, a, S::sub(S::splat(0.0), square));
        let e = exp::<S>(S::sub(S::splat(0.0), square));
        S::mul(sum, S::sub(e, S::mul(e, rest)))
    }
}

/// The hyperbolic tangent within about two units in the last place.
#[inline(always)]
pub(crate) unsafe fn tanh<S: Simd>(x: S::V) -> S::V {
    /// `(tanh(x) / x - 1) / x²` as a polynomial in x², interpolated at Chebyshev nodes for x² in
    /// `0..=0.42`; relative error of the tangent below 1e-9.
    const SERIES: [f64; 6] = [
        -0.333_333_330_920_923_27,
        0.133_332_918_798_436,
        -0.053_956_598_260_132_445,
        0.021_748_064_165_980_96,
        -0.008_278_154_474_609_233,
        0.002_220_888_021_644_324_5,
    ];
    // SAFETY: passed on.
    unsafe {
        let (zero, one) = (S::splat(0.0), S::splat(1.0));
        let size = S::max(x, S::sub(zero, x));
        let square = S::mul(x, x);
        let mut sum = S::splat(SERIES[5] as f32);
        let mut i = 5;
        while i > 0 {
            i -= 1;
            sum = S::fma(sum, square, S::splat(SERIES[i] as f32));
        }
        let near = S::fma(S::mul(sum, square), size, size);
        let e = exp::<S>(S::add(size, size));
        let far = S::sub(one, S::div(S::splat(2.0), S::add(e, one)));
        let value = S::select(size, S::splat(0.64), near, far);
        S::select(x, zero, S::sub(zero, value), value)
    }
}
