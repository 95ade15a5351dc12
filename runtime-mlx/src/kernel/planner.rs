//! Which nodes run as which kernels.
//!
//! Linear layers over one input become one step, as do a gated pair and a product with the sum that
//! follows it: each is one pass over its input, and one operation less for MLX to schedule.

use super::attention::Attention;
use super::linear::{self, Layer, Table};
use super::{Fixed, rows};
use crate::Error;
use crate::fail::Fail;
use crate::plan::{Action, Step, final_effects, node_name, plain};
use mlxcel_ir::{DType, Graph, Node, Op, StateId, ValueId, WeightSource};
use mlxcel_kernels::{self as kernels, Pool};
use std::collections::HashMap;
use std::sync::Arc;

/// The steps of a graph, and which states are kept for kernels.
pub(crate) struct Planned {
    pub(crate) steps: Vec<Step>,
    /// By state id.
    pub(crate) host_states: Vec<bool>,
}

/// Plans `graph` with kernels where there are any.
pub(crate) fn plan(
    graph: &Graph,
    source: &Arc<dyn WeightSource>,
    pool: &Arc<Pool>,
) -> Result<Planned, Error> {
    let mut planner = Planner {
        graph,
        source,
        pool,
        uses: uses(graph),
        taken: vec![false; graph.nodes.len()],
        host_states: host_states(graph),
        steps: Vec::new(),
    };
    planner.fuse();
    for node in 0..graph.nodes.len() {
        planner.node(node);
    }
    planner.adopt_reshapes();
    planner.steps.sort_by_key(|step| step.node);
    Ok(Planned {
        steps: planner.steps,
        host_states: planner.host_states,
    })
}

/// How often each value is read, counting outputs and what is computed for its effect.
fn uses(graph: &Graph) -> Vec<usize> {
    let mut uses = vec![0; graph.inputs.len() + graph.nodes.len()];
    let operands = graph.nodes.iter().flat_map(|node| &node.operands);
    let outputs = graph.outputs.iter().map(|output| &output.value);
    for value in operands.chain(outputs) {
        uses[value.0 as usize] += 1;
    }
    for value in final_effects(graph) {
        uses[value] += 1;
    }
    uses
}

/// The states that only attention which has a kernel touches.
fn host_states(graph: &Graph) -> Vec<bool> {
    let mut host = vec![true; graph.states.len()];
    for node in &graph.nodes {
        if let Some(StateId(id)) = node.state
            && let Some(host) = host.get_mut(id as usize)
        {
            *host &= attention_layer(graph, node).is_some();
        }
    }
    host
}

/// The kernel's form of an attention node.
fn attention_layer(graph: &Graph, node: &Node) -> Option<kernels::Attention> {
    let Op::Attention {
        scale,
        mask,
        window,
        softcap,
    } = node.op
    else {
        return None;
    };
    let state = graph.state(node.state?)?;
    let q = graph.ty(*node.operands.first()?)?;
    let fits = q.dtype == DType::F32
        && node.ty.dtype == DType::F32
        && state.key_dim == state.value_dim
        && q.shape.get(3)?.fixed()? == state.key_dim;
    fits.then_some(kernels::Attention {
        heads: q.shape.get(2)?.fixed()?,
        kv_heads: state.heads,
        dim: state.key_dim,
        scale: scale as f32,
        mask,
        window,
        softcap: softcap.map(|cap| cap as f32),
    })
}

struct Planner<'a> {
    graph: &'a Graph,
    source: &'a Arc<dyn WeightSource>,
    pool: &'a Arc<Pool>,
    uses: Vec<usize>,
    /// Nodes that a step computes already.
    taken: Vec<bool>,
    host_states: Vec<bool>,
    steps: Vec<Step>,
}

impl Planner<'_> {
    fn label(&self, node: usize) -> Arc<str> {
        let op = self.graph.nodes[node].op.info().name;
        format!("node {} ({op})", node_name(self.graph, node)).into()
    }

    fn is_f32(&self, value: ValueId) -> bool {
        self.graph
            .ty(value)
            .is_some_and(|ty| ty.dtype == DType::F32)
    }

    /// The index of the node that defines `value`, if it is a linear layer in f32 that no step has.
    fn linear(&self, value: ValueId) -> Option<usize> {
        let index = (value.0 as usize).checked_sub(self.graph.inputs.len())?;
        let node = self.graph.nodes.get(index)?;
        let free = matches!(node.op, Op::Linear {}) && !self.taken[index];
        (free && self.is_f32(value) && self.is_f32(node.operands[0])).then_some(index)
    }

    fn layer(&self, node: usize) -> Result<Layer, Fail> {
        Layer::new(self.graph, self.source, &self.graph.nodes[node])
    }

    /// A kernel's step at node `node`, which computes the nodes `covered`.
    fn push(&mut self, node: usize, covered: &[usize], operands: &[ValueId], kernel: Fixed) {
        self.push_step(node, covered, operands, &[node], Box::new(kernel));
    }

    fn push_step(
        &mut self,
        node: usize,
        covered: &[usize],
        operands: &[ValueId],
        results: &[usize],
        kernel: Box<dyn super::Step>,
    ) {
        for &node in covered {
            self.taken[node] = true;
        }
        let number = |&node: &usize| self.graph.value_of(node).0 as usize;
        self.steps.push(Step {
            node,
            operands: operands.iter().map(|value| value.0 as usize).collect(),
            results: results.iter().map(number).collect(),
            dead: Box::new([]),
            action: Action::Kernel(kernel),
        });
    }

    /// Steps of several nodes, the largest first.
    fn fuse(&mut self) {
        for node in 0..self.graph.nodes.len() {
            let operands = &self.graph.nodes[node].operands;
            match self.graph.nodes[node].op {
                Op::Gated { activation } => self.fuse_gated(node, activation),
                Op::Add {} => {
                    let (lhs, rhs) = (operands[0], operands[1]);
                    if !self.fuse_residual(node, rhs, lhs) {
                        self.fuse_residual(node, lhs, rhs);
                    }
                }
                _ => {}
            }
        }
        self.fuse_groups();
    }

    fn fuse_gated(&mut self, node: usize, activation: mlxcel_ir::Activation) {
        let graph = self.graph;
        let &[gate, up] = &graph.nodes[node].operands[..] else {
            return;
        };
        let (Some(first), Some(second)) = (self.linear(gate), self.linear(up)) else {
            return;
        };
        let x = graph.nodes[first].operands[0];
        let alone = self.uses[gate.0 as usize] == 1 && self.uses[up.0 as usize] == 1;
        if !alone || graph.nodes[second].operands[0] != x {
            return;
        }
        if let (Ok(gate), Ok(up)) = (self.layer(first), self.layer(second)) {
            let kernel = linear::gated(self.pool, self.label(node), gate, up, activation);
            self.push(node, &[node, first, second], &[x], kernel);
        }
    }

    fn fuse_residual(&mut self, node: usize, product: ValueId, other: ValueId) -> bool {
        let graph = self.graph;
        let Some(index) = self.linear(product) else {
            return false;
        };
        if self.uses[product.0 as usize] != 1 {
            return false;
        }
        let Ok(layer) = self.layer(index) else {
            return false;
        };
        let x = graph.nodes[index].operands[0];
        let kernel = linear::residual(self.pool, self.label(node), layer);
        self.push(node, &[node, index], &[x, other], kernel);
        true
    }

    /// Linear layers over one input.
    fn fuse_groups(&mut self) {
        let mut groups: Vec<(ValueId, Vec<usize>)> = Vec::new();
        let mut known: HashMap<ValueId, usize> = HashMap::new();
        for node in 0..self.graph.nodes.len() {
            if self.linear(self.graph.value_of(node)).is_none() {
                continue;
            }
            let x = self.graph.nodes[node].operands[0];
            let group = *known.entry(x).or_insert_with(|| {
                groups.push((x, Vec::new()));
                groups.len() - 1
            });
            groups[group].1.push(node);
        }
        for (x, members) in groups {
            let mut layers = Vec::new();
            let mut nodes = Vec::new();
            for member in members {
                if let Ok(layer) = self.layer(member) {
                    layers.push(layer);
                    nodes.push(member);
                }
            }
            if let Some(&first) = nodes.first() {
                let kernel = linear::group(self.pool, self.label(first), layers);
                self.push_step(first, &nodes, &[x], &nodes, Box::new(kernel));
            }
        }
    }

    /// The step of one node: a kernel if there is one for it, else operations of MLX.
    fn node(&mut self, index: usize) {
        if self.taken[index] {
            return;
        }
        let node = &self.graph.nodes[index];
        match self.kernel(index, node) {
            Some(kernel) => {
                self.push_step(index, &[index], &node.operands, &[index], kernel);
            }
            None => self.steps.push(plain(self.graph, index)),
        }
    }

    fn kernel(&self, index: usize, node: &Node) -> Option<Box<dyn super::Step>> {
        let (pool, label) = (self.pool, self.label(index));
        let weight = || self.graph.weight(*node.weights.first()?);
        let x = *node.operands.first()?;
        let ty = self.graph.ty(x)?;
        let width = || ty.shape.last()?.fixed().filter(|&width| width > 0);
        let floats = ty.dtype == DType::F32;
        let fixed = match node.op {
            Op::Embedding {} if node.ty.dtype == DType::F32 && ty.dtype == DType::I32 => {
                rows::embedding(pool, label, Table::new(self.source, weight()?).ok()?)
            }
            Op::RmsNorm { epsilon } if floats => {
                let weight = linear::vector(self.source, weight()?).ok()?;
                rows::rms_norm(pool, label, weight, epsilon)
            }
            Op::Rope { .. } if floats => rows::rope(pool, label, &node.op, ty).ok()?,
            Op::Activate { activation } if floats => rows::activate(pool, label, activation),
            Op::Gated { activation } if floats => rows::gated(pool, label, activation),
            Op::Softmax {} if floats => rows::softmax(pool, label, width()?),
            Op::Argmax {} if floats => rows::argmax(pool, label, width()?),
            Op::Attention { .. } => {
                let StateId(state) = node.state?;
                if !self.host_states.get(state as usize).copied()? {
                    return None;
                }
                return Some(Box::new(Attention {
                    pool: pool.clone(),
                    label,
                    layer: attention_layer(self.graph, node)?,
                    state: state as usize,
                }));
            }
            _ => return None,
        };
        Some(Box::new(fixed))
    }

    /// A kernel's result that only a reshape reads is made in the reshape's shape at once: kernels
    /// see elements, not shapes.
    fn adopt_reshapes(&mut self) {
        let inputs = self.graph.inputs.len();
        let mut reader: HashMap<usize, usize> = HashMap::new();
        for (index, node) in self.graph.nodes.iter().enumerate() {
            if matches!(node.op, Op::Reshape { .. }) {
                reader.insert(node.operands[0].0 as usize, index);
            }
        }
        let mut gone = vec![false; self.graph.nodes.len()];
        for step in &mut self.steps {
            if !matches!(step.action, Action::Kernel(_)) {
                continue;
            }
            for result in &mut step.results {
                while let Some(&index) = reader.get(result)
                    && self.uses[*result] == 1
                {
                    gone[index] = true;
                    *result = inputs + index;
                }
            }
        }
        self.steps
            .retain(|step| !matches!(step.action, Action::Mlx) || !gone[step.node]);
    }
}
