//! Attention of new queries over a cache, for several sequences in one call.

use crate::activation::Output;
use crate::attend::{Attend, Block, merge};
use crate::matrix::Element;
use crate::{Error, Pool, cache, error, simd};
use mlxcel_ir::{DType, Mask};
use std::cell::RefCell;
use std::ops::Range;

/// Rows (queries times heads of a group) that one task aims at.
const ROWS: usize = 16;
/// The fewest cached positions of a task, if positions are shared among threads.
const POSITIONS: usize = 512;

thread_local! {
    /// Partial results of the calls of a thread.
    static PARTIALS: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// What an attention layer computes: `softmax(scale * q · kᵀ) · v`, as
/// [`mlxcel_ir::Op`] defines it.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// Query heads: a multiple of `kv_heads`.
    pub heads: usize,
    /// Heads of the cache; query head `h` reads head `h / (heads / kv_heads)`.
    pub kv_heads: usize,
    /// Numbers of a head.
    pub dim: usize,
    /// Factor of the scores.
    pub scale: f32,
    /// Which positions a query sees.
    pub mask: Mask,
    /// A query at position `p` sees no position before `p - window + 1`.
    pub window: Option<usize>,
    /// A query at position `p` sees only positions `s` with `s / chunk = p / chunk`.
    pub chunk: Option<usize>,
    /// Replaces each score `s` by `softcap * tanh(s / softcap)`.
    pub softcap: Option<f32>,
    /// For each head what a position adds to its scores, times the position; or nothing.
    pub slopes: &'a [f32],
    /// For each head one more score of its softmax, whose share is dropped; or nothing.
    pub sinks: &'a [f32],
}

/// The queries of one sequence and its cache.
#[derive(Clone, Copy, Debug)]
pub struct Sequence<'a> {
    /// `[T, heads, dim]`.
    pub query: &'a [f32],
    /// Position of the first query.
    pub start: usize,
    /// Cached positions; with a causal mask at least `start + T`.
    pub length: usize,
    /// Element type of keys and values: f32, f16 or bf16.
    pub dtype: DType,
    /// Keys: element `d` of head `h` of row `r` is number `r * position_stride + h * head_stride + d`.
    pub keys: &'a [u8],
    /// Values, laid out as the keys.
    pub values: &'a [u8],
    /// Rows of the cache: position `s` stands in row `s % rows`. What the queries see must fit.
    pub rows: usize,
    /// Elements from one position to the next.
    pub position_stride: usize,
    /// Elements from one head to the next.
    pub head_stride: usize,
}

/// Attention of every sequence's queries: `outs[i][T, heads, dim]`.
///
/// # Errors
/// [`Error::Length`] or [`Error::Parameter`] if slices, strides and parameters do not fit.
pub fn attention(
    pool: &Pool,
    layer: &Attention<'_>,
    sequences: &[Sequence<'_>],
    outs: &mut [&mut [f32]],
) -> Result<(), Error> {
    check_layer(layer)?;
    error::length("outs", outs.len(), sequences.len())?;
    let group = layer.heads / layer.kv_heads;
    let step = (ROWS / group).max(1);
    let mut tasks = 0;
    let mut longest = 0;
    let mut elements = Vec::with_capacity(sequences.len());
    for (sequence, out) in sequences.iter().zip(outs.iter()) {
        let (tokens, element) = check_sequence(layer, sequence)?;
        elements.push(element);
        error::length("an output of attention", out.len(), sequence.query.len())?;
        tasks += tokens.div_ceil(step) * layer.kv_heads;
        longest = longest.max(sequence.length);
    }
    // With few tasks the positions of long sequences are shared among threads.
    let wanted = (2 * pool.threads()).div_ceil(tasks.max(1));
    let chunks = if pool.threads() == 1 {
        1
    } else {
        wanted.min(longest / POSITIONS).max(1)
    };
    let outs: Vec<_> = outs
        .iter_mut()
        .map(|out| Output(out.as_mut_ptr()))
        .collect();
    let mut blocks = Vec::with_capacity(tasks * chunks);
    let row_size = layer.dim + 2;
    for (index, sequence) in sequences.iter().enumerate() {
        let tokens = sequence.query.len() / (layer.heads * layer.dim);
        for kv_head in 0..layer.kv_heads {
            for first in (0..tokens).step_by(step) {
                let queries = first..tokens.min(first + step);
                let positions = visible(layer, sequence, &queries);
                let size = positions.len().div_ceil(chunks).max(1);
                for chunk in 0..chunks {
                    let start = positions.end.min(positions.start + chunk * size);
                    blocks.push(Block {
                        sequence: index,
                        kv_head,
                        first: chunk == 0,
                        queries: queries.clone(),
                        positions: start..positions.end.min(start + size),
                    });
                }
            }
        }
    }
    let rows = step * group;
    let mut partials = PARTIALS.take();
    if chunks > 1 && partials.len() < blocks.len() * rows * row_size {
        partials.resize(blocks.len() * rows * row_size, 0.0);
    }
    let partial = Output(partials.as_mut_ptr());
    let result = pool.ranges(blocks.len(), 1, |range| {
        for i in range {
            let block = &blocks[i];
            let kernel = Attend {
                layer,
                sequence: &sequences[block.sequence],
                block,
                element: elements[block.sequence],
                to: outs[block.sequence].at(0),
                partial: (chunks > 1).then(|| partial.at(i * rows * row_size)),
            };
            // SAFETY: the form is the pool's; the slices fit the layer as checked above; no other
            // block has these heads and queries, or this part of the partial results.
            unsafe { simd::run(pool.form(), kernel) }
        }
    });
    if chunks > 1 && result.is_ok() {
        for (i, parts) in blocks.chunks_exact(chunks).enumerate() {
            let from = &partials[i * chunks * rows * row_size..][..chunks * rows * row_size];
            // SAFETY: the output has the block's queries and heads.
            unsafe { merge(layer, &parts[0], from, rows, outs[parts[0].sequence].at(0)) }
        }
    }
    PARTIALS.set(partials);
    result
}

/// The positions that any query of the range sees.
fn visible(layer: &Attention<'_>, sequence: &Sequence<'_>, queries: &Range<usize>) -> Range<usize> {
    let last = queries.end.max(queries.start + 1) - 1;
    let (start, _) = layer.sight(sequence, queries.start);
    let (_, end) = layer.sight(sequence, last);
    start.min(end)..end
}

impl Attention<'_> {
    /// The positions that query `query` of a sequence sees: from the first to before the second.
    #[inline(always)]
    pub(crate) fn sight(&self, sequence: &Sequence<'_>, query: usize) -> (usize, usize) {
        let position = sequence.start + query;
        let mut low = match self.window {
            Some(window) => (position + 1).saturating_sub(window),
            None => 0,
        };
        let mut high = match self.mask {
            Mask::Causal => position + 1,
            Mask::Full => sequence.length,
        };
        if let Some(chunk) = self.chunk {
            let start = position / chunk * chunk;
            low = low.max(start);
            high = high.min(start.saturating_add(chunk));
        }
        (low, high)
    }
}

fn check_layer(layer: &Attention<'_>) -> Result<(), Error> {
    error::parameter(
        layer.kv_heads > 0 && layer.heads > 0 && layer.heads.is_multiple_of(layer.kv_heads),
        "the number of heads",
        format!("{} for {} heads of the cache", layer.heads, layer.kv_heads),
        "a multiple of the heads of the cache",
    )?;
    error::parameter(
        (1..=1 << 16).contains(&layer.dim) && layer.heads <= 1 << 16,
        "the size of a head",
        layer.dim,
        "1 to 65536, as must be the number of heads",
    )?;
    error::parameter(
        layer.softcap.is_none_or(|cap| cap > 0.0),
        "the soft-cap",
        layer.softcap.unwrap_or(0.0),
        "positive",
    )?;
    for numbers in [layer.slopes, layer.sinks] {
        error::parameter(
            numbers.is_empty() || numbers.len() == layer.heads,
            "the number of slopes or sinks",
            numbers.len(),
            "that of the heads, or 0",
        )?;
    }
    error::parameter(layer.chunk != Some(0), "the chunk", 0, "at least 1")?;
    error::parameter(layer.window != Some(0), "the window", 0, "at least 1")
}

/// Checks a sequence and gives its number of queries and the elements of its cache.
fn check_sequence(
    layer: &Attention<'_>,
    sequence: &Sequence<'_>,
) -> Result<(usize, Element), Error> {
    let width = layer.heads * layer.dim;
    let tokens = sequence.query.len() / width;
    error::length("the query", sequence.query.len(), tokens * width)?;
    let element = cache::element(sequence.dtype)?;
    let end = sequence.start.checked_add(tokens);
    error::parameter(
        end.is_some_and(|end| layer.mask != Mask::Causal || end <= sequence.length),
        "the length of the cache",
        sequence.length,
        "at least start + T of a causal sequence",
    )?;
    let seen = visible(layer, sequence, &(0..tokens)).len();
    error::parameter(
        seen <= sequence.rows && sequence.rows > 0,
        "the rows of the cache",
        sequence.rows,
        "as many as the positions that the queries see",
    )?;
    let rows = sequence.length.min(sequence.rows);
    let needed = match rows.checked_sub(1) {
        None => Some(0),
        Some(last) => {
            let position = last.checked_mul(sequence.position_stride);
            let head = (layer.kv_heads - 1).checked_mul(sequence.head_stride);
            position
                .zip(head)
                .and_then(|(position, head)| position.checked_add(head)?.checked_add(layer.dim))
                .and_then(|numbers| numbers.checked_mul(element.size()))
        }
    };
    for (what, slice) in [("the keys", sequence.keys), ("the values", sequence.values)] {
        error::parameter(
            needed.is_some_and(|needed| needed <= slice.len()),
            what,
            format!("a slice of {} bytes", slice.len()),
            "long enough for the length, heads and strides of the cache",
        )?;
    }
    Ok((tokens, element))
}
