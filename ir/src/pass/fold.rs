//! Constant folding and identities.

mod exact;
mod identity;

use super::rewrite::Rewrite;
use crate::{Graph, Node, Op, ValueId};

/// Replaces ops over uniform constants by their result, and ops that change nothing by their
/// operand.
///
/// Arithmetic is folded only where the result is exact and a number of the result's type, and an
/// identity only where it holds to the last bit (`x + -0.0`, not `x + 0.0`), so that an execution
/// in any precision gives what it gave before.
pub fn fold(graph: &Graph) -> Graph {
    let mut rewrite = Rewrite::of(graph);
    for node in &graph.nodes {
        let node = rewrite.translate(node);
        match identity::outcome(rewrite.graph(), &node) {
            Outcome::Value(value)
                if rewrite.graph().ty(value) == Some(&node.ty)
                    && rewrite.can_bear(value, node.name.as_ref()) =>
            {
                rewrite.bear(value, node.name);
                rewrite.alias(value);
            }
            Outcome::Node(op, operands) => {
                rewrite.push(Node {
                    op,
                    operands,
                    weights: Vec::new(),
                    ..node
                });
            }
            Outcome::Value(_) | Outcome::Keep => {
                rewrite.push(node);
            }
        }
    }
    rewrite.finish(graph)
}

/// What becomes of a node.
enum Outcome {
    /// Nothing.
    Keep,
    /// It is the value there already.
    Value(ValueId),
    /// It is another op, without weights and of the same type.
    Node(Op, Vec<ValueId>),
}
