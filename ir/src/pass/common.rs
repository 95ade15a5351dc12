//! Common subexpressions.

use super::rewrite::Rewrite;
use crate::{Graph, Node, ValueId};
use std::collections::HashMap;

/// Computes each value once: a node that equals one above it is replaced by that one.
///
/// Ops with a state are never equal. Of two equal nodes with different names both stay.
pub fn common(graph: &Graph) -> Graph {
    let mut rewrite = Rewrite::of(graph);
    let mut known: HashMap<String, ValueId> = HashMap::new();
    for node in &graph.nodes {
        let node = rewrite.translate(node);
        if node.state.is_some() {
            rewrite.push(node);
            continue;
        }
        let key = key(&node);
        match known.get(&key).copied() {
            Some(value) if rewrite.can_bear(value, node.name.as_ref()) => {
                rewrite.bear(value, node.name);
                rewrite.alias(value);
            }
            Some(_) => {
                rewrite.push(node);
            }
            None => {
                let value = rewrite.push(node);
                known.insert(key, value);
            }
        }
    }
    rewrite.finish(graph)
}

/// What makes two nodes equal. Attributes hold floats, which have no hash; their debug form tells
/// any two apart that differ in a bit.
fn key(node: &Node) -> String {
    format!(
        "{:?} {:?} {:?} {}",
        node.op, node.operands, node.weights, node.ty
    )
}
