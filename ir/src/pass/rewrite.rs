//! Building a graph from another one node by node.

use crate::{Graph, Node, Output, ValueId};

/// The graph that a pass builds, and where it has the values of the old one.
pub(super) struct Rewrite {
    graph: Graph,
    /// For each value of the old graph read so far, its place in the new one.
    values: Vec<ValueId>,
}

impl Rewrite {
    /// Starts with the declarations of `old`.
    pub(super) fn of(old: &Graph) -> Self {
        Self {
            graph: Graph {
                nodes: Vec::with_capacity(old.nodes.len()),
                outputs: Vec::new(),
                name: old.name.clone(),
                inputs: old.inputs.clone(),
                weights: old.weights.clone(),
                states: old.states.clone(),
            },
            values: (0..old.inputs.len() as u32).map(ValueId).collect(),
        }
    }

    /// The new graph so far.
    pub(super) fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Where the new graph has `old`.
    pub(super) fn value(&self, old: ValueId) -> ValueId {
        self.values.get(old.0 as usize).copied().unwrap_or(old)
    }

    /// `node` of the old graph with its operands as the new graph has them.
    pub(super) fn translate(&self, node: &Node) -> Node {
        let mut node = node.clone();
        for operand in &mut node.operands {
            *operand = self.value(*operand);
        }
        node
    }

    /// Appends a node of the new graph as the value of the next node of the old one.
    pub(super) fn push(&mut self, node: Node) -> ValueId {
        let value = self.graph.value_of(self.graph.nodes.len());
        self.graph.nodes.push(node);
        self.values.push(value);
        value
    }

    /// Lets a value that the new graph has already stand for the next node of the old one.
    pub(super) fn alias(&mut self, value: ValueId) {
        self.values.push(value);
    }

    /// Whether `value` is a node that can bear `name`: one without a name, or no name to bear.
    pub(super) fn can_bear(&self, value: ValueId, name: Option<&String>) -> bool {
        let free = |node: &Node| node.name.is_none();
        name.is_none() || self.graph.node(value).is_some_and(free)
    }

    /// Names the node of `value`.
    pub(super) fn bear(&mut self, value: ValueId, name: Option<String>) {
        let index = (value.0 as usize).checked_sub(self.graph.inputs.len());
        if let (Some(node), Some(name)) = (
            index.and_then(|index| self.graph.nodes.get_mut(index)),
            name,
        ) {
            node.name = Some(name);
        }
    }

    /// The finished graph with the outputs of `old`.
    pub(super) fn finish(mut self, old: &Graph) -> Graph {
        self.graph.outputs = old
            .outputs
            .iter()
            .map(|output| Output {
                name: output.name.clone(),
                value: self.value(output.value),
            })
            .collect();
        self.graph
    }
}
