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
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Distribution {
    /// Positions that were compared.
    pub positions: usize,
    /// Mean over positions of the divergence `KL(reference ‖ x)`, in nats.
    pub mean_divergence: f64,
    /// The divergence that 99 of 100 positions stay below, in nats.
    pub p99_divergence: f64,
    /// The largest divergence, in nats.
    pub max_divergence: f64,
    /// Share of positions whose most likely token is the reference's.
    pub same_top: f64,
    /// The first position whose most likely token is another.
    pub divergence: Option<Divergence>,
    /// Mean share of the reference's five most likely tokens that are among the five of `x`.
    pub top5_overlap: f64,
    /// Root mean square of the difference of the next token's log-probability, in nats.
    pub delta_rms: f64,
    /// `exp` of the mean negative log-probability of the next tokens.
    pub perplexity: f64,
    /// The 95% interval of the perplexity of texts of which this is a sample.
    pub perplexity_interval: [f64; 2],
    /// The perplexity of the reference.
    pub reference_perplexity: f64,
    /// Half the width of the 95% interval of the ratio of the two perplexities.
    pub ratio_interval: f64,
    /// Positions by the decimal exponent of their divergence, from 1e-16 (and less) to 1 (and more).
    pub histogram: Vec<usize>,
}

/// Where another token is the most likely one: from here on, a text that takes the most likely token each time
/// is another text.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Divergence {
    /// The position, from 0.
    pub position: usize,
    /// By how much the reference's most likely token is ahead of its second, in nats.
    pub margin: f64,
    /// By how much `x` moves the two tokens towards each other, in nats: more than the margin.
    pub error: f64,
}

/// Bins of [`Distribution::histogram`]: decimal exponents from -16 to 0.
const BINS: usize = 17;

/// Next-token distributions, position by position.
#[derive(Clone, Debug, Default)]
pub struct Positions(Vec<Position>);

#[derive(Clone, Copy, Debug)]
struct Position {
    divergence: f64,
    /// Margin and error of [`Divergence`], where the most likely token is another.
    other: Option<[f64; 2]>,
    overlap: f64,
    /// Log-probabilities of the next token, where there is one: of `x`, and of the reference.
    next: Option<[f64; 2]>,
}

impl Positions {
    /// Adds the logits `x[T, vocabulary]` of a text of `tokens`, held against `reference`.
    pub fn add(&mut self, x: &[f64], reference: &[f64], vocabulary: usize, tokens: &[u32]) {
        let rows = reference.chunks_exact(vocabulary.max(1));
        for (index, (x, r)) in x.chunks_exact(vocabulary.max(1)).zip(rows).enumerate() {
            let (x_norm, r_norm) = (log_sum_exp(x), log_sum_exp(r));
            let divergence: f64 = x
                .iter()
                .zip(r)
                .map(|(x, r)| (r - r_norm).exp() * ((r - r_norm) - (x - x_norm)))
                .sum();
            let (ours, theirs) = (best(x), best(r));
            let shared = theirs.iter().filter(|token| ours.contains(token)).count();
            let next = tokens.get(index + 1).and_then(|&token| {
                let place = token as usize;
                Some([x.get(place)? - x_norm, r.get(place)? - r_norm])
            });
            let other = match (ours.first(), theirs.first()) {
                (Some(&ours), Some(&first)) if ours != first => {
                    let margin = r[first] - theirs.get(1).map_or(f64::NAN, |&second| r[second]);
                    Some([margin, (x[ours] - x[first]) - (r[ours] - r[first])])
                }
                _ => None,
            };
            self.0.push(Position {
                divergence,
                other,
                overlap: shared as f64 / theirs.len().max(1) as f64,
                next,
            });
        }
    }

    /// All positions together.
    pub fn summary(&self) -> Distribution {
        let count = self.0.len().max(1) as f64;
        let mean = |f: &dyn Fn(&Position) -> f64| self.0.iter().map(f).sum::<f64>() / count;
        let mut sorted: Vec<f64> = self.0.iter().map(|p| p.divergence).collect();
        sorted.sort_by(f64::total_cmp);
        let place = ((sorted.len() as f64 * 0.99).ceil() as usize).saturating_sub(1);
        let mut histogram = vec![0; BINS];
        for divergence in &sorted {
            // What rounding makes negative is no divergence at all.
            let exponent = divergence.max(1e-16).log10().floor().clamp(-16.0, 0.0);
            histogram[(exponent + 16.0) as usize] += 1;
        }
        let mut others = self.0.iter().enumerate();
        let divergence = others.find_map(|(position, found)| {
            let [margin, error] = found.other?;
            Some(Divergence {
                position,
                margin,
                error,
            })
        });
        let next: Vec<[f64; 2]> = self.0.iter().filter_map(|p| p.next).collect();
        let total = next.len().max(1) as f64;
        let average = |f: &dyn Fn(&[f64; 2]) -> f64| next.iter().map(f).sum::<f64>() / total;
        let delta = average(&|[x, r]| x - r);
        let square = average(&|[x, r]| (x - r).powi(2));
        let deviation = ((square - delta * delta).max(0.0) / total).sqrt();
        let surprise = -average(&|[x, _]| *x);
        let spread = 1.96 * (average(&|[x, _]| (x + surprise).powi(2)) / total).sqrt();
        Distribution {
            positions: self.0.len(),
            mean_divergence: mean(&|p| p.divergence),
            p99_divergence: sorted.get(place).copied().unwrap_or(0.0),
            max_divergence: sorted.last().copied().unwrap_or(0.0),
            same_top: mean(&|p| f64::from(u8::from(p.other.is_none()))),
            divergence,
            top5_overlap: mean(&|p| p.overlap),
            delta_rms: square.sqrt(),
            perplexity: surprise.exp(),
            perplexity_interval: [(surprise - spread).exp(), (surprise + spread).exp()],
            reference_perplexity: (-average(&|[_, r]| *r)).exp(),
            ratio_interval: 1.96 * deviation,
            histogram,
        }
    }
}

/// The five largest, the largest first; the first of equals.
fn best(row: &[f64]) -> Vec<usize> {
    let mut best: Vec<usize> = Vec::with_capacity(6);
    for (index, &x) in row.iter().enumerate() {
        let place = best.partition_point(|&other| row[other] >= x);
        if place < 5 {
            best.insert(place, index);
            best.truncate(5);
        }
    }
    best
}

fn log_sum_exp(row: &[f64]) -> f64 {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    max + row.iter().map(|x| (x - max).exp()).sum::<f64>().ln()
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

    fn summary(x: &[f64], reference: &[f64], tokens: &[u32]) -> Distribution {
        let mut positions = Positions::default();
        positions.add(x, reference, 3, tokens);
        positions.summary()
    }

    #[test]
    fn distribution() {
        let reference = [0.0, 1.0, 2.0, 3.0, 1.0, 0.0];
        let equal = summary(&reference, &reference, &[1, 2]);
        assert_eq!((equal.max_divergence, equal.same_top), (0.0, 1.0));
        assert_eq!((equal.top5_overlap, equal.histogram[0]), (1.0, 2));
        assert_eq!(equal.perplexity, equal.reference_perplexity);
        let [low, high] = equal.perplexity_interval;
        assert!(low <= equal.perplexity && equal.perplexity <= high);
        // A constant added to a row of logits changes no probability.
        let shifted: Vec<f64> = reference.iter().map(|x| x + 5.0).collect();
        assert!(summary(&shifted, &reference, &[]).max_divergence < 1e-15);
        let swapped = [2.0, 1.0, 0.0, 3.0, 1.0, 0.0];
        let wrong = summary(&swapped, &reference, &[0, 2]);
        assert_eq!((wrong.same_top, wrong.positions), (0.5, 2));
        // At the first, the token that was the least likely by 2 is now the most likely by 2.
        let expect = Divergence {
            position: 0,
            margin: 1.0,
            error: 4.0,
        };
        assert_eq!((wrong.divergence, equal.divergence), (Some(expect), None));
        assert!(wrong.max_divergence > 1.0 && wrong.mean_divergence == wrong.max_divergence / 2.0);
        assert_eq!(wrong.p99_divergence, wrong.max_divergence);
        // The next token's logit fell from 2 to 0.
        assert!((wrong.delta_rms - 2.0).abs() < 1e-12);
        assert!((wrong.perplexity / wrong.reference_perplexity).ln() - 2.0 < 1e-12);
    }
}
