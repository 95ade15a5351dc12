//! Choosing a token from logits.
//!
//! The steps and their order: repetition penalty, top-k, top-p, min-p, temperature, draw. The
//! filters see the distribution at temperature 1, so raising the temperature never admits a token
//! that a filter would have removed (llama.cpp orders them so; Hugging Face applies the temperature
//! first). Each filter keeps at least the most likely token.
//!
//! Equal logits rank by token id. The arithmetic is f64 with a software exponential and the random
//! numbers are ChaCha8's, so a seed gives the same tokens on every platform for the same logits.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// How tokens are chosen. The default is greedy.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits before the draw; 0 takes the most likely token.
    pub temperature: f64,
    /// Keeps the k most likely tokens; 0 keeps all.
    pub top_k: usize,
    /// Keeps the smallest set of most likely tokens whose probabilities reach this sum; 1 keeps all.
    pub top_p: f64,
    /// Keeps tokens at least this fraction as likely as the most likely one; 0 keeps all.
    pub min_p: f64,
    /// Divides positive logits, and multiplies negative ones, of tokens seen lately; 1 is none.
    pub repetition_penalty: f64,
    /// How many of the latest tokens, of prompt and reply, are penalised.
    pub repetition_window: usize,
    /// Start of the random numbers.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            repetition_window: 64,
            seed: 0,
        }
    }
}

impl Sampling {
    /// Whether every token is the most likely one by the unchanged logits, which a runtime can
    /// choose without returning them.
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0 && self.repetition_penalty == 1.0
    }

    /// Checks that every setting is in its range.
    ///
    /// # Errors
    /// Names the first setting that is not.
    pub fn validate(&self) -> Result<(), SampleError> {
        let check = |name, value: f64, range, inside: bool| match inside && value.is_finite() {
            true => Ok(()),
            false => Err(SampleError::Setting { name, value, range }),
        };
        let unit = |value: f64| (0.0..=1.0).contains(&value);
        let penalty = self.repetition_penalty;
        check(
            "temperature",
            self.temperature,
            "0 or more",
            self.temperature >= 0.0,
        )?;
        check("top-p", self.top_p, "between 0 and 1", unit(self.top_p))?;
        check("min-p", self.min_p, "between 0 and 1", unit(self.min_p))?;
        check("repetition penalty", penalty, "more than 0", penalty > 0.0)
    }
}

/// Why no token could be chosen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SampleError {
    /// A setting outside its range.
    #[error("{name} is {value}; it must be {range}")]
    Setting {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: f64,
        /// Where it may lie.
        range: &'static str,
    },
    /// A logit that is NaN or positive infinity.
    #[error("the model's logit of token {token} is {value}; its weights or a kernel are at fault")]
    NotANumber {
        /// The token.
        token: usize,
        /// Its logit.
        value: f32,
    },
    /// No logit above negative infinity.
    #[error("the model gave no token a probability above zero")]
    NothingLikely,
}

/// Draws tokens by one [`Sampling`] from one stream of random numbers.
#[derive(Clone, Debug)]
pub struct Sampler {
    sampling: Sampling,
    random: ChaCha8Rng,
}

/// A token that may be chosen, with its logit and then its probability.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    token: u32,
    logit: f64,
}

impl Sampler {
    /// A sampler at the start of its random numbers.
    ///
    /// # Errors
    /// If a setting is outside its range.
    pub fn new(sampling: Sampling) -> Result<Self, SampleError> {
        sampling.validate()?;
        Ok(Self {
            random: ChaCha8Rng::seed_from_u64(sampling.seed),
            sampling,
        })
    }

    /// Chooses a token from `logits[V]`, given the tokens that came before.
    ///
    /// # Errors
    /// If the logits define no distribution.
    pub fn choose(&mut self, logits: &[f32], prior: &[u32]) -> Result<u32, SampleError> {
        let mut candidates = candidates(logits)?;
        let recent = prior.len().saturating_sub(self.sampling.repetition_window);
        penalise(
            &mut candidates,
            &prior[recent..],
            self.sampling.repetition_penalty,
        );
        // Negative infinity forbids a token.
        candidates.retain(|candidate| candidate.logit > f64::NEG_INFINITY);
        if self.sampling.temperature == 0.0 {
            let best = candidates.iter().min_by(|a, b| rank(a, b));
            return best
                .map(|best| best.token)
                .ok_or(SampleError::NothingLikely);
        }
        candidates.sort_unstable_by(rank);
        let best = candidates.first().ok_or(SampleError::NothingLikely)?.logit;
        truncate(&mut candidates, &self.sampling, best);
        let weights: Vec<f64> = candidates
            .iter()
            .map(|candidate| libm::exp((candidate.logit - best) / self.sampling.temperature))
            .collect();
        let mut rest = self.uniform() * weights.iter().sum::<f64>();
        for (candidate, weight) in candidates.iter().zip(&weights) {
            rest -= weight;
            if rest < 0.0 {
                return Ok(candidate.token);
            }
        }
        // Rounding left a sliver of the sum: it belongs to the most likely token.
        Ok(candidates[0].token)
    }

    /// The next random number in [0, 1), with 53 bits.
    fn uniform(&mut self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Higher logits first, equal ones by token.
fn rank(a: &Candidate, b: &Candidate) -> std::cmp::Ordering {
    b.logit.total_cmp(&a.logit).then(a.token.cmp(&b.token))
}

fn candidates(logits: &[f32]) -> Result<Vec<Candidate>, SampleError> {
    let check = |(token, &value): (usize, &f32)| match value.is_nan() || value == f32::INFINITY {
        true => Err(SampleError::NotANumber { token, value }),
        false => Ok(Candidate {
            token: token as u32,
            // Adding zero turns -0 into 0, which must rank as its equal.
            logit: f64::from(value) + 0.0,
        }),
    };
    logits.iter().enumerate().map(check).collect()
}

/// Makes tokens of `recent` less likely; each once, however often it occurs.
///
/// `candidates` is still in token order.
fn penalise(candidates: &mut [Candidate], recent: &[u32], penalty: f64) {
    if penalty == 1.0 {
        return;
    }
    let mut recent = recent.to_vec();
    recent.sort_unstable();
    recent.dedup();
    for token in recent {
        if let Some(candidate) = candidates.get_mut(token as usize) {
            candidate.logit *= if candidate.logit > 0.0 {
                penalty.recip()
            } else {
                penalty
            };
        }
    }
}

/// Applies top-k, top-p and min-p to ranked candidates whose best logit is `best`.
fn truncate(candidates: &mut Vec<Candidate>, sampling: &Sampling, best: f64) {
    if sampling.top_k > 0 {
        candidates.truncate(sampling.top_k);
    }
    let likelihood = |candidate: &Candidate| libm::exp(candidate.logit - best);
    if sampling.top_p < 1.0 {
        let goal = sampling.top_p * candidates.iter().map(likelihood).sum::<f64>();
        let mut mass = 0.0;
        let below = candidates.iter().take_while(|candidate| {
            let more = mass < goal;
            mass += likelihood(candidate);
            more
        });
        let keep = below.count().max(1);
        candidates.truncate(keep);
    }
    if sampling.min_p > 0.0 {
        let keep = candidates.partition_point(|c| likelihood(c) >= sampling.min_p);
        candidates.truncate(keep.max(1));
    }
}

#[cfg(test)]
mod tests;
