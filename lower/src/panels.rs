//! Weights whose rows stand together in the artifact, as the kernels of processors read them fastest.

use crate::targets::KernelOwner;
use crate::{FunctionSpec, Target};
use mlxcel_ir::weight::panel;
use mlxcel_ir::{Graph, Op, WeightDecl};
use std::collections::HashSet;

/// Puts the weights of 4 bits that only kernels read, in all of the functions, into panels, where the target
/// has such kernels.
pub(crate) fn arrange(functions: &mut [FunctionSpec], target: &Target) {
    // Portable kernels, as other processors run them, gain nothing.
    if target.kernels() != Some(KernelOwner::Runtime) || !target.chip().starts_with("x86-64") {
        return;
    }
    // The functions share the weights, so what one of them reads otherwise none has in panels.
    let read_by_others: HashSet<String> = functions
        .iter()
        .flat_map(|function| read_otherwise(&function.graph))
        .collect();
    for function in functions {
        for weight in &mut function.graph.weights {
            let panels = weight.format.in_panels(&weight.shape);
            let others = read_by_others.contains(&weight.name);
            if let (Some(panels), false, [_, _]) = (panels, others, &weight.shape[..]) {
                weight.format = panels;
            }
        }
    }
}

/// The names of the weights that are read as other than a matrix of a kernel.
fn read_otherwise(graph: &Graph) -> impl Iterator<Item = String> {
    let read = graph.nodes.iter().flat_map(|node| {
        let matrices = match node.op {
            Op::Linear {} | Op::Embedding {} => 1,
            _ => 0,
        };
        node.weights.iter().skip(matrices)
    });
    let declared = read.filter_map(|&weight| graph.weight(weight));
    declared.map(|weight| weight.name.clone())
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
    use mlxcel_ir::{Bindings, Builder, DType, Dim, Symbol, TensorType, WeightData, WeightFormat};

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

    /// A function with linear layers of all weights, which reads those named `numbers` as they are too.
    fn function(name: &str, numbers: &[&str]) -> FunctionSpec {
        let mut builder = Builder::new(name);
        let ty = TensorType::new(
            DType::F32,
            [Dim::from(Symbol::B), Dim::from(1), Dim::from(64)],
        );
        let x = builder.input("x", ty);
        for (name, rows) in [
            ("linear", 32),
            ("odd", 24),
            ("shared", 16),
            ("elsewhere", 16),
        ] {
            let id = builder.weight(weight(name, &[rows, 64]));
            let value = builder.linear(x, id, None).expect("a linear layer");
            builder.output(name, value);
            if numbers.contains(&name) {
                let value = builder.parameter(id).expect("a parameter");
                builder.output(format!("{name}.numbers"), value);
            }
        }
        FunctionSpec {
            name: name.into(),
            graph: builder.finish(),
            bindings: Bindings::new(),
        }
    }

    /// The names of the weights in panels, the same in both functions.
    fn arranged(target: &Target) -> Vec<String> {
        let mut functions = [function("a", &["shared"]), function("b", &["elsewhere"])];
        arrange(&mut functions, target);
        let [a, b] = functions.map(|function| {
            let weights = function.graph.weights.into_iter();
            weights
                .filter(|weight| matches!(weight.format, WeightFormat::Panels { .. }))
                .map(|weight| weight.name)
                .collect::<Vec<_>>()
        });
        assert_eq!(a, b);
        a
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
