//! Compilation and execution by IREE as a party.

use super::{Execution, ExecutionError, Inputs, Observed, failed};
use mlxcel_ir::{Bindings, Graph, HostTensor, TensorType, WeightSource};
use mlxcel_lower::{FunctionSpec, Target, compile_graphs};
use mlxcel_runtime_iree::{Device, Module};
use std::sync::Arc;

/// IREE on this machine's processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IreeExecution;

/// Name of the one function that is compiled.
const FUNCTION: &str = "main";

impl Execution for IreeExecution {
    fn name(&self) -> &'static str {
        "iree-cpu"
    }

    fn run(
        &self,
        graph: &Graph,
        bindings: &Bindings,
        weights: &Arc<dyn WeightSource>,
        inputs: &Inputs<'_>,
    ) -> Result<Vec<Observed>, ExecutionError> {
        let fail = || failed(self.name(), graph);
        let function = FunctionSpec {
            name: FUNCTION.into(),
            graph: graph.clone(),
            bindings: *bindings,
        };
        let compiled =
            compile_graphs(&[function], &Target::host()).map_err(failed(self.name(), graph))?;
        let device = Device::host().map_err(failed(self.name(), graph))?;
        let module = Module::from_bytes(&device, &compiled.vmfb, weights, &graph.weights)
            .map_err(failed(self.name(), graph))?;
        let arguments = arguments(graph, bindings, inputs).map_err(fail())?;
        let results = module
            .call(FUNCTION, &arguments)
            .map_err(failed(self.name(), graph))?;
        Ok(graph
            .outputs
            .iter()
            .zip(&results)
            .map(|(output, tensor)| Observed::from_host(&output.name, tensor))
            .collect())
    }
}

/// The inputs in the order of the graph, then an empty cache for each state.
fn arguments(
    graph: &Graph,
    bindings: &Bindings,
    inputs: &Inputs<'_>,
) -> Result<Vec<HostTensor>, String> {
    let mut arguments = Vec::new();
    for input in &graph.inputs {
        let given = inputs.iter().find(|(name, _)| *name == input.name);
        let (_, tensor) = given.ok_or_else(|| format!("the input `{}` is missing", input.name))?;
        arguments.push(tensor.clone());
    }
    for state in &graph.states {
        for &part in state.parts() {
            arguments.push(zeros(&state.buffer(part), bindings)?);
        }
    }
    Ok(arguments)
}

fn zeros(ty: &TensorType, bindings: &Bindings) -> Result<HostTensor, String> {
    let shape = ty
        .sizes(bindings)
        .map_err(|symbol| format!("the symbol {} is not bound", symbol.name()))?;
    let elements: usize = shape.iter().product();
    Ok(HostTensor {
        dtype: ty.dtype,
        bytes: vec![0; elements * ty.dtype.size()],
        shape,
    })
}
