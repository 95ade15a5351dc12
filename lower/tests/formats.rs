//! Every format of weights, compiled for the machine at hand and run, against the interpreter.

use mlxcel_ir::interpret::{Interpreter, States};
use mlxcel_ir::weight::PartType;
use mlxcel_ir::*;
use mlxcel_lower::{FunctionSpec, Target, compile_graphs};
use mlxcel_runtime_iree::{Device, Module, Parameters};
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Default)]
struct Made(HashMap<String, [Vec<u8>; 3]>);

impl WeightSource for Made {
    fn get(&self, name: &str) -> Option<WeightData<'_>> {
        self.0.get(name).map(|[values, scales, biases]| WeightData {
            values,
            scales,
            biases,
        })
    }
}

impl Made {
    /// Any codes but NaN, and scales and biases around 0.1.
    fn add(&mut self, weight: &WeightDecl) {
        let mut index = 0usize;
        let parts = weight.parts().map(|part| {
            let place = index;
            index += 1;
            let count = part.bytes() / part.element.size();
            let number = |i: usize| ((i * 37 % 101) as f32 / 101.0 - 0.3) * 0.25;
            let byte = |i: usize| (i * 89 % 256) as u8;
            let each = |i: usize| match (part.element, place, weight.format) {
                (PartType::Element(DType::F32), ..) => number(i).to_le_bytes().to_vec(),
                (PartType::Element(DType::F16), ..) => {
                    half::f16::from_f32(number(i)).to_le_bytes().to_vec()
                }
                (PartType::Element(DType::BF16), ..) => {
                    half::bf16::from_f32(number(i)).to_le_bytes().to_vec()
                }
                (PartType::Element(_), ..) => (0..4).map(|k| byte(4 * i + k) & 0xfb).collect(),
                (PartType::U8, 1, WeightFormat::NvFp4) => vec![byte(i) % 0x38],
                (PartType::U8, 1, _) => vec![120 + byte(i) % 5],
                (PartType::U8, 0, _) => vec![byte(i) & 0xfb],
                (PartType::U8, ..) => vec![byte(i)],
            };
            (0..count).flat_map(each).collect()
        });
        self.0.insert(weight.name.clone(), parts);
    }
}

/// The formats, each with an input width that its groups and blocks do not fill evenly where they
/// may not.
fn formats() -> Vec<(WeightFormat, usize)> {
    let affine = |bits, group| WeightFormat::Affine {
        bits,
        group,
        scale: DType::F16,
    };
    let zero_point = |bits, zero| WeightFormat::ZeroPoint {
        bits,
        zero,
        group: 32,
        scale: DType::F16,
    };
    let panels = |zero| WeightFormat::Panels {
        zero,
        group: 32,
        scale: DType::F16,
    };
    let float = |bits, group| WeightFormat::Float {
        bits,
        group,
        scale: DType::F32,
    };
    let mut formats = vec![
        (affine(2, 16), 64),
        (affine(3, 32), 96),
        (affine(4, 32), 96),
        (affine(5, 32), 96),
        (affine(6, 16), 96),
        (affine(8, 32), 96),
        (zero_point(2, 1), 96),
        (zero_point(4, 8), 96),
        (zero_point(5, 16), 96),
        (zero_point(8, 128), 96),
        (panels(Some(8)), 96),
        (panels(None), 96),
        (WeightFormat::MxFp4, 96),
        (WeightFormat::MxFp8, 96),
        (WeightFormat::NvFp4, 80),
        (float(4, 16), 80),
        (float(8, 160), 160),
        (WeightFormat::Fp8Block { scale: DType::F32 }, 208),
        (WeightFormat::Fp8Block { scale: DType::BF16 }, 256),
    ];
    formats.extend((2..=6).map(|bits| (WeightFormat::KQuant { bits }, 512)));
    formats
}

/// Rows of each weight: more than a block.
const ROWS: usize = 144;

fn spec(name: String, build: impl FnOnce(&mut Builder) -> ValueId) -> FunctionSpec {
    let mut builder = Builder::new(&name);
    let value = build(&mut builder);
    builder.output("out", value);
    FunctionSpec {
        name,
        graph: builder.finish(),
        bindings: Bindings::new(),
    }
}

fn inputs(function: &FunctionSpec) -> Vec<HostTensor> {
    let number = |i: usize| (i * 53 % 89) as f32 / 89.0 - 0.5;
    let inputs = function.graph.inputs.iter().map(|input| {
        let shape = input.ty.sizes(&function.bindings).expect("fixed sizes");
        let count = shape.iter().product();
        match input.ty.dtype {
            DType::I32 => HostTensor::i32(shape, &[131, 0, 7][..count]),
            _ => HostTensor::f32(shape, &(0..count).map(number).collect::<Vec<f32>>()),
        }
    });
    inputs.collect()
}

#[test]
fn every_format_agrees_with_the_interpreter() {
    let mut made = Made::default();
    let mut functions = Vec::new();
    let mut declared = Vec::new();
    for (index, (format, width)) in formats().into_iter().enumerate() {
        let weight = WeightDecl {
            name: format!("w.{index}"),
            shape: vec![ROWS, width],
            format,
        };
        made.add(&weight);
        declared.push(weight.clone());
        for rows in [1usize, 3] {
            functions.push(spec(format!("linear_{index}_{rows}"), |b| {
                let x = b.input("x", TensorType::new(DType::F32, [rows, width]));
                let weight = b.weight(weight.clone());
                b.linear(x, weight, None).expect("a linear layer")
            }));
        }
        functions.push(spec(format!("embedding_{index}"), |b| {
            let tokens = b.input("tokens", TensorType::new(DType::I32, [3]));
            let weight = b.weight(weight.clone());
            b.embedding(tokens, weight).expect("an embedding")
        }));
        // A stack of two matrices, of whole panels where rows stand in them.
        let height = match format {
            WeightFormat::Panels { .. } => 16,
            _ => 3,
        };
        let stack = WeightDecl {
            name: format!("s.{index}"),
            shape: vec![2, height, width],
            format,
        };
        made.add(&stack);
        declared.push(stack.clone());
        functions.push(spec(format!("experts_{index}"), |b| {
            let x = b.input("x", TensorType::new(DType::F32, [1, 3, width]));
            let experts = [1, 3, 2].map(Dim::from).to_vec();
            let experts = b.iota(2, DType::I32, experts).expect("two experts");
            let weight = b.weight(stack.clone());
            b.expert_linear(x, experts, weight, None)
                .expect("a linear layer of experts")
        }));
        functions.push(spec(format!("parameter_{index}"), |b| {
            let weight = b.weight(stack);
            b.parameter(weight).expect("a parameter")
        }));
    }
    let source: Arc<dyn WeightSource> = Arc::new(made);
    let compiled = compile_graphs(&functions, &Target::host()).expect("compiled");
    let parameters = Parameters::from_source(&source, &declared).expect("parameters");
    let device = Device::host().expect("a device");
    let module = Module::load(&device, &compiled.vmfb, &parameters).expect("a module");
    for function in &functions {
        let inputs = inputs(function);
        let named: Vec<_> = function
            .graph
            .inputs
            .iter()
            .zip(&inputs)
            .map(|(input, tensor)| (input.name.as_str(), tensor.clone()))
            .collect();
        let mut states = States::<f64>::new(&function.graph);
        let expect = Interpreter::<f64>::new(&function.graph, source.clone())
            .expect("a graph")
            .run(&function.bindings, &named, &mut states)
            .unwrap_or_else(|error| panic!("{}: {error}", function.name));
        let expect = expect[0].1.to_host().to_f64();
        let found = module.call(&function.name, &inputs).expect("a result")[0].to_f64();
        let format = &function.graph.weights[0].format;
        let size = expect.iter().map(|x| x * x).sum::<f64>();
        let pairs = found.iter().zip(&expect);
        let error = pairs.map(|(a, b)| (a - b) * (a - b)).sum::<f64>();
        let error = (error / size).sqrt();
        assert_eq!(found.len(), expect.len(), "{} of {format}", function.name);
        assert!(error < 1e-6, "{} of {format}: {error:e}", function.name);
    }
}
