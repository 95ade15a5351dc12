//! Rotary position embedding.

use crate::activation::Output;
use crate::{Error, Pool, error};
use mlxcel_ir::Pairing;
use std::cell::RefCell;

/// Numbers in one claim of a thread.
const GRAIN: usize = 1 << 13;

/// What turns by how much: the parameters of a rotary embedding.
#[derive(Clone, Copy, Debug)]
pub struct Rope<'a> {
    /// Heads of each position.
    pub heads: usize,
    /// Numbers of a head.
    pub dim: usize,
    /// Leading numbers of a head that turn; even, at most `dim`. The rest pass.
    pub dims: usize,
    /// Which numbers turn together.
    pub pairing: Pairing,
    /// Angle per position of each of the `dims / 2` pairs.
    pub frequencies: &'a [f64],
    /// The factor by which what turns grows.
    pub magnitude: f64,
}

thread_local! {
    /// Cosines and sines of one position.
    static TURNS: RefCell<Vec<(f32, f32)>> = const { RefCell::new(Vec::new()) };
}

/// Turns `x[B, T, heads, dim]`, whose row `b` starts at position `starts[b]`, into `out`.
///
/// # Errors
/// [`Error::Length`] or [`Error::Parameter`] if the slices or parameters do not fit each other.
pub fn rope(
    pool: &Pool,
    rope: &Rope<'_>,
    x: &[f32],
    starts: &[i32],
    out: &mut [f32],
) -> Result<(), Error> {
    error::parameter(
        rope.dims.is_multiple_of(2) && rope.dims <= rope.dim,
        "the dims of rope",
        rope.dims,
        "even and at most the size of a head",
    )?;
    error::length("the frequencies", rope.frequencies.len(), rope.dims / 2)?;
    error::length("the output of rope", out.len(), x.len())?;
    let width = rope.heads.saturating_mul(rope.dim);
    if x.is_empty() {
        return Ok(());
    }
    let rows = starts.len();
    let tokens = x.len().checked_div(rows * width).unwrap_or(0);
    error::length("the input of rope", x.len(), rows * tokens * width)?;
    let to = Output(out.as_mut_ptr());
    pool.ranges(rows * tokens, GRAIN.div_ceil(width), |range| {
        let mut turns = TURNS.take();
        for i in range {
            let position = f64::from(starts[i / tokens]) + (i % tokens) as f64;
            turns.clear();
            turns.extend(rope.frequencies.iter().map(|frequency| {
                let (sine, cosine) = (position * frequency).sin_cos();
                let magnitude = rope.magnitude;
                ((cosine * magnitude) as f32, (sine * magnitude) as f32)
            }));
            // SAFETY: the output has the length of x, and no other range has position `i`.
            let to = unsafe { std::slice::from_raw_parts_mut(to.at(i * width), width) };
            let x = &x[i * width..][..width];
            for (x, to) in x.chunks_exact(rope.dim).zip(to.chunks_exact_mut(rope.dim)) {
                turn(rope, &turns, x, to);
            }
        }
        TURNS.set(turns);
    })
}

/// Turns one head.
fn turn(rope: &Rope<'_>, turns: &[(f32, f32)], x: &[f32], to: &mut [f32]) {
    let (x, rest) = x.split_at(rope.dims);
    let (to, to_rest) = to.split_at_mut(rope.dims);
    to_rest.copy_from_slice(rest);
    match rope.pairing {
        Pairing::Half => {
            let (x0, x1) = x.split_at(rope.dims / 2);
            let (to0, to1) = to.split_at_mut(rope.dims / 2);
            let pairs = x0.iter().zip(x1).zip(turns);
            for (((x0, x1), (cosine, sine)), (to0, to1)) in pairs.zip(to0.iter_mut().zip(to1)) {
                *to0 = x0 * cosine - x1 * sine;
                *to1 = x1 * cosine + x0 * sine;
            }
        }
        Pairing::Interleaved => {
            let pairs = x.chunks_exact(2).zip(to.chunks_exact_mut(2));
            for ((x, to), (cosine, sine)) in pairs.zip(turns) {
                to[0] = x[0] * cosine - x[1] * sine;
                to[1] = x[1] * cosine + x[0] * sine;
            }
        }
    }
}
