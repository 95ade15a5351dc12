//! How far from the exact result rounding alone can take each output.
//!
//! A budget is the larger of two estimates of an honest f32 execution's relative RMS error, times
//! [`SPREAD`]:
//!
//! - *measured*: the error of the interpreter in f32 on the same inputs, times [`ORDER`]. It knows
//!   the data: cancellation, large activations, steep softmaxes.
//! - *counted*: the rounding errors of all nodes that the output depends on, added as independent
//!   random errors: [`ROUNDING`] · u · √(Σ n), where n is the number of roundings on the way to one
//!   element of a node. It knows the graph, and holds where the interpreter happens to be exact.
//!
//! Both scale with the unit roundoff u of the element type that the node computes in.
//!
//! Keys and values that a cache keeps in fewer bits are rounded by the interpreter too, but a number near
//! the middle between two neighbours may fall to either side, by any small error before. Two correct
//! executions that are apart by e there differ by a neighbour's distance g, between U and 2 U of the
//! number, for one number in g / e: a mean square of g · e, taken as U · e for each cache that is rounded to
//! the unit roundoff U, plus one such number among those that a cache is given, which may happen in a text
//! so short that the mean says nothing. What follows from that in later layers is in *measured*.

use crate::compare::Distance;
use crate::execution::Observed;
use mlxcel_ir::{Bindings, DType, Dim, Graph, Node, Op, Symbol};

/// Unit roundoff of f32.
const U: f64 = 1.0 / (1u64 << 24) as f64;
/// Root mean square of one rounding error in units of u: errors are even over ±u/2 to ±u, by the
/// position of the number between two powers of two.
const ROUNDING: f64 = 0.41;
/// The interpreter adds in sixteen lanes and then in a tree, an execution may add in one: its error
/// is larger by the square root of that.
const ORDER: f64 = 4.0;
/// Executions differ from the random model: fast exponentials and reciprocal square roots of a few
/// u, products rounded to a quantised weight's scale, roundings of the same sign.
const SPREAD: f64 = 4.0;

/// The budgets of a graph's outputs, in declaration order.
#[derive(Clone, Debug, PartialEq)]
pub struct Budgets(Vec<f64>);

impl Budgets {
    /// Budgets for the outputs of `graph`, which the interpreter computed as `exact` in f64 and as
    /// `rounded` in f32.
    pub fn new(
        graph: &Graph,
        bindings: &Bindings,
        exact: &[Observed],
        rounded: &[Observed],
    ) -> Self {
        let counted = counted(graph, bindings);
        let pairs = exact.iter().zip(rounded).zip(counted);
        let budgets = pairs
            .map(|((exact, rounded), counted)| budget(&exact.values, &rounded.values, counted))
            .collect();
        Self(budgets)
    }

    /// Budgets for each row of the last output by itself.
    pub fn by_row(
        graph: &Graph,
        bindings: &Bindings,
        exact: &Observed,
        rounded: &Observed,
    ) -> Vec<f64> {
        let counted = counted(graph, bindings).pop().unwrap_or(0.0);
        let width = exact.shape.last().copied().unwrap_or(1).max(1);
        let rows = exact.values.chunks_exact(width);
        let rows = rows.zip(rounded.values.chunks_exact(width));
        rows.map(|(exact, rounded)| budget(exact, rounded, counted))
            .collect()
    }

    /// The largest relative RMS error that rounding explains, for each output.
    pub fn iter(&self) -> impl Iterator<Item = f64> + '_ {
        self.0.iter().copied()
    }
}

fn budget(exact: &[f64], rounded: &[f64], counted: f64) -> f64 {
    let measured = Distance::between(rounded, exact).relative_rms;
    SPREAD * f64::max(ORDER * measured, counted)
}

/// The counted estimate of each output.
fn counted(graph: &Graph, bindings: &Bindings) -> Vec<f64> {
    let inputs = graph.inputs.len();
    // Nodes run in order, so the variance up to a node is at most that of all nodes before it; the
    // residual stream makes this nearly exact, and it needs no walk over the cone.
    let (mut sum, mut crossings, mut one) = (0.0, 0.0, 0.0);
    let variance: Vec<f64> = graph
        .nodes
        .iter()
        .map(|node| {
            if let Some((unit, numbers)) = narrowed(graph, node, bindings) {
                // In the measure of the sum, of which the root is multiplied by ROUNDING.
                crossings += unit * f64::sqrt(sum) / ROUNDING;
                one = f64::max(one, (unit / ROUNDING).powi(2) / numbers);
            }
            sum += roundings(graph, node, bindings) * unit(node.ty.dtype).powi(2);
            sum + crossings + one
        })
        .collect();
    graph
        .outputs
        .iter()
        .map(|output| {
            let node = (output.value.0 as usize).checked_sub(inputs);
            let variance = node.and_then(|node| variance.get(node)).copied();
            ROUNDING * variance.unwrap_or(0.0).sqrt()
        })
        .collect()
}

/// If the node keeps keys and values in fewer bits than it computes in: the unit roundoff of what is kept,
/// and how many keys a call keeps.
fn narrowed(graph: &Graph, node: &Node, bindings: &Bindings) -> Option<(f64, f64)> {
    let kept = unit(graph.state(node.state?)?.dtype);
    if !matches!(node.op, Op::Attention { .. }) || kept <= unit(node.ty.dtype) {
        return None;
    }
    let keys = graph.ty(*node.operands.get(1)?)?.sizes(bindings).ok()?;
    Some((kept, keys.iter().product::<usize>().max(1) as f64))
}

/// Unit roundoff of the type that values of `dtype` are computed in.
fn unit(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => U,
        DType::F16 => U * f64::from(1 << 13),
        DType::BF16 => U * f64::from(1 << 16),
        DType::Bool | DType::I32 | DType::U32 => 0.0,
    }
}

/// Roundings on the way to one element of the node's result.
fn roundings(graph: &Graph, node: &Node, bindings: &Bindings) -> f64 {
    let size = |dim: Dim| match bindings.apply(dim) {
        Dim::Fixed(size) => size as f64,
        Dim::Symbol(_) => 1.0,
    };
    let operand = |index: usize, dim: usize| {
        let ty = node.operands.get(index).and_then(|&value| graph.ty(value));
        ty.and_then(|ty| ty.shape.get(dim))
            .map_or(1.0, |&dim| size(dim))
    };
    let last = |index: usize| {
        let ty = node.operands.get(index).and_then(|&value| graph.ty(value));
        ty.and_then(|ty| ty.shape.last())
            .map_or(1.0, |&dim| size(dim))
    };
    // A dequantised weight is a product and a sum.
    const DEQUANTISE: f64 = 2.0;
    // Elementary functions are good to a few u; squared, as independent errors add.
    const FUNCTION: f64 = 4.0;
    match &node.op {
        Op::Parameter {} | Op::Embedding {} => DEQUANTISE,
        Op::Linear {} | Op::ExpertLinear {} => last(0) + DEQUANTISE,
        Op::RmsNorm { .. } => last(0) + FUNCTION,
        // The mean, and then the same.
        Op::LayerNorm { .. } => 2.0 * last(0) + FUNCTION,
        // The angle, up to the position times one rounding, passes into sine and cosine.
        Op::Rope { .. } => 2.0 * FUNCTION + size(Dim::Symbol(Symbol::T)),
        Op::Attention { .. } => last(0) + 2.0 * size(Dim::Symbol(Symbol::S)) + FUNCTION,
        Op::MutualAttention { .. } => last(0) + 2.0 * operand(0, 1) + FUNCTION,
        Op::Softmax {} => last(0) + FUNCTION,
        // A product and a sum for each tap, and the bias.
        Op::CausalConvolution {} => {
            let weight = node.weights.first().and_then(|&id| graph.weight(id));
            let width = weight.and_then(|weight| weight.shape.last().copied());
            width.unwrap_or(1) as f64 + 1.0
        }
        // A read sums over the keys. What it reads has been decayed and added to by each token; a
        // delta rule adds to that a product with a read of its own.
        Op::Recurrence {} => last(0) + 3.0 * operand(0, 1),
        Op::DeltaRecurrence {} => last(0) + operand(0, 1) * (last(0) + 5.0),
        Op::Dot { lhs_contract, .. } => lhs_contract.iter().map(|&dim| operand(0, dim)).product(),
        Op::Reduce { dim, .. } => operand(0, *dim),
        Op::Reshape { .. }
        | Op::Transpose { .. }
        | Op::Broadcast { .. }
        | Op::Slice { .. }
        | Op::Concatenate { .. }
        | Op::Gather {}
        | Op::TakeRow {}
        | Op::TakeAlong {}
        | Op::TopK { .. }
        | Op::CacheAppend { .. }
        | Op::Select {} => 0.0,
        _ => FUNCTION,
    }
}
