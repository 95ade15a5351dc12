//! Attention over the cache.

use super::element::{Element, Kind, Tensor};
use super::operations::{DotDims, Emitted, Operations};
use mlxcel_ir::{Mask, Reduction};

/// Which cached positions a token sees.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sight {
    pub(crate) mask: Mask,
    pub(crate) window: Option<usize>,
}

impl<'c, 'a> Operations<'c, 'a> {
    /// Queries `[B, T, heads, D]` attend to keys and values `[B, S, kv_heads, D]` in the cache, which
    /// hold the new tokens already and of which each token sees those in `visible[B, T, S]`. Computed
    /// in f32.
    pub(crate) fn attention(
        &self,
        scale: f64,
        softcap: Option<f64>,
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
        let scale = self.splat(scale, query.kind.clone())?;
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
        if let Some(cap) = softcap {
            let cap = self.splat(cap, scores.kind.clone())?;
            let share = self.map("divide", &[&scores, &cap])?;
            let bent = self.map("tanh", &[&share])?;
            scores = self.map("multiply", &[&bent, &cap])?;
        }
        let visible = self.broadcast(visible, scores.shape(), &[0, 2, 4])?;
        let hidden = self.splat(f64::NEG_INFINITY, scores.kind.clone())?;
        let scores = self.map("select", &[&visible, &scores, &hidden])?;
        let shares = self.softmax(&scores)?;
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
    /// It is computed apart: all layers share it, and counting inside a reduction fails on some GPUs.
    pub(crate) fn visible(
        &self,
        sight: Sight,
        start: &Tensor<'c, 'a>,
        [rows, tokens, capacity]: [usize; 3],
    ) -> Emitted<Tensor<'c, 'a>> {
        let kind = Kind::new(Element::I32, [rows, tokens, capacity]);
        let cached = self.iota(kind.clone(), 2)?;
        let start = self.broadcast(start, &kind.shape, &[0])?;
        let offset = self.iota(kind.clone(), 1)?;
        let position = self.map("add", &[&start, &offset])?;
        let mut visible = match sight.mask {
            Mask::Causal => self.compare("LE", &cached, &position)?,
            Mask::Full => {
                let last = self.splat(tokens.saturating_sub(1) as f64, kind.clone())?;
                let end = self.map("add", &[&start, &last])?;
                self.compare("LE", &cached, &end)?
            }
        };
        if let Some(window) = sight.window {
            let window = self.splat(window.min(i32::MAX as usize) as f64, kind)?;
            let before = self.map("subtract", &[&position, &window])?;
            let near = self.compare("GT", &cached, &before)?;
            visible = self.map("and", &[&visible, &near])?;
        }
        self.barrier(&visible)
    }

    fn softmax(&self, x: &Tensor<'c, 'a>) -> Emitted<Tensor<'c, 'a>> {
        let last = x.shape().len() - 1;
        let dims: Vec<usize> = (0..=last).collect();
        let largest = self.reduce_keeping(Reduction::Max, x, last)?;
        let largest = self.broadcast(&largest, x.shape(), &dims)?;
        let shifted = self.map("subtract", &[x, &largest])?;
        let exponential = self.map("exponential", &[&shifted])?;
        let sum = self.reduce_keeping(Reduction::Sum, &exponential, last)?;
        let sum = self.broadcast(&sum, x.shape(), &dims)?;
        self.map("divide", &[&exponential, &sum])
    }
}
