//! How exact IREE's sine and cosine are, said in a graph.
//!
//! IREE reduces an angle by the multiple of π/2 below it, so a small negative angle becomes one near π/2.
//! Three things are then off by an absolute amount, however small the result: π/2 is rounded to f32
//! (4.4e-8, or 0.73 units of u = 2⁻²⁴), the reduced angle between 1 and 2 is (u), and so is the polynomial
//! whose value is near 1 (a unit in its last place, 2 u). Together 3.7 u, and 4 u is what a sum with 4 may
//! be off by: a sine to which 4 is added and from which 4 is taken away is the same number with just that
//! bound.

use crate::case::Case;
use mlxcel_ir::{BuildError, Builder, DType, Graph, Op, ValueId};

/// What is added and taken away.
const FOUR: f64 = 4.0;

/// Whether an op is computed through a reduced angle.
fn reduces(op: &Op) -> bool {
    matches!(op, Op::Sin {} | Op::Cos {})
}

/// The case as IREE is held to it; `None` where it has no sine.
pub(crate) fn weakened(case: &Case) -> Option<Case> {
    if !case.graph.nodes.iter().any(|node| reduces(&node.op)) {
        return None;
    }
    // A graph that was legal stays so.
    let graph = rebuilt(&case.graph).ok()?;
    Some(Case {
        graph,
        ..case.clone()
    })
}

fn rebuilt(graph: &Graph) -> Result<Graph, BuildError> {
    let mut builder = Builder::new(&graph.name);
    let mut values: Vec<ValueId> = vec![];
    for input in &graph.inputs {
        values.push(builder.input(&input.name, input.ty.clone()));
    }
    for weight in &graph.weights {
        builder.weight(weight.clone());
    }
    for state in &graph.states {
        builder.state(state.clone());
    }
    for node in &graph.nodes {
        let operands = node.operands.iter().map(|v| values[v.0 as usize]).collect();
        let weights = node.weights.clone();
        let mut value = builder.push(node.op.clone(), operands, weights, node.state)?;
        if reduces(&node.op) {
            // 16-bit sines are computed in f32 and rounded, so that 4 is added before.
            value = builder.convert(value, DType::F32)?;
            let four = builder.constant(FOUR, DType::F32, node.ty.shape.clone())?;
            value = builder.add(value, four)?;
            value = builder.subtract(value, four)?;
            value = builder.convert(value, node.ty.dtype)?;
        }
        values.push(value);
    }
    for output in &graph.outputs {
        builder.output(&output.name, values[output.value.0 as usize]);
    }
    Ok(builder.finish())
}
