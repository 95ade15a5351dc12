//! Changing the bytes of one weight.

use super::file::Method;
use super::prune::Region;
use super::source::{Numbers, Slice};
use crate::convert;
use crate::weights::{Bytes, Weights, Words};
use mlxcel_ir::{DType, WeightDecl, WeightFormat};
use rayon::prelude::*;
use std::ops::Range;

/// What is done to a weight; planning checked that it can be.
#[derive(Debug)]
pub(super) enum Action {
    /// All numbers times a factor.
    Scale(f32),
    /// Plus a factor times other numbers.
    Add(Numbers, f32),
    /// Some numbers become zero.
    Zero(Region),
    /// The parts become those of another weight.
    Replace(Vec<Slice>),
    /// A mixture of two takes its place.
    Mix([Numbers; 2], f64, Method),
}

/// Does `action` to the weight `name`.
pub(super) fn perform(weights: &mut Weights, name: &str, action: Action) {
    let Some(stored) = weights.stored.get(name) else {
        return;
    };
    let declaration = stored.declaration.clone();
    if let Action::Zero(Region::All) = action {
        // In every format, zeros alone are the number zero.
        let sizes = declaration.part_bytes();
        put(
            weights,
            name,
            sizes.map(|size| (size > 0).then(|| Words::zeros(size))),
        );
        return;
    }
    // The parts that hold numbers: of a quantised weight its scales and biases, to which the numbers
    // are proportional.
    let (dtype, parts) = match declaration.format {
        WeightFormat::Dense(dtype) => (dtype, [Some(&stored.values), None, None]),
        WeightFormat::Affine { scale, .. } => {
            (scale, [None, Some(&stored.scales), Some(&stored.biases)])
        }
        WeightFormat::ZeroPoint { scale, .. } => (scale, [None, Some(&stored.scales), None]),
        // Only replaced or made zero as a whole.
        _ => (DType::F32, [None, None, None]),
    };
    let current = |part: &Bytes| convert::to_f32(dtype, weights.bytes(part)).unwrap_or_default();
    let edited = |edit: &dyn Fn(&mut Vec<f32>)| {
        parts.map(|part| {
            let mut numbers = current(part?);
            edit(&mut numbers);
            Some(stored_as(dtype, &numbers))
        })
    };
    let new = match action {
        Action::Scale(factor) => edited(&|numbers| {
            numbers.par_iter_mut().for_each(|number| *number *= factor);
        }),
        Action::Add(other, factor) => edited(&|numbers| {
            let other = other.to_f32();
            numbers
                .par_iter_mut()
                .zip(&other)
                .for_each(|(number, other)| *number += factor * other);
        }),
        Action::Zero(region) => edited(&|numbers| zero(numbers, &declaration, &region)),
        Action::Mix([a, b], ratio, method) => edited(&|numbers| {
            *numbers = mix(&a.to_f32(), &b.to_f32(), ratio, method);
        }),
        Action::Replace(slices) => {
            let mut slices = slices
                .iter()
                .map(|slice| Some(Words::copied(slice.bytes())));
            [(); 3].map(|()| slices.next().flatten())
        }
    };
    put(weights, name, new);
}

/// Puts the parts that there are in place of those of the weight `name`.
fn put(weights: &mut Weights, name: &str, new: [Option<Words>; 3]) {
    if let Some(stored) = weights.stored.get_mut(name) {
        let parts = [&mut stored.values, &mut stored.scales, &mut stored.biases];
        for (part, new) in parts.into_iter().zip(new) {
            if let Some(new) = new {
                *part = Bytes::Owned(new);
            }
        }
    }
}

fn stored_as(dtype: DType, numbers: &[f32]) -> Words {
    let mut words = Words::zeros(numbers.len() * dtype.size());
    convert::write_all(dtype, numbers, words.bytes_mut());
    words
}

/// Makes `region` of the weight zero; `numbers` are its elements, or one for each group of them.
fn zero(numbers: &mut [f32], declaration: &WeightDecl, region: &Region) {
    let elements = declaration.elements().max(1);
    // Elements that one of `numbers` stands for; all of them lie in one row.
    let each = elements / numbers.len().max(1);
    let width = declaration.shape.last().copied().unwrap_or(1);
    let is_vector = declaration.shape.len() == 1 || declaration.name.ends_with(".bias");
    let (line, ranges): (usize, Vec<Range<usize>>) = match region {
        Region::All => return numbers.fill(0.0),
        Region::Rows(ranges) if is_vector => (width, ranges.clone()),
        Region::Rows(ranges) => {
            let row = width / each.max(1);
            let rows = declaration.shape.iter().rev().nth(1).copied().unwrap_or(1);
            let ranges = ranges
                .iter()
                .map(|range| range.start * row..range.end * row);
            (rows * row, ranges.collect())
        }
        Region::Columns(ranges) => {
            let ranges = ranges
                .iter()
                .map(|range| range.start / each..range.end / each);
            (width / each, ranges.collect())
        }
    };
    for line in numbers.chunks_mut(line.max(1)) {
        for range in &ranges {
            line[range.clone()].fill(0.0);
        }
    }
}

/// The mixture of `a` and `b` at `ratio`: 0 is `a`, 1 is `b`.
fn mix(a: &[f32], b: &[f32], ratio: f64, method: Method) -> Vec<f32> {
    let [from, to] = match method {
        Method::Lerp => [1.0 - ratio, ratio],
        Method::Slerp => arc(a, b, ratio),
    };
    let (from, to) = (from as f32, to as f32);
    a.par_iter()
        .zip(b)
        .map(|(a, b)| from * a + to * b)
        .collect()
}

/// The factors of spherical interpolation (Shoemake, 1985) between `a` and `b` as vectors; those of
/// the line where they are almost parallel.
fn arc(a: &[f32], b: &[f32], ratio: f64) -> [f64; 2] {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        a.iter()
            .zip(b)
            .map(|(a, b)| f64::from(*a) * f64::from(*b))
            .sum()
    };
    let cosine = dot(a, b) / (dot(a, a) * dot(b, b)).sqrt();
    // Not a number where one of them is zero.
    if cosine.is_nan() || cosine.abs() > 1.0 - 1e-6 {
        return [1.0 - ratio, ratio];
    }
    let angle = cosine.acos();
    [(1.0 - ratio) * angle, ratio * angle].map(|part| part.sin() / angle.sin())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixtures_lie_between() {
        let check = |a: &[f32], b: &[f32], ratio, method, expect: &[f32]| {
            let got = mix(a, b, ratio, method);
            let near = got
                .iter()
                .zip(expect)
                .all(|(got, expect)| (got - expect).abs() < 1e-6);
            assert!(near, "{got:?} {expect:?}");
        };
        check(&[0.0, 4.0], &[8.0, 0.0], 0.25, Method::Lerp, &[2.0, 3.0]);
        check(&[1.0, 0.0], &[0.0, 1.0], 0.0, Method::Slerp, &[1.0, 0.0]);
        check(&[1.0, 0.0], &[0.0, 1.0], 1.0, Method::Slerp, &[0.0, 1.0]);
        let half = std::f32::consts::FRAC_1_SQRT_2;
        check(&[1.0, 0.0], &[0.0, 1.0], 0.5, Method::Slerp, &[half, half]);
        // Parallel, or without a direction.
        check(&[1.0, 0.0], &[3.0, 0.0], 0.5, Method::Slerp, &[2.0, 0.0]);
        check(&[0.0, 0.0], &[2.0, 2.0], 0.5, Method::Slerp, &[1.0, 1.0]);
    }
}
