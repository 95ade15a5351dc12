//! The rules: what a node may be replaced by.

use super::{Outcome, exact};
use crate::{DType, Graph, Node, Op, ValueId};

/// What becomes of `node`, whose operands are values of `graph`.
pub(super) fn outcome(graph: &Graph, node: &Node) -> Outcome {
    if let Some(value) = uniform_result(graph, node) {
        let constant = Op::Constant {
            value,
            dtype: node.ty.dtype,
            shape: node.ty.shape.clone(),
        };
        return match constant == node.op {
            true => Outcome::Keep,
            false => Outcome::Node(constant, Vec::new()),
        };
    }
    if let Some(value) = unchanged(graph, node) {
        return Outcome::Value(value);
    }
    through(graph, node).unwrap_or(Outcome::Keep)
}

/// The number that all elements of a constant equal.
fn uniform(graph: &Graph, value: ValueId) -> Option<f64> {
    match graph.node(value)?.op {
        Op::Constant { value, .. } => Some(value),
        _ => None,
    }
}

/// The number that all elements of the result equal.
fn uniform_result(graph: &Graph, node: &Node) -> Option<f64> {
    let operands: Vec<f64> = node
        .operands
        .iter()
        .map(|&operand| uniform(graph, operand))
        .collect::<Option<_>>()?;
    let dtype = graph.ty(*node.operands.first()?)?.dtype;
    match (&node.op, operands.as_slice()) {
        (
            Op::Reshape { .. } | Op::Transpose { .. } | Op::Broadcast { .. } | Op::Slice { .. },
            &[x],
        ) => Some(x),
        (Op::Concatenate { .. }, &[lhs, rhs]) => (lhs.to_bits() == rhs.to_bits()).then_some(lhs),
        (Op::Convert { dtype: to }, &[x]) => {
            (exact::holds(dtype, x) && exact::holds(*to, x)).then_some(x)
        }
        (op, &[x]) => exact::unary(op, dtype, x),
        (op, &[lhs, rhs]) => exact::binary(op, dtype, lhs, rhs),
        _ => None,
    }
}

/// The operand that the result equals.
fn unchanged(graph: &Graph, node: &Node) -> Option<ValueId> {
    let is = |value: ValueId, wanted: f64| {
        uniform(graph, value).is_some_and(|value| value.to_bits() == wanted.to_bits())
    };
    // The sum with -0.0 keeps the sign of a zero, the sum with 0.0 does not.
    let neutral = match node.ty.dtype.is_float() {
        true => -0.0,
        false => 0.0,
    };
    match (&node.op, node.operands.as_slice()) {
        (Op::Add {}, &[lhs, rhs]) if is(rhs, neutral) => Some(lhs),
        (Op::Add {}, &[lhs, rhs]) if is(lhs, neutral) => Some(rhs),
        (Op::Subtract {}, &[lhs, rhs]) if is(rhs, 0.0) => Some(lhs),
        (Op::Multiply {}, &[lhs, rhs]) if is(lhs, 1.0) => Some(rhs),
        (Op::Multiply {} | Op::Divide {}, &[lhs, rhs]) if is(rhs, 1.0) => Some(lhs),
        (Op::And {}, &[lhs, rhs]) if is(lhs, 1.0) => Some(rhs),
        (Op::And {}, &[lhs, rhs]) if is(rhs, 1.0) => Some(lhs),
        (Op::Or {}, &[lhs, rhs]) if is(lhs, 0.0) => Some(rhs),
        (Op::Or {}, &[lhs, rhs]) if is(rhs, 0.0) => Some(lhs),
        (Op::Select {}, &[condition, on_true, _]) if is(condition, 1.0) => Some(on_true),
        (Op::Select {}, &[condition, _, on_false]) if is(condition, 0.0) => Some(on_false),
        (Op::Select {}, &[_, on_true, on_false]) => (on_true == on_false).then_some(on_true),
        (Op::Negate {} | Op::Not {}, &[x]) => match graph.node(x) {
            Some(inner) if inner.op == node.op => inner.operands.first().copied(),
            _ => None,
        },
        // Where these give back the type of their operand, they give back its elements.
        (
            Op::Convert { .. } | Op::Reshape { .. } | Op::Broadcast { .. } | Op::Slice { .. },
            &[x],
        ) => (graph.ty(x)? == &node.ty).then_some(x),
        (Op::Transpose { permutation }, &[x]) => permutation
            .iter()
            .copied()
            .eq(0..permutation.len())
            .then_some(x),
        _ => None,
    }
}

/// Two moves of elements, one after the other, as one.
fn through(graph: &Graph, node: &Node) -> Option<Outcome> {
    let inner = graph.node(*node.operands.first()?)?;
    let operand = *inner.operands.first()?;
    let op = match (&node.op, &inner.op) {
        (Op::Reshape { .. }, Op::Reshape { .. }) => match graph.ty(operand)? == &node.ty {
            true => return Some(Outcome::Value(operand)),
            false => node.op.clone(),
        },
        (Op::Transpose { permutation }, Op::Transpose { permutation: first }) => {
            let composed: Vec<usize> = permutation
                .iter()
                .map(|&dim| first.get(dim).copied())
                .collect::<Option<_>>()?;
            match composed.iter().copied().eq(0..composed.len()) {
                true => return Some(Outcome::Value(operand)),
                false => Op::Transpose {
                    permutation: composed,
                },
            }
        }
        // A truth value survives the way through any number type, but not the other way round.
        (Op::Convert { dtype }, Op::Convert { .. })
            if *dtype == DType::Bool && graph.ty(operand)?.dtype == DType::Bool =>
        {
            return Some(Outcome::Value(operand));
        }
        _ => return None,
    };
    Some(Outcome::Node(op, vec![operand]))
}
