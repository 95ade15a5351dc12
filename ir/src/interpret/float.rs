//! The two number types that the interpreter computes in.

use crate::DType;
use std::iter::Sum;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// f32 or f64.
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
    + bytemuck::Pod
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
