//! Weights whose rows stand together in the artifact, as the kernels of processors read them fastest.

use crate::Target;
use crate::targets::KernelOwner;
use mlxcel_ir::weight::panel;
use mlxcel_ir::{Graph, Op, WeightDecl};

/// Puts the weights of 4 bits that only kernels read into panels, where the target has such kernels.
pub(crate) fn arrange(graph: &mut Graph, target: &Target) {
    // Portable kernels, as other processors run them, gain nothing.
    let fast =
        target.kernels() == Some(KernelOwner::Runtime) && target.chip().starts_with("x86-64");
    if !fast {
        return;
    }
    let mut read_by_others = vec![false; graph.weights.len()];
    for node in &graph.nodes {
        let matrices = match node.op {
            Op::Linear {} | Op::Embedding {} => 1,
            _ => 0,
        };
        for weight in node.weights.iter().skip(matrices) {
            if let Some(others) = read_by_others.get_mut(weight.0 as usize) {
                *others = true;
            }
        }
    }
    for (weight, others) in graph.weights.iter_mut().zip(read_by_others) {
        let panels = weight.format.in_panels(&weight.shape);
        if let (Some(panels), false, [_, _]) = (panels, others, &weight.shape[..]) {
            weight.format = panels;
        }
    }
}

/// Part `index` of a weight in panels, from whole panels of its rows.
pub(crate) fn part(weight: &WeightDecl, index: usize, rows: &[u8]) -> Vec<u8> {
    let [bytes, size] = {
        let part = &weight.parts()[index];
        [part.bytes(), part.element.size()]
    };
    let all = weight.shape.first().copied().unwrap_or(0);
    let count = rows.len() * all / bytes.max(1);
    panel::part_to_panels(index, rows, size, count)
}
