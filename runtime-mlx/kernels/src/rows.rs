//! Operations on rows: embedding look-up, normalisation, softmax and argmax.

use crate::activation::{Output, exp};
use crate::linear::{put_scratch, take_scratch};
use crate::matrix::Format;
use crate::simd::{self, Kernel, Simd};
use crate::{Error, Matrix, Pool, error, widen};
use std::cmp::Ordering;

/// Numbers in one claim of a thread.
const GRAIN: usize = 1 << 13;

/// `out[i, K]` = row `tokens[i]` of the table.
///
/// # Errors
/// [`Error::Index`] if a token is not a row of the table, [`Error::Length`] if `out` does not fit.
pub fn embedding_rows(
    pool: &Pool,
    table: &Matrix<'_>,
    tokens: &[i32],
    out: &mut [f32],
) -> Result<(), Error> {
    let columns = table.columns;
    error::length(
        "the output of embedding_rows",
        out.len(),
        tokens.len() * columns,
    )?;
    let inside = |token: i32| usize::try_from(token).is_ok_and(|token| token < table.rows);
    if let Some(&token) = tokens.iter().find(|&&token| !inside(token)) {
        return Err(Error::Index {
            index: token.into(),
            rows: table.rows,
        });
    }
    let to = Output(out.as_mut_ptr());
    pool.ranges(tokens.len(), GRAIN.div_ceil(columns), |range| {
        for i in range {
            let kernel = Embedding {
                table,
                row: tokens[i] as usize,
                to: to.at(i * columns),
            };
            // SAFETY: the form is the pool's, the row is in the table, the output has row `i`.
            unsafe { simd::run(pool.form(), kernel) }
        }
    })
}

struct Embedding<'a> {
    table: &'a Matrix<'a>,
    row: usize,
    to: *mut f32,
}

impl Kernel for Embedding<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let columns = self.table.columns;
        let groups = match self.table.format {
            Format::Dense { .. } => 0,
            Format::Coded(coded) => columns / coded.group,
        };
        let mut scratch = take_scratch(2 * groups);
        // SAFETY: the scratch covers the row's scales and biases; the rest is the caller's promise.
        unsafe {
            let side = scratch.as_mut_ptr();
            widen::row::<S>(self.table, self.row, 0, columns, self.to, side);
        }
        put_scratch(scratch);
    }
}

/// `out = x / sqrt(mean(x²) + epsilon) * weight` for each row of `weight.len()` numbers.
///
/// # Errors
/// [`Error::Length`] if the slices do not fit each other.
pub fn rms_norm(
    pool: &Pool,
    x: &[f32],
    weight: &[f32],
    epsilon: f32,
    out: &mut [f32],
) -> Result<(), Error> {
    let width = weight.len();
    each_row(pool, x, width, out, |x, to| {
        let kernel = RmsNorm {
            x,
            weight,
            epsilon,
            to,
        };
        // SAFETY: the form is the pool's, and x, the weight and the output have one width.
        unsafe { simd::run(pool.form(), kernel) }
    })
}

struct RmsNorm<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    epsilon: f32,
    to: *mut f32,
}

impl Kernel for RmsNorm<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let width = self.x.len();
        let (x, weight) = (self.x.as_ptr(), self.weight.as_ptr());
        // SAFETY: the indices are below the width.
        unsafe {
            let mut squares = [S::splat(0.0); 4];
            let mut i = 0;
            while i + 4 * S::LANES <= width {
                for (j, sum) in squares.iter_mut().enumerate() {
                    let x = S::load(x.add(i + j * S::LANES));
                    *sum = S::fma(x, x, *sum);
                }
                i += 4 * S::LANES;
            }
            while i + S::LANES <= width {
                let x = S::load(x.add(i));
                squares[0] = S::fma(x, x, squares[0]);
                i += S::LANES;
            }
            let [a, b, c, d] = S::sums(squares);
            let mut sum = (a + b) + (c + d);
            while i < width {
                sum += *x.add(i) * *x.add(i);
                i += 1;
            }
            let factor = 1.0 / (sum / width as f32 + self.epsilon).sqrt();
            let factors = S::splat(factor);
            i = 0;
            while i + S::LANES <= width {
                let value = S::mul(S::load(x.add(i)), factors);
                S::store(self.to.add(i), S::mul(value, S::load(weight.add(i))));
                i += S::LANES;
            }
            while i < width {
                *self.to.add(i) = *x.add(i) * factor * *weight.add(i);
                i += 1;
            }
        }
    }
}

/// Each row of `width` numbers replaced by `e^x` divided by its sum.
///
/// # Errors
/// [`Error::Length`] if the slices do not fit each other, [`Error::Parameter`] if `width` is 0.
pub fn softmax(pool: &Pool, x: &[f32], width: usize, out: &mut [f32]) -> Result<(), Error> {
    each_row(pool, x, width, out, |x, to| {
        // SAFETY: the form is the pool's, and the output has the width of x.
        unsafe { simd::run(pool.form(), Softmax { x, to }) }
    })
}

struct Softmax<'a> {
    x: &'a [f32],
    to: *mut f32,
}

impl Kernel for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let width = self.x.len();
        let x = self.x.as_ptr();
        // SAFETY: the indices are below the width; tails go through arrays of whole vectors.
        unsafe {
            let largest = largest::<S>(self.x);
            let offset = S::splat(largest);
            let mut sums = S::splat(0.0);
            let mut i = 0;
            while i + S::LANES <= width {
                let e = exp::<S>(S::sub(S::load(x.add(i)), offset));
                sums = S::add(sums, e);
                S::store(self.to.add(i), e);
                i += S::LANES;
            }
            let mut sum = S::sum(sums);
            if i < width {
                let mut rest = [0f32; 16];
                std::ptr::copy(x.add(i), rest.as_mut_ptr(), width - i);
                let e = exp::<S>(S::sub(S::load(rest.as_ptr()), offset));
                S::store(rest.as_mut_ptr(), e);
                for (j, e) in rest.iter().take(width - i).enumerate() {
                    sum += e;
                    *self.to.add(i + j) = *e;
                }
            }
            scale::<S>(self.to, width, 1.0 / sum);
        }
    }
}

/// The largest number of a slice; negative infinity if it is empty. NaNs may be passed over.
#[inline(always)]
pub(crate) unsafe fn largest<S: Simd>(x: &[f32]) -> f32 {
    let mut largest = f32::NEG_INFINITY;
    let mut i = 0;
    // SAFETY: the indices are below the slice's length.
    unsafe {
        if x.len() >= S::LANES {
            let mut lanes = S::splat(f32::NEG_INFINITY);
            while i + S::LANES <= x.len() {
                lanes = S::max(S::load(x.as_ptr().add(i)), lanes);
                i += S::LANES;
            }
            largest = S::largest(lanes);
        }
    }
    while i < x.len() {
        largest = largest.max(x[i]);
        i += 1;
    }
    largest
}

/// Multiplies `count` numbers by `factor`.
///
/// # Safety
/// The instruction set of `S`, and `count` readable and writable numbers at `to`.
#[inline(always)]
pub(crate) unsafe fn scale<S: Simd>(to: *mut f32, count: usize, factor: f32) {
    // SAFETY: passed on.
    let factors = unsafe { S::splat(factor) };
    let mut i = 0;
    // SAFETY: the indices are below `count`.
    unsafe {
        while i + S::LANES <= count {
            S::store(to.add(i), S::mul(S::load(to.add(i)), factors));
            i += S::LANES;
        }
        while i < count {
            *to.add(i) *= factor;
            i += 1;
        }
    }
}

/// For each row of `width` numbers the index of the largest, the first one of equals. NaN counts as
/// smaller than every number.
///
/// # Errors
/// [`Error::Length`] if the slices do not fit each other, [`Error::Parameter`] if `width` is 0 or
/// more than an index can count.
pub fn argmax(pool: &Pool, x: &[f32], width: usize, out: &mut [i32]) -> Result<(), Error> {
    error::parameter(
        width > 0 && i32::try_from(width).is_ok(),
        "the width of argmax",
        width,
        "1 to 2^31 - 1",
    )?;
    error::length("the input of argmax", x.len(), out.len() * width)?;
    let to = Output(out.as_mut_ptr());
    pool.ranges(out.len(), GRAIN.div_ceil(width), |range| {
        for i in range {
            let kernel = Argmax(&x[i * width..][..width]);
            // SAFETY: the form is the pool's, and the output has row `i`.
            unsafe { *to.at(i) = simd::run(pool.form(), kernel) as i32 }
        }
    })
}

struct Argmax<'a>(&'a [f32]);

impl Kernel for Argmax<'_> {
    type Output = usize;

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> usize {
        // The largest of each block of the row, then the first place of the largest of all.
        const BLOCK: usize = 1024;
        let (mut best, mut start) = (f32::NEG_INFINITY, 0);
        for (i, block) in self.0.chunks(BLOCK).enumerate() {
            // SAFETY: passed on.
            let largest = unsafe { largest::<S>(block) };
            if largest > best {
                (best, start) = (largest, i * BLOCK);
            }
        }
        let mut i = start;
        while i < self.0.len() {
            if self.0[i] == best {
                return i;
            }
            i += 1;
        }
        0
    }
}

/// For each row of `width` numbers the places of the `count` largest, the largest first and the first
/// one of equals. NaN counts as smaller than every number.
///
/// # Errors
/// [`Error::Length`] if the slices do not fit each other, [`Error::Parameter`] if `width` is more than
/// an index can count or `count` is not in `1..=width`.
pub fn top_k(
    pool: &Pool,
    x: &[f32],
    width: usize,
    count: usize,
    out: &mut [i32],
) -> Result<(), Error> {
    error::parameter(
        (1..=width).contains(&count) && i32::try_from(width).is_ok(),
        "the count of top_k",
        count,
        "1 to the width of a row, which is below 2^31",
    )?;
    let rows = out.len() / count;
    error::length("the output of top_k", out.len(), rows * count)?;
    error::length("the input of top_k", x.len(), rows * width)?;
    let to = Output(out.as_mut_ptr());
    pool.ranges(rows, GRAIN.div_ceil(width), |range| {
        let mut places: Vec<u32> = Vec::with_capacity(width);
        for i in range {
            let x = &x[i * width..][..width];
            let key = |place: u32| {
                let number = x[place as usize];
                if number.is_nan() {
                    f32::NEG_INFINITY
                } else {
                    number
                }
            };
            // Zeros of both signs are equal, as numbers compare; so is a NaN to negative infinity.
            let before = |&a: &u32, &b: &u32| {
                let larger = key(b).partial_cmp(&key(a)).unwrap_or(Ordering::Equal);
                larger
                    .then(x[a as usize].is_nan().cmp(&x[b as usize].is_nan()))
                    .then(a.cmp(&b))
            };
            places.clear();
            places.extend(0..width as u32);
            if count < width {
                places.select_nth_unstable_by(count, before);
                places.truncate(count);
            }
            places.sort_unstable_by(before);
            for (j, &place) in places.iter().enumerate() {
                // SAFETY: the output has row `i` of `count` places.
                unsafe { *to.at(i * count + j) = place as i32 }
            }
        }
    })
}

/// From each row of `width` elements of 32 bits those that the same row of `count` indices names.
///
/// # Errors
/// [`Error::Index`] if an index is outside of the row, [`Error::Length`] if the slices do not fit.
pub fn take_along(
    x: &[f32],
    width: usize,
    indices: &[i32],
    count: usize,
    out: &mut [f32],
) -> Result<(), Error> {
    error::parameter(
        width > 0 && count > 0,
        "the width of a row",
        width,
        "at least 1",
    )?;
    error::length("the output of take_along", out.len(), indices.len())?;
    let rows = indices.len() / count;
    error::length("the indices of take_along", indices.len(), rows * count)?;
    error::length("the input of take_along", x.len(), rows * width)?;
    let rows = x.chunks_exact(width).zip(indices.chunks_exact(count));
    for ((x, indices), out) in rows.zip(out.chunks_exact_mut(count)) {
        for (&index, out) in indices.iter().zip(out) {
            let found = usize::try_from(index).ok().and_then(|index| x.get(index));
            *out = *found.ok_or(Error::Index {
                index: index.into(),
                rows: width,
            })?;
        }
    }
    Ok(())
}

/// Checks that `x` and `out` are rows of `width` numbers and calls `body` for each.
pub(crate) fn each_row(
    pool: &Pool,
    x: &[f32],
    width: usize,
    out: &mut [f32],
    body: impl Fn(&[f32], *mut f32) + Sync,
) -> Result<(), Error> {
    error::parameter(width > 0, "the width of a row", width, "at least 1")?;
    error::length("the output", out.len(), x.len())?;
    let rows = x.len() / width;
    error::length("the input", x.len(), rows * width)?;
    let to = Output(out.as_mut_ptr());
    pool.ranges(rows, GRAIN.div_ceil(width), |range| {
        for i in range {
            body(&x[i * width..][..width], to.at(i * width));
        }
    })
}
