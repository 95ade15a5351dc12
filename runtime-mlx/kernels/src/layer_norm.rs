//! Layer normalisation.

use crate::rows::each_row;
use crate::simd::{self, Kernel, Simd};
use crate::{Error, Pool, error};

/// `out = (x - mean(x)) / sqrt(variance(x) + epsilon) * weight + bias` for each row of `weight.len()`
/// numbers.
///
/// # Errors
/// [`Error::Length`] if the slices do not fit each other.
pub fn layer_norm(
    pool: &Pool,
    x: &[f32],
    weight: &[f32],
    bias: &[f32],
    epsilon: f32,
    out: &mut [f32],
) -> Result<(), Error> {
    let width = weight.len();
    error::length("the bias", bias.len(), width)?;
    each_row(pool, x, width, out, |x, to| {
        let kernel = LayerNorm {
            x,
            weight,
            bias,
            epsilon,
            to,
        };
        // SAFETY: the form is the pool's, and x, the weight, the bias and the output have one width.
        unsafe { simd::run(pool.form(), kernel) }
    })
}

struct LayerNorm<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    bias: &'a [f32],
    epsilon: f32,
    to: *mut f32,
}

/// The sum of `x[i] - offset`, or of its squares.
#[inline(always)]
unsafe fn sum<S: Simd>(x: &[f32], offset: f32, squares: bool) -> f32 {
    // SAFETY: the indices are below the length.
    unsafe {
        let offsets = S::splat(offset);
        let mut sums = [S::splat(0.0); 4];
        let mut i = 0;
        while i + S::LANES <= x.len() {
            let x = S::sub(S::load(x.as_ptr().add(i)), offsets);
            let lane = i / S::LANES % 4;
            sums[lane] = match squares {
                true => S::fma(x, x, sums[lane]),
                false => S::add(x, sums[lane]),
            };
            i += S::LANES;
        }
        let [a, b, c, d] = S::sums(sums);
        let mut sum = (a + b) + (c + d);
        while i < x.len() {
            let x = *x.as_ptr().add(i) - offset;
            sum += if squares { x * x } else { x };
            i += 1;
        }
        sum
    }
}

impl Kernel for LayerNorm<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let width = self.x.len();
        let (x, weight, bias) = (self.x.as_ptr(), self.weight.as_ptr(), self.bias.as_ptr());
        // SAFETY: the indices are below the width.
        unsafe {
            let mean = sum::<S>(self.x, 0.0, false) / width as f32;
            let variance = sum::<S>(self.x, mean, true) / width as f32;
            let factor = 1.0 / (variance + self.epsilon).sqrt();
            let (means, factors) = (S::splat(mean), S::splat(factor));
            let mut i = 0;
            while i + S::LANES <= width {
                let value = S::mul(S::sub(S::load(x.add(i)), means), factors);
                let value = S::fma(value, S::load(weight.add(i)), S::load(bias.add(i)));
                S::store(self.to.add(i), value);
                i += S::LANES;
            }
            while i < width {
                let value = (*x.add(i) - mean) * factor;
                *self.to.add(i) = value * *weight.add(i) + *bias.add(i);
                i += 1;
            }
        }
    }
}
