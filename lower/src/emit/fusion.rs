//! Where the compiler's fusion of a node with what computes its operands gives wrong numbers.

use super::element::Tensor;
use mlxcel_ir::{Graph, Node, Op, ValueId};

/// What is known of a graph's values that decides whether their readers must not be fused with them.
pub(super) struct Fusion(Vec<Origin>);

/// Where a value comes from.
#[derive(Clone, Copy, PartialEq)]
enum Origin {
    /// Its elements are equal, and the compiler can find out their number.
    Uniform,
    /// A cache that rows were written into, or a view of one.
    Cache,
    Other,
}

impl Fusion {
    pub(super) fn of(graph: &Graph) -> Self {
        let mut origins = vec![Origin::Other; graph.inputs.len()];
        for node in &graph.nodes {
            let uniform =
                |operand: &ValueId| origins.get(operand.0 as usize) == Some(&Origin::Uniform);
            let all = match &node.op {
                Op::Constant { .. } => true,
                Op::Gather {} | Op::TakeAlong {} | Op::TakeRow {} => {
                    node.operands.first().is_some_and(uniform)
                }
                op if gathers(op) => false,
                _ if !node.weights.is_empty() || node.state.is_some() => false,
                _ => !node.operands.is_empty() && node.operands.iter().all(uniform),
            };
            let origin = |operand: &ValueId| origins.get(operand.0 as usize);
            let cache = node.operands.first().and_then(origin) == Some(&Origin::Cache);
            let origin = match node.op {
                Op::CacheAppend { .. } => Origin::Cache,
                // What may be no more than another name for the same memory.
                Op::Reshape { .. }
                | Op::Transpose { .. }
                | Op::Slice { .. }
                | Op::Broadcast { .. }
                | Op::Concatenate { .. }
                | Op::Convert { .. }
                    if cache =>
                {
                    Origin::Cache
                }
                _ if all => Origin::Uniform,
                _ => Origin::Other,
            };
            origins.push(origin);
        }
        Self(origins)
    }

    /// Whether IREE 3.13 is wrong about `node` if it fuses it with what computes `operand`, `value`.
    pub(super) fn misleads(&self, node: &Node, operand: ValueId, value: &Tensor) -> bool {
        let origin = self.0.get(operand.0 as usize).copied();
        match (&node.op, origin) {
            // A barrier after a cache makes a copy of the cache onto itself, which the runtime refuses.
            (_, Some(Origin::Cache)) => false,
            // A reduction of equal numbers becomes one of them, or another wrong number.
            (op, Some(Origin::Uniform)) if gathers(op) => true,
            // With a mask before it that is used again.
            (Op::Softmax {}, _) => true,
            // Zeros, where one reduction makes both operands of a product of one term.
            (
                Op::Dot {
                    lhs_contract,
                    rhs_contract,
                    ..
                },
                _,
            ) => {
                let dims = match node.operands.first() == Some(&operand) {
                    true => lhs_contract,
                    false => rhs_contract,
                };
                dims.iter().all(|&dim| value.shape().get(dim) == Some(&1))
            }
            _ => false,
        }
    }
}

/// Whether an element of the result depends on many of an operand.
fn gathers(op: &Op) -> bool {
    matches!(
        op,
        Op::Reduce { .. } | Op::Dot { .. } | Op::Argmax {} | Op::TopK { .. }
    )
}
