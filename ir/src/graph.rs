//! The graph itself: declarations, nodes and outputs.

use crate::{DType, Dim, Op, StateKind, StatePart, Symbol, TensorType, WeightDecl};

/// A value: an input of the graph or the result of a node. Inputs come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

/// A weight declared by the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightId(pub u32);

/// A state declared by the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateId(pub u32);

/// An input of a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// The name callers give it by.
    pub name: String,
    /// Its type.
    pub ty: TensorType,
}

/// An output of a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// The name callers know it by.
    pub name: String,
    /// The value.
    pub value: ValueId,
}

/// What one layer keeps of a sequence.
///
/// A cache means two tensors, keys `[B, S, heads, key_dim]` and values `[B, S, heads, value_dim]`.
/// Ops append rows at a position and attend over what is there; how a runtime keeps them (growing,
/// rotating, paged, quantised) is its own affair. A memory means one tensor `[B, heads, key_dim,
/// value_dim]`, zero for a new sequence, which each token changes, so that a sequence with memories
/// cannot be cut short.
#[derive(Clone, Debug, PartialEq)]
pub struct StateDecl {
    /// Its name, for instance `cache.0`.
    pub name: String,
    /// Cache or memory.
    pub kind: StateKind,
    /// Key-value heads.
    pub heads: usize,
    /// Width of a key.
    pub key_dim: usize,
    /// Width of a value.
    pub value_dim: usize,
    /// Element type of what is kept, by every runtime; the interpreter rounds to it.
    pub dtype: DType,
}

impl StateDecl {
    /// The buffers that the state consists of.
    pub fn parts(&self) -> &'static [StatePart] {
        match self.kind {
            StateKind::Cache => &[StatePart::Key, StatePart::Value],
            StateKind::Memory => &[StatePart::Whole],
        }
    }

    /// The type of the buffer that holds `part` of the state.
    pub fn buffer(&self, part: StatePart) -> TensorType {
        let (rows, capacity) = (Dim::Symbol(Symbol::B), Dim::Symbol(Symbol::S));
        let [heads, key, value] = [self.heads, self.key_dim, self.value_dim].map(Dim::Fixed);
        let shape = match part {
            StatePart::Key => [rows, capacity, heads, key],
            StatePart::Value => [rows, capacity, heads, value],
            StatePart::Whole => [rows, heads, key, value],
        };
        TensorType::new(self.dtype, shape)
    }

    /// Numbers in a row of the state that holds `capacity` tokens.
    pub fn elements(&self, capacity: usize) -> usize {
        match self.kind {
            StateKind::Cache => capacity * self.heads * (self.key_dim + self.value_dim),
            StateKind::Memory => self.heads * self.key_dim * self.value_dim,
        }
    }
}

/// One operation and its result.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The operation with its attributes.
    pub op: Op,
    /// Tensor operands, in the order of the op table.
    pub operands: Vec<ValueId>,
    /// Weights, in the order of the op table; an absent optional weight is left out at the end.
    pub weights: Vec<WeightId>,
    /// The state that the op reads and writes.
    pub state: Option<StateId>,
    /// The type of the result.
    pub ty: TensorType,
    /// A name for reports and for comparing executions, for instance `layers.3.attention`. Unique
    /// within the graph.
    pub name: Option<String>,
}

/// A function from tokens (and states) to tensors.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Graph {
    /// The function's name.
    pub name: String,
    /// Inputs; values `0..inputs.len()`.
    pub inputs: Vec<Input>,
    /// Weights.
    pub weights: Vec<WeightDecl>,
    /// States.
    pub states: Vec<StateDecl>,
    /// Nodes in execution order; node `i` is value `inputs.len() + i`.
    pub nodes: Vec<Node>,
    /// Outputs.
    pub outputs: Vec<Output>,
}

impl Graph {
    /// The node that defines `value`, or `None` for an input.
    pub fn node(&self, value: ValueId) -> Option<&Node> {
        (value.0 as usize)
            .checked_sub(self.inputs.len())
            .and_then(|index| self.nodes.get(index))
    }

    /// The value that node number `index` defines.
    pub fn value_of(&self, index: usize) -> ValueId {
        ValueId((self.inputs.len() + index) as u32)
    }

    /// The type of `value`, or `None` where no such value exists.
    pub fn ty(&self, value: ValueId) -> Option<&TensorType> {
        match self.inputs.get(value.0 as usize) {
            Some(input) => Some(&input.ty),
            None => self.node(value).map(|node| &node.ty),
        }
    }

    /// The declaration of `weight`.
    pub fn weight(&self, weight: WeightId) -> Option<&WeightDecl> {
        self.weights.get(weight.0 as usize)
    }

    /// The declaration of `state`.
    pub fn state(&self, state: StateId) -> Option<&StateDecl> {
        self.states.get(state.0 as usize)
    }

    /// Has every cache that attention alone reads keep its keys and values in `dtype`.
    pub fn keep_caches_in(&mut self, dtype: DType) {
        for (index, state) in self.states.iter_mut().enumerate() {
            let id = Some(StateId(index as u32));
            let mut users = self.nodes.iter().filter(|node| node.state == id);
            if state.kind == StateKind::Cache
                && users.all(|node| matches!(node.op, Op::Attention { .. }))
            {
                state.dtype = dtype;
            }
        }
    }

    /// The value of the node called `name`.
    pub fn named(&self, name: &str) -> Option<ValueId> {
        self.nodes
            .iter()
            .position(|node| node.name.as_deref() == Some(name))
            .map(|index| self.value_of(index))
    }
}
