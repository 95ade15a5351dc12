//! Which nodes run as which kernels.
//!
//! Linear layers over one input become one kernel, as do a gated pair and a product with the sum
//! that follows it: each is one pass over its input. Kernels in a row become one [`Segment`].

use super::attention::Attention;
use super::linear::{self, Layer, Table};
use super::{KernelStep, Segment, rows};
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
        made: vec![false; graph.inputs.len() + graph.nodes.len()],
        host_states: host_states(graph),
        items: Vec::new(),
    };
    planner.fuse();
    for node in 0..graph.nodes.len() {
        planner.node(node);
    }
    let host_states = planner.host_states;
    let mut items = planner.items;
    items.sort_by_key(Item::node);
    Ok(Planned {
        steps: segments(graph, hoisted(graph, items)),
        host_states,
    })
}

/// A step before kernels in a row are joined.
enum Item {
    /// A node that MLX runs.
    Mlx(usize),
    Kernel(KernelStep),
}

impl Item {
    fn node(&self) -> usize {
        match self {
            Item::Mlx(node) => *node,
            Item::Kernel(step) => step.node,
        }
    }
}

/// Moves nodes that MLX runs and that need no kernel's result to the front, so that they part no
/// kernels.
fn hoisted(graph: &Graph, items: Vec<Item>) -> Vec<Item> {
    let inputs = graph.inputs.len();
    let mut early = vec![false; inputs + graph.nodes.len()];
    early[..inputs].fill(true);
    for item in &items {
        if let Item::Mlx(node) = item {
            let operands = &graph.nodes[*node].operands;
            let free = graph.nodes[*node].state.is_none();
            early[inputs + node] = free && operands.iter().all(|value| early[value.0 as usize]);
        }
    }
    let (mut front, back): (Vec<_>, Vec<_>) = items
        .into_iter()
        .partition(|item| matches!(item, Item::Mlx(node) if early[inputs + node]));
    front.extend(back);
    front
}

/// Joins kernels in a row.
fn segments(graph: &Graph, items: Vec<Item>) -> Vec<Step> {
    let mut runs: Vec<Result<Vec<KernelStep>, usize>> = Vec::new();
    for item in items {
        match (item, runs.last_mut()) {
            (Item::Mlx(node), _) => runs.push(Err(node)),
            (Item::Kernel(step), Some(Ok(run))) => run.push(step),
            (Item::Kernel(step), _) => runs.push(Ok(vec![step])),
        }
    }
    // By value, the run that makes it, and whether another run or the caller reads it.
    let values = graph.inputs.len() + graph.nodes.len();
    let mut maker = vec![usize::MAX; values];
    let mut seen = vec![false; values];
    for (number, run) in runs.iter().enumerate() {
        let steps = run.as_deref().unwrap_or_default();
        for &result in steps.iter().flat_map(|step| &step.results) {
            maker[result] = number;
        }
        for &operand in steps.iter().flat_map(|step| &step.operands) {
            seen[operand] |= maker[operand] != number;
        }
        if let Err(node) = run {
            for operand in &graph.nodes[*node].operands {
                seen[operand.0 as usize] = true;
            }
        }
    }
    let outputs = graph.outputs.iter().map(|output| output.value.0 as usize);
    for value in outputs.chain(final_effects(graph)) {
        seen[value] = true;
    }
    let steps = runs.into_iter().map(|run| match run {
        Err(node) => plain(graph, node),
        Ok(run) => {
            let node = run.first().map_or(0, |step| step.node);
            let segment = Segment::new(run, |value| seen[value]);
            Step {
                node,
                operands: segment.inputs.clone().into(),
                results: segment.exports.clone().into(),
                dead: Box::new([]),
                action: Action::Segment(segment),
            }
        }
    });
    steps.collect()
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
    let mut users = vec![0; graph.states.len()];
    let mut host = vec![true; graph.states.len()];
    for node in &graph.nodes {
        if let Some(StateId(id)) = node.state
            && let Some(host) = host.get_mut(id as usize)
        {
            // Two users would have to run in their order, which MLX is not told.
            users[id as usize] += 1;
            *host &= users[id as usize] == 1 && attention_layer(graph, node).is_some();
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
    /// By value, whether a kernel makes it.
    made: Vec<bool>,
    host_states: Vec<bool>,
    items: Vec<Item>,
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

    /// A kernel's step at node `node`, which computes the nodes `covered`, of which `results` are
    /// seen by others.
    fn push(
        &mut self,
        node: usize,
        covered: &[usize],
        operands: &[ValueId],
        results: &[usize],
        kernel: Option<Box<dyn super::Step>>,
    ) {
        for &node in covered {
            self.taken[node] = true;
        }
        let number = |&node: &usize| self.graph.value_of(node).0 as usize;
        let results: Vec<usize> = results.iter().map(number).collect();
        for &result in &results {
            self.made[result] = true;
        }
        self.items.push(Item::Kernel(KernelStep {
            node,
            operands: operands.iter().map(|value| value.0 as usize).collect(),
            results,
            kernel,
        }));
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
            let kernel = Some(Box::new(kernel) as _);
            self.push(node, &[node, first, second], &[x], &[node], kernel);
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
        let kernel = Some(Box::new(kernel) as _);
        self.push(node, &[node, index], &[x, other], &[node], kernel);
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
                self.push(first, &nodes, &[x], &nodes, Some(Box::new(kernel)));
            }
        }
    }

    /// The step of one node: a kernel if there is one for it, else operations of MLX.
    fn node(&mut self, index: usize) {
        if self.taken[index] {
            return;
        }
        let node = &self.graph.nodes[index];
        let of_kernel = node
            .operands
            .first()
            .is_some_and(|x| self.made[x.0 as usize]);
        let wide = node.ty.dtype.size() == 4;
        if matches!(node.op, Op::Reshape { .. }) && of_kernel && wide {
            return self.push(index, &[index], &node.operands, &[index], None);
        }
        match self.kernel(index, node) {
            Some(kernel) => {
                self.push(index, &[index], &node.operands, &[index], Some(kernel));
            }
            None => self.items.push(Item::Mlx(index)),
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
            Op::Add {} if floats && self.made[x.0 as usize] => rows::add(label),
            Op::TakeRow {} if floats && self.made[x.0 as usize] => {
                let inner = ty.shape.get(2..)?.iter().map(|dim| dim.fixed());
                let width: usize = inner.product::<Option<usize>>()?;
                rows::take_row(label, Some(width).filter(|&width| width > 0)?)
            }
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
}
