//! What tests share: numbers as bytes, and execution of a graph on them.
#![allow(dead_code, unreachable_pub)]

use mlxcel_ir::interpret::{Float, Interpreter, States};
use mlxcel_ir::random::Weights;
use mlxcel_ir::weight::PartType;
use mlxcel_ir::{Bindings, DType, Graph, HostTensor, WeightDecl};
use std::sync::Arc;

/// Stores the weight that `declaration` declares: its elements, or its codes with scales and biases.
pub fn store(weights: &mut Weights, declaration: &WeightDecl, parts: [&[f64]; 3]) {
    let coded = declaration.format.coded();
    let types = declaration.parts().map(|part| part.element);
    let mut stored = [0, 1, 2].map(|index| match types[index] {
        PartType::Element(dtype) if dtype.is_float() => bytes(dtype, parts[index]),
        _ => parts[index].iter().map(|&code| code as i32 as u8).collect(),
    });
    if let Some(coded) = coded {
        stored[0] = pack(coded.code.bits(), parts[0]);
    }
    weights.insert(&*declaration.name, stored);
}

/// Codes as a stream of bits, lowest first.
fn pack(bits: usize, codes: &[f64]) -> Vec<u8> {
    let stream: Vec<bool> = codes
        .iter()
        .flat_map(|&code| (0..bits).map(move |bit| code as u32 >> bit & 1 == 1))
        .collect();
    stream
        .chunks(8)
        .map(|byte| {
            let bits = byte.iter().enumerate();
            bits.map(|(place, &bit)| u8::from(bit) << place).sum()
        })
        .collect()
}

/// Numbers as the bytes of elements of type `dtype`.
pub fn bytes(dtype: DType, numbers: &[f64]) -> Vec<u8> {
    let numbers = numbers.iter().copied();
    match dtype {
        DType::Bool => numbers.map(|x| u8::from(x != 0.0)).collect(),
        DType::I32 => numbers.flat_map(|x| (x as i32).to_le_bytes()).collect(),
        DType::U32 => numbers.flat_map(|x| (x as u32).to_le_bytes()).collect(),
        DType::F16 => numbers
            .flat_map(|x| half::f16::from_f64(x).to_le_bytes())
            .collect(),
        DType::BF16 => numbers
            .flat_map(|x| half::bf16::from_f64(x).to_le_bytes())
            .collect(),
        DType::F32 => numbers.flat_map(|x| (x as f32).to_le_bytes()).collect(),
    }
}

/// One call of a graph: the sizes of its symbols and its inputs.
pub type Step = (Bindings, Vec<(String, HostTensor)>);

/// The outputs of a call, as numbers.
pub type Outputs = Vec<(String, Vec<f64>)>;

/// The outputs of each of several calls that share one state.
pub fn execute<F: Float>(
    graph: &Graph,
    weights: &Arc<Weights>,
    steps: &[Step],
) -> Result<Vec<Outputs>, String> {
    let interpreter = Interpreter::<F>::new(graph, weights.clone()).map_err(|e| e.to_string())?;
    let mut states = States::new(graph);
    let call = |(bindings, inputs): &Step| {
        let inputs: Vec<(&str, HostTensor)> = inputs
            .iter()
            .map(|(name, tensor)| (name.as_str(), tensor.clone()))
            .collect();
        let outputs = interpreter.run(bindings, &inputs, &mut states);
        let outputs = outputs.map_err(|error| error.to_string())?;
        Ok(outputs
            .into_iter()
            .map(|(name, tensor)| (name, tensor.to_f64()))
            .collect())
    };
    steps.iter().map(call).collect()
}
