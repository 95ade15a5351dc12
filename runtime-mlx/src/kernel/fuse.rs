//! Several nodes as one kernel.

use super::linear::{self, Layer};
use super::planner::Planner;
use crate::fail::Fail;
use mlxcel_ir::{Op, ValueId};
use std::collections::HashMap;

impl Planner<'_> {
    /// Steps of several nodes, the largest first.
    pub(super) fn fuse(&mut self) {
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
}
