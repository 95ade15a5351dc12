//! Rotary position embedding: the angle by which each pair of a head turns per position.
//!
//! Frequencies are computed in f64 and are part of the graph's meaning; an execution rounds them to
//! the type it computes angles in.

use crate::RopeScaling;
use std::f64::consts::TAU;

/// Radians per position of each of the `dims / 2` pairs: `base^(-2 i / dims)`, stretched as
/// `scaling` says.
///
/// Source: "RoFormer: Enhanced Transformer with Rotary Position Embedding" (Su et al.), and for
/// [`RopeScaling::Llama3`] the rule published with Llama 3.1.
///
/// [`RopeScaling::Yarn`]: "YaRN: Efficient Context Window Extension of Large Language Models" (Peng
/// et al.), with the ramp over pairs as its authors implement it.
pub fn frequencies(dims: usize, base: f64, scaling: &RopeScaling) -> Vec<f64> {
    let plain = (0..dims / 2).map(|pair| base.powf(-2.0 * pair as f64 / dims as f64));
    match *scaling {
        RopeScaling::Yarn {
            factor,
            fast,
            slow,
            original,
            whole,
        } => {
            // The pair, as a real number, that turns `turns` times within `original` positions.
            let pair =
                |turns: f64| dims as f64 * (original / (turns * TAU)).ln() / (2.0 * base.ln());
            let (mut low, mut high) = (pair(fast), pair(slow));
            if whole {
                (low, high) = (low.floor(), high.ceil());
            }
            let (low, mut high) = (low.max(0.0), high.min(dims as f64 - 1.0));
            if low == high {
                high += 0.001;
            }
            plain
                .enumerate()
                .map(|(pair, frequency)| {
                    let divided = ((pair as f64 - low) / (high - low)).clamp(0.0, 1.0);
                    frequency * (1.0 - divided) + frequency / factor * divided
                })
                .collect()
        }
        RopeScaling::Factors(ref factors) => plain
            .zip(factors)
            .map(|(frequency, factor)| frequency / factor)
            .collect(),
        _ => plain.map(|frequency| stretch(frequency, scaling)).collect(),
    }
}

fn stretch(frequency: f64, scaling: &RopeScaling) -> f64 {
    match *scaling {
        RopeScaling::None | RopeScaling::Yarn { .. } | RopeScaling::Factors(_) => frequency,
        RopeScaling::Linear { factor } => frequency / factor,
        RopeScaling::Llama3 {
            factor,
            low,
            high,
            original,
        } => {
            let wavelength = TAU / frequency;
            let kept = ((original / wavelength - low) / (high - low)).clamp(0.0, 1.0);
            frequency * (kept + (1.0 - kept) / factor)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(scaling: RopeScaling, expect: [f64; 4]) {
        let got = frequencies(8, 10_000.0, &scaling);
        for (got, expect) in got.iter().zip(expect) {
            assert!(
                (got - expect).abs() < 1e-12,
                "{scaling:?}: {got} is not {expect}"
            );
        }
    }

    #[test]
    fn frequencies_follow_the_published_rules() {
        check(RopeScaling::None, [1.0, 0.1, 0.01, 0.001]);
        check(
            RopeScaling::Linear { factor: 4.0 },
            [0.25, 0.025, 0.0025, 0.00025],
        );
        // Wavelengths 6.28, 62.8, 628 and 6283 against 256 / 4 = 64 and 256 / 1: the first two are
        // kept, the last two divided.
        let llama3 = RopeScaling::Llama3 {
            factor: 8.0,
            low: 1.0,
            high: 4.0,
            original: 256.0,
        };
        check(llama3, [1.0, 0.1, 0.00125, 0.000125]);
    }
}
