//! A graph under construction, and the phrases that blocks are written in.

use super::{Linear, Norm};
use crate::{LoadError, weights::Weights};
use mlxcel_ir::{
    BuildError, Builder, DType, Dim, Reduction, StateDecl, StateId, StateKind, Symbol, TensorType,
    ValueId, WeightDecl, WeightId, step,
};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// A graph under construction.
pub(crate) struct Work<'a> {
    pub(crate) builder: Builder,
    pub(crate) weights: &'a Weights,
    /// The new tokens, `i32[B, T]`.
    pub(crate) tokens: ValueId,
    /// The position of each row's first new token, `i32[B]`.
    pub(crate) start: ValueId,
    /// How many of the T tokens of each row count, `i32[B]`.
    pub(crate) length: ValueId,
    /// The residual stream before the first layer, once it is there.
    pub(crate) embedding: Option<ValueId>,
    model_type: &'a str,
    /// The layer that is being built.
    layer: Option<usize>,
    /// Names of nodes and states so far.
    taken: HashSet<String>,
    /// Values that later layers read, by name.
    kept: HashMap<String, ValueId>,
}

impl<'a> Work<'a> {
    /// A graph called `name` with the inputs of [`step`].
    pub(crate) fn new(name: &str, model_type: &'a str, weights: &'a Weights) -> Self {
        let mut builder = Builder::new(name);
        let tokens = TensorType::new(DType::I32, [Symbol::B, Symbol::T]);
        let rows = TensorType::new(DType::I32, [Symbol::B]);
        Self {
            tokens: builder.input(step::TOKENS, tokens),
            start: builder.input(step::START, rows.clone()),
            length: builder.input(step::LENGTH, rows),
            embedding: None,
            builder,
            weights,
            model_type,
            layer: None,
            taken: HashSet::new(),
            kept: HashMap::new(),
        }
    }

    /// Starts layer `layer`, whose nodes are named after it.
    pub(crate) fn enter(&mut self, layer: usize) {
        self.layer = Some(layer);
    }

    /// Ends the last layer.
    pub(crate) fn leave(&mut self) {
        self.layer = None;
    }

    /// What `build` adds; an error of the builder names the model.
    pub(crate) fn op(
        &mut self,
        build: impl FnOnce(&mut Builder) -> Result<ValueId, BuildError>,
    ) -> Result<ValueId, LoadError> {
        build(&mut self.builder).map_err(|source| LoadError::Graph {
            path: self.weights.path.clone(),
            source,
        })
    }

    fn free(&mut self, part: &str) -> String {
        let name = match self.layer {
            Some(layer) => format!("layers.{layer}.{part}"),
            None => part.to_string(),
        };
        let free = (1..)
            .map(|count| match count {
                1 => name.clone(),
                _ => format!("{name}.{count}"),
            })
            .find(|name| !self.taken.contains(name));
        let free = free.unwrap_or(name);
        self.taken.insert(free.clone());
        free
    }

    /// Names `value` after the layer and `part`, with a number where a layer has several.
    pub(crate) fn named(&mut self, value: ValueId, part: &str) {
        let name = self.free(part);
        self.builder.name(value, name);
    }

    /// Keeps `value` for later layers under the words of `name`.
    pub(crate) fn keep(&mut self, name: &[&str], value: ValueId) {
        self.kept.insert(name.join("."), value);
    }

    /// The value that is kept under the words of `name`.
    pub(crate) fn kept(&self, name: &[&str]) -> Option<ValueId> {
        self.kept.get(&name.join(".")).copied()
    }

    /// The type of a value.
    pub(crate) fn ty(&self, value: ValueId) -> TensorType {
        self.builder.ty(value).clone()
    }

    /// The declaration of the weight `name`, which must have `shape`.
    pub(crate) fn declared(&self, name: &str, shape: &[usize]) -> Result<WeightDecl, LoadError> {
        let reason = format!("by the configuration of this {} model", self.model_type);
        self.weights.declaration(name, shape, &reason)
    }

    /// The weight `name`, which must have `shape`.
    pub(crate) fn weight(&mut self, name: &str, shape: &[usize]) -> Result<WeightId, LoadError> {
        let declared = self.declared(name, shape)?;
        Ok(self.builder.weight(declared))
    }

    /// The numbers of the weight `name`, `f32` of `shape`.
    pub(crate) fn parameter(&mut self, name: &str, shape: &[usize]) -> Result<ValueId, LoadError> {
        let weight = self.weight(name, shape)?;
        self.op(|b| b.parameter(weight))
    }

    /// The numbers of the weight `name`, `[width]`, repeated to the shape of `like`.
    pub(crate) fn row(&mut self, name: &str, like: ValueId) -> Result<ValueId, LoadError> {
        let ty = self.ty(like);
        let last = ty.rank().saturating_sub(1);
        let width = ty.shape.last().and_then(|dim| dim.fixed()).unwrap_or(0);
        let vector = self.parameter(name, &[width])?;
        self.op(|b| b.broadcast(vector, ty.shape, vec![last]))
    }

    /// `x` through `linear`, named `part`.
    pub(crate) fn linear(
        &mut self,
        x: ValueId,
        linear: &Linear,
        part: &str,
    ) -> Result<ValueId, LoadError> {
        let y = linear.build(self, x)?;
        self.named(y, part);
        Ok(y)
    }

    /// `x` through `norm`, named `part`.
    pub(crate) fn norm(
        &mut self,
        x: ValueId,
        norm: &Norm,
        part: &str,
    ) -> Result<ValueId, LoadError> {
        let y = norm.build(self, x)?;
        self.named(y, part);
        Ok(y)
    }

    /// A tensor like `like` whose elements all equal `value`.
    pub(crate) fn full(&mut self, like: ValueId, value: f64) -> Result<ValueId, LoadError> {
        let ty = self.ty(like);
        self.op(|b| b.constant(value, ty.dtype, ty.shape))
    }

    /// `factor * x`.
    pub(crate) fn scaled(&mut self, x: ValueId, factor: f64) -> Result<ValueId, LoadError> {
        if factor == 1.0 {
            return Ok(x);
        }
        let factor = self.full(x, factor)?;
        self.op(|b| b.multiply(x, factor))
    }

    /// `x` clamped to `-bound ..= bound`.
    pub(crate) fn clamped(&mut self, x: ValueId, bound: f64) -> Result<ValueId, LoadError> {
        let (low, high) = (self.full(x, -bound)?, self.full(x, bound)?);
        let x = self.op(|b| b.maximum(x, low))?;
        self.op(|b| b.minimum(x, high))
    }

    /// `x[B, T, ...]` with the dimensions after T replaced by `sizes`.
    pub(crate) fn split(&mut self, x: ValueId, sizes: &[usize]) -> Result<ValueId, LoadError> {
        let shape = self.with_tail(sizes);
        if self.ty(x).shape == shape {
            return Ok(x);
        }
        self.op(|b| b.reshape(x, shape))
    }

    /// The shape `[B, T, ...]` that ends in `sizes`.
    pub(crate) fn with_tail(&self, sizes: &[usize]) -> Vec<Dim> {
        let mut shape = vec![Dim::from(Symbol::B), Symbol::T.into()];
        shape.extend(sizes.iter().copied().map(Dim::from));
        shape
    }

    /// The sums of `x` along dimension `dim`, which keeps size 1.
    pub(crate) fn sum(&mut self, x: ValueId, dim: usize) -> Result<ValueId, LoadError> {
        self.op(|b| b.reduce(x, Reduction::Sum, dim))
    }

    /// The part `range` of the last dimension of `x`.
    pub(crate) fn part(&mut self, x: ValueId, range: Range<usize>) -> Result<ValueId, LoadError> {
        let last = self.ty(x).rank().saturating_sub(1);
        self.op(|b| b.slice(x, last, range.start, range.end, 1))
    }

    /// `x`, whose last dimension has size 1 or which lacks it, repeated to the shape of `like`.
    pub(crate) fn spread(&mut self, x: ValueId, like: ValueId) -> Result<ValueId, LoadError> {
        let shape = self.ty(like).shape;
        let dims = (0..self.ty(x).rank()).collect();
        self.op(|b| b.broadcast(x, shape, dims))
    }

    /// Positions of the new tokens plus `offset`, `i32[B, T]`.
    pub(crate) fn positions(&mut self, offset: usize) -> Result<ValueId, LoadError> {
        let shape = vec![Dim::from(Symbol::B), Symbol::T.into()];
        let start = self.start;
        let index = self.op(|b| b.iota(1, DType::I32, shape.clone()))?;
        let start = self.op(|b| b.broadcast(start, shape.clone(), vec![0]))?;
        let position = self.op(|b| b.add(start, index))?;
        if offset == 0 {
            return Ok(position);
        }
        let offset = self.full(position, offset as f64)?;
        self.op(|b| b.add(position, offset))
    }

    fn state(
        &mut self,
        kind: StateKind,
        part: &str,
        [heads, key_dim, value_dim]: [usize; 3],
    ) -> StateId {
        let layer = self
            .layer
            .map_or(String::new(), |layer| format!(".{layer}"));
        let wanted = match part {
            "" => format!("{}{layer}", kind.name()),
            _ => format!("{}{layer}.{part}", kind.name()),
        };
        // States are not in a layer's name space.
        let layer = self.layer.take();
        let name = self.free(&wanted);
        self.layer = layer;
        self.builder.state(StateDecl {
            name,
            kind,
            heads,
            key_dim,
            value_dim,
            dtype: DType::F32,
        })
    }

    /// A key-value cache of `heads` heads with keys and values of the given widths.
    pub(crate) fn cache(&mut self, heads: usize, key: usize, value: usize) -> StateId {
        self.state(StateKind::Cache, "", [heads, key, value])
    }

    /// A memory `[heads, key, value]`, of which the layer may have several kinds, told apart by `part`.
    pub(crate) fn memory(&mut self, part: &str, sizes: [usize; 3]) -> StateId {
        self.state(StateKind::Memory, part, sizes)
    }
}
