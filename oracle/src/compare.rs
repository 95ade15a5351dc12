//! Measures of the distance between a tensor and what it should be.

use serde::Serialize;

/// How far a tensor is from its reference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Distance {
    /// `‖x - r‖ / ‖r‖`; infinite where a finite reference met a number that is not finite, or the
    /// other way round, and where the sizes differ.
    pub relative_rms: f64,
    /// The largest `|x - r|`.
    pub max_absolute: f64,
    /// The flat index of the largest difference, or of the first number that is not finite.
    pub worst_index: usize,
}

impl Distance {
    /// The distance of `x` from `reference`.
    pub fn between(x: &[f64], reference: &[f64]) -> Self {
        if x.len() != reference.len() {
            return Self::unbounded(x.len().min(reference.len()));
        }
        let (mut difference, mut norm) = (0.0, 0.0);
        let (mut max_absolute, mut worst_index) = (0.0, 0);
        for (index, (&x, &r)) in x.iter().zip(reference).enumerate() {
            if x == r || (x.is_nan() && r.is_nan()) {
                norm += if r.is_finite() { r * r } else { 0.0 };
                continue;
            }
            if !x.is_finite() || !r.is_finite() {
                return Self::unbounded(index);
            }
            let error = (x - r).abs();
            difference += error * error;
            norm += r * r;
            if error > max_absolute {
                (max_absolute, worst_index) = (error, index);
            }
        }
        let relative_rms = match difference {
            0.0 => 0.0,
            _ => (difference / norm).sqrt(),
        };
        Self {
            relative_rms,
            max_absolute,
            worst_index,
        }
    }

    fn unbounded(worst_index: usize) -> Self {
        Self {
            relative_rms: f64::INFINITY,
            max_absolute: f64::INFINITY,
            worst_index,
        }
    }
}

/// How far next-token distributions are from their reference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Distribution {
    /// Mean over positions of the divergence `KL(reference ‖ x)`, in nats.
    pub mean_divergence: f64,
    /// The largest divergence, in nats.
    pub max_divergence: f64,
    /// Share of positions whose most likely token is the reference's.
    pub same_top: f64,
}

impl Distribution {
    /// The distance of logits `x[T, vocabulary]` from `reference`.
    pub fn between(x: &[f64], reference: &[f64], vocabulary: usize) -> Self {
        let rows = reference.chunks_exact(vocabulary.max(1));
        let positions = rows.len().max(1) as f64;
        let (mut sum, mut max, mut same) = (0.0, 0.0f64, 0usize);
        for (x, r) in x.chunks_exact(vocabulary.max(1)).zip(rows) {
            let (x_norm, r_norm) = (log_sum_exp(x), log_sum_exp(r));
            let divergence: f64 = x
                .iter()
                .zip(r)
                .map(|(x, r)| (r - r_norm).exp() * ((r - r_norm) - (x - x_norm)))
                .sum();
            sum += divergence;
            max = max.max(divergence);
            same += usize::from(top(x) == top(r));
        }
        Self {
            mean_divergence: sum / positions,
            max_divergence: max,
            same_top: same as f64 / positions,
        }
    }
}

fn log_sum_exp(row: &[f64]) -> f64 {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    max + row.iter().map(|x| (x - max).exp()).sum::<f64>().ln()
}

fn top(row: &[f64]) -> usize {
    let mut best = 0;
    for (index, &x) in row.iter().enumerate() {
        if x > row[best] {
            best = index;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(x: &[f64], reference: &[f64], relative_rms: f64, worst_index: usize) {
        let distance = Distance::between(x, reference);
        assert_eq!(distance.relative_rms, relative_rms, "{x:?} {reference:?}");
        assert_eq!(distance.worst_index, worst_index, "{x:?} {reference:?}");
    }

    #[test]
    fn distance() {
        check(&[1.0, 2.0], &[1.0, 2.0], 0.0, 0);
        check(&[3.0, 4.5], &[3.0, 4.0], 0.1, 1);
        check(&[0.0, 0.0], &[0.0, 0.0], 0.0, 0);
        check(&[0.0, 1.0], &[0.0, 0.0], f64::INFINITY, 1);
        check(&[1.0, f64::NAN], &[1.0, 2.0], f64::INFINITY, 1);
        check(&[1.0, 2.0], &[1.0, f64::NEG_INFINITY], f64::INFINITY, 1);
        check(&[f64::NAN, 2.0], &[f64::NAN, 2.0], 0.0, 0);
        check(&[1.0], &[1.0, 2.0], f64::INFINITY, 1);
    }

    #[test]
    fn distribution() {
        let reference = [0.0, 1.0, 2.0, 3.0, 1.0, 0.0];
        let equal = Distribution::between(&reference, &reference, 3);
        assert_eq!(equal.max_divergence, 0.0);
        assert_eq!(equal.same_top, 1.0);
        // A constant added to a row of logits changes no probability.
        let shifted: Vec<f64> = reference.iter().map(|x| x + 5.0).collect();
        assert!(Distribution::between(&shifted, &reference, 3).max_divergence < 1e-15);
        let swapped = [2.0, 1.0, 0.0, 3.0, 1.0, 0.0];
        let wrong = Distribution::between(&swapped, &reference, 3);
        assert_eq!(wrong.same_top, 0.5);
        assert!(wrong.max_divergence > 1.0 && wrong.mean_divergence == wrong.max_divergence / 2.0);
    }
}
