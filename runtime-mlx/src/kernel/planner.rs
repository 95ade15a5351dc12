//! Which nodes run as which kernels.
//!
//! Linear layers over one input become one kernel, as do a gated pair and a product with the sum
//! that follows it: each is one pass over its input. Kernels in a row become one [`super::Segment`].

use super::attention::{self, Attention};
use super::join::{Item, hoisted, segments};
use super::linear::{self, Experts, Table};
use super::memory::{self, Memory};
use super::{KernelStep, rows};
use crate::plan::{Step, final_effects, node_name};
use mlxcel_ir::{DType, Graph, Node, Op, StateId, ValueId, WeightDecl, WeightSource};
use mlxcel_kernels::Pool;
use std::sync::Arc;

/// The steps of a graph, and which states are kept for kernels.
pub(crate) struct Planned {
    pub(crate) steps: Vec<Step>,
    /// By state id.
    pub(crate) host_states: Vec<bool>,
}

/// Plans `graph` with kernels where there are any.
pub(crate) fn plan(graph: &Graph, source: &Arc<dyn WeightSource>, pool: &Arc<Pool>) -> Planned {
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
    Planned {
        steps: segments(graph, hoisted(graph, items)),
        host_states,
    }
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

/// The states that only one node touches, which has a kernel.
fn host_states(graph: &Graph) -> Vec<bool> {
    let mut users = vec![0; graph.states.len()];
    let mut host = vec![true; graph.states.len()];
    for node in &graph.nodes {
        if let Some(StateId(id)) = node.state
            && let Some(host) = host.get_mut(id as usize)
        {
            // Two users would have to run in their order, which MLX is not told.
            users[id as usize] += 1;
            *host &= users[id as usize] == 1
                && (attention::Layer::new(graph, node).is_some() || memory::sizes(graph, node));
        }
    }
    host
}

pub(super) struct Planner<'a> {
    pub(super) graph: &'a Graph,
    pub(super) source: &'a Arc<dyn WeightSource>,
    pub(super) pool: &'a Arc<Pool>,
    pub(super) uses: Vec<usize>,
    /// Nodes that a step computes already.
    pub(super) taken: Vec<bool>,
    /// By value, whether a kernel makes it.
    pub(super) made: Vec<bool>,
    pub(super) host_states: Vec<bool>,
    pub(super) items: Vec<Item>,
}

impl Planner<'_> {
    pub(super) fn label(&self, node: usize) -> Arc<str> {
        let op = self.graph.nodes[node].op.info().name;
        format!("node {} ({op})", node_name(self.graph, node)).into()
    }

    pub(super) fn is_f32(&self, value: ValueId) -> bool {
        self.graph
            .ty(value)
            .is_some_and(|ty| ty.dtype == DType::F32)
    }

    /// A kernel's step at node `node`, which computes the nodes `covered`, of which `results` are
    /// seen by others.
    pub(super) fn push(
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

    fn vector(&self, declaration: &WeightDecl) -> Option<Vec<f32>> {
        linear::vector(self.source, declaration).ok()
    }

    /// The factors of a norm over rows of `width`: `offset + weight`, or ones without a weight.
    fn norm_weight(
        &self,
        weight: Option<&WeightDecl>,
        offset: f64,
        width: usize,
    ) -> Option<Vec<f32>> {
        let Some(weight) = weight else {
            return Some(vec![1.0; width]);
        };
        let mut weight = self.vector(weight)?;
        weight
            .iter_mut()
            .for_each(|weight| *weight += offset as f32);
        Some(weight)
    }

    fn kernel(&self, index: usize, node: &Node) -> Option<Box<dyn super::Step>> {
        let (pool, label) = (self.pool, self.label(index));
        let weight = |index: usize| self.graph.weight(*node.weights.get(index)?);
        let x = *node.operands.first()?;
        let ty = self.graph.ty(x)?;
        let width = || ty.shape.last()?.fixed().filter(|&width| width > 0);
        let floats = ty.dtype == DType::F32;
        // What a kernel made is cheaper to go on with than to hand to MLX.
        let made = node
            .operands
            .iter()
            .any(|value| self.made[value.0 as usize]);
        let fixed = match node.op {
            Op::Embedding {} if node.ty.dtype == DType::F32 && ty.dtype == DType::I32 => {
                rows::embedding(pool, label, Table::new(self.source, weight(0)?).ok()?)
            }
            Op::RmsNorm { epsilon, offset } if floats => {
                let weight = self.norm_weight(weight(0), offset, width()?)?;
                rows::rms_norm(pool, label, weight, epsilon)
            }
            Op::LayerNorm { epsilon, offset } if floats => {
                let factors = self.norm_weight(weight(0), offset, width()?)?;
                let bias = match weight(1) {
                    Some(bias) => self.vector(bias)?,
                    None => vec![0.0; factors.len()],
                };
                rows::layer_norm(pool, label, factors, bias, epsilon)
            }
            Op::ExpertLinear {} if floats && node.ty.dtype == DType::F32 => {
                let choices = node.ty.shape.get(2)?.fixed()?;
                let experts = Experts::new(self.graph, self.source, node).ok()?;
                linear::experts(pool, label, experts, choices)
            }
            Op::Rope { .. } if floats => rows::rope(pool, label, &node.op, ty).ok()?,
            Op::Activate { activation } if floats => rows::activate(pool, label, activation),
            Op::Gated { activation } if floats => rows::gated(pool, label, activation),
            Op::Softmax {} if floats => rows::softmax(pool, label, width()?),
            Op::Add {} if floats && made => rows::binary(label, |lhs, rhs| lhs + rhs),
            Op::Subtract {} if floats && made => rows::binary(label, |lhs, rhs| lhs - rhs),
            Op::Multiply {} if floats && made => rows::binary(label, |lhs, rhs| lhs * rhs),
            Op::TakeRow {} if floats && made => {
                let inner = ty.shape.get(2..)?.iter().map(|dim| dim.fixed());
                let width: usize = inner.product::<Option<usize>>()?;
                rows::take_row(label, Some(width).filter(|&width| width > 0)?)
            }
            Op::Argmax {} if floats => rows::argmax(pool, label, width()?),
            Op::TopK { count } if floats => rows::top_k(pool, label, width()?, count),
            Op::TakeAlong {} if made && ty.dtype.size() == 4 => {
                let count = node.ty.shape.last()?.fixed().filter(|&count| count > 0)?;
                rows::take_along(label, width()?, count)
            }
            Op::CausalConvolution {} | Op::Recurrence {} | Op::DeltaRecurrence {} => {
                let StateId(state) = node.state?;
                if !self.host_states.get(state as usize).copied()? {
                    return None;
                }
                return Some(Box::new(Memory {
                    pool: pool.clone(),
                    label,
                    rule: Arc::new(memory::rule(self.graph, self.source, node).ok()?),
                    state: state as usize,
                }));
            }
            Op::Attention { .. } => {
                let StateId(state) = node.state?;
                if !self.host_states.get(state as usize).copied()? {
                    return None;
                }
                let mut layer = attention::Layer::new(self.graph, node)?;
                if let Some(sinks) = weight(0) {
                    layer.sinks = self.vector(sinks)?;
                }
                return Some(Box::new(Attention {
                    pool: pool.clone(),
                    label,
                    layer: Arc::new(layer),
                    state: state as usize,
                }));
            }
            _ => return None,
        };
        Some(Box::new(fixed))
    }
}
