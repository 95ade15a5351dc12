//! The attention of a decoder's layer: projections, norms of heads, rotary embedding, cache.

use super::Work;
use crate::LoadError;
use mlxcel_ir::{DType, Mask, Pairing, StateDecl, StateId, StateKind, Symbol, ValueId};

impl Work<'_> {
    /// Attention of the normed `x[B, T, H]` to the layer's cache and itself.
    pub(super) fn attention(&mut self, layer: usize, x: ValueId) -> Result<ValueId, LoadError> {
        let config = self.config;
        let width = config.head_dim;
        let named = |part: &str| format!("layers.{layer}.{part}");
        let within = |part: &str| format!("model.layers.{layer}.self_attn.{part}");
        let bias = self.decoder.qkv_bias.on(config);

        let q = self.heads(layer, x, 'q', config.heads)?;
        let k = self.heads(layer, x, 'k', config.kv_heads)?;
        let size = [config.hidden, config.kv_heads * width];
        let v = self.linear(x, &within("v_proj"), size, bias, named("v"))?;
        let v = self.split(v, config.kv_heads)?;
        let cache = self.cache(layer);
        let window = match self.decoder.windows {
            true => config.windows.get(layer).copied().flatten(),
            false => None,
        };
        let scale = 1.0 / (width as f64).sqrt();
        let attended = self
            .builder
            .attention(
                q,
                k,
                v,
                self.start,
                None,
                cache,
                scale,
                Mask::Causal,
                window,
                None,
                None,
                Vec::new(),
            )
            .or_else(self.fail())?;
        self.builder.name(attended, named("attention"));
        let shape = vec![
            Symbol::B.into(),
            Symbol::T.into(),
            (config.heads * width).into(),
        ];
        let joined = self.builder.reshape(attended, shape).or_else(self.fail())?;
        let size = [config.heads * width, config.hidden];
        let bias = self.decoder.output_bias.on(config);
        self.linear(
            joined,
            &within("o_proj"),
            size,
            bias,
            named("attention_out"),
        )
    }

    /// Queries or keys: projected, split into heads, normed where the family does, rotated.
    fn heads(
        &mut self,
        layer: usize,
        x: ValueId,
        which: char,
        heads: usize,
    ) -> Result<ValueId, LoadError> {
        let config = self.config;
        let width = config.head_dim;
        let named = |part: &str| format!("layers.{layer}.{which}{part}");
        let within = |part: &str| format!("model.layers.{layer}.self_attn.{which}{part}");
        let bias = self.decoder.qkv_bias.on(config);
        let size = [config.hidden, heads * width];
        let flat = self.linear(x, &within("_proj"), size, bias, named(""))?;
        let mut split = self.split(flat, heads)?;
        if self.decoder.qk_norm {
            split = self.norm(split, &within("_norm"), width, named("_norm"))?;
        }
        let (base, scaling) = (config.rope.base, config.rope.scaling.clone());
        let turned = self
            .builder
            .rope(split, self.start, width, base, Pairing::Half, scaling, 1.0)
            .or_else(self.fail())?;
        self.builder.name(turned, named("_rope"));
        Ok(turned)
    }

    /// `[B, T, heads * D]` as `[B, T, heads, D]`.
    fn split(&mut self, x: ValueId, heads: usize) -> Result<ValueId, LoadError> {
        let width = self.config.head_dim;
        let shape = vec![
            Symbol::B.into(),
            Symbol::T.into(),
            heads.into(),
            width.into(),
        ];
        self.builder.reshape(x, shape).or_else(self.fail())
    }

    fn cache(&mut self, layer: usize) -> StateId {
        self.builder.state(StateDecl {
            name: format!("cache.{layer}"),
            kind: StateKind::Cache,
            heads: self.config.kv_heads,
            key_dim: self.config.head_dim,
            value_dim: self.config.head_dim,
            dtype: DType::F32,
        })
    }
}
