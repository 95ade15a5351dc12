//! Symbols to numbers.

use crate::{Bindings, Graph, Symbol, TensorType};

/// The graph with its symbols replaced by the sizes that `bindings` gives.
///
/// A graph with states keeps the symbol S, which is the size of their buffers by declaration and is
/// settled by whoever holds them.
pub fn specialise(graph: &Graph, bindings: &Bindings) -> Graph {
    let mut usable = Bindings::new();
    for symbol in Symbol::ALL {
        match bindings.get(symbol) {
            Some(size) if symbol != Symbol::S || graph.states.is_empty() => {
                usable = usable.with(symbol, size);
            }
            _ => {}
        }
    }
    let bind = |ty: &mut TensorType| {
        for dim in &mut ty.shape {
            *dim = usable.apply(*dim);
        }
    };
    let mut graph = graph.clone();
    for input in &mut graph.inputs {
        bind(&mut input.ty);
    }
    for node in &mut graph.nodes {
        node.op = node.op.bind(&usable);
        bind(&mut node.ty);
    }
    graph
}
