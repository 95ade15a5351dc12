//! What each composite op means: its decomposition into primitives.
//!
//! There is one rule per composite. A rule sees the node with its operands already rewritten and
//! builds primitives that give a value of the node's type; the last of them inherits its name.

mod attention;
mod rope;

use crate::builder::{BuildError, Builder};
use crate::graph::{Graph, Node};
use crate::{Activation, Comparison, DType, Dim, Op, Reduction, ValueId};
use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// The same function in primitives only.
///
/// # Errors
/// If a node of `graph` is not well formed (see the verifier).
pub fn decompose(graph: &Graph) -> Result<Graph, BuildError> {
    decompose_except(graph, |_| false)
}

/// The same function with every composite in primitives but those that `keep` names.
///
/// # Errors
/// If a node of `graph` is not well formed.
pub fn decompose_except(graph: &Graph, keep: impl Fn(&Node) -> bool) -> Result<Graph, BuildError> {
    let mut builder = Builder::new(&graph.name);
    let mut values: Vec<ValueId> = graph
        .inputs
        .iter()
        .map(|input| builder.input(&input.name, input.ty.clone()))
        .collect();
    for weight in &graph.weights {
        builder.weight(weight.clone());
    }
    for state in &graph.states {
        builder.state(state.clone());
    }
    for node in &graph.nodes {
        let mut node = node.clone();
        for operand in &mut node.operands {
            *operand = *values.get(operand.0 as usize).ok_or_else(|| BuildError {
                graph: graph.name.clone(),
                op: node.op.info().name,
                reason: format!("uses %{} before it is defined", operand.0),
            })?;
        }
        let value = match keep(&node) {
            true => builder.push(
                node.op.clone(),
                node.operands.clone(),
                node.weights.clone(),
                node.state,
            )?,
            false => expand(&mut builder, &node)?,
        };
        if let Some(name) = &node.name {
            builder.name(value, name);
        }
        values.push(value);
    }
    for output in &graph.outputs {
        let value = values.get(output.value.0 as usize);
        builder.output(&output.name, *value.unwrap_or(&output.value));
    }
    Ok(builder.finish())
}

/// Builds `node`, whose operands are values of `builder`, from primitives.
///
/// # Errors
/// If the node is not well formed.
pub fn expand(builder: &mut Builder, node: &Node) -> Result<ValueId, BuildError> {
    // Checks arity and types before a rule indexes into the operands.
    if let Op::Embedding { .. }
    | Op::Linear { .. }
    | Op::ExpertLinear { .. }
    | Op::RmsNorm { .. }
    | Op::LayerNorm { .. }
    | Op::Rope { .. }
    | Op::Attention { .. }
    | Op::MutualAttention { .. }
    | Op::Activate { .. }
    | Op::Gated { .. }
    | Op::Softmax { .. } = node.op
    {
        builder.check(&node.op, &node.operands, &node.weights, node.state)?;
    }
    let Node {
        op,
        operands,
        weights,
        state,
        ..
    } = node;
    match op {
        Op::Embedding {} => {
            let table = builder.parameter(weights[0])?;
            builder.gather(table, operands[0])
        }
        Op::Linear {} => linear(builder, node),
        Op::ExpertLinear {} => expert_linear(builder, node),
        Op::RmsNorm { epsilon, offset } => {
            let normal = normalise(builder, operands[0], *epsilon)?;
            weigh(builder, normal, weights, *offset)
        }
        Op::LayerNorm { epsilon, offset } => {
            let centred = centre(builder, operands[0])?;
            let normal = normalise(builder, centred, *epsilon)?;
            weigh(builder, normal, weights, *offset)
        }
        Op::Rope { .. } => rope::expand(builder, node),
        Op::Attention { .. } => attention::expand(builder, node),
        Op::MutualAttention { .. } => attention::expand_mutual(builder, node),
        Op::Activate { activation } => activate(builder, operands[0], *activation),
        Op::Gated { activation } => {
            let gate = activate(builder, operands[0], *activation)?;
            builder.multiply(gate, operands[1])
        }
        Op::Softmax {} => softmax(builder, operands[0]),
        _ => builder.push(op.clone(), operands.clone(), weights.clone(), *state),
    }
}

/// A tensor of the type of `like` whose elements all equal `value`.
fn full(builder: &mut Builder, like: ValueId, value: f64) -> Result<ValueId, BuildError> {
    let ty = builder.ty(like).clone();
    builder.constant(value, ty.dtype, ty.shape)
}

/// Repeats `x`, whose last dimension has size 1, along it to the shape of `like`.
fn spread(builder: &mut Builder, x: ValueId, like: ValueId) -> Result<ValueId, BuildError> {
    let shape = builder.ty(like).shape.clone();
    let dims = (0..shape.len()).collect();
    builder.broadcast(x, shape, dims)
}

/// The weight vector `weight` in the element type of `like`, repeated along all but its last
/// dimension.
fn weight_row(
    builder: &mut Builder,
    weight: crate::WeightId,
    like: ValueId,
) -> Result<ValueId, BuildError> {
    let ty = builder.ty(like).clone();
    let vector = builder.parameter(weight)?;
    let vector = convert(builder, vector, ty.dtype)?;
    let last = ty.rank() - 1;
    builder.broadcast(vector, ty.shape, vec![last])
}

fn convert(builder: &mut Builder, x: ValueId, dtype: DType) -> Result<ValueId, BuildError> {
    match builder.ty(x).dtype == dtype {
        true => Ok(x),
        false => builder.convert(x, dtype),
    }
}

fn linear(builder: &mut Builder, node: &Node) -> Result<ValueId, BuildError> {
    let x = node.operands[0];
    let ty = builder.ty(x).clone();
    let weight = builder.parameter(node.weights[0])?;
    let weight = convert(builder, weight, ty.dtype)?;
    let product = builder.dot(x, weight, vec![], vec![], vec![ty.rank() - 1], vec![1])?;
    match node.weights.get(1) {
        Some(&bias) => {
            let bias = weight_row(builder, bias, product)?;
            builder.add(product, bias)
        }
        None => Ok(product),
    }
}

fn expert_linear(builder: &mut Builder, node: &Node) -> Result<ValueId, BuildError> {
    let (x, experts) = (node.operands[0], node.operands[1]);
    let dtype = builder.ty(x).dtype;
    // [E, N, K], then of the chosen ones [B, T, k, N, K].
    let weight = builder.parameter(node.weights[0])?;
    let weight = convert(builder, weight, dtype)?;
    let weight = builder.gather(weight, experts)?;
    let product = match builder.ty(x).rank() {
        3 => builder.dot(x, weight, vec![0, 1], vec![0, 1], vec![2], vec![4])?,
        _ => builder.dot(x, weight, vec![0, 1, 2], vec![0, 1, 2], vec![3], vec![4])?,
    };
    match node.weights.get(1) {
        Some(&bias) => {
            let bias = builder.parameter(bias)?;
            let bias = convert(builder, bias, dtype)?;
            let bias = builder.gather(bias, experts)?;
            builder.add(product, bias)
        }
        None => Ok(product),
    }
}

/// The mean of `x` along its last dimension, which is kept with size 1.
fn mean(builder: &mut Builder, x: ValueId) -> Result<ValueId, BuildError> {
    let ty = builder.ty(x).clone();
    let width = ty.shape.last().and_then(|dim| dim.fixed()).unwrap_or(1);
    let sum = builder.reduce(x, Reduction::Sum, ty.rank() - 1)?;
    let width = full(builder, sum, width as f64)?;
    builder.divide(sum, width)
}

/// `x - mean(x)`.
fn centre(builder: &mut Builder, x: ValueId) -> Result<ValueId, BuildError> {
    let mean = mean(builder, x)?;
    let mean = spread(builder, mean, x)?;
    builder.subtract(x, mean)
}

/// `x / sqrt(mean(x²) + epsilon)`.
fn normalise(builder: &mut Builder, x: ValueId, epsilon: f64) -> Result<ValueId, BuildError> {
    let square = builder.multiply(x, x)?;
    let mean = mean(builder, square)?;
    let epsilon = full(builder, mean, epsilon)?;
    let shifted = builder.add(mean, epsilon)?;
    let factor = builder.rsqrt(shifted)?;
    let factor = spread(builder, factor, x)?;
    builder.multiply(x, factor)
}

/// `x * (offset + weight) + bias`, as far as there is a weight and a bias.
fn weigh(
    builder: &mut Builder,
    x: ValueId,
    weights: &[crate::WeightId],
    offset: f64,
) -> Result<ValueId, BuildError> {
    let Some(&weight) = weights.first() else {
        return Ok(x);
    };
    let mut weight = weight_row(builder, weight, x)?;
    if offset != 0.0 {
        let offset = full(builder, weight, offset)?;
        weight = builder.add(weight, offset)?;
    }
    let weighed = builder.multiply(x, weight)?;
    match weights.get(1) {
        Some(&bias) => {
            let bias = weight_row(builder, bias, weighed)?;
            builder.add(weighed, bias)
        }
        None => Ok(weighed),
    }
}

fn softmax(builder: &mut Builder, x: ValueId) -> Result<ValueId, BuildError> {
    let last = builder.ty(x).rank() - 1;
    let largest = builder.reduce(x, Reduction::Max, last)?;
    let largest = spread(builder, largest, x)?;
    let shifted = builder.subtract(x, largest)?;
    let exponential = builder.exp(shifted)?;
    let sum = builder.reduce(exponential, Reduction::Sum, last)?;
    let sum = spread(builder, sum, x)?;
    builder.divide(exponential, sum)
}

fn activate(
    builder: &mut Builder,
    x: ValueId,
    activation: Activation,
) -> Result<ValueId, BuildError> {
    match activation {
        Activation::Silu => {
            let gate = builder.sigmoid(x)?;
            builder.multiply(x, gate)
        }
        Activation::Relu => {
            let zero = full(builder, x, 0.0)?;
            builder.maximum(x, zero)
        }
        Activation::Relu2 => {
            let zero = full(builder, x, 0.0)?;
            let positive = builder.maximum(x, zero)?;
            builder.multiply(positive, positive)
        }
        Activation::QuickGelu => {
            let factor = full(builder, x, 1.702)?;
            let scaled = builder.multiply(x, factor)?;
            let gate = builder.sigmoid(scaled)?;
            builder.multiply(x, gate)
        }
        Activation::Tanh => builder.tanh(x),
        Activation::Sigmoid => builder.sigmoid(x),
        Activation::Softplus => {
            // max(x, 0) + ln(1 + e^-|x|), which neither overflows nor loses small results.
            let zero = full(builder, x, 0.0)?;
            let positive = builder.maximum(x, zero)?;
            let size = builder.abs(x)?;
            let size = builder.negate(size)?;
            let small = builder.exp(size)?;
            let small = builder.log1p(small)?;
            builder.add(positive, small)
        }
        Activation::Gelu => {
            let factor = full(builder, x, FRAC_1_SQRT_2)?;
            let scaled = builder.multiply(x, factor)?;
            let erf = builder.erf(scaled)?;
            half_of(builder, x, erf)
        }
        Activation::GeluTanh => {
            // 0.5 x (1 + tanh(sqrt(2 / π) (x + 0.044715 x³)))
            let square = builder.multiply(x, x)?;
            let cube = builder.multiply(square, x)?;
            let small = full(builder, x, 0.044715)?;
            let cubic = builder.multiply(cube, small)?;
            let inner = builder.add(x, cubic)?;
            let factor = full(builder, x, (2.0 / PI).sqrt())?;
            let scaled = builder.multiply(inner, factor)?;
            let tanh = builder.tanh(scaled)?;
            half_of(builder, x, tanh)
        }
    }
}

/// `0.5 x (1 + y)`.
fn half_of(builder: &mut Builder, x: ValueId, y: ValueId) -> Result<ValueId, BuildError> {
    let one = full(builder, x, 1.0)?;
    let half = full(builder, x, 0.5)?;
    let shifted = builder.add(y, one)?;
    let halved = builder.multiply(x, half)?;
    builder.multiply(halved, shifted)
}

/// Positions `start[b] + t` of new tokens in the element type i32, `[B, T]`.
fn positions(
    builder: &mut Builder,
    start: ValueId,
    rows: Dim,
    tokens: Dim,
) -> Result<ValueId, BuildError> {
    let shape = vec![rows, tokens];
    let offset = builder.iota(1, DType::I32, shape.clone())?;
    let start = builder.broadcast(start, shape, vec![0])?;
    builder.add(start, offset)
}

/// Where `lhs` stands in the relation to `rhs`, both repeated to `shape` along the given dimensions.
fn related(
    builder: &mut Builder,
    (lhs, lhs_dims): (ValueId, Vec<usize>),
    (rhs, rhs_dims): (ValueId, Vec<usize>),
    shape: &[Dim],
    comparison: Comparison,
) -> Result<ValueId, BuildError> {
    let lhs = builder.broadcast(lhs, shape.to_vec(), lhs_dims)?;
    let rhs = builder.broadcast(rhs, shape.to_vec(), rhs_dims)?;
    builder.compare(lhs, rhs, comparison)
}
