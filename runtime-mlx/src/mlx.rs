//! Nodes by operations of MLX, on any device.

mod attention;
mod composite;
mod dot;
mod memory;
mod primitive;

use crate::fail::Fail;
use crate::machine::Machine;
use crate::plan::{Plan, Step};
use mlxcel_ir::{DType, Op};
use mlxcel_mlx_sys::{Array, Dtype, ops};

/// Whether the node's op takes its weights as numbers, whatever form they are stored in.
pub(crate) fn needs_numbers(op: &Op) -> bool {
    matches!(
        op,
        Op::Parameter {}
            | Op::RmsNorm { .. }
            | Op::LayerNorm { .. }
            | Op::CausalConvolution {}
            | Op::Attention { .. }
    )
}

/// The ops of [`primitive`].
macro_rules! primitives {
    () => {
        Op::Parameter {}
            | Op::Constant { .. }
            | Op::Table { .. }
            | Op::Iota { .. }
            | Op::Convert { .. }
            | Op::Negate {}
            | Op::Abs {}
            | Op::Log1p {}
            | Op::Exp {}
            | Op::Log {}
            | Op::Rsqrt {}
            | Op::Sqrt {}
            | Op::Sin {}
            | Op::Cos {}
            | Op::Tanh {}
            | Op::Sigmoid {}
            | Op::Erf {}
            | Op::Add {}
            | Op::Subtract {}
            | Op::Multiply {}
            | Op::Divide {}
            | Op::Maximum {}
            | Op::Minimum {}
            | Op::Power {}
            | Op::Compare { .. }
            | Op::And {}
            | Op::Or {}
            | Op::Not {}
            | Op::Select {}
            | Op::Reshape { .. }
            | Op::Transpose { .. }
            | Op::Broadcast { .. }
            | Op::Slice { .. }
            | Op::Concatenate { .. }
            | Op::Gather {}
            | Op::TakeAlong {}
            | Op::TakeRow {}
            | Op::Dot { .. }
            | Op::Reduce { .. }
            | Op::Argmax {}
            | Op::TopK { .. }
    };
}

/// The ops of [`composite`].
macro_rules! composites {
    () => {
        Op::Embedding {}
            | Op::Linear {}
            | Op::ExpertLinear {}
            | Op::RmsNorm { .. }
            | Op::LayerNorm { .. }
            | Op::Rope { .. }
            | Op::Activate { .. }
            | Op::Gated { .. }
            | Op::Softmax {}
    };
}

/// The ops with a state, and their kin.
macro_rules! stateful {
    () => {
        Op::Attention { .. }
            | Op::MutualAttention { .. }
            | Op::CacheAppend { .. }
            | Op::CausalConvolution {}
            | Op::Recurrence {}
            | Op::DeltaRecurrence {}
    };
}

use {composites, primitives, stateful};

/// Records the operations of the step's node.
pub(crate) fn record(plan: &Plan, step: &Step, machine: &mut Machine<'_>) -> Result<(), Fail> {
    let node = &plan.graph.nodes[step.node];
    let value = match &node.op {
        Op::Attention { .. } => attention::record(plan, step, machine)?,
        Op::MutualAttention { .. } => attention::mutual(plan, step, machine)?,
        Op::CacheAppend { part } => attention::append(plan, step, machine, *part)?,
        Op::CausalConvolution {} => memory::convolution(plan, step, machine)?,
        Op::Recurrence {} | Op::DeltaRecurrence {} => memory::recurrence(plan, step, machine)?,
        primitives!() => primitive::record(plan, step, machine)?,
        composites!() => composite::record(plan, step, machine)?,
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
