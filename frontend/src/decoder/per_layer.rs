//! Parts of layers that read more than the residual stream: an input of each layer's own, made of
//! the tokens and their embedding, and a learned factor.

use super::parts::EMBEDDED;
use super::{Block, Linear, Norm, Work};
use crate::LoadError;
use mlxcel_ir::{Activation, Comparison, DType, ValueId};

/// The inputs of all layers, `[B, T, layers * width]`:
/// `(norm(projection(embedding) * projected) + table[token] * looked_up) * sum`.
#[derive(Clone, Debug)]
pub(crate) struct PerLayer {
    pub(crate) layers: usize,
    /// Elements of one layer's input.
    pub(crate) width: usize,
    /// The table `[rows, layers * width]`.
    pub(crate) table: String,
    pub(crate) rows: usize,
    /// Whether there are more tokens than rows; those beyond have the row of token 0.
    pub(crate) short: bool,
    pub(crate) projection: Linear,
    /// A norm of each layer's part.
    pub(crate) norm: Norm,
    /// Factors of what is projected, of what is looked up, and of their sum.
    pub(crate) scales: [f64; 3],
}

impl PerLayer {
    /// The inputs, which are made once.
    fn build(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        const NAME: &[&str] = &["per_layer"];
        if let Some(known) = work.kept(NAME) {
            return Ok(known);
        }
        let all = self.layers * self.width;
        let embedded = work.kept(&[EMBEDDED]).unwrap_or(x);
        let projected = work.linear(embedded, &self.projection, "inputs_projected")?;
        let projected = work.scaled(projected, self.scales[0])?;
        let projected = work.split(projected, &[self.layers, self.width])?;
        let projected = work.norm(projected, &self.norm, "inputs_norm")?;
        let projected = work.split(projected, &[all])?;
        let table = work.weight(&format!("{}.weight", self.table), &[self.rows, all])?;
        let mut tokens = work.tokens;
        if self.short {
            let rows = work.full(tokens, self.rows as f64)?;
            let zero = work.full(tokens, 0.0)?;
            let is_known = work.op(|b| b.compare(tokens, rows, Comparison::Less))?;
            tokens = work.op(|b| b.select(is_known, tokens, zero))?;
        }
        let found = work.op(|b| b.embedding(tokens, table))?;
        let found = work.scaled(found, self.scales[1])?;
        let sum = work.op(|b| b.add(projected, found))?;
        let sum = work.scaled(sum, self.scales[2])?;
        work.named(sum, "inputs");
        work.keep(NAME, sum);
        Ok(sum)
    }
}

/// `output(activation(gate x) * input)` with the input of the layer `index`.
#[derive(Clone, Debug)]
pub(crate) struct LayerInput {
    pub(crate) inputs: PerLayer,
    pub(crate) index: usize,
    pub(crate) gate: Linear,
    pub(crate) output: Linear,
    pub(crate) activation: Activation,
}

impl Block for LayerInput {
    fn build(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let width = self.inputs.width;
        let inputs = self.inputs.build(work, x)?;
        let own = work.part(inputs, self.index * width..(self.index + 1) * width)?;
        let gate = work.linear(x, &self.gate, "input_gate")?;
        let activation = self.activation;
        let gated = work.op(|b| b.gated(gate, own, activation))?;
        work.linear(gated, &self.output, "input_out")
    }
}

/// `x` times the one number of a weight `[1]`.
#[derive(Clone, Debug)]
pub(crate) struct Scalar(pub(crate) String);

impl Block for Scalar {
    fn build(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let factor = work.parameter(&self.0, &[1])?;
        let shape = work.ty(x).shape;
        let last = shape.len().saturating_sub(1);
        let factor = work.op(|b| b.convert(factor, DType::F32))?;
        let factor = work.op(|b| b.broadcast(factor, shape, vec![last]))?;
        work.op(|b| b.multiply(x, factor))
    }
}
