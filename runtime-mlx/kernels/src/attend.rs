//! One task of attention: a block of queries over a range of cached positions, with the softmax
//! kept up to date from tile to tile.

use crate::activation::{exp, tanh};
use crate::attention::{Attention, Sequence};
use crate::linear::{put_scratch, take_scratch};
use crate::matrix::Element;
use crate::rows::{largest, scale};
use crate::simd::{Kernel, Simd};
use crate::widen::{load, one};
use std::ops::Range;

/// Positions whose scores are held at once.
const TILE: usize = 64;

/// What one task covers.
pub(crate) struct Block {
    pub(crate) sequence: usize,
    pub(crate) kv_head: usize,
    /// Whether it is the first of the blocks that share these queries and heads.
    pub(crate) first: bool,
    /// Queries of the sequence; with each come all query heads of `kv_head`.
    pub(crate) queries: Range<usize>,
    pub(crate) positions: Range<usize>,
}

/// Runs a block. Safe to run if the sequence's slices fit the layer, `to` has the sequence's queries
/// and heads, and `partial`, if given, has `dim + 2` numbers for each row of the block.
pub(crate) struct Attend<'a> {
    pub(crate) layer: &'a Attention<'a>,
    pub(crate) sequence: &'a Sequence<'a>,
    pub(crate) block: &'a Block,
    /// The elements of keys and values.
    pub(crate) element: Element,
    /// The sequence's output.
    pub(crate) to: *mut f32,
    /// Where unfinished rows go instead: `dim` sums of values, the largest score, the sum of
    /// exponentials.
    pub(crate) partial: Option<*mut f32>,
}

/// The thread's space for a block.
#[derive(Clone, Copy)]
struct Space {
    rows: usize,
    /// `rows * dim`, scaled.
    query: *mut f32,
    /// `rows * dim`: exponentials times values.
    sums: *mut f32,
    /// `rows * TILE`.
    scores: *mut f32,
    /// Largest score of each row so far.
    largest: *mut f32,
    /// Sum of the exponentials of each row so far.
    total: *mut f32,
}

impl Kernel for Attend<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: passed on.
        unsafe {
            match self.element {
                Element::F16 => self.block::<S, { Element::F16 as u8 }>(),
                Element::BF16 => self.block::<S, { Element::BF16 as u8 }>(),
                _ => self.block::<S, { Element::F32 as u8 }>(),
            }
        }
    }
}

impl Attend<'_> {
    /// The block over a cache whose element type is number `E` of [`Element`].
    #[inline(always)]
    unsafe fn block<S: Simd, const E: u8>(self) {
        let dim = self.layer.dim;
        let group = self.layer.heads / self.layer.kv_heads;
        let rows = self.block.queries.len() * group;
        let mut scratch = take_scratch(rows * (2 * dim + TILE + 2));
        // SAFETY: the scratch covers the space; the rest is the caller's promise.
        unsafe {
            let query = scratch.as_mut_ptr();
            let sums = query.add(rows * dim);
            let scores = sums.add(rows * dim);
            let largest = scores.add(rows * TILE);
            let space = Space {
                rows,
                query,
                sums,
                scores,
                largest,
                total: largest.add(rows),
            };
            for r in 0..rows {
                let from = self.sequence.query.as_ptr().add(self.row_offset(r));
                for d in 0..dim {
                    *space.query.add(r * dim + d) = *from.add(d) * self.layer.scale;
                    *space.sums.add(r * dim + d) = 0.0;
                }
                let sink = self.sink(r);
                *space.largest.add(r) = sink.unwrap_or(f32::NEG_INFINITY);
                *space.total.add(r) = if sink.is_some() { 1.0 } else { 0.0 };
            }
            let mut first = self.block.positions.start;
            while first < self.block.positions.end {
                // Positions up to where the cache begins anew.
                let row = first % self.sequence.rows;
                let left = self.block.positions.end - first;
                let count = TILE.min(left).min(self.sequence.rows - row);
                self.scores::<S, E>(space, row, count);
                for r in 0..rows {
                    self.weights::<S>(space, r, first, count);
                }
                self.values::<S, E>(space, row, count);
                first += count;
            }
            for r in 0..rows {
                let from = space.sums.add(r * dim);
                match self.partial {
                    Some(partial) => {
                        let to = partial.add(r * (dim + 2));
                        std::ptr::copy_nonoverlapping(from, to, dim);
                        *to.add(dim) = *space.largest.add(r);
                        *to.add(dim + 1) = *space.total.add(r);
                    }
                    None => {
                        let total = *space.total.add(r);
                        scale::<S>(from, dim, if total > 0.0 { 1.0 / total } else { 0.0 });
                        let to = self.to.add(self.row_offset(r));
                        std::ptr::copy_nonoverlapping(from, to, dim);
                    }
                }
            }
        }
        put_scratch(scratch);
    }

    #[inline(always)]
    fn row_offset(&self, r: usize) -> usize {
        row_offset(self.layer, self.block, r)
    }

    /// The query head of row `r`.
    #[inline(always)]
    fn head(&self, r: usize) -> usize {
        let group = self.layer.heads / self.layer.kv_heads;
        self.block.kv_head * group + r % group
    }

    /// The position of row `r`.
    #[inline(always)]
    fn position(&self, r: usize) -> usize {
        let group = self.layer.heads / self.layer.kv_heads;
        self.sequence.start + self.block.queries.start + r / group
    }

    /// The score that row `r` has from the beginning. All scores of a row with a slope are relative to
    /// its position, so that they stay small, and its sink with them.
    #[inline(always)]
    fn sink(&self, r: usize) -> Option<f32> {
        if !self.block.first || self.layer.sinks.is_empty() {
            return None;
        }
        let head = self.head(r);
        let slope = match self.layer.slopes.is_empty() {
            true => 0.0,
            false => self.layer.slopes[head],
        };
        Some(self.layer.sinks[head] - slope * self.position(r) as f32)
    }

    /// The scores of `count` positions from row `first` of the cache on, for every row.
    #[inline(always)]
    unsafe fn scores<S: Simd, const E: u8>(&self, space: Space, first: usize, count: usize) {
        let head = self.block.kv_head * self.sequence.head_stride;
        let stride = self.sequence.position_stride;
        // SAFETY: the keys have these positions; the space has the rows.
        unsafe {
            let first = (first * stride + head) * size::<E>();
            let keys = self.sequence.keys.as_ptr().add(first);
            let mut r = 0;
            while r + 4 <= space.rows {
                self.score_rows::<S, E, 4>(space, r, keys, count);
                r += 4;
            }
            match space.rows - r {
                3 => self.score_rows::<S, E, 3>(space, r, keys, count),
                2 => self.score_rows::<S, E, 2>(space, r, keys, count),
                1 => self.score_rows::<S, E, 1>(space, r, keys, count),
                _ => {}
            }
        }
    }

    #[inline(always)]
    unsafe fn score_rows<S: Simd, const E: u8, const R: usize>(
        &self,
        space: Space,
        r: usize,
        keys: *const u8,
        count: usize,
    ) {
        let mut s = 0;
        // SAFETY: passed on.
        unsafe {
            while s + 2 <= count {
                self.score_tile::<S, E, R, 2>(space, r, keys, s);
                s += 2;
            }
            if s < count {
                self.score_tile::<S, E, R, 1>(space, r, keys, s);
            }
        }
    }

    #[inline(always)]
    unsafe fn score_tile<S: Simd, const E: u8, const R: usize, const P: usize>(
        &self,
        space: Space,
        r: usize,
        keys: *const u8,
        s: usize,
    ) {
        let dim = self.layer.dim;
        let stride = self.sequence.position_stride;
        // SAFETY: passed on.
        unsafe {
            let query = space.query.add(r * dim);
            let keys = keys.add(s * stride * size::<E>());
            let mut sums = [[S::splat(0.0); R]; P];
            let mut d = 0;
            while d + S::LANES <= dim {
                for p in 0..P {
                    let key = load::<S, E>(keys.add((p * stride + d) * size::<E>()));
                    for i in 0..R {
                        sums[p][i] = S::fma(S::load(query.add(i * dim + d)), key, sums[p][i]);
                    }
                }
                d += S::LANES;
            }
            for p in 0..P {
                let mut scores = [0f32; R];
                if R == 4 {
                    let sums = sums[p];
                    let four = S::sums([sums[0], sums[1 % R], sums[2 % R], sums[3 % R]]);
                    for i in 0..R {
                        scores[i] = four[i % 4];
                    }
                } else {
                    for i in 0..R {
                        scores[i] = S::sum(sums[p][i]);
                    }
                }
                for i in 0..R {
                    for d in d..dim {
                        let key = one(self.element, keys.add((p * stride + d) * size::<E>()));
                        scores[i] += *query.add(i * dim + d) * key;
                    }
                    *space.scores.add((r + i) * TILE + s + p) = scores[i];
                }
            }
        }
    }

    /// Turns the scores of row `r` into exponentials; what it has gathered so far is rescaled if
    /// they bring a larger score.
    #[inline(always)]
    unsafe fn weights<S: Simd>(&self, space: Space, r: usize, first: usize, count: usize) {
        let group = self.layer.heads / self.layer.kv_heads;
        let query = self.block.queries.start + r / group;
        let (low, high) = self.layer.sight(self.sequence, query);
        // Of the tile, the positions that this row sees.
        let low = low.clamp(first, first + count) - first;
        let high = high.clamp(first, first + count) - first;
        // SAFETY: the space has a tile for the row.
        unsafe {
            let scores = space.scores.add(r * TILE);
            if let Some(cap) = self.layer.softcap {
                let (caps, inverse) = (S::splat(cap), S::splat(1.0 / cap));
                // Numbers beyond `count` are old ones, capped like the others and then masked.
                let mut s = 0;
                while s < TILE {
                    let score = S::mul(S::load(scores.add(s)), inverse);
                    S::store(scores.add(s), S::mul(caps, tanh::<S>(score)));
                    s += S::LANES;
                }
            }
            if !self.layer.slopes.is_empty() {
                let slope = self.layer.slopes[self.head(r)];
                let distance = first as f32 - self.position(r) as f32;
                for s in 0..TILE {
                    *scores.add(s) += slope * (distance + s as f32);
                }
            }
            if low >= high {
                std::ptr::write_bytes(scores, 0, TILE);
                return;
            }
            for s in (0..low).chain(high..TILE) {
                *scores.add(s) = f32::NEG_INFINITY;
            }
            let before = *space.largest.add(r);
            let tile = largest::<S>(std::slice::from_raw_parts(scores, TILE));
            let now = if tile > before { tile } else { before };
            if now > before {
                let factor = (before - now).exp();
                *space.total.add(r) *= factor;
                scale::<S>(space.sums.add(r * self.layer.dim), self.layer.dim, factor);
                *space.largest.add(r) = now;
            }
            let offset = S::splat(now);
            let mut sums = S::splat(0.0);
            let mut s = 0;
            while s < TILE {
                let e = exp::<S>(S::sub(S::load(scores.add(s)), offset));
                sums = S::add(sums, e);
                S::store(scores.add(s), e);
                s += S::LANES;
            }
            *space.total.add(r) += S::sum(sums);
        }
    }

    /// Adds the values of `count` positions from row `first` of the cache on, weighted, to every row.
    #[inline(always)]
    unsafe fn values<S: Simd, const E: u8>(&self, space: Space, first: usize, count: usize) {
        let head = self.block.kv_head * self.sequence.head_stride;
        let stride = self.sequence.position_stride;
        // SAFETY: the values have these positions; the space has the rows.
        unsafe {
            let first = (first * stride + head) * size::<E>();
            let values = self.sequence.values.as_ptr().add(first);
            let mut r = 0;
            while r + 4 <= space.rows {
                self.value_rows::<S, E, 4>(space, r, values, count);
                r += 4;
            }
            match space.rows - r {
                3 => self.value_rows::<S, E, 3>(space, r, values, count),
                2 => self.value_rows::<S, E, 2>(space, r, values, count),
                1 => self.value_rows::<S, E, 1>(space, r, values, count),
                _ => {}
            }
        }
    }

    #[inline(always)]
    unsafe fn value_rows<S: Simd, const E: u8, const R: usize>(
        &self,
        space: Space,
        r: usize,
        values: *const u8,
        count: usize,
    ) {
        let dim = self.layer.dim;
        let stride = self.sequence.position_stride;
        // SAFETY: passed on.
        unsafe {
            let weights = space.scores.add(r * TILE);
            let sums = space.sums.add(r * dim);
            let mut d = 0;
            while d + 2 * S::LANES <= dim {
                self.value_tile::<S, E, R, 2>(
                    sums.add(d),
                    weights,
                    values.add(d * size::<E>()),
                    count,
                );
                d += 2 * S::LANES;
            }
            while d + S::LANES <= dim {
                self.value_tile::<S, E, R, 1>(
                    sums.add(d),
                    weights,
                    values.add(d * size::<E>()),
                    count,
                );
                d += S::LANES;
            }
            for d in d..dim {
                for i in 0..R {
                    let mut sum = *sums.add(i * dim + d);
                    for s in 0..count {
                        let value = one(self.element, values.add((s * stride + d) * size::<E>()));
                        sum += *weights.add(i * TILE + s) * value;
                    }
                    *sums.add(i * dim + d) = sum;
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn value_tile<S: Simd, const E: u8, const R: usize, const C: usize>(
        &self,
        to: *mut f32,
        weights: *const f32,
        values: *const u8,
        count: usize,
    ) {
        let dim = self.layer.dim;
        let stride = self.sequence.position_stride;
        // SAFETY: passed on.
        unsafe {
            let mut sums = [[S::splat(0.0); C]; R];
            for i in 0..R {
                for c in 0..C {
                    sums[i][c] = S::load(to.add(i * dim + c * S::LANES));
                }
            }
            for s in 0..count {
                let mut value = [S::splat(0.0); C];
                for c in 0..C {
                    let at = s * stride + c * S::LANES;
                    value[c] = load::<S, E>(values.add(at * size::<E>()));
                }
                for i in 0..R {
                    let weight = S::splat(*weights.add(i * TILE + s));
                    for c in 0..C {
                        sums[i][c] = S::fma(weight, value[c], sums[i][c]);
                    }
                }
            }
            for i in 0..R {
                for c in 0..C {
                    S::store(to.add(i * dim + c * S::LANES), sums[i][c]);
                }
            }
        }
    }
}

/// Bytes of the element type that is number `E` of [`Element`], of which caches have three.
#[inline(always)]
const fn size<const E: u8>() -> usize {
    if E == Element::F32 as u8 { 4 } else { 2 }
}

/// Where row `r` of a block starts in queries and output.
#[inline(always)]
fn row_offset(layer: &Attention<'_>, block: &Block, r: usize) -> usize {
    let group = layer.heads / layer.kv_heads;
    let query = block.queries.start + r / group;
    let head = block.kv_head * group + r % group;
    (query * layer.heads + head) * layer.dim
}

/// Joins the partial results of a block's parts, `rows` rows of `dim + 2` numbers each.
///
/// # Safety
/// `to` has the block's queries and heads.
pub(crate) unsafe fn merge(
    layer: &Attention<'_>,
    block: &Block,
    parts: &[f32],
    rows: usize,
    to: *mut f32,
) {
    let (dim, size) = (layer.dim, layer.dim + 2);
    let group = layer.heads / layer.kv_heads;
    for r in 0..block.queries.len() * group {
        let part = |row: &[f32]| (row[r * size + dim], row[r * size + dim + 1]);
        let parts = || parts.chunks_exact(rows * size);
        let largest = parts().fold(f32::NEG_INFINITY, |largest, row| largest.max(part(row).0));
        let factor = |row: &[f32]| {
            let (own, _) = part(row);
            if own == f32::NEG_INFINITY {
                0.0
            } else {
                (own - largest).exp()
            }
        };
        let total: f32 = parts().map(|row| factor(row) * part(row).1).sum();
        // SAFETY: the caller promises the output's rows.
        let to =
            unsafe { std::slice::from_raw_parts_mut(to.add(row_offset(layer, block, r)), dim) };
        to.fill(0.0);
        if total > 0.0 {
            for row in parts() {
                let factor = factor(row) / total;
                for (to, value) in to.iter_mut().zip(&row[r * size..]) {
                    *to += factor * value;
                }
            }
        }
    }
}
