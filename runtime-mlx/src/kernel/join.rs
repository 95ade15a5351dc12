//! Kernels in a row as segments.

use super::{KernelStep, Segment};
use crate::plan::{Action, Step, final_effects, plain};
use mlxcel_ir::Graph;

/// A step before kernels in a row are joined.
pub(super) enum Item {
    /// A node that MLX runs.
    Mlx(usize),
    Kernel(KernelStep),
}

impl Item {
    pub(super) fn node(&self) -> usize {
        match self {
            Item::Mlx(node) => *node,
            Item::Kernel(step) => step.node,
        }
    }
}

/// Moves nodes that MLX runs and that need no kernel's result to the front, so that they part no
/// kernels.
pub(super) fn hoisted(graph: &Graph, items: Vec<Item>) -> Vec<Item> {
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
pub(super) fn segments(graph: &Graph, items: Vec<Item>) -> Vec<Step> {
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
