//! The interpreter as a party.

use super::{Execution, ExecutionError, Inputs, Observed, failed};
use mlxcel_ir::interpret::{Float, Interpreter, States};
use mlxcel_ir::{Bindings, Graph, WeightSource};
use std::sync::Arc;

/// The interpreter, in either number type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceExecution {
    /// In f32.
    F32,
    /// In f64: the standard that every execution is held against.
    F64,
}

impl Execution for ReferenceExecution {
    fn name(&self) -> &'static str {
        match self {
            Self::F32 => "reference-f32",
            Self::F64 => "reference-f64",
        }
    }

    fn run(
        &self,
        graph: &Graph,
        bindings: &Bindings,
        weights: &Arc<dyn WeightSource>,
        inputs: &Inputs<'_>,
    ) -> Result<Vec<Observed>, ExecutionError> {
        match self {
            Self::F32 => interpret::<f32>(self.name(), graph, bindings, weights, inputs),
            Self::F64 => interpret::<f64>(self.name(), graph, bindings, weights, inputs),
        }
    }
}

fn interpret<F: Float>(
    name: &'static str,
    graph: &Graph,
    bindings: &Bindings,
    weights: &Arc<dyn WeightSource>,
    inputs: &Inputs<'_>,
) -> Result<Vec<Observed>, ExecutionError> {
    let interpreter = Interpreter::<F>::new(graph, weights.clone()).map_err(failed(name, graph))?;
    let outputs = interpreter
        .run(bindings, inputs, &mut States::new(graph))
        .map_err(failed(name, graph))?;
    Ok(outputs
        .into_iter()
        .map(|(name, tensor)| Observed {
            name,
            values: tensor.to_f64(),
            shape: tensor.shape,
        })
        .collect())
}
