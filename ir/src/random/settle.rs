//! What of a graph has one meaning, whatever the rounding.

use super::Data;
use crate::interpret::{Bounded, Elements, InterpretError, Interpreter, States, Tensor};
use crate::{Bindings, DType, Graph, Node, Op, Output, ValueId};

/// The largest number that a kept node may have.
fn largest(dtype: DType) -> f64 {
    match dtype {
        // The sum of squares of a row of them does not overflow.
        DType::F16 => 8.0,
        _ => 1e4,
    }
}

/// The largest bound that a kept node may have, as a share of its largest number.
const LOOSEST: f64 = 0.1;

/// A graph and its outputs, with a bound for each element.
#[derive(Clone, Debug)]
pub struct Settled {
    /// The graph.
    pub graph: Graph,
    /// Its outputs, in order.
    pub outputs: Vec<(String, Tensor<Bounded>)>,
}

/// Drops each node that has no settled result on `data`, with all that depend on it: a number that is
/// not finite or large, a bound that says little, an order or a choice that rounding may change.
///
/// # Errors
/// If the graph cannot be interpreted at all.
pub fn settle(graph: &Graph, bindings: &Bindings, data: &Data) -> Result<Settled, InterpretError> {
    let values = graph.inputs.len() + graph.nodes.len();
    let mut all = graph.clone();
    all.outputs = (0..values as u32)
        .map(|value| Output {
            name: value.to_string(),
            value: ValueId(value),
        })
        .collect();
    let interpreter = Interpreter::<Bounded>::new(&all, data.weights.clone())?;
    let tensors = interpreter.run(bindings, &data.named(), &mut States::new(&all))?;
    let mut kept: Vec<Option<ValueId>> = (0..graph.inputs.len() as u32)
        .map(|value| Some(ValueId(value)))
        .collect();
    let mut settled = Graph {
        nodes: vec![],
        outputs: vec![],
        ..graph.clone()
    };
    for (index, node) in graph.nodes.iter().enumerate() {
        let operands: Option<Vec<ValueId>> = node
            .operands
            .iter()
            .map(|operand| kept.get(operand.0 as usize).copied().flatten())
            .collect();
        let tensor = |value: ValueId| tensors.get(value.0 as usize).map(|(_, tensor)| tensor);
        let inputs: Vec<_> = node.operands.iter().filter_map(|&v| tensor(v)).collect();
        let certain = tensor(graph.value_of(index)).is_some_and(tame) && decided(node, &inputs);
        kept.push(operands.filter(|_| certain).map(|operands| {
            settled.nodes.push(Node {
                operands,
                ..node.clone()
            });
            settled.value_of(settled.nodes.len() - 1)
        }));
    }
    let mut outputs = Vec::new();
    for output in &graph.outputs {
        let place = output.value.0 as usize;
        if let Some(value) = kept.get(place).copied().flatten() {
            settled.outputs.push(Output {
                name: output.name.clone(),
                value,
            });
            outputs.push((output.name.clone(), tensors[place].1.clone()));
        }
    }
    if outputs.is_empty() && !settled.nodes.is_empty() {
        let last = settled.value_of(settled.nodes.len() - 1);
        let place = kept.iter().position(|&kept| kept == Some(last));
        settled.outputs.push(Output {
            name: "last".into(),
            value: last,
        });
        outputs.extend(place.map(|place| ("last".to_string(), tensors[place].1.clone())));
    }
    Ok(Settled {
        graph: settled,
        outputs,
    })
}

/// Whether all numbers are of a common size and well bounded.
fn tame(tensor: &Tensor<Bounded>) -> bool {
    let Elements::Float(numbers) = &*tensor.elements else {
        return true;
    };
    let size = numbers.iter().fold(0.0, |l, x| f64::max(l, x.value.abs()));
    numbers
        .iter()
        .all(|x| x.value.is_finite() && size <= largest(tensor.dtype) && x.error <= LOOSEST * size)
}

/// Whether no rounding of the operands changes what the node chooses.
fn decided(node: &Node, operands: &[&Tensor<Bounded>]) -> bool {
    let floats = |index: usize| match operands.get(index).map(|tensor| &*tensor.elements) {
        Some(Elements::Float(numbers)) => Some(numbers.as_slice()),
        _ => None,
    };
    let apart = |a: &Bounded, b: &Bounded| {
        let error = a.error + b.error;
        error == 0.0 || (a.value - b.value).abs() > error
    };
    match &node.op {
        Op::Compare { .. } => match (floats(0), floats(1)) {
            (Some(a), Some(b)) => a.iter().zip(b).all(|(a, b)| apart(a, b)),
            _ => true,
        },
        Op::Convert { dtype } if !dtype.is_float() => floats(0).is_none_or(|numbers| {
            numbers.iter().all(|x| match dtype {
                DType::Bool => x.error == 0.0 || x.value.abs() > x.error,
                DType::U32 if x.value - x.error < 0.0 => false,
                _ => (x.value - x.error).trunc() == (x.value + x.error).trunc(),
            })
        }),
        Op::Argmax {} | Op::TopK { .. } => {
            let width = operands[0].shape.last().copied().unwrap_or(0).max(1);
            floats(0).is_none_or(|numbers| {
                numbers.chunks_exact(width).all(|row| {
                    let mut sorted: Vec<&Bounded> = row.iter().collect();
                    sorted.sort_by(|a, b| b.value.total_cmp(&a.value));
                    sorted.windows(2).all(|pair| apart(pair[0], pair[1]))
                })
            })
        }
        _ => true,
    }
}
