//! The convolution of each channel over time, with the inputs before a step in a memory.

use crate::activation::Output;
use crate::simd::{self, Kernel, Simd};
use crate::{Error, Pool, error};

/// Products in one claim of a thread.
const GRAIN: usize = 1 << 14;

/// The weights of a causal convolution, as [`mlxcel_ir::Op::CausalConvolution`] defines it.
#[derive(Clone, Debug)]
pub struct Convolution {
    channels: usize,
    steps: usize,
    /// `[W, C]`.
    weight: Vec<f32>,
    bias: Option<Vec<f32>>,
}

impl Convolution {
    /// A convolution with `weight[C, W]` and `bias[C]`.
    ///
    /// # Errors
    /// [`Error::Length`] or [`Error::Parameter`] if these do not fit each other.
    pub fn new(steps: usize, weight: &[f32], bias: Option<Vec<f32>>) -> Result<Self, Error> {
        error::parameter(steps > 1, "the steps of a convolution", steps, "at least 2")?;
        let channels = weight.len() / steps;
        error::length("the weight", weight.len(), channels * steps)?;
        if let Some(bias) = &bias {
            error::length("the bias", bias.len(), channels)?;
        }
        let by_step = (0..steps).flat_map(|j| weight.iter().skip(j).step_by(steps));
        Ok(Self {
            channels,
            steps,
            weight: by_step.copied().collect(),
            bias,
        })
    }

    /// Numbers in the memory of a row: `[W - 1, C]`.
    pub fn memory(&self) -> usize {
        (self.steps - 1) * self.channels
    }
}

/// Which of the `tokens` tokens of each row count.
pub(crate) fn seen(lengths: &[i32], rows: usize, tokens: usize) -> Result<Vec<usize>, Error> {
    error::length("length", lengths.len(), rows)?;
    let counts = lengths.iter().map(|&length| {
        let count = usize::try_from(length)
            .ok()
            .filter(|&count| count <= tokens);
        count.ok_or_else(|| Error::Parameter {
            what: "length",
            found: length.to_string(),
            expected: "0 to the tokens of the step",
        })
    });
    counts.collect()
}

/// `out[B, T, C]` from `x[B, T, C]`; each row's memory then ends with its first `lengths[b]` tokens.
///
/// # Errors
/// [`Error::Length`] or [`Error::Parameter`] if the slices do not fit; memories are then unchanged.
pub fn causal_convolution(
    pool: &Pool,
    rule: &Convolution,
    x: &[f32],
    lengths: &[i32],
    memories: &mut [&mut [f32]],
    out: &mut [f32],
) -> Result<(), Error> {
    let (rows, channels) = (memories.len(), rule.channels);
    let tokens = x.len() / (rows * channels).max(1);
    error::length("the input", x.len(), rows * tokens * channels)?;
    error::length("the output", out.len(), x.len())?;
    for memory in memories.iter() {
        error::length("a memory", memory.len(), rule.memory())?;
    }
    let seen = seen(lengths, rows, tokens)?;
    let memories: Vec<_> = memories
        .iter_mut()
        .map(|m| Output(m.as_mut_ptr()))
        .collect();
    let to = Output(out.as_mut_ptr());
    let grain = GRAIN
        .div_ceil((tokens * rule.steps).max(1))
        .next_multiple_of(16);
    let blocks = channels.div_ceil(grain);
    pool.ranges(rows * blocks, 1, |range| {
        for i in range {
            let (row, first) = (i / blocks, i % blocks * grain);
            let kernel = Convolve {
                rule,
                tokens,
                seen: seen[row],
                first,
                end: channels.min(first + grain),
                x: x[row * tokens * channels..].as_ptr(),
                memory: memories[row].at(0),
                to: to.at(row * tokens * channels),
            };
            // SAFETY: the form is the pool's; the slices have the row's tokens and channels, and no
            // other task has these channels of the row.
            unsafe { simd::run(pool.form(), kernel) }
        }
    })
}

/// The channels `first..end` of one row.
struct Convolve<'a> {
    rule: &'a Convolution,
    tokens: usize,
    seen: usize,
    first: usize,
    end: usize,
    x: *const f32,
    memory: *mut f32,
    to: *mut f32,
}

impl Convolve<'_> {
    /// The inputs at place `index`, where place `W - 1` is the first token of the step.
    #[inline(always)]
    unsafe fn at(&self, index: usize) -> *const f32 {
        let past = self.rule.steps - 1;
        // SAFETY: the memory has `past` places, x those after it.
        unsafe {
            match index < past {
                true => self.memory.add(index * self.rule.channels),
                false => self.x.add((index - past) * self.rule.channels),
            }
        }
    }
}

impl Kernel for Convolve<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let (channels, steps) = (self.rule.channels, self.rule.steps);
        let weight = self.rule.weight.as_ptr();
        let count = self.end - self.first;
        // SAFETY: tokens, steps and channels are inside of what the caller promised.
        unsafe {
            for token in 0..self.tokens {
                let to = self.to.add(token * channels);
                let mut c = self.first;
                while c + S::LANES <= self.end {
                    let mut sum = match &self.rule.bias {
                        Some(bias) => S::load(bias.as_ptr().add(c)),
                        None => S::splat(0.0),
                    };
                    for j in 0..steps {
                        let x = S::load(self.at(token + j).add(c));
                        sum = S::fma(x, S::load(weight.add(j * channels + c)), sum);
                    }
                    S::store(to.add(c), sum);
                    c += S::LANES;
                }
                while c < self.end {
                    let mut sum = match &self.rule.bias {
                        Some(bias) => *bias.as_ptr().add(c),
                        None => 0.0,
                    };
                    for j in 0..steps {
                        sum += *self.at(token + j).add(c) * *weight.add(j * channels + c);
                    }
                    *to.add(c) = sum;
                    c += 1;
                }
            }
            // Places only move towards the beginning, so none is overwritten before it is read.
            for place in 0..steps - 1 {
                let from = self.at(self.seen + place).add(self.first);
                let to = self.memory.add(place * channels + self.first);
                std::ptr::copy(from, to, count);
            }
        }
    }
}
