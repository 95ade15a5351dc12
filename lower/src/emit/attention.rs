//! Attention over the cache.

use super::element::{Element, Kind, Tensor};
use super::operations::{DotDims, Emitted, Operations};
use mlxcel_ir::{DType, Mask, Reduction};

/// Which cached positions a token sees.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sight {
    pub(crate) mask: Mask,
    pub(crate) window: Option<usize>,
    pub(crate) chunk: Option<usize>,
}

/// What becomes of the scores before and in the softmax.
pub(crate) struct Scores<'s, 'c, 'a> {
    pub(crate) scale: f64,
    pub(crate) softcap: Option<f64>,
    /// What each head adds per position, or nothing.
    pub(crate) slopes: &'s [f64],
    /// One more score of each head, whose share is dropped.
    pub(crate) sinks: Option<Tensor<'c, 'a>>,
}

impl<'c, 'a> Operations<'c, 'a> {
    /// Queries `[B, T, heads, D]` attend to keys and values `[B, S, kv_heads, D]` in the cache, which
    /// hold the new tokens already and of which each token sees those in `visible[B, T, S]`. Computed
    /// in f32.
    pub(crate) fn attention(
        &self,
        how: &Scores<'_, 'c, 'a>,
        q: &Tensor<'c, 'a>,
        [keys, values]: [&Tensor<'c, 'a>; 2],
        visible: &Tensor<'c, 'a>,
    ) -> Emitted<Tensor<'c, 'a>> {
        let (&[rows, tokens, heads, width], &[_, _, kv_heads, _]) = (q.shape(), keys.shape())
        else {
            return Err("queries and keys have four dimensions".into());
        };
        let group = heads / kv_heads;
        let element = q.element();
        let query = self.convert(q, Element::F32)?;
        let scale = self.splat(how.scale, query.kind.clone())?;
        let query = self.map("multiply", &[&query, &scale])?;
        let query = self.reshape(&query, &[rows, tokens, kv_heads, group, width])?;
        let keys = self.convert(keys, Element::F32)?;
        let values = self.convert(values, Element::F32)?;
        // [B, kv_heads, T, group, S]
        let mut scores = match tokens {
            1 => self.scores_of_one(&query, &keys)?,
            _ => self.dot(
                &query,
                &keys,
                &DotDims {
                    lhs_batch: &[0, 2],
                    rhs_batch: &[0, 2],
                    lhs_contract: &[4],
                    rhs_contract: &[3],
                },
                Element::F32,
            )?,
        };
        if let Some(cap) = how.softcap {
            let cap = self.splat(cap, scores.kind.clone())?;
            let share = self.map("divide", &[&scores, &cap])?;
            let bent = self.map("tanh", &[&share])?;
            scores = self.map("multiply", &[&bent, &cap])?;
        }
        if !how.slopes.is_empty() {
            scores = self.slope(how.slopes, &scores)?;
        }
        let visible = self.broadcast(visible, scores.shape(), &[0, 2, 4])?;
        let hidden = self.splat(f64::NEG_INFINITY, scores.kind.clone())?;
        let scores = self.map("select", &[&visible, &scores, &hidden])?;
        let shares = self.softmax(&scores, how.sinks.as_ref())?;
        let mixed = match tokens {
            1 => self.mix_for_one(&shares, &values)?,
            _ => {
                // [B, kv_heads, T, group, D]
                let mixed = self.dot(
                    &shares,
                    &values,
                    &DotDims {
                        lhs_batch: &[0, 1],
                        rhs_batch: &[0, 2],
                        lhs_contract: &[4],
                        rhs_contract: &[1],
                    },
                    Element::F32,
                )?;
                self.transpose(&mixed, &[0, 2, 1, 3, 4])?
            }
        };
        let width = values.shape()[3];
        let mixed = self.reshape(&mixed, &[rows, tokens, heads, width])?;
        self.convert(&mixed, element)
    }

    /// Scores of one token per row, without a transposed copy of the cache.
    fn scores_of_one(
        &self,
        query: &Tensor<'c, 'a>,
        keys: &Tensor<'c, 'a>,
    ) -> Emitted<Tensor<'c, 'a>> {
        let (&[rows, _, kv_heads, group, width], &[_, capacity, ..]) =
            (query.shape(), keys.shape())
        else {
            return Err("queries and keys have four dimensions".into());
        };
        let shape = [rows, kv_heads, group, capacity, width];
        let query = self.reshape(query, &[rows, kv_heads, group, width])?;
        let query = self.broadcast(&query, &shape, &[0, 1, 2, 4])?;
        let keys = self.transpose(keys, &[0, 2, 1, 3])?;
        let keys = self.broadcast(&keys, &shape, &[0, 1, 3, 4])?;
        let products = self.map("multiply", &[&query, &keys])?;
        let scores = self.reduce("add", "0.0", &products, &[4])?;
        self.reshape(&scores, &[rows, kv_heads, 1, group, capacity])
    }

    /// The mix of values for one token per row, `[B, kv_heads, group, D]`.
    fn mix_for_one(
        &self,
        shares: &Tensor<'c, 'a>,
        values: &Tensor<'c, 'a>,
    ) -> Emitted<Tensor<'c, 'a>> {
        let (&[rows, kv_heads, _, group, capacity], &[.., width]) =
            (shares.shape(), values.shape())
        else {
            return Err("shares and values have too few dimensions".into());
        };
        let shape = [rows, kv_heads, group, capacity, width];
        let shares = self.reshape(shares, &shape[..4])?;
        let shares = self.broadcast(&shares, &shape, &[0, 1, 2, 3])?;
        let values = self.transpose(values, &[0, 2, 1, 3])?;
        let values = self.broadcast(&values, &shape, &[0, 1, 3, 4])?;
        let products = self.map("multiply", &[&shares, &values])?;
        self.reduce("add", "0.0", &products, &[3])
    }

    /// Whether the token `t` of row `b` sees the cache position `s`: `i1[B, T, S]`.
    ///
    /// It is computed apart: all layers share it, and counting inside a reduction fails on some GPUs. In a
    /// cache that rotates, row `s` has the latest position that is `s` modulo the number of rows.
    pub(crate) fn visible(
        &self,
        sight: Sight,
        start: &Tensor<'c, 'a>,
        [rows, tokens, capacity]: [usize; 3],
        rotates: bool,
    ) -> Emitted<Tensor<'c, 'a>> {
        let kind = Kind::new(Element::I32, [rows, tokens, capacity]);
        let mut cached = self.iota(kind.clone(), 2)?;
        let start = self.broadcast(start, &kind.shape, &[0])?;
        let offset = self.iota(kind.clone(), 1)?;
        let position = self.map("add", &[&start, &offset])?;
        let last = self.splat(tokens.saturating_sub(1) as f64, kind.clone())?;
        let end = self.map("add", &[&start, &last])?;
        if rotates {
            cached = self.latest(&cached, &end, capacity)?;
        }
        let mut visible = match sight.mask {
            Mask::Causal => self.compare("LE", &cached, &position)?,
            Mask::Full => self.compare("LE", &cached, &end)?,
        };
        if rotates {
            let zero = self.splat(0.0, kind.clone())?;
            let written = self.compare("GE", &cached, &zero)?;
            visible = self.map("and", &[&visible, &written])?;
        }
        if let Some(window) = sight.window {
            let window = self.splat(window.min(i32::MAX as usize) as f64, kind.clone())?;
            let before = self.map("subtract", &[&position, &window])?;
            let near = self.compare("GT", &cached, &before)?;
            visible = self.map("and", &[&visible, &near])?;
        }
        if let Some(chunk) = sight.chunk {
            let chunk = self.splat(chunk.min(i32::MAX as usize) as f64, position.kind.clone())?;
            let own = self.map("divide", &[&position, &chunk])?;
            let cached = self.map("divide", &[&cached, &chunk])?;
            let same = self.compare("EQ", &cached, &own)?;
            visible = self.map("and", &[&visible, &same])?;
        }
        self.barrier(&visible)
    }

    /// Adds `slope * position` of each head to its scores `[B, kv_heads, T, group, S]`.
    fn slope(&self, slopes: &[f64], scores: &Tensor<'c, 'a>) -> Emitted<Tensor<'c, 'a>> {
        let &[_, kv_heads, _, group, capacity] = scores.shape() else {
            return Err("scores have five dimensions".into());
        };
        let shape = [kv_heads, group, capacity];
        let position = self.iota(Kind::new(Element::F32, shape), 2)?;
        let slopes = self.table(slopes, DType::F32)?;
        let slopes = self.reshape(&slopes, &shape[..2])?;
        let slopes = self.broadcast(&slopes, &shape, &[0, 1])?;
        let added = self.map("multiply", &[&position, &slopes])?;
        let added = self.broadcast(&added, scores.shape(), &[1, 3, 4])?;
        self.map("add", &[scores, &added])
    }

    /// Softmax of `x` along the last dimension. Where `x` is scores `[B, kv_heads, T, group, S]`, each of
    /// `sinks` joins the scores of its head, and its share is dropped.
    pub(crate) fn softmax(
        &self,
        x: &Tensor<'c, 'a>,
        sinks: Option<&Tensor<'c, 'a>>,
    ) -> Emitted<Tensor<'c, 'a>> {
        let last = x.shape().len() - 1;
        let dims: Vec<usize> = (0..=last).collect();
        let mut largest = self.reduce_keeping(Reduction::Max, x, last)?;
        let sinks = match sinks {
            Some(sinks) => {
                let sinks = self.reshape(sinks, &[x.shape()[1], x.shape()[3]])?;
                Some(self.broadcast(&sinks, largest.shape(), &[1, 3])?)
            }
            None => None,
        };
        if let Some(sinks) = &sinks {
            largest = self.map("maximum", &[&largest, sinks])?;
        }
        let spread = self.broadcast(&largest, x.shape(), &dims)?;
        let shifted = self.map("subtract", &[x, &spread])?;
        let exponential = self.map("exponential", &[&shifted])?;
        let mut sum = self.reduce_keeping(Reduction::Sum, &exponential, last)?;
        if let Some(sinks) = &sinks {
            let sink = self.map("subtract", &[sinks, &largest])?;
            let sink = self.map("exponential", &[&sink])?;
            sum = self.map("add", &[&sum, &sink])?;
        }
        let sum = self.broadcast(&sum, x.shape(), &dims)?;
        self.map("divide", &[&exponential, &sum])
    }
}
