//! The reference interpreter: what a graph means, in f32, in f64, or in numbers that know how far
//! rounding can take an execution from them ([`Bounded`]).
//!
//! It decomposes the graph and evaluates the primitives one by one, so a composite has no other
//! meaning than its decomposition. It is written to be read; only contraction is parallel.

pub mod bounded;
mod dot;
mod float;
mod memory;
mod primitive;
mod states;
mod tensor;

pub use bounded::Bounded;
pub use float::Float;
pub use states::States;
pub use tensor::{Elements, Tensor};

use crate::decompose::decompose;
use crate::weight::dequantize;
use crate::{
    Bindings, BuildError, DType, Graph, HostTensor, Node, Symbol, TensorType, WeightSource,
};
use std::sync::{Arc, OnceLock};

/// Why a graph could not be interpreted.
#[derive(Debug, thiserror::Error)]
pub enum InterpretError {
    /// The graph is not well formed.
    #[error(transparent)]
    Verify(#[from] crate::verify::VerifyError),
    /// A decomposition does not fit its node, which is a fault of the decomposition.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// An input was not given.
    #[error("function `{graph}` needs the input `{input}`")]
    MissingInput {
        /// The function.
        graph: String,
        /// The input.
        input: String,
    },
    /// An input has another type than declared.
    #[error("input `{input}` of function `{graph}` must be {expected}, is {got}")]
    Input {
        /// The function.
        graph: String,
        /// The input.
        input: String,
        /// The declared type under the bindings.
        expected: String,
        /// The given type.
        got: String,
    },
    /// A node cannot be evaluated.
    #[error("node {node} ({op}) of function `{graph}`: {reason}")]
    Node {
        /// The function.
        graph: String,
        /// The node's name, or its number in the decomposed graph.
        node: String,
        /// The op.
        op: &'static str,
        /// What is wrong.
        reason: String,
    },
}

/// A graph ready to be interpreted in numbers of type `F`. Weights are dequantised when first used
/// and kept.
pub struct Interpreter<F> {
    graph: Graph,
    source: Arc<dyn WeightSource>,
    parameters: Vec<OnceLock<Tensor<F>>>,
    /// For each node, the values that no later node or output uses.
    dying: Vec<Vec<usize>>,
}

impl<F: Float> Interpreter<F> {
    /// Prepares `graph`, whose weights are in `source`.
    ///
    /// # Errors
    /// [`InterpretError::Verify`] if the graph is not legal.
    pub fn new(graph: &Graph, source: Arc<dyn WeightSource>) -> Result<Self, InterpretError> {
        crate::verify::verify(graph)?;
        let graph = decompose(graph)?;
        Ok(Self {
            dying: last_uses(&graph),
            parameters: graph.weights.iter().map(|_| OnceLock::new()).collect(),
            graph,
            source,
        })
    }

    /// The graph in primitives.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Evaluates the graph on `inputs` (extra ones are ignored), updating `states`. Outputs come in
    /// declaration order.
    ///
    /// # Errors
    /// A missing or ill-typed input, or a node that cannot be evaluated (an index out of range, a
    /// full cache, a missing weight).
    pub fn run(
        &self,
        bindings: &Bindings,
        inputs: &[(&str, HostTensor)],
        states: &mut States<F>,
    ) -> Result<Vec<(String, Tensor<F>)>, InterpretError> {
        let mut values: Vec<Option<Tensor<F>>> = Vec::new();
        for input in &self.graph.inputs {
            values.push(Some(self.input(
                &input.name,
                &input.ty,
                bindings,
                inputs,
            )?));
        }
        if !self.graph.states.is_empty() {
            let size = |symbol| bindings.get(symbol).unwrap_or(0);
            states.fit(&self.graph, size(Symbol::B), size(Symbol::S));
        }
        for (index, node) in self.graph.nodes.iter().enumerate() {
            let value = self
                .node(node, bindings, &values, states)
                .map_err(|reason| InterpretError::Node {
                    graph: self.graph.name.clone(),
                    node: node
                        .name
                        .as_ref()
                        .map_or(format!("%{}", self.graph.value_of(index).0), |name| {
                            format!("`{name}`")
                        }),
                    op: node.op.info().name,
                    reason,
                })?;
            values.push(Some(value));
            for &dead in &self.dying[index] {
                values[dead] = None;
            }
        }
        Ok(self
            .graph
            .outputs
            .iter()
            .filter_map(|output| {
                let value = values.get(output.value.0 as usize)?.clone()?;
                Some((output.name.clone(), value))
            })
            .collect())
    }

    fn input(
        &self,
        name: &str,
        ty: &TensorType,
        bindings: &Bindings,
        inputs: &[(&str, HostTensor)],
    ) -> Result<Tensor<F>, InterpretError> {
        let graph = &self.graph.name;
        let (_, host) = inputs
            .iter()
            .find(|(given, _)| *given == name)
            .ok_or_else(|| InterpretError::MissingInput {
                graph: graph.clone(),
                input: name.into(),
            })?;
        let fits = host.dtype == ty.dtype && ty.sizes(bindings).as_ref() == Ok(&host.shape);
        if !fits || host.bytes.len() != host.elements() * host.dtype.size() {
            return Err(InterpretError::Input {
                graph: graph.clone(),
                input: name.into(),
                expected: ty.to_string(),
                got: TensorType::new(host.dtype, host.shape.iter().copied()).to_string(),
            });
        }
        Ok(Tensor::from_host(host))
    }

    fn node(
        &self,
        node: &Node,
        bindings: &Bindings,
        values: &[Option<Tensor<F>>],
        states: &mut States<F>,
    ) -> Result<Tensor<F>, String> {
        let operands: Vec<&Tensor<F>> = node
            .operands
            .iter()
            .map(|operand| {
                values
                    .get(operand.0 as usize)
                    .and_then(Option::as_ref)
                    .ok_or_else(|| format!("%{} has no value", operand.0))
            })
            .collect::<Result<_, _>>()?;
        let shape = node
            .ty
            .sizes(bindings)
            .map_err(|symbol| format!("the symbol {} is not bound", symbol.name()))?;
        primitive::evaluate(self, node, shape, &operands, states)
    }

    /// The numbers, not rounded, of the weight that `node` names in place `index`.
    fn parameter(&self, node: &Node, index: usize) -> Result<Tensor<F>, String> {
        let (weight, declaration) = node
            .weights
            .get(index)
            .and_then(|&weight| Some((weight, self.graph.weight(weight)?)))
            .ok_or("names no weight")?;
        let slot = &self.parameters[weight.0 as usize];
        if let Some(tensor) = slot.get() {
            return Ok(tensor.clone());
        }
        let data = self
            .source
            .get(&declaration.name)
            .ok_or_else(|| format!("there is no weight `{}`", declaration.name))?;
        let numbers = dequantize(declaration, data)?;
        let tensor = Tensor::float(DType::F32, declaration.shape.clone(), numbers);
        Ok(slot.get_or_init(|| tensor).clone())
    }
}

/// For each node, the values that are not needed after it.
fn last_uses(graph: &Graph) -> Vec<Vec<usize>> {
    let mut seen = vec![false; graph.inputs.len() + graph.nodes.len()];
    for output in &graph.outputs {
        if let Some(seen) = seen.get_mut(output.value.0 as usize) {
            *seen = true;
        }
    }
    let mut dying = vec![Vec::new(); graph.nodes.len()];
    for (index, node) in graph.nodes.iter().enumerate().rev() {
        let result = graph.inputs.len() + index;
        for value in node.operands.iter().map(|v| v.0 as usize).chain([result]) {
            if !std::mem::replace(&mut seen[value], true) {
                dying[index].push(value);
            }
        }
    }
    dying
}
