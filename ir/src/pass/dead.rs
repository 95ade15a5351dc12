//! Dead code.

use super::rewrite::Rewrite;
use crate::{Graph, ValueId, WeightId};

/// Drops each node that no output and no state depends on, and each weight that no node reads.
///
/// Inputs and states stay: they are how the function is called.
pub fn dead(graph: &Graph) -> Graph {
    let mut live = vec![false; graph.inputs.len() + graph.nodes.len()];
    let mark = |live: &mut Vec<bool>, value: ValueId| {
        if let Some(live) = live.get_mut(value.0 as usize) {
            *live = true;
        }
    };
    for output in &graph.outputs {
        mark(&mut live, output.value);
    }
    let mut read = vec![false; graph.weights.len()];
    for (index, node) in graph.nodes.iter().enumerate().rev() {
        let value = graph.inputs.len() + index;
        live[value] |= node.state.is_some();
        if live[value] {
            for &operand in &node.operands {
                mark(&mut live, operand);
            }
            for weight in &node.weights {
                if let Some(read) = read.get_mut(weight.0 as usize) {
                    *read = true;
                }
            }
        }
    }

    let mut rewrite = Rewrite::of(graph);
    for (index, node) in graph.nodes.iter().enumerate() {
        match live[graph.inputs.len() + index] {
            true => {
                let node = rewrite.translate(node);
                rewrite.push(node);
            }
            // Nothing refers to it.
            false => rewrite.alias(ValueId(0)),
        }
    }
    drop_weights(rewrite.finish(graph), &read)
}

/// Keeps the weights that are `read`.
fn drop_weights(mut graph: Graph, read: &[bool]) -> Graph {
    let mut places = Vec::with_capacity(read.len());
    let mut kept = 0;
    for &read in read {
        places.push(WeightId(kept));
        kept += u32::from(read);
    }
    let mut read = read.iter();
    graph
        .weights
        .retain(|_| read.next().copied().unwrap_or(true));
    for node in &mut graph.nodes {
        for weight in &mut node.weights {
            *weight = places.get(weight.0 as usize).copied().unwrap_or(*weight);
        }
    }
    graph
}
