//! From a failing graph to a small one that fails too.

use crate::case::Case;
use mlxcel_ir::{Graph, Input, StateId, Symbol, ValueId, pass};

/// Makes `case` smaller while `fails` holds of it: fewer and earlier outputs, nodes cut off from what they
/// are computed from, smaller sizes.
pub fn reduce(case: &Case, fails: &dyn Fn(&Case) -> bool) -> Case {
    let mut best = case.clone();
    loop {
        let mut changed = false;
        let attempt = |best: &mut Case, graph: Graph| {
            let candidate = Case {
                graph,
                ..best.clone()
            };
            let smaller = fails(&candidate);
            if smaller {
                *best = candidate;
            }
            smaller
        };
        if best.graph.outputs.len() > 1 {
            for output in best.graph.outputs.clone() {
                let mut graph = best.graph.clone();
                graph.outputs = vec![output];
                let graph = tidy(&graph);
                if attempt(&mut best, graph) {
                    changed = true;
                    break;
                }
            }
        }
        // The fault may show before the output: the first node that shows it is output enough.
        for index in 0..best.graph.nodes.len().saturating_sub(1) {
            let mut graph = best.graph.clone();
            let value = graph.value_of(index);
            graph.outputs.truncate(1);
            graph
                .outputs
                .iter_mut()
                .for_each(|output| output.value = value);
            let graph = tidy(&graph);
            if attempt(&mut best, graph) {
                changed = true;
                break;
            }
        }
        // From the last node on: the earlier the cut, the more falls away at once.
        for index in (0..best.graph.nodes.len()).rev() {
            if index < best.graph.nodes.len() {
                let graph = tidy(&cut(&best.graph, index));
                changed |= attempt(&mut best, graph);
            }
        }
        for symbol in Symbol::ALL {
            for size in [1, 2, 4, 8, 16] {
                let now = best.bindings.get(symbol).unwrap_or(0);
                if size < now {
                    let candidate = Case {
                        bindings: best.bindings.with(symbol, size),
                        ..best.clone()
                    };
                    if fails(&candidate) {
                        best = candidate;
                        changed = true;
                        break;
                    }
                }
            }
        }
        if !changed {
            return best;
        }
    }
}

/// The graph with the node of number `index` replaced by an input of its type.
pub fn cut(graph: &Graph, index: usize) -> Graph {
    let node_value = graph.value_of(index);
    let inputs = graph.inputs.len() as u32;
    let moved = |value: ValueId| match value {
        value if value == node_value => ValueId(inputs),
        value if value.0 < inputs => value,
        value if value < node_value => ValueId(value.0 + 1),
        value => value,
    };
    let mut cut = graph.clone();
    let name = format!("cut.{}", node_value.0);
    let name = match graph.inputs.iter().any(|input| input.name == name) {
        true => format!("{name}.{}", graph.nodes.len()),
        false => name,
    };
    cut.inputs.push(Input {
        name,
        ty: graph.nodes[index].ty.clone(),
    });
    cut.nodes.remove(index);
    for node in &mut cut.nodes {
        for operand in &mut node.operands {
            *operand = moved(*operand);
        }
    }
    for output in &mut cut.outputs {
        output.value = moved(output.value);
    }
    cut
}

/// The graph without what no output needs: nodes, weights, states and inputs.
pub fn tidy(graph: &Graph) -> Graph {
    let mut graph = graph.clone();
    // A state that no output reads would keep its node alive.
    let mut needed = vec![false; graph.inputs.len() + graph.nodes.len()];
    let mut open: Vec<ValueId> = graph.outputs.iter().map(|output| output.value).collect();
    while let Some(value) = open.pop() {
        let seen = needed.get_mut(value.0 as usize);
        if seen.is_some_and(|seen| !std::mem::replace(seen, true)) {
            open.extend(
                graph
                    .node(value)
                    .into_iter()
                    .flat_map(|node| &node.operands),
            );
        }
    }
    let mut places = Vec::new();
    let mut count = 0;
    for &needed in &needed {
        places.push(ValueId(count));
        count += u32::from(needed);
    }
    let inputs = graph.inputs.len();
    let mut kept = needed[..inputs].iter();
    graph.inputs.retain(|_| kept.next() == Some(&true));
    let mut kept = needed[inputs..].iter();
    graph.nodes.retain(|_| kept.next() == Some(&true));
    let mut states = Vec::new();
    let mut used = vec![];
    for node in &mut graph.nodes {
        for operand in &mut node.operands {
            *operand = places[operand.0 as usize];
        }
        if let Some(state) = &mut node.state {
            let place = used.iter().position(|used| used == state);
            let place = place.unwrap_or_else(|| {
                used.push(*state);
                states.extend(graph.states.get(state.0 as usize).cloned());
                used.len() - 1
            });
            *state = StateId(place as u32);
        }
    }
    graph.states = states;
    for output in &mut graph.outputs {
        output.value = places[output.value.0 as usize];
    }
    pass::dead(&graph)
}
