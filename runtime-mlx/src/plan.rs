//! Plans: a graph as a flat list of steps with everything resolved that does not depend on a call.

use crate::Error;
use crate::cache::ArrayCache;
use crate::fail::Fail;
use crate::kernel;
use crate::machine::{Cache, Machine};
use crate::mlx;
use crate::weight::{Loader, Weight};
use mlxcel_ir::{Graph, StateKind, ValueId, WeightSource};
use mlxcel_mlx_sys::{Array, Stream};
use std::sync::Arc;

/// Which operations execute the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operations {
    /// Those of MLX, on any device.
    Mlx,
    /// Own kernels where there is one, else those of MLX; on the CPU only.
    Kernels,
}

/// What a step does.
pub(crate) enum Action {
    /// Runs the node by operations of MLX.
    Mlx,
    /// Runs nodes by own kernels.
    Segment(kernel::Segment),
}

/// One step of a plan.
pub(crate) struct Step {
    /// The node whose name an error gets, and which [`Action::Mlx`] runs.
    pub(crate) node: usize,
    /// Values that it reads.
    pub(crate) operands: Box<[usize]>,
    /// Values that it makes.
    pub(crate) results: Box<[usize]>,
    /// Values that nothing needs after it.
    pub(crate) dead: Box<[usize]>,
    pub(crate) action: Action,
}

/// A graph ready to be executed any number of times.
pub(crate) struct Plan {
    pub(crate) graph: Graph,
    pub(crate) steps: Vec<Step>,
    /// By weight id; empty where only kernels use the weight.
    pub(crate) weights: Vec<Option<Weight>>,
    /// Numbers of [`mlxcel_ir::Op::Parameter`] nodes' weights, dequantised.
    pub(crate) parameters: Vec<Option<Array>>,
    /// Values that must be computed so that every effect on a state has happened.
    pub(crate) effects: Vec<usize>,
    /// For each state whether it is kept for kernels.
    pub(crate) host_states: Vec<bool>,
}

impl Plan {
    /// Plans `graph`.
    ///
    /// # Errors
    /// A weight that is missing or ill-formed; a graph that is not well formed.
    pub(crate) fn new(
        graph: &Graph,
        source: &Arc<dyn WeightSource>,
        operations: Operations,
        pool: &Arc<mlxcel_kernels::Pool>,
        stream: &Stream,
    ) -> Result<Self, Error> {
        check(graph)?;
        let kernel::Planned {
            mut steps,
            host_states,
        } = match operations {
            Operations::Mlx => kernel::Planned {
                steps: (0..graph.nodes.len()).map(|n| plain(graph, n)).collect(),
                host_states: vec![false; graph.states.len()],
            },
            Operations::Kernels => kernel::plan(graph, source, pool),
        };
        let effects = final_effects(graph);
        mark_last_uses(graph, &effects, &mut steps);
        let loader = Loader { source, stream };
        let mut weights = vec![None; graph.weights.len()];
        let mut parameters = vec![None; graph.weights.len()];
        let on_mlx = steps
            .iter()
            .filter(|step| matches!(step.action, Action::Mlx));
        for step in on_mlx {
            let node = &graph.nodes[step.node];
            for &id in &node.weights {
                let index = id.0 as usize;
                let Some(declaration) = graph.weight(id) else {
                    return Err(node_error(
                        graph,
                        step.node,
                        "names a weight that is not there",
                    ));
                };
                if mlx::needs_numbers(&node.op) {
                    if parameters[index].is_none() {
                        let weight = loader.numbers(graph, declaration)?;
                        parameters[index] = Some(weight);
                    }
                } else if weights[index].is_none() {
                    weights[index] = Some(loader.load(graph, declaration)?);
                }
            }
        }
        Ok(Self {
            graph: graph.clone(),
            steps,
            weights,
            parameters,
            effects,
            host_states,
        })
    }

    /// Whether sequences have memories, which cannot be cut short.
    pub(crate) fn has_memories(&self) -> bool {
        let mut states = self.graph.states.iter();
        states.any(|state| state.kind == StateKind::Memory)
    }

    /// Empty states of one sequence.
    pub(crate) fn empty_caches(&self) -> Vec<Cache> {
        let states = self.graph.states.iter().zip(&self.host_states);
        states
            .map(|(state, host)| match (state.kind, host) {
                (StateKind::Cache, true) => Cache::Host(Arc::new(kernel::HostCache::new(state))),
                (StateKind::Cache, false) => Cache::Arrays(ArrayCache::default()),
                (StateKind::Memory, true) => {
                    Cache::HostMemory(Arc::new(kernel::HostMemory::new(state)))
                }
                (StateKind::Memory, false) => Cache::Memory(None),
            })
            .collect()
    }

    /// An error of node `node`.
    pub(crate) fn fail(&self, node: usize, reason: impl Into<String>) -> Error {
        node_error(&self.graph, node, reason)
    }

    /// Executes the steps, which records their operations on the machine's stream.
    pub(crate) fn record(&self, machine: &mut Machine<'_>) -> Result<(), Error> {
        for step in &self.steps {
            let outcome = match &step.action {
                Action::Mlx => mlx::record(self, step, machine),
                Action::Segment(segment) => segment.record(self, machine),
            };
            outcome.map_err(|Fail(reason)| self.fail(step.node, reason))?;
            for &dead in &step.dead {
                machine.values[dead] = None;
            }
        }
        Ok(())
    }
}

/// The name of a node in errors.
pub(crate) fn node_name(graph: &Graph, node: usize) -> String {
    match graph.nodes.get(node).and_then(|node| node.name.as_ref()) {
        Some(name) => format!("`{name}`"),
        None => format!("%{}", graph.value_of(node).0),
    }
}

pub(crate) fn node_error(graph: &Graph, node: usize, reason: impl Into<String>) -> Error {
    Error::Node {
        graph: graph.name.clone(),
        node: node_name(graph, node),
        op: graph
            .nodes
            .get(node)
            .map_or("?", |node| node.op.info().name),
        reason: reason.into(),
    }
}

/// The step that runs node `node` by operations of MLX.
pub(crate) fn plain(graph: &Graph, node: usize) -> Step {
    let index = |value: &ValueId| value.0 as usize;
    Step {
        node,
        operands: graph.nodes[node].operands.iter().map(index).collect(),
        results: Box::new([graph.value_of(node).0 as usize]),
        dead: Box::new([]),
        action: Action::Mlx,
    }
}

/// Operands and outputs must exist; what a node needs beyond that, the type rules said when it was
/// built or parsed.
fn check(graph: &Graph) -> Result<(), Error> {
    for (index, node) in graph.nodes.iter().enumerate() {
        let limit = graph.value_of(index).0;
        if let Some(value) = node.operands.iter().find(|value| value.0 >= limit) {
            let reason = format!("uses %{} before it is defined", value.0);
            return Err(node_error(graph, index, reason));
        }
        let site =
            mlxcel_ir::infer::Site::of(graph, &node.op, &node.operands, &node.weights, node.state);
        site.and_then(|site| node.op.infer(&site))
            .map_err(|reason| node_error(graph, index, reason))?;
    }
    let values = graph.inputs.len() + graph.nodes.len();
    match graph.outputs.iter().find(|o| o.value.0 as usize >= values) {
        Some(output) => Err(Error::Graph {
            graph: graph.name.clone(),
            reason: format!("output `{}` is of no value", output.name),
        }),
        None => Ok(()),
    }
}

/// The results of the nodes with a state that no other node with a state depends on.
pub(crate) fn final_effects(graph: &Graph) -> Vec<usize> {
    let mut followed = vec![false; graph.inputs.len() + graph.nodes.len()];
    let mut last = Vec::new();
    for (index, node) in graph.nodes.iter().enumerate().rev() {
        let result = graph.value_of(index).0 as usize;
        if node.state.is_some() && !followed[result] {
            last.push(result);
        }
        if node.state.is_some() || followed[result] {
            for operand in &node.operands {
                followed[operand.0 as usize] = true;
            }
        }
    }
    last
}

/// Notes at each step the values that no later step needs, nor an output or effect.
fn mark_last_uses(graph: &Graph, effects: &[usize], steps: &mut [Step]) {
    let mut live = vec![false; graph.inputs.len() + graph.nodes.len()];
    let outputs = graph.outputs.iter().map(|output| output.value.0 as usize);
    for value in outputs.chain(effects.iter().copied()) {
        live[value] = true;
    }
    for step in steps.iter_mut().rev() {
        let mut dead: Vec<usize> = Vec::new();
        for &value in step.operands.iter().chain(&step.results) {
            if !std::mem::replace(&mut live[value], true) {
                dead.push(value);
            }
        }
        step.dead = dead.into();
    }
}
