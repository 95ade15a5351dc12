//! Linear layers: several over one input, one with a residual, a gated pair.

use super::Fixed;
use super::body::{fixed, floats, integers, only};
use crate::fail::Fail;
use mlxcel_ir::{Activation, Graph, Node, WeightDecl, WeightFormat, WeightSource};
use mlxcel_kernels::{self as kernels, Matrix, Pool};
use std::sync::Arc;

/// A linear layer with its weight, which lies in the source's memory.
pub(super) struct Layer {
    // Borrows from `source`; only `Layer::view` gives it out, for no longer than the layer lives.
    matrix: Matrix<'static>,
    bias: Option<Vec<f32>>,
    source: Arc<dyn WeightSource>,
}

/// The matrix of a weight, or why no kernel takes it.
fn matrix(
    source: &Arc<dyn WeightSource>,
    declaration: &WeightDecl,
) -> Result<Matrix<'static>, Fail> {
    let data = source
        .get(&declaration.name)
        .ok_or("the checkpoint has no such weight")?;
    let matrix = Matrix::new(declaration, data)?;
    // SAFETY: a source's bytes live, unchanged, as long as the source. Whoever holds the matrix
    // holds the source beside it and gives out only shorter borrows.
    Ok(unsafe { std::mem::transmute::<Matrix<'_>, Matrix<'static>>(matrix) })
}

/// A table of rows, as [`Layer`] holds its matrix.
pub(super) struct Table {
    matrix: Matrix<'static>,
    _source: Arc<dyn WeightSource>,
}

impl Table {
    pub(super) fn new(
        source: &Arc<dyn WeightSource>,
        declaration: &WeightDecl,
    ) -> Result<Self, Fail> {
        Ok(Self {
            matrix: matrix(source, declaration)?,
            _source: source.clone(),
        })
    }

    pub(super) fn view(&self) -> &Matrix<'_> {
        &self.matrix
    }
}

impl Layer {
    /// The layer of a linear node, or why no kernel computes it.
    pub(super) fn new(
        graph: &Graph,
        source: &Arc<dyn WeightSource>,
        node: &Node,
    ) -> Result<Self, Fail> {
        let declaration = |index: usize| {
            let id = node.weights.get(index).copied();
            id.and_then(|id| graph.weight(id))
        };
        let weight = declaration(0).ok_or("has no weight")?;
        let bias = declaration(1)
            .map(|bias| vector(source, bias))
            .transpose()?;
        Ok(Self {
            matrix: matrix(source, weight)?,
            bias,
            source: source.clone(),
        })
    }

    fn view(&self) -> kernels::Linear<'_> {
        let _ = &self.source;
        kernels::Linear {
            matrix: self.matrix,
            bias: self.bias.as_deref(),
        }
    }
}

/// Layers of which each token takes some.
pub(super) struct Experts {
    table: Table,
    bias: Option<Vec<f32>>,
    count: usize,
}

impl Experts {
    /// The layers of an expert node, or why no kernel computes them.
    pub(super) fn new(
        graph: &Graph,
        source: &Arc<dyn WeightSource>,
        node: &Node,
    ) -> Result<Self, Fail> {
        let declaration = |index: usize| {
            let id = node.weights.get(index).copied();
            id.and_then(|id| graph.weight(id))
        };
        let weight = declaration(0).ok_or("has no weight")?;
        let numbers = |declaration: &WeightDecl| -> Result<Vec<f32>, Fail> {
            let data = source.get(&declaration.name);
            let data = data.ok_or("the checkpoint has no such weight")?;
            Ok(mlxcel_ir::weight::dequantize(declaration, data)?)
        };
        Ok(Self {
            table: Table::new(source, weight)?,
            bias: declaration(1).map(numbers).transpose()?,
            count: weight.shape.first().copied().unwrap_or(0),
        })
    }
}

/// The layers of experts over operand 0, chosen by operand 1: `choices` of each token.
pub(super) fn experts(
    pool: &Arc<Pool>,
    label: Arc<str>,
    experts: Experts,
    choices: usize,
) -> Fixed {
    let pool = pool.clone();
    fixed(label, move |inputs, outputs| {
        let (x, chosen) = (floats(inputs, 0)?, integers(inputs, 1)?);
        let layer = kernels::Experts {
            matrix: *experts.table.view(),
            bias: experts.bias.as_deref(),
            count: experts.count,
        };
        let out = only(outputs)?;
        Ok(kernels::expert_linear(
            &pool, x, chosen, choices, layer, out,
        )?)
    })
}

/// The numbers of a weight of one dimension.
pub(super) fn vector(
    source: &Arc<dyn WeightSource>,
    declaration: &WeightDecl,
) -> Result<Vec<f32>, Fail> {
    let data = source
        .get(&declaration.name)
        .ok_or("the checkpoint has no such weight")?;
    match declaration.format {
        WeightFormat::Dense(_) if declaration.shape.len() == 1 => {
            Ok(mlxcel_ir::weight::dequantize(declaration, data)?)
        }
        _ => Err("must be a dense vector".into()),
    }
}

/// Several layers over one input: one result for each.
pub(super) fn group(pool: &Arc<Pool>, label: Arc<str>, layers: Vec<Layer>) -> Fixed {
    let pool = pool.clone();
    fixed(label, move |inputs, outputs| {
        let x = floats(inputs, 0)?;
        let views: Vec<_> = layers.iter().map(Layer::view).collect();
        Ok(kernels::linear_group(&pool, x, &views, outputs)?)
    })
}

/// One layer over operand 0, plus operand 1.
pub(super) fn residual(pool: &Arc<Pool>, label: Arc<str>, layer: Layer) -> Fixed {
    let pool = pool.clone();
    fixed(label, move |inputs, outputs| {
        let (x, residual) = (floats(inputs, 0)?, floats(inputs, 1)?);
        let out = only(outputs)?;
        Ok(kernels::linear(
            &pool,
            x,
            layer.view(),
            Some(residual),
            out,
        )?)
    })
}

/// `activation(gate(x)) * up(x)`.
pub(super) fn gated(
    pool: &Arc<Pool>,
    label: Arc<str>,
    gate: Layer,
    up: Layer,
    activation: Activation,
) -> Fixed {
    let pool = pool.clone();
    fixed(label, move |inputs, outputs| {
        let x = floats(inputs, 0)?;
        let out = only(outputs)?;
        Ok(kernels::gated_linear(
            &pool,
            x,
            gate.view(),
            up.view(),
            activation,
            out,
        )?)
    })
}
