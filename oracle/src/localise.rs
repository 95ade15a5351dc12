//! Which node an execution computes wrongly, whatever it was given.
//!
//! Each named node is computed again from the execution's own values of the named nodes before it. What
//! differs then is a fault of the nodes in between, however far the execution had drifted before; what
//! only differs from the standard of the whole graph was inherited. A sum with a contraction is looked at in
//! two ways, for a compiler may join the two.

use crate::case::Case;
use crate::execution::{ExecutionError, Inputs, Observed};
use crate::reduce::tidy;
use crate::standard::{Deviation, Standard};
use mlxcel_ir::random::{Data, Weights};
use mlxcel_ir::{Bindings, Graph, HostTensor, Input, Node, Op, Output, ValueId, WeightSource};
use std::sync::Arc;

/// The check of one node by itself.
#[derive(Clone, Debug)]
pub struct Local {
    /// The node's op.
    pub op: &'static str,
    /// Its worst element, given what the execution had computed before.
    pub deviation: Deviation,
}

/// The graph with every named node, and no other, as an output.
pub fn watched(graph: &Graph) -> Graph {
    let mut watched = graph.clone();
    watched.outputs = names(graph)
        .map(|(value, name)| Output {
            name: name.to_string(),
            value,
        })
        .collect();
    watched
}

fn names(graph: &Graph) -> impl Iterator<Item = (ValueId, &str)> {
    (0..graph.nodes.len()).filter_map(|index| {
        let name = graph.nodes[index].name.as_deref()?;
        Some((graph.value_of(index), name))
    })
}

/// Whether an operand of a node is a contraction to which the node adds: compilers let its sums start from
/// what is added, and then no value of the contraction alone goes into the node.
fn started(graph: &Graph, node: &Node, operand: ValueId) -> bool {
    let contracts = |node: &Node| {
        matches!(
            node.op,
            Op::Dot { .. } | Op::Linear {} | Op::ExpertLinear {}
        )
    };
    matches!(node.op, Op::Add {}) && graph.node(operand).is_some_and(contracts)
}

/// The graph that computes each named node from given values of the others: one more input for each,
/// in order. Where `joined`, a contraction that is added to is computed and not given.
fn parted(graph: &Graph, joined: bool) -> Graph {
    let mut parted = watched(graph);
    let old = graph.inputs.len() as u32;
    let count = names(graph).count() as u32;
    for (value, name) in names(graph) {
        if let Some(ty) = graph.ty(value) {
            parted.inputs.push(Input {
                name: given(name),
                ty: ty.clone(),
            });
        }
    }
    let places: Vec<ValueId> = names(graph).map(|(value, _)| value).collect();
    for (node, before) in parted.nodes.iter_mut().zip(&graph.nodes) {
        for operand in &mut node.operands {
            match places.binary_search(operand) {
                Ok(_) if joined && started(graph, before, *operand) => operand.0 += count,
                Ok(place) => *operand = ValueId(old + place as u32),
                Err(_) if operand.0 >= old => operand.0 += count,
                Err(_) => {}
            }
        }
    }
    for output in &mut parted.outputs {
        output.value.0 += count;
    }
    parted
}

fn given(name: &str) -> String {
    format!("given/{name}")
}

/// What an execution computed of [`watched`], as the inputs that [`parted`] adds.
fn substituted(graph: &Graph, observed: &[Observed]) -> Vec<(String, HostTensor)> {
    names(graph)
        .zip(observed)
        .filter_map(|((value, name), observed)| {
            let dtype = graph.ty(value)?.dtype;
            let tensor = HostTensor::from_f64(dtype, observed.shape.clone(), &observed.values);
            Some((given(name), tensor))
        })
        .collect()
}

/// The named node as a case of its own: what it is computed from, as the execution had computed it, are
/// the inputs, and the weights are the model's. `None` where no node has that name.
pub fn alone(
    graph: &Graph,
    bindings: &Bindings,
    weights: &Arc<dyn WeightSource>,
    inputs: &Inputs<'_>,
    observed: &[Observed],
    name: &str,
) -> Option<Case> {
    let mut graph_alone = parted(graph, false);
    graph_alone.outputs.retain(|output| output.name == name);
    if graph_alone.outputs.is_empty() {
        return None;
    }
    let graph_alone = tidy(&graph_alone);
    let own = inputs
        .iter()
        .map(|(name, tensor)| (name.to_string(), tensor.clone()));
    let needed = |(name, _): &(String, HostTensor)| {
        let mut needed = graph_alone.inputs.iter();
        needed.any(|input| input.name == *name)
    };
    let inputs = own.chain(substituted(graph, observed)).filter(needed);
    let mut kept = Weights::default();
    for declaration in &graph_alone.weights {
        let data = weights.get(&declaration.name)?;
        let parts = [data.values, data.scales, data.biases].map(<[u8]>::to_vec);
        kept.insert(&*declaration.name, parts);
    }
    Some(Case {
        given: Some(Data {
            inputs: inputs.collect(),
            weights: Arc::new(kept),
        }),
        graph: graph_alone,
        bindings: *bindings,
        seed: 0,
    })
}

/// Checks each named node of `graph` by itself, given what an execution computed of [`watched`].
///
/// # Errors
/// If the nodes cannot be interpreted on these values.
pub fn local(
    graph: &Graph,
    bindings: &Bindings,
    weights: &Arc<dyn WeightSource>,
    inputs: &Inputs<'_>,
    observed: &[Observed],
) -> Result<Vec<Local>, ExecutionError> {
    let given = substituted(graph, observed);
    let mut all = inputs.to_vec();
    all.extend(
        given
            .iter()
            .map(|(name, tensor)| (name.as_str(), tensor.clone())),
    );
    let deviations = |joined| -> Result<Vec<Deviation>, ExecutionError> {
        let standard = Standard::new(&parted(graph, joined), bindings, weights, &all)?;
        Ok(standard.deviations(observed).collect())
    };
    let mut apart = deviations(false)?;
    let adds = |value: ValueId| {
        let node = graph.node(value);
        node.is_some_and(|node| node.operands.iter().any(|&x| started(graph, node, x)))
    };
    let mut nodes = names(graph).zip(&apart);
    if nodes.any(|((value, _), deviation)| !deviation.within() && adds(value)) {
        // Right either way is right.
        for (kept, other) in apart.iter_mut().zip(deviations(true)?) {
            if other.share < kept.share {
                *kept = other;
            }
        }
    }
    let ops = names(graph).filter_map(|(value, _)| Some(graph.node(value)?.op.info().name));
    Ok(ops
        .zip(apart)
        .map(|(op, deviation)| Local { op, deviation })
        .collect())
}
