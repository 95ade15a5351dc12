//! What a number is to the interpreter.

use crate::DType;
use std::iter::Sum;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// Partial sums of a dot product: enough for the processor's vector units, and the reason why the
/// f32 interpreter's rounding error grows with a sixteenth of the length.
const LANES: usize = 16;

/// A number that the interpreter computes in: f32, f64, or [`super::Bounded`].
///
/// In f64 the graph's f32 values are not rounded, so that the result stands for the real numbers
/// that the graph means; in either type, f16 and bf16 values are rounded, for a convert to them is
/// part of the meaning.
pub trait Float:
    Copy
    + Default
    + Send
    + Sync
    + PartialOrd
    + std::fmt::Debug
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + Sum
    + 'static
{
    /// The nearest number of this type.
    fn from_f64(value: f64) -> Self;
    /// The same number.
    fn to_f64(self) -> f64;
    /// `e^x`.
    fn exp(self) -> Self;
    /// The natural logarithm.
    fn ln(self) -> Self;
    /// `ln(1 + x)`.
    fn ln_1p(self) -> Self;
    /// The square root.
    fn sqrt(self) -> Self;
    /// The sine.
    fn sin(self) -> Self;
    /// The cosine.
    fn cos(self) -> Self;
    /// The hyperbolic tangent.
    fn tanh(self) -> Self;
    /// The error function.
    fn erf(self) -> Self;
    /// The absolute value.
    fn abs(self) -> Self;
    /// `self` to the power of `exponent`.
    fn powf(self, exponent: Self) -> Self;

    /// The sum of `lhs[i] * rhs[i]`.
    fn product(lhs: &[Self], rhs: &[Self]) -> Self {
        let mut sums = [Self::default(); LANES];
        let (left, right) = (lhs.chunks_exact(LANES), rhs.chunks_exact(LANES));
        let tail: Self = left
            .remainder()
            .iter()
            .zip(right.remainder())
            .map(|(&a, &b)| a * b)
            .sum();
        for (a, b) in left.zip(right) {
            for lane in 0..LANES {
                sums[lane] = sums[lane] + a[lane] * b[lane];
            }
        }
        let mut width = LANES;
        while width > 1 {
            width /= 2;
            for lane in 0..width {
                sums[lane] = sums[lane] + sums[lane + width];
            }
        }
        sums[0] + tail
    }

    /// The sum of numbers: a tree of pairs, so that its error grows with the logarithm.
    fn total(numbers: &[Self]) -> Self {
        match numbers {
            [] => Self::default(),
            [one] => *one,
            _ => {
                let (left, right) = numbers.split_at(numbers.len() / 2);
                Self::total(left) + Self::total(right)
            }
        }
    }

    /// The number, which was preferred to `other` by an order between them.
    fn preferred_to(self, other: Self) -> Self {
        let _ = other;
        self
    }

    /// The number as an element of type `dtype` would hold it.
    fn rounded(self, dtype: DType) -> Self {
        match dtype {
            DType::F16 => Self::from_f64(half::f16::from_f64(self.to_f64()).to_f64()),
            DType::BF16 => Self::from_f64(half::bf16::from_f64(self.to_f64()).to_f64()),
            DType::Bool | DType::I32 | DType::U32 | DType::F32 => self,
        }
    }
}

macro_rules! float {
    ($type:ty, $erf:path) => {
        impl Float for $type {
            fn from_f64(value: f64) -> Self {
                value as $type
            }
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
            fn exp(self) -> Self {
                self.exp()
            }
            fn ln(self) -> Self {
                self.ln()
            }
            fn ln_1p(self) -> Self {
                self.ln_1p()
            }
            fn sqrt(self) -> Self {
                self.sqrt()
            }
            fn sin(self) -> Self {
                self.sin()
            }
            fn cos(self) -> Self {
                self.cos()
            }
            fn tanh(self) -> Self {
                self.tanh()
            }
            fn erf(self) -> Self {
                $erf(self)
            }
            fn abs(self) -> Self {
                self.abs()
            }
            fn powf(self, exponent: Self) -> Self {
                self.powf(exponent)
            }
        }
    };
}

float!(f32, libm::erff);
float!(f64, libm::erf);
