//! Nodes by operations of MLX, on any device.

mod attention;
mod composite;
mod dot;
mod primitive;

use crate::fail::Fail;
use crate::machine::Machine;
use crate::plan::{Plan, Step};
use mlxcel_ir::{DType, Node, Op};
use mlxcel_mlx_sys::{Array, Dtype, ops};

/// Whether the node's op takes its weights as numbers, whatever form they are stored in.
pub(crate) fn needs_numbers(op: &Op) -> bool {
    matches!(op, Op::Parameter {} | Op::RmsNorm { .. })
}

/// Whether the node is executed as it is, not by its decomposition.
pub(crate) fn is_native(node: &Node) -> bool {
    match &node.op {
        Op::RmsNorm { offset, .. } => *offset == 0.0 && !node.weights.is_empty(),
        Op::Rope { magnitude, .. } => *magnitude == 1.0,
        Op::Attention { chunk, slopes, .. } => {
            chunk.is_none() && slopes.is_empty() && node.weights.is_empty()
        }
        Op::LayerNorm { .. } | Op::ExpertLinear {} | Op::MutualAttention { .. } => false,
        _ => true,
    }
}

/// Records the operations of the step's node.
pub(crate) fn record(plan: &Plan, step: &Step, machine: &mut Machine<'_>) -> Result<(), Fail> {
    let node = &plan.graph.nodes[step.node];
    let value = match &node.op {
        Op::Embedding {}
        | Op::Linear {}
        | Op::RmsNorm { .. }
        | Op::Rope { .. }
        | Op::Activate { .. }
        | Op::Gated { .. }
        | Op::Softmax {} => composite::record(plan, step, machine)?,
        Op::Attention { .. } => attention::record(plan, step, machine)?,
        Op::CacheAppend { part } => attention::append(plan, step, machine, *part)?,
        _ => primitive::record(plan, step, machine)?,
    };
    machine.values[step.results[0]] = Some(value);
    Ok(())
}

/// `x` in the element type f32.
fn widen(x: &Array, machine: &Machine<'_>) -> Result<Array, Fail> {
    if x.dtype()? == Dtype::F32 {
        return Ok(x.clone());
    }
    Ok(ops::astype(x, Dtype::F32, machine.stream)?)
}

/// `x`, which is f32, in the element type of a node's result.
fn narrow(x: Array, dtype: DType, machine: &Machine<'_>) -> Result<Array, Fail> {
    if dtype == DType::F32 {
        return Ok(x);
    }
    Ok(ops::astype(
        &x,
        crate::weight::dtype(dtype),
        machine.stream,
    )?)
}

/// The numbers of the node's weight number `index`.
fn parameter(plan: &Plan, step: &Step, index: usize) -> Result<Array, Fail> {
    let node = &plan.graph.nodes[step.node];
    node.weights
        .get(index)
        .and_then(|id| plan.parameters.get(id.0 as usize))
        .and_then(Option::clone)
        .ok_or_else(|| Fail(format!("weight number {index} was not loaded")))
}
