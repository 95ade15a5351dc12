//! What an execution of a graph costs: floating-point operations and bytes moved.
//!
//! The model counts what the graph means, not what a runtime does: each operand of a node is read
//! once and each result written once, a weight counts as it is stored, an embedding reads only the
//! rows that it looks up, and attention reads the cache up to its capacity S (or its window). A
//! multiply-add is two operations; a function such as `exp` is one. Moving elements is none.
//!
//! The bytes of weights and states are the floor of a step: no runtime can do with fewer, while
//! activations may stay in registers and caches.

mod flops;

use crate::{Bindings, Graph, Node, Op, StateId, Symbol, TensorType, ValueId, WeightId};
use std::iter::Sum;
use std::ops::Add;

/// The cost of a node, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCost {
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes of weights read, as stored.
    pub weight_bytes: u64,
    /// Bytes of states read.
    pub state_read_bytes: u64,
    /// Bytes of states written.
    pub state_written_bytes: u64,
    /// Bytes of tensor operands read.
    pub read_bytes: u64,
    /// Bytes of the result written.
    pub written_bytes: u64,
}

impl NodeCost {
    /// Bytes of weights and states, the floor of any execution.
    pub fn floor_bytes(&self) -> u64 {
        self.weight_bytes
            .saturating_add(self.state_read_bytes)
            .saturating_add(self.state_written_bytes)
    }

    /// All bytes read and written.
    pub fn bytes(&self) -> u64 {
        self.floor_bytes()
            .saturating_add(self.read_bytes)
            .saturating_add(self.written_bytes)
    }
}

impl Add for NodeCost {
    type Output = NodeCost;

    fn add(self, other: NodeCost) -> NodeCost {
        NodeCost {
            flops: self.flops.saturating_add(other.flops),
            weight_bytes: self.weight_bytes.saturating_add(other.weight_bytes),
            state_read_bytes: self.state_read_bytes.saturating_add(other.state_read_bytes),
            state_written_bytes: self
                .state_written_bytes
                .saturating_add(other.state_written_bytes),
            read_bytes: self.read_bytes.saturating_add(other.read_bytes),
            written_bytes: self.written_bytes.saturating_add(other.written_bytes),
        }
    }
}

impl Sum for NodeCost {
    fn sum<I: Iterator<Item = NodeCost>>(costs: I) -> NodeCost {
        costs.fold(NodeCost::default(), Add::add)
    }
}

/// The cost of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// The cost of each node, in the order of the graph.
    pub nodes: Vec<NodeCost>,
    /// Their sum.
    pub total: NodeCost,
}

/// A symbol of the graph has no size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cost depends on {}, which is not bound", .symbol.name())]
pub struct Unbound {
    /// The symbol.
    pub symbol: Symbol,
}

/// The cost of executing `graph` once with the sizes that `bindings` gives. For one step of
/// decoding, B is the number of rows, T is 1 and S is the number of cached positions.
///
/// # Errors
/// A symbol that the cost depends on is not bound.
pub fn cost(graph: &Graph, bindings: &Bindings) -> Result<Cost, Unbound> {
    let sizes = Sizes { graph, bindings };
    let nodes: Vec<NodeCost> = graph
        .nodes
        .iter()
        .map(|node| node_cost(&sizes, node))
        .collect::<Result<_, _>>()?;
    let total = nodes.iter().copied().sum();
    Ok(Cost { nodes, total })
}

/// The sizes of a graph's values. What a malformed graph lacks has size 0.
struct Sizes<'a> {
    graph: &'a Graph,
    bindings: &'a Bindings,
}

impl Sizes<'_> {
    fn dims(&self, ty: &TensorType) -> Result<Vec<u64>, Unbound> {
        let sizes = ty.sizes(self.bindings);
        let sizes = sizes.map_err(|symbol| Unbound { symbol })?;
        Ok(sizes.into_iter().map(|size| size as u64).collect())
    }

    fn elements(&self, ty: &TensorType) -> Result<u64, Unbound> {
        Ok(self.dims(ty)?.into_iter().fold(1, u64::saturating_mul))
    }

    fn bytes(&self, ty: &TensorType) -> Result<u64, Unbound> {
        Ok(self.elements(ty)?.saturating_mul(ty.dtype.size() as u64))
    }

    /// The dimensions of a value.
    fn value(&self, value: Option<&ValueId>) -> Result<Vec<u64>, Unbound> {
        match value.and_then(|&value| self.graph.ty(value)) {
            Some(ty) => self.dims(ty),
            None => Ok(vec![0]),
        }
    }

    fn weight_bytes(&self, weight: WeightId) -> u64 {
        self.graph
            .weight(weight)
            .map_or(0, |weight| weight.bytes() as u64)
    }

    /// Bytes that a row takes in a memory.
    fn memory_bytes(&self, state: Option<StateId>) -> u64 {
        state
            .and_then(|state| self.graph.state(state))
            .map_or(0, |state| (state.elements(0) * state.dtype.size()) as u64)
    }

    /// Bytes that one position of a row takes in a state, both parts.
    fn position_bytes(&self, state: Option<StateId>) -> u64 {
        state
            .and_then(|state| self.graph.state(state))
            .map_or(0, |state| {
                let width = state.key_dim.saturating_add(state.value_dim);
                let elements = state.heads.saturating_mul(width);
                elements.saturating_mul(state.dtype.size()) as u64
            })
    }
}

fn node_cost(sizes: &Sizes<'_>, node: &Node) -> Result<NodeCost, Unbound> {
    let mut cost = NodeCost {
        flops: flops::flops(sizes, node)?,
        weight_bytes: node.weights.iter().map(|&w| sizes.weight_bytes(w)).sum(),
        written_bytes: sizes.bytes(&node.ty)?,
        ..NodeCost::default()
    };
    for operand in &node.operands {
        if let Some(ty) = sizes.graph.ty(*operand) {
            cost.read_bytes = cost.read_bytes.saturating_add(sizes.bytes(ty)?);
        }
    }
    match &node.op {
        // The same elements in the same place.
        Op::Reshape { .. } => (cost.read_bytes, cost.written_bytes) = (0, 0),
        // Only what is taken is read, and the indices.
        Op::Gather { .. } | Op::TakeRow { .. } | Op::TakeAlong { .. } => {
            let indices = node
                .operands
                .get(1)
                .and_then(|&value| sizes.graph.ty(value));
            let indices = indices.map_or(Ok(0), |ty| sizes.bytes(ty))?;
            cost.read_bytes = cost.written_bytes.saturating_add(indices);
        }
        Op::Slice { .. } => cost.read_bytes = cost.written_bytes,
        Op::Embedding { .. } => {
            let tokens = sizes.value(node.operands.first())?;
            let tokens = tokens.into_iter().fold(1, u64::saturating_mul);
            let table = node.weights.first().and_then(|&w| sizes.graph.weight(w));
            let rows = table.map_or(1, |table| table.shape.first().copied().unwrap_or(1)) as u64;
            let row = cost.weight_bytes / rows.max(1);
            cost.weight_bytes = row.saturating_mul(tokens).min(cost.weight_bytes);
        }
        // Only the chosen experts are read, each at most once.
        Op::ExpertLinear { .. } => {
            let choices = sizes.value(node.operands.get(1))?;
            let choices = choices.into_iter().fold(1, u64::saturating_mul);
            let weight = node.weights.first().and_then(|&w| sizes.graph.weight(w));
            let count = weight.map_or(1, |w| w.shape.first().copied().unwrap_or(1)) as u64;
            let expert = cost.weight_bytes / count.max(1);
            cost.weight_bytes = expert.saturating_mul(choices.min(count));
        }
        Op::CausalConvolution { .. } | Op::Recurrence { .. } | Op::DeltaRecurrence { .. } => {
            let rows = sizes.value(node.operands.first())?;
            let rows = rows.first().copied().unwrap_or(0);
            let bytes = rows.saturating_mul(sizes.memory_bytes(node.state));
            (cost.state_read_bytes, cost.state_written_bytes) = (bytes, bytes);
        }
        Op::CacheAppend { .. } => {
            // The rows go into the buffer, and the result is that buffer.
            let rows = node
                .operands
                .first()
                .and_then(|&value| sizes.graph.ty(value));
            cost.state_written_bytes = rows.map_or(Ok(0), |ty| sizes.bytes(ty))?;
            cost.written_bytes = 0;
        }
        Op::Attention { window, .. } => {
            let (rows, tokens, positions) = flops::attended(sizes, node, *window)?;
            let position = sizes.position_bytes(node.state);
            let per_position = rows.saturating_mul(position);
            cost.state_read_bytes = per_position.saturating_mul(positions);
            cost.state_written_bytes = per_position.saturating_mul(tokens);
        }
        _ => {}
    }
    Ok(cost)
}
