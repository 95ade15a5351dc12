//! Caches that rotate: position `p` stands in row `p` modulo the number of rows.

use super::element::{Element, Kind, Tensor};
use super::operations::{Emitted, Operations};

impl<'c, 'a> Operations<'c, 'a> {
    /// Writes `rows[B, T, heads, dim]` into `cache[B, R, heads, dim]` at the positions from `start[b]` on.
    pub(super) fn cache_rotate(
        &self,
        cache: &Tensor<'c, 'a>,
        rows: &Tensor<'c, 'a>,
        start: &Tensor<'c, 'a>,
    ) -> Emitted<Tensor<'c, 'a>> {
        let (&[batch, tokens, ..], &[_, capacity, ..]) = (rows.shape(), cache.shape()) else {
            return Err("a cache has four dimensions".into());
        };
        if tokens == 1 {
            let row = self.modulo(start, capacity)?;
            return self.cache_append(cache, rows, &row);
        }
        // The new tokens may lie around the end of the cache, so each of its rows says what it becomes:
        // the token as many places after the first as the row is, or what it was.
        let kind = Kind::new(Element::I32, [batch, capacity]);
        let row = self.iota(kind.clone(), 1)?;
        let first = self.broadcast(start, &kind.shape, &[0])?;
        let first = self.modulo(&first, capacity)?;
        let after = self.map("subtract", &[&row, &first])?;
        let around = self.splat(capacity as f64, kind.clone())?;
        let after = self.modulo(&self.map("add", &[&after, &around])?, capacity)?;
        let count = self.splat(tokens as f64, kind.clone())?;
        let new = self.compare("LT", &after, &count)?;
        let last = self.splat((tokens - 1) as f64, kind.clone())?;
        let token = self.map("minimum", &[&after, &last])?;
        let sequence = self.iota(kind, 0)?;
        let sequence = self.map("multiply", &[&sequence, &count])?;
        let token = self.map("add", &[&sequence, &token])?;
        let flat = [&[batch * tokens], &rows.shape()[2..]].concat();
        let written = self.gather(&self.reshape(rows, &flat)?, &token)?;
        let new = self.broadcast(&self.barrier(&new)?, cache.shape(), &[0, 1])?;
        self.map("select", &[&new, &written, cache])
    }

    /// The latest position up to `end` that each of `rows` has, of `capacity`; below 0 if it has none.
    pub(super) fn latest(
        &self,
        rows: &Tensor<'c, 'a>,
        end: &Tensor<'c, 'a>,
        capacity: usize,
    ) -> Emitted<Tensor<'c, 'a>> {
        let around = self.splat(capacity as f64, rows.kind.clone())?;
        let before = self.map("subtract", &[&self.modulo(end, capacity)?, rows])?;
        let before = self.modulo(&self.map("add", &[&before, &around])?, capacity)?;
        self.map("subtract", &[end, &before])
    }

    /// `x`, which is not negative, modulo `size`.
    fn modulo(&self, x: &Tensor<'c, 'a>, size: usize) -> Emitted<Tensor<'c, 'a>> {
        let size = self.splat(size as f64, x.kind.clone())?;
        self.map("remainder", &[x, &size])
    }
}
