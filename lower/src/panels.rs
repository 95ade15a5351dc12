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

#[cfg(test)]
mod tests {
    use super::*;
    use mlxcel_ir::weight::dequantize;
    use mlxcel_ir::{Builder, DType, Dim, Symbol, TensorType, WeightData, WeightFormat};

    const AFFINE: WeightFormat = WeightFormat::Affine {
        bits: 4,
        group: 32,
        scale: DType::F32,
    };

    fn weight(name: &str, shape: &[usize]) -> WeightDecl {
        WeightDecl {
            name: name.into(),
            shape: shape.to_vec(),
            format: AFFINE,
        }
    }

    /// The names of the weights in panels, for a graph with one of each use.
    fn arranged(target: &Target) -> Vec<String> {
        let mut builder = Builder::new("f");
        let ty = TensorType::new(
            DType::F32,
            [Dim::from(Symbol::B), Dim::from(1), Dim::from(64)],
        );
        let x = builder.input("x", ty);
        let linear = builder.weight(weight("linear", &[32, 64]));
        let odd = builder.weight(weight("odd", &[24, 64]));
        let shared = builder.weight(weight("shared", &[16, 64]));
        for (output, weight) in [("a", linear), ("b", odd), ("c", shared)] {
            let value = builder.linear(x, weight, None).expect("a linear layer");
            builder.output(output, value);
        }
        let numbers = builder.parameter(shared).expect("a parameter");
        builder.output("d", numbers);
        let mut graph = builder.finish();
        arrange(&mut graph, target);
        let panels = graph.weights.into_iter();
        panels
            .filter(|weight| matches!(weight.format, WeightFormat::Panels { .. }))
            .map(|weight| weight.name)
            .collect()
    }

    #[test]
    fn what_only_kernels_of_the_target_read_stands_in_panels() {
        let check = |name: &str, chip: &str, expect: &[&str]| {
            let target = Target::new(name, Some(chip)).expect("a target");
            assert_eq!(arranged(&target), expect, "{name} {chip}");
        };
        check("iree-cpu", "x86-64-v3", &["linear"]);
        check("iree-cpu", "aarch64", &[]);
        check("iree-cuda", "sm_89", &[]);
    }

    #[test]
    fn panels_of_a_part_are_its_numbers() {
        let rows = weight("w", &[48, 64]);
        let panels = WeightDecl {
            format: AFFINE.in_panels(&rows.shape).expect("a form in panels"),
            ..rows.clone()
        };
        let parts = rows.part_bytes().map(|bytes| {
            let bytes = 0..bytes as u32;
            bytes
                .map(|byte| (byte * 37 % 127) as u8)
                .collect::<Vec<_>>()
        });
        let numbers = |declaration: &WeightDecl, [values, scales, biases]: &[Vec<u8>; 3]| {
            let data = WeightData {
                values,
                scales,
                biases,
            };
            dequantize::<f64>(declaration, data).expect("a weight")
        };
        // In chunks of one panel, as a file is written.
        let arranged = [0, 1, 2].map(|index| {
            let chunks = parts[index].chunks(parts[index].len() / 3);
            let chunks = chunks.map(|chunk| part(&panels, index, chunk));
            chunks.flatten().collect::<Vec<u8>>()
        });
        assert_ne!(arranged, parts);
        assert_eq!(numbers(&panels, &arranged), numbers(&rows, &parts));
    }
}
