//! Numbers that know how far rounding can take an execution from them.
//!
//! Interpreting a graph in [`Bounded`] is a running error analysis: each value is computed in f64,
//! and beside it stands a bound on how far an honest execution may be from it. The bound follows
//! from the numbers at hand, so it knows cancellation and steep functions, and it holds whatever
//! the order of a sum, whether products are fused into it, and whether intermediate values of 16
//! bits are rounded or kept in f32.
//!
//! What an operation may add is declared in [`ulp`] and [`sum_rounding`]; nothing else is assumed.

use super::Float;
use crate::DType;
use std::iter::Sum;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// Unit roundoff of f32: rounding changes a number by at most this share of it.
const U: f64 = 1.0 / (1u64 << 24) as f64;
/// The smallest normal f32. Executions may flush what is smaller to zero.
const TINY: f64 = f32::MIN_POSITIVE as f64;

/// How exact functions are, in units in the last place of the result: what OpenCL's full profile
/// demands of an implementation, which those for CPUs and GPUs keep to.
pub mod ulp {
    /// Of a quotient.
    pub const DIVIDE: f64 = 2.5;
    /// Of a square root.
    pub const SQRT: f64 = 3.0;
    /// Of `e^x`, besides [`EXP_ARGUMENT`] for each unit of `|x|`.
    pub const EXP: f64 = 3.0;
    /// Of `e^x` for each unit of `|x|`: where it is computed as a power of two, `x log2 e` is rounded, by
    /// up to u of it, and `log2 e` is rounded to f32, by 0.22 u of it. The result is off by `ln 2` times
    /// that, which is 1.22 u `|x|` or 0.61 units in the last place.
    pub const EXP_ARGUMENT: f64 = 0.61;
    /// Of a natural logarithm.
    pub const LOG: f64 = 3.0;
    /// Of `ln(1 + x)`.
    pub const LOG1P: f64 = 2.0;
    /// Of a sine or cosine, besides [`PI`].
    pub const SIN: f64 = 4.0;
    /// By how many unit roundoffs of the angle a sine or cosine may be off: the angle is reduced by a
    /// multiple of π, and the f32 nearest to π is 8.74e-8 away from it, which is 0.467 u of π.
    pub const PI: f64 = 0.47;
    /// Of a hyperbolic tangent, besides what an exponential's error makes of it.
    pub const TANH: f64 = 5.0;
    /// Of the error function, in units of 1 and not of the result: where it is used it is added to 1.
    /// The usual approximation by an exponential (Abramowitz and Stegun 7.1.26) has an error of 1.5e-7
    /// everywhere, which is 1.3 such units; the rest is for its evaluation, a polynomial of degree five
    /// whose steps are of the size of 1. Above 1/4 this is less than the 16 units of the result that
    /// OpenCL allows.
    pub const ERF: f64 = 4.0;
    /// Of a power.
    pub const POWER: f64 = 16.0;
}

/// By how much a sum may be off through rounding its `additions`, whose results are no larger than `partial`,
/// and `products` of these sizes, if its terms are products: at most one unit roundoff of each, and by more than
/// λ times the root of the sum of their squares with a probability below `2 exp(-λ² / 2)`, where rounding
/// errors are independent (Higham and Mary, "A New Approach to Probabilistic Rounding Error Analysis", 2019).
/// λ = 6 makes that 3e-8.
fn sum_rounding(additions: usize, partial: f64, products: impl Iterator<Item = f64>) -> f64 {
    let additions = additions as f64;
    let (mut size, mut square) = (additions * partial, additions * partial * partial);
    for product in products {
        size += product.abs();
        square += product * product;
    }
    U * size.min(6.0 * square.sqrt())
}

/// What no sum of some of the terms is larger than, however they are picked: all that are positive, or all
/// that are negative.
fn largest_part(terms: impl Iterator<Item = f64>) -> f64 {
    let (mut positive, mut negative) = (0.0, 0.0);
    for term in terms {
        match term > 0.0 {
            true => positive += term,
            false => negative -= term,
        }
    }
    f64::max(positive, negative)
}

/// The most terms of a sum along one dimension that may be added in any order: compilers unroll such sums, and
/// begin them with another term.
const SHORT: usize = 64;

/// The most lanes that a sum along one dimension is held to whatever their number; from here on it is to be a
/// power of two.
const LANES: usize = 16;

/// What no sum of a run of the terms is larger than, nor of a run in one of several lanes, of which each has every
/// so-manieth term, nor of the totals of a run of lanes.
fn largest_run(terms: &[f64]) -> f64 {
    let many = (LANES + 1..terms.len()).filter(|lanes| lanes.is_power_of_two());
    let counts = (1..=LANES.min(terms.len())).chain(many);
    let widest = counts.map(|lanes| {
        let mut totals = Vec::with_capacity(lanes);
        let mut widest = 0.0;
        for lane in 0..lanes {
            let (width, total) = run(terms[lane..].iter().step_by(lanes));
            widest = f64::max(widest, width);
            totals.push(total);
        }
        f64::max(widest, run(totals.iter()).0)
    });
    widest.fold(0.0, f64::max)
}

/// The largest sum of a run of the terms, and the sum of all.
fn run<'a>(terms: impl Iterator<Item = &'a f64>) -> (f64, f64) {
    let (mut sum, mut low, mut high) = (0.0, 0.0, 0.0);
    for term in terms {
        sum += term;
        low = f64::min(low, sum);
        high = f64::max(high, sum);
    }
    (high - low, sum)
}

/// A number and a bound on the distance of any honest execution's result from it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bounded {
    /// The number, as computed in f64.
    pub value: f64,
    /// The bound. Zero says that every execution gives exactly this number.
    pub error: f64,
    /// How many products it is the sum of, as long as their order is open; 0 for any other number.
    pub terms: u32,
    /// What rounding adds to the bound where another number joins these products before they are added
    /// up; 0 where the bound has that already. Products that add up exactly by themselves need not
    /// beside another number.
    pub joined: f64,
}

impl Bounded {
    /// A number with a bound, which means nothing where the number is not finite.
    fn new(value: f64, error: f64) -> Self {
        let error = match (value.is_finite(), error.is_nan()) {
            (false, _) => 0.0,
            (true, true) => f64::INFINITY,
            (true, false) => error,
        };
        Self {
            value,
            error,
            terms: 0,
            joined: 0.0,
        }
    }

    /// A number that every execution gives.
    pub fn exact(value: f64) -> Self {
        Self::new(value, 0.0)
    }

    /// What a sum of products is off by where its accumulators start from `first`, as compilers let
    /// them to save an addition of their own: each partial sum, and so the rounding of each addition,
    /// is larger by that.
    fn started(self, first: Self) -> f64 {
        if first.value == 0.0 && first.error == 0.0 {
            return 0.0;
        }
        sum_rounding(self.terms as usize, first.value.abs(), std::iter::empty()) + self.joined
    }

    /// A result that is rounded once.
    fn once(value: f64, error: f64) -> Self {
        match error == 0.0 && f64::from(value as f32) == value {
            true => Self::new(value, error),
            false => Self::new(value, error + U * value.abs() + flushed(value)),
        }
    }

    /// A result of a function that is exact to so many units in the last place.
    fn function(value: f64, error: f64, ulp: f64) -> Self {
        // A unit in the last place is at most two unit roundoffs of the number.
        Self::new(value, error + 2.0 * ulp * U * value.abs() + flushed(value))
    }

    /// How far a sine or cosine may be off through its angle.
    fn angle_error(self) -> f64 {
        (self.error + ulp::PI * U * self.value.abs()).min(2.0)
    }

    /// The largest value of `slope` that falls away from zero, within the bound.
    fn steepest(self, slope: impl Fn(f64) -> f64) -> f64 {
        slope((self.value.abs() - self.error).max(0.0))
    }
}

/// By how many units in the last place `e^x` may be off.
fn exp_ulp(x: f64) -> f64 {
    // Where the result is 0 for an argument of minus infinity, there is no error to speak of.
    ulp::EXP + ulp::EXP_ARGUMENT * x.abs().min(200.0)
}

/// What is lost where numbers below the smallest normal one are flushed to zero.
fn flushed(value: f64) -> f64 {
    match value.abs() < 2.0 * TINY && value != 0.0 {
        true => TINY,
        false => 0.0,
    }
}

/// Whether a sum of these exact f32 numbers is exact in any order: all are whole multiples of a
/// unit, and not even the sum of their sizes has more units than f32 can count.
fn sums_exactly(terms: impl Iterator<Item = f64>) -> bool {
    let (mut unit, mut size) = (f64::INFINITY, 0.0);
    for term in terms {
        if term == 0.0 {
            continue;
        }
        let bits = term.to_bits();
        let exponent = ((bits >> 52) & 0x7ff) as i32 - 1075;
        let zeros = (bits & ((1 << 52) - 1)).trailing_zeros().min(52) as i32;
        unit = f64::min(unit, 2f64.powi(exponent + zeros));
        size += term.abs();
    }
    size <= unit * (1u64 << 24) as f64 || size == 0.0
}

impl PartialOrd for Bounded {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        self.value.partial_cmp(&other.value)
    }
}

impl Add for Bounded {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        let sum = Self::once(self.value + other.value, self.error + other.error);
        Self::new(
            sum.value,
            sum.error + self.started(other) + other.started(self),
        )
    }
}

impl Sub for Bounded {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self::once(self.value - other.value, self.error + other.error)
    }
}

impl Mul for Bounded {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        Self::once(self.value * other.value, product_error(self, other))
    }
}

/// What the errors of two factors make of their product's.
fn product_error(a: Bounded, b: Bounded) -> f64 {
    match a.error == 0.0 && b.error == 0.0 {
        // An infinite factor times no error is no error.
        true => 0.0,
        false => a.value.abs() * b.error + b.value.abs() * a.error + a.error * b.error,
    }
}

impl Div for Bounded {
    type Output = Self;
    fn div(self, other: Self) -> Self {
        let value = self.value / other.value;
        if self.error == 0.0 && other.error == 0.0 {
            let power_of_two = other.value.to_bits() & ((1 << 52) - 1) == 0;
            if power_of_two && f64::from(value as f32) == value {
                return Self::exact(value);
            }
            return Self::function(value, 0.0, ulp::DIVIDE);
        }
        let least = other.value.abs() - other.error;
        let error = match least > 0.0 {
            true => (self.error + value.abs() * other.error) / least,
            false => f64::INFINITY,
        };
        Self::function(value, error, ulp::DIVIDE)
    }
}

impl Neg for Bounded {
    type Output = Self;
    fn neg(self) -> Self {
        Self::new(-self.value, self.error)
    }
}

impl Sum for Bounded {
    fn sum<I: Iterator<Item = Self>>(numbers: I) -> Self {
        Self::total(&numbers.collect::<Vec<_>>())
    }
}

impl Float for Bounded {
    fn from_f64(value: f64) -> Self {
        Self::once(value, 0.0)
    }

    fn to_f64(self) -> f64 {
        self.value
    }

    fn exp(self) -> Self {
        let value = self.value.exp();
        Self::function(value, value * self.error.exp_m1(), exp_ulp(self.value))
    }

    fn ln(self) -> Self {
        let least = (self.value - self.error).max(0.0);
        Self::function(self.value.ln(), self.error / least, ulp::LOG)
    }

    fn ln_1p(self) -> Self {
        let least = (1.0 + self.value - self.error).max(0.0);
        Self::function(self.value.ln_1p(), self.error / least, ulp::LOG1P)
    }

    fn sqrt(self) -> Self {
        let value = self.value.sqrt();
        let least = (self.value - self.error).max(0.0).sqrt();
        let error = match value + least > 0.0 {
            true => self.error / (value + least),
            false => self.error.sqrt(),
        };
        Self::function(value, error, ulp::SQRT)
    }

    fn sin(self) -> Self {
        Self::function(self.value.sin(), self.angle_error(), ulp::SIN)
    }

    fn cos(self) -> Self {
        Self::function(self.value.cos(), self.angle_error(), ulp::SIN)
    }

    fn tanh(self) -> Self {
        let slope = self.steepest(|x| 1.0 - x.tanh().powi(2));
        let value = self.value.tanh();
        // As (e - 1) / (e + 1) with e = e^2x it changes by (1 - tanh²) / 2 of what e changes by, as a share.
        let exponential = U * exp_ulp(2.0 * self.value) * (1.0 - value * value);
        let error = self.error.min(2.0) * slope + exponential;
        Self::function(value, error, ulp::TANH)
    }

    fn erf(self) -> Self {
        let slope = self.steepest(|x| std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp());
        let error = (self.error * slope).min(2.0);
        Self::new(libm::erf(self.value), error + 2.0 * ulp::ERF * U)
    }

    fn abs(self) -> Self {
        Self::new(self.value.abs(), self.error)
    }

    fn powf(self, exponent: Self) -> Self {
        let value = self.value.powf(exponent.value);
        if self.error == 0.0 && exponent.error == 0.0 {
            return Self::function(value, 0.0, ulp::POWER);
        }
        let least = (self.value - self.error).max(0.0);
        let share = (exponent.value.abs() + exponent.error) * self.error / least
            + self.value.ln().abs() * exponent.error;
        Self::function(value, value.abs() * share.exp_m1(), ulp::POWER)
    }

    fn product(lhs: &[Self], rhs: &[Self]) -> Self {
        let terms = || lhs.iter().zip(rhs).map(|(a, b)| a.value * b.value);
        let (value, size): (f64, f64) = (terms().sum(), terms().map(f64::abs).sum());
        let error: f64 = lhs
            .iter()
            .zip(rhs)
            .map(|(&a, &b)| product_error(a, b))
            .sum();
        let exact = error == 0.0 && sums_exactly(terms());
        // Each product is rounded too, unless it is fused into the sum. Terms of several dimensions may come in
        // any order.
        let additions = lhs.len().saturating_sub(1);
        let rounding = sum_rounding(additions, largest_part(terms()), terms()) + flushed(size);
        let (error, joined) = match exact {
            true => (0.0, rounding),
            false => (error + rounding, 0.0),
        };
        Self {
            terms: lhs.len() as u32,
            joined,
            ..Self::new(value, error)
        }
    }

    fn total(numbers: &[Self]) -> Self {
        let terms: Vec<f64> = numbers.iter().map(|number| number.value).collect();
        let value: f64 = terms.iter().sum();
        let error: f64 = numbers.iter().map(|number| number.error).sum();
        if error == 0.0 && sums_exactly(terms.iter().copied()) {
            return Self::new(value, error);
        }
        let size: f64 = terms.iter().map(|term| term.abs()).sum();
        let any = largest_part(terms.iter().copied());
        let partial = match terms.len() <= SHORT {
            true => any,
            false => any.min(largest_run(&terms)),
        };
        let rounding = sum_rounding(terms.len().saturating_sub(1), partial, std::iter::empty());
        Self::new(value, error + rounding + flushed(size))
    }

    fn preferred_to(self, other: Self) -> Self {
        Self::new(self.value, self.error.max(other.error))
    }

    /// The number itself, for an execution may as well keep it in f32, with room for two roundings:
    /// the execution's, and that of the number it means.
    fn rounded(self, dtype: DType) -> Self {
        let (unit, normal, nearest) = match dtype {
            DType::F16 => (
                (1u64 << 13) as f64 * U,
                f64::from(half::f16::MIN_POSITIVE),
                half::f16::from_f64(self.value).to_f64(),
            ),
            DType::BF16 => (
                (1u64 << 16) as f64 * U,
                TINY,
                half::bf16::from_f64(self.value).to_f64(),
            ),
            DType::Bool | DType::I32 | DType::U32 | DType::F32 => return self,
        };
        match self.error == 0.0 && nearest == self.value {
            true => self,
            false => Self::new(
                self.value,
                self.error + unit * (self.value.abs() + self.error).max(normal),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn exact(value: f32) -> Bounded {
        Bounded::from_f64(value.into())
    }

    proptest! {
        /// f32 itself is an honest execution.
        #[test]
        fn f32_stays_within_the_bound(
            x in prop::collection::vec(-3.0f32..3.0, 1..70),
            y in prop::collection::vec(0.1f32..3.0, 70),
        ) {
            let y = &y[..x.len()];
            let check = |name: &str, found: f32, bounded: Bounded| {
                let distance = (f64::from(found) - bounded.value).abs();
                prop_assert!(distance <= bounded.error, "{name}: {distance} {bounded:?}");
                Ok(())
            };
            let (bx, by): (Vec<_>, Vec<_>) = (x.iter().copied().map(exact).collect(), y.iter().copied().map(exact).collect());
            check("product", f32::product(&x, y), Bounded::product(&bx, &by))?;
            check("total", f32::total(&x), Bounded::total(&bx))?;
            let one_by_one = x.iter().zip(y).fold(0.0, |sum, (a, b)| sum + a * b);
            check("sum", one_by_one, Bounded::product(&bx, &by))?;
            for ((&a, &b), (&ba, &bb)) in x.iter().zip(y).zip(bx.iter().zip(&by)) {
                check("quotient", (a - b) / b, (ba - bb) / bb)?;
                check("difference", (a * b + b) - a * b, (ba * bb + bb) - ba * bb)?;
                check("exp", (a * b).exp(), (ba * bb).exp())?;
                check("ln", (b * b).ln(), (bb * bb).ln())?;
                check("sqrt", (b * b).sqrt(), (bb * bb).sqrt())?;
                check("tanh", (a * b).tanh(), (ba * bb).tanh())?;
                check("sin", (a * b).sin(), (ba * bb).sin())?;
                check("erf", Float::erf(a * b), (ba * bb).erf())?;
                check("power", (b * b).powf(a * b), (bb * bb).powf(ba * bb))?;
                let sixteen = Float::rounded(Float::rounded(a * b, DType::BF16) * b, DType::BF16);
                let bounded = ((ba * bb).rounded(DType::BF16) * bb).rounded(DType::BF16);
                check("bf16", sixteen, bounded)?;
                check("kept in f32", a * b * b, bounded)?;
            }
        }
    }

    #[test]
    fn small_whole_numbers_are_exact() {
        let numbers: Vec<Bounded> = (0..1000).map(|i| exact(i as f32 / 8.0)).collect();
        assert_eq!(Bounded::total(&numbers).error, 0.0);
        assert_eq!(Bounded::product(&numbers, &numbers[..1]).error, 0.0);
        assert_eq!((exact(3.0) * exact(0.5) + exact(1.0)).error, 0.0);
        assert!((exact(1.0) / exact(3.0)).error > 0.0);
        assert!(exact(0.1).rounded(DType::BF16).error > 0.0);
        assert!(Bounded::total(&[exact(1.0), exact(1e-9)]).error > 0.0);
    }

    /// A bias may be where the sum starts from, or be added to it.
    #[test]
    fn the_order_of_a_bias_is_open() {
        let (x, w) = ([0.011f32, -0.007, 0.013, 0.002], [0.3f32, 0.9, -0.4, 0.7]);
        let bias = 0.2309f32;
        let (bx, bw) = (x.map(exact), w.map(exact));
        let bounded = Bounded::product(&bx, &bw) + exact(bias);
        let first = x.iter().zip(w).fold(bias, |sum, (a, b)| sum + a * b);
        let last = x.iter().zip(w).fold(0.0, |sum, (a, b)| sum + a * b) + bias;
        for found in [first, last] {
            let distance = (f64::from(found) - bounded.value).abs();
            assert!(distance <= bounded.error, "{found} {bounded:?}");
        }
        // No more than one rounding of the bias for each product, and the last addition's.
        assert!(bounded.error < 6.0 * U * f64::from(bias), "{bounded:?}");
        assert_eq!(
            (bounded.terms, (exact(0.1) + exact(0.2)).error),
            (
                0,
                U * 0.3f64.abs().max(f64::from(0.1f32) + f64::from(0.2f32))
            )
        );
    }

    #[test]
    fn products_that_add_up_exactly_do_not_beside_a_bias() {
        let (x, w, bias) = ([1.5f32, -1.5], [8.0f32, 7.5], 0.2309f32);
        let products = Bounded::product(&x.map(exact), &w.map(exact));
        assert_eq!((products.value, products.error), (0.75, 0.0));
        assert_eq!((products + exact(0.0)).error, 0.0);
        let bounded = products + exact(bias);
        let first = x.iter().zip(w).fold(bias, |sum, (a, b)| sum + a * b);
        let distance = (f64::from(first) - bounded.value).abs();
        // More than roundings of numbers of the bias's and the result's size.
        let small = 2.0 * U * (f64::from(bias) + bounded.value);
        assert!(distance > small, "{first} {bounded:?}");
        assert!(distance <= bounded.error, "{first} {bounded:?}");
    }

    /// What no partial sum is larger than: of terms of one sign their sum, of others less; where the signs fall
    /// together with lanes, the lanes' sums.
    #[test]
    fn partial_sums_are_bounded() {
        let check = |name: &str, term: fn(usize) -> bool, larger: f64, part: f64, run: f64| {
            let number = |i| if term(i) { larger } else { -1.0 };
            let terms: Vec<f64> = (0..240).map(number).collect();
            let found = (largest_part(terms.iter().copied()), largest_run(&terms));
            assert_eq!(found, (part, run), "{name}");
        };
        check("one sign", |_| true, 1.0, 240.0, 240.0);
        check("halves", |i| i < 120, 1.0, 120.0, 120.0);
        check("every other", |i| i % 2 == 0, 1.0, 120.0, 120.0);
        check("one in three", |i| i % 3 == 0, 2.0, 160.0, 160.0);
        check("runs of lanes", |i| i % 8 < 4, 1.0, 120.0, 120.0);
        // No lanes fall together with these, so that the sum of a block is the largest.
        check("blocks", |i| i / 40 % 2 == 0, 1.0, 120.0, 40.0);
    }

    #[test]
    fn infinities_have_no_error() {
        let hidden = exact(f32::NEG_INFINITY) - exact(0.1);
        assert_eq!((hidden.value, hidden.error), (f64::NEG_INFINITY, 0.0));
        let share = hidden.exp();
        assert_eq!(share.value, 0.0);
        assert!(share.error < 1e-30);
    }
}
