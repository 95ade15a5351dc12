//! Memories in memory of Rust, and the kernels that change them token by token.

use super::body::{floats, integers, kernel, only};
use super::{Compute, Step};
use crate::fail::Fail;
use crate::machine::{Cache, Machine};
use mlxcel_ir::{DType, Graph, Node, Op, StateDecl, WeightDecl, WeightSource};
use mlxcel_kernels::{self as kernels, Pool};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The numbers `[heads, key, value]` of one sequence for one state. Only the stream's thread locks it
/// while work is outstanding.
#[derive(Debug)]
pub(crate) struct HostMemory(Mutex<Vec<f32>>);

impl HostMemory {
    /// The memory of a new sequence.
    pub(crate) fn new(state: &StateDecl) -> Self {
        Self(Mutex::new(vec![0.0; state.elements(0)]))
    }

    /// A memory of the given numbers.
    pub(crate) fn with(numbers: &[f32]) -> Self {
        Self(Mutex::new(numbers.to_vec()))
    }

    /// The numbers.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<f32>> {
        // After a panic the step has failed, and with it the sequence.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a step does to a memory.
pub(super) enum Rule {
    /// Operands are x and length.
    Convolution(kernels::Convolution),
    /// Operands are query, key, value, decay, for a delta rule erase and write, and length.
    Recurrence(kernels::Recurrence),
}

/// Whether a kernel takes the node's sizes: all of f32, heads and widths known.
pub(super) fn sizes(graph: &Graph, node: &Node) -> bool {
    let floats = node.ty.dtype == DType::F32;
    match node.op {
        Op::CausalConvolution {} => floats && node.weights.len() <= 2,
        Op::Recurrence {} | Op::DeltaRecurrence {} => floats && recurrence(graph, node).is_some(),
        _ => false,
    }
}

fn recurrence(graph: &Graph, node: &Node) -> Option<kernels::Recurrence> {
    let vectors = node.operands.split_last()?.1;
    let size = |operand: usize, dim: usize| {
        let ty = graph.ty(*vectors.get(operand)?)?;
        ty.shape.get(dim)?.fixed()
    };
    let groups = [0, 1, 4, 5].into_iter().take(vectors.len() - 2);
    Some(kernels::Recurrence {
        heads: size(2, 2)?,
        keys: size(1, 3)?,
        width: size(2, 3)?,
        decay: size(3, 3)?,
        groups: groups.map(|which| size(which, 2)).collect::<Option<_>>()?,
    })
}

/// What a node does to its memory.
///
/// # Errors
/// A weight that is missing or not dense.
pub(super) fn rule(
    graph: &Graph,
    source: &Arc<dyn WeightSource>,
    node: &Node,
) -> Result<Rule, Fail> {
    if !matches!(node.op, Op::CausalConvolution {}) {
        let sizes = recurrence(graph, node).ok_or("has open sizes")?;
        return Ok(Rule::Recurrence(sizes));
    }
    let declaration = |index: usize| {
        let id = node.weights.get(index).copied();
        id.and_then(|id| graph.weight(id))
    };
    let numbers = |declaration: &WeightDecl| -> Result<Vec<f32>, Fail> {
        let data = source.get(&declaration.name);
        let data = data.ok_or("the checkpoint has no such weight")?;
        Ok(mlxcel_ir::weight::dequantize(declaration, data)?)
    };
    let weight = declaration(0).ok_or("has no weight")?;
    let steps = weight.shape.get(1).copied().unwrap_or(0);
    let bias = declaration(1).map(numbers).transpose()?;
    let convolution = kernels::Convolution::new(steps, &numbers(weight)?, bias)?;
    Ok(Rule::Convolution(convolution))
}

/// The step of a node with a memory.
pub(super) struct Memory {
    pub(super) pool: Arc<Pool>,
    pub(super) label: Arc<str>,
    pub(super) rule: Arc<Rule>,
    /// Number of the state.
    pub(super) state: usize,
}

impl Step for Memory {
    fn prepare(&self, machine: &Machine<'_>) -> Result<Arc<dyn Compute>, Fail> {
        let memories: Vec<Arc<HostMemory>> = machine
            .rows
            .iter()
            .map(|row| match row.get(self.state) {
                Some(Cache::HostMemory(memory)) => Ok(memory.clone()),
                _ => Err(Fail(format!("no memory {} for kernels", self.state))),
            })
            .collect::<Result<_, _>>()?;
        let (pool, rule) = (self.pool.clone(), self.rule.clone());
        Ok(kernel(self.label.clone(), move |inputs, outputs| {
            let mut held: Vec<_> = memories.iter().map(|memory| memory.lock()).collect();
            let mut memories: Vec<&mut [f32]> =
                held.iter_mut().map(|memory| &mut memory[..]).collect();
            let last = inputs.len().saturating_sub(1);
            let (vectors, lengths) = (&inputs[..last], integers(inputs, last)?);
            let out = only(outputs)?;
            match &*rule {
                Rule::Convolution(rule) => {
                    let x = floats(vectors, 0)?;
                    kernels::causal_convolution(&pool, rule, x, lengths, &mut memories, out)?;
                }
                Rule::Recurrence(rule) => {
                    kernels::recurrence(&pool, rule, vectors, lengths, &mut memories, out)?;
                }
            }
            Ok(())
        }))
    }
}
