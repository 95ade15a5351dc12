//! Attention over a layer's cache: projections, norms of heads, rotary embedding, output.

use super::{Block, Linear, Norm, Work};
use crate::LoadError;
use crate::config::Rope;
use mlxcel_ir::{Activation, Mask, ValueId};

/// The layers that give queries, keys and values.
#[derive(Clone, Debug)]
pub(crate) struct Projections {
    pub(crate) q: Linear,
    pub(crate) k: Linear,
    pub(crate) v: Linear,
}

impl Projections {
    /// The layers `q_proj`, `k_proj` and `v_proj` of `module` for `heads` and `kv_heads` heads of
    /// `width`.
    pub(crate) fn new(
        module: &str,
        hidden: usize,
        [heads, kv_heads, width]: [usize; 3],
        bias: bool,
    ) -> Self {
        let layer = |name: &str, heads: usize| {
            Linear::new(format!("{module}.{name}_proj"), hidden, heads * width, bias)
        };
        Self {
            q: layer("q", heads),
            k: layer("k", kv_heads),
            v: layer("v", kv_heads),
        }
    }

    /// Of a layer whose rows are first the queries of all heads, then the keys, then the values.
    pub(crate) fn fused(all: &Linear, [heads, kv_heads, width]: [usize; 3]) -> Self {
        let (q, kv) = (heads * width, kv_heads * width);
        Self {
            q: all.rows(0..q),
            k: all.rows(q..q + kv),
            v: all.rows(q + kv..q + 2 * kv),
        }
    }

    /// Of a layer whose rows are, for each key-value head, its queries, its key and its value.
    pub(crate) fn grouped(all: &Linear, [heads, kv_heads, width]: [usize; 3]) -> Self {
        let group = heads / kv_heads.max(1);
        let stride = (group + 2) * width;
        let part = |start: usize, block: usize| all.blocks(start..all.to, stride, block);
        Self {
            q: part(0, group * width),
            k: part(group * width, width),
            v: part((group + 1) * width, width),
        }
    }
}

/// A norm of queries or keys.
#[derive(Clone, Debug)]
pub(crate) enum HeadNorm {
    /// Of each head, with one weight for all heads.
    Each(Norm),
    /// Of all heads together, before they are split.
    All(Norm),
    /// Of each head, with a weight `[heads, D]` of its own, named last.
    Own(Norm, String),
}

/// Attention with a cache.
#[derive(Clone, Debug)]
pub(crate) struct Attention {
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    /// Width of a query and of a key.
    pub(crate) width: usize,
    pub(crate) projections: Projections,
    pub(crate) output: Linear,
    pub(crate) query_norm: Option<HeadNorm>,
    pub(crate) key_norm: Option<HeadNorm>,
    pub(crate) value_norm: Option<Norm>,
    /// Whether queries and keys are normed after rotary embedding, not before.
    pub(crate) norm_after_rope: bool,
    pub(crate) rope: Option<Rope>,
    /// Factor of the scores.
    pub(crate) scale: f64,
    pub(crate) window: Option<usize>,
    pub(crate) chunk: Option<usize>,
    pub(crate) softcap: Option<f64>,
    /// Slopes of ALiBi, one for each head.
    pub(crate) slopes: Vec<f64>,
    /// The name of the sinks `[heads]`.
    pub(crate) sinks: Option<String>,
    /// Bound of what the projections give, after a norm of all heads.
    pub(crate) clip: Option<f64>,
    /// Factor of the keys.
    pub(crate) key_scale: f64,
    /// A layer `[heads * D or heads, H]` whose sigmoid multiplies the heads before the output layer.
    pub(crate) gate: Option<Linear>,
    /// A norm before the output layer.
    pub(crate) norm: Option<Norm>,
    /// Queries grow with the position `p` by `1 + a ln(1 + floor((p + f) / n))`: `[a, n]`,
    pub(crate) growth: Option<[f64; 2]>,
    /// and `f`, which is 1 for most.
    pub(crate) growth_from: usize,
    /// Whether the tokens of a step attend to each other in both directions, with no cache. A window
    /// of `w` then reaches from `p - w` to `p + w`.
    pub(crate) mutual: bool,
    /// Keys and values that layers share.
    pub(crate) sharing: Option<Sharing>,
}

/// What a layer does with keys and values that it shares under a name.
#[derive(Clone, Debug)]
pub(crate) enum Sharing {
    /// Keeps its own for later layers.
    Keeps(String),
    /// Uses those kept before; its own projections of keys and values do not exist.
    Uses(String),
}

impl Attention {
    /// Plain attention with rotary embedding and scores divided by the root of the width.
    pub(crate) fn new(
        [heads, kv_heads, width]: [usize; 3],
        projections: Projections,
        output: Linear,
        rope: Option<Rope>,
    ) -> Self {
        Self {
            heads,
            kv_heads,
            width,
            projections,
            output,
            query_norm: None,
            key_norm: None,
            value_norm: None,
            norm_after_rope: false,
            rope,
            scale: 1.0 / (width as f64).sqrt(),
            window: None,
            chunk: None,
            softcap: None,
            slopes: Vec::new(),
            sinks: None,
            clip: None,
            key_scale: 1.0,
            gate: None,
            norm: None,
            growth: None,
            growth_from: 1,
            mutual: false,
            sharing: None,
        }
    }

    /// The same with a norm of each query and key head.
    pub(crate) fn with_head_norms(mut self, query: Norm, key: Norm) -> Self {
        self.query_norm = Some(HeadNorm::Each(query));
        self.key_norm = Some(HeadNorm::Each(key));
        self
    }

    /// The same between all tokens of a text, with no cache.
    pub(crate) fn mutual(mut self) -> Self {
        self.mutual = true;
        self
    }

    /// The keys and values of the new tokens: made of `x`, or those that an earlier layer keeps.
    fn keys_and_values(&self, work: &mut Work<'_>, x: ValueId) -> Result<[ValueId; 2], LoadError> {
        let value = self.projections.v.to / self.kv_heads.max(1);
        if let Some(Sharing::Uses(name)) = &self.sharing
            && let (Some(k), Some(v)) = (work.kept(&["k", name]), work.kept(&["v", name]))
        {
            return Ok([k, v]);
        }
        let k = work.linear(x, &self.projections.k, "k")?;
        let k = work.scaled(k, self.key_scale)?;
        let k = self.turned(work, k, "k", self.kv_heads, self.key_norm.as_ref())?;
        let v = work.linear(x, &self.projections.v, "v")?;
        let v = self.clipped(work, v)?;
        let mut v = work.split(v, &[self.kv_heads, value])?;
        if let Some(norm) = &self.value_norm {
            v = work.norm(v, norm, "v_norm")?;
        }
        if let Some(Sharing::Keeps(name)) = &self.sharing {
            work.keep(&["k", name], k);
            work.keep(&["v", name], v);
        }
        Ok([k, v])
    }

    /// What the queries gather over the cache or, without one, over the tokens of the step.
    fn attended(&self, work: &mut Work<'_>, [q, k, v]: [ValueId; 3]) -> Result<ValueId, LoadError> {
        let (scale, window) = (self.scale, self.window);
        if self.mutual {
            let length = work.length;
            return work.op(|b| b.mutual_attention(q, k, v, length, scale, window));
        }
        let value = self.projections.v.to / self.kv_heads.max(1);
        let cache = work.cache(self.kv_heads, self.width, value);
        let sinks = match &self.sinks {
            Some(name) => Some(work.weight(name, &[self.heads])?),
            None => None,
        };
        let (start, mask, slopes) = (work.start, Mask::Causal, self.slopes.clone());
        let (chunk, softcap) = (self.chunk, self.softcap);
        work.op(|b| {
            b.attention(
                q, k, v, start, sinks, cache, scale, mask, window, chunk, softcap, slopes,
            )
        })
    }

    /// Queries or keys from what their layer gave: split, normed, turned.
    fn turned(
        &self,
        work: &mut Work<'_>,
        mut x: ValueId,
        name: &str,
        heads: usize,
        norm: Option<&HeadNorm>,
    ) -> Result<ValueId, LoadError> {
        if !self.norm_after_rope
            && let Some(HeadNorm::All(norm)) = norm
        {
            x = work.norm(x, norm, &format!("{name}_norm"))?;
        }
        x = self.clipped(work, x)?;
        x = work.split(x, &[heads, self.width])?;
        if !self.norm_after_rope {
            x = head_norm(work, x, name, norm)?;
        }
        if let Some(rope) = &self.rope {
            let start = work.start;
            x = rope.build(work, x, start)?;
            work.named(x, &format!("{name}_rope"));
        }
        if self.norm_after_rope {
            x = head_norm(work, x, name, norm)?;
        }
        Ok(x)
    }

    /// `x` within the bound.
    fn clipped(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        match self.clip {
            Some(bound) => work.clamped(x, bound),
            None => Ok(x),
        }
    }

    /// `q` with its growth over the positions.
    fn grown(&self, work: &mut Work<'_>, q: ValueId) -> Result<ValueId, LoadError> {
        let Some([rate, floor]) = self.growth else {
            return Ok(q);
        };
        let position = work.positions(self.growth_from)?;
        let floor = work.full(position, floor)?;
        // Integers divide to whole numbers.
        let steps = work.op(|b| b.divide(position, floor))?;
        let steps = work.op(|b| b.convert(steps, mlxcel_ir::DType::F32))?;
        let log = work.op(|b| b.log1p(steps))?;
        let log = work.scaled(log, rate)?;
        let one = work.full(log, 1.0)?;
        let factor = work.op(|b| b.add(log, one))?;
        let factor = work.spread(factor, q)?;
        work.op(|b| b.multiply(q, factor))
    }
}

/// The slopes of ALiBi for `heads` heads: `2^(-i * steepest / p)` for `i` from 1, where `p` is the
/// next power of two; if that exceeds `heads`, those of even `i`, then those of odd.
pub(crate) fn alibi(heads: usize, steepest: f64) -> Vec<f64> {
    let power = heads.next_power_of_two();
    let slope = |i: usize| (-(i as f64) * steepest / power as f64).exp2();
    let all = 1..=power;
    match power == heads {
        true => all.map(slope).collect(),
        false => {
            let odd = all.clone().step_by(2);
            all.skip(1)
                .step_by(2)
                .chain(odd)
                .take(heads)
                .map(slope)
                .collect()
        }
    }
}

fn head_norm(
    work: &mut Work<'_>,
    x: ValueId,
    name: &str,
    norm: Option<&HeadNorm>,
) -> Result<ValueId, LoadError> {
    let part = format!("{name}_norm");
    match norm {
        None | Some(HeadNorm::All(_)) => Ok(x),
        Some(HeadNorm::Each(norm)) => work.norm(x, norm, &part),
        Some(HeadNorm::Own(norm, weight)) => {
            let x = work.norm(x, norm, &part)?;
            let shape = work.ty(x).shape;
            let sizes: Vec<usize> = shape[2..].iter().filter_map(|dim| dim.fixed()).collect();
            let weight = work.parameter(weight, &sizes)?;
            let weight = work.op(|b| b.broadcast(weight, shape, vec![2, 3]))?;
            work.op(|b| b.multiply(x, weight))
        }
    }
}

impl Block for Attention {
    fn build(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let value = self.projections.v.to / self.kv_heads.max(1);
        let q = work.linear(x, &self.projections.q, "q")?;
        let q = self.turned(work, q, "q", self.heads, self.query_norm.as_ref())?;
        let q = self.grown(work, q)?;
        let [k, v] = self.keys_and_values(work, x)?;
        let attended = self.attended(work, [q, k, v])?;
        work.named(attended, "attention");
        let mut joined = work.split(attended, &[self.heads * value])?;
        if let Some(gate) = &self.gate {
            let gated = work.linear(x, gate, "attention_gate")?;
            joined = match gate.to == self.heads * value {
                true => work.op(|b| b.gated(gated, joined, Activation::Sigmoid))?,
                false => {
                    let share = work.op(|b| b.sigmoid(gated))?;
                    let share = work.spread(share, attended)?;
                    let kept = work.op(|b| b.multiply(share, attended))?;
                    work.split(kept, &[self.heads * value])?
                }
            };
        }
        if let Some(norm) = &self.norm {
            joined = work.norm(joined, norm, "attention_norm")?;
        }
        work.linear(joined, &self.output, "attention_out")
    }
}
