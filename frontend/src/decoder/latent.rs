//! Multi-head latent attention (DeepSeek-V2): keys and values of all heads are made of one narrow
//! latent, and a part of each query and key, the same key for all heads, carries the position.

use super::{Block, Linear, Norm, Work};
use crate::LoadError;
use crate::config::Rope;
use mlxcel_ir::{Mask, ValueId};

/// The layers that give queries.
#[derive(Clone, Debug)]
pub(crate) enum Queries {
    /// One layer.
    Direct(Linear),
    /// Down to a latent, normed, and up again.
    Latent(Linear, Norm, Linear),
}

/// Attention to keys and values of a latent. The cache holds keys and values of all heads.
#[derive(Clone, Debug)]
pub(crate) struct Latent {
    pub(crate) heads: usize,
    /// Width of the part of a query and key without a position, of that with one, and of a value.
    pub(crate) widths: [usize; 3],
    pub(crate) queries: Queries,
    /// To the latent and, after it, the part of the keys with a position.
    pub(crate) down: Linear,
    /// Of the latent; its width is the latent's.
    pub(crate) norm: Norm,
    /// From the latent to each head's part of the key without a position and its value.
    pub(crate) up: Linear,
    pub(crate) output: Linear,
    /// Rotary embedding of the parts with a position; `None` leaves them as they are.
    pub(crate) rope: Option<Rope>,
    /// Factor of the scores.
    pub(crate) scale: f64,
}

impl Block for Latent {
    fn build(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let (heads, [plain, turned, value]) = (self.heads, self.widths);
        let (width, latent) = (plain + turned, self.norm.width);
        let q = match &self.queries {
            Queries::Direct(linear) => work.linear(x, linear, "q")?,
            Queries::Latent(down, norm, up) => {
                let low = work.linear(x, down, "q_down")?;
                let low = work.norm(low, norm, "q_norm")?;
                work.linear(low, up, "q")?
            }
        };
        let q = work.split(q, &[heads, width])?;
        let q_turned = work.part(q, plain..width)?;
        let q_turned = self.turned(work, q_turned, "q_rope")?;
        let q_plain = work.part(q, 0..plain)?;
        let q = work.op(|b| b.concatenate(q_plain, q_turned, 3))?;

        let both = work.linear(x, &self.down, "kv_down")?;
        let low = work.part(both, 0..latent)?;
        let low = work.norm(low, &self.norm, "kv_norm")?;
        let kv = work.linear(low, &self.up, "kv")?;
        let kv = work.split(kv, &[heads, plain + value])?;
        let k_turned = work.part(both, latent..latent + turned)?;
        let k_turned = work.split(k_turned, &[1, turned])?;
        let k_turned = self.turned(work, k_turned, "k_rope")?;
        let k_turned = work.spread(k_turned, q_turned)?;
        let k_plain = work.part(kv, 0..plain)?;
        let k = work.op(|b| b.concatenate(k_plain, k_turned, 3))?;
        let v = work.part(kv, plain..plain + value)?;

        let cache = work.cache(heads, width, value);
        let (start, scale) = (work.start, self.scale);
        let attended = work.op(|b| {
            let (mask, slopes) = (Mask::Causal, Vec::new());
            b.attention(
                q, k, v, start, None, cache, scale, mask, None, None, None, slopes,
            )
        })?;
        work.named(attended, "attention");
        let joined = work.split(attended, &[heads * value])?;
        work.linear(joined, &self.output, "attention_out")
    }
}

impl Latent {
    fn turned(&self, work: &mut Work<'_>, x: ValueId, name: &str) -> Result<ValueId, LoadError> {
        let Some(rope) = &self.rope else {
            return Ok(x);
        };
        let start = work.start;
        let x = rope.build(work, x, start)?;
        work.named(x, name);
        Ok(x)
    }
}
