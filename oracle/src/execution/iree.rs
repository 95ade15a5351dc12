//! Compilation and execution by IREE as a party.

use super::{Execution, ExecutionError, Inputs, Observed, failed};
use crate::case::Case;
use mlxcel_ir::{Bindings, Graph, HostTensor, TensorType, WeightData, WeightSource};
use mlxcel_lower::{CompileError, FunctionSpec, Target, compile_graphs};
use mlxcel_runtime_iree::{Device, Module};
use std::cell::RefCell;
use std::sync::Arc;

/// IREE on this machine's processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IreeExecution;

/// Name of the one function that is compiled.
const FUNCTION: &str = "main";
/// What names of the functions of a batch start with, before their numbers.
const CASE: &str = "case";

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
        call(&load(graph, bindings, weights)?, graph, bindings, inputs)
    }
}

/// IREE, which keeps what it compiled for as long as graph and sizes stay the same.
#[derive(Default)]
pub struct IreeOnce(RefCell<Option<(Graph, Bindings, Module)>>);

impl Execution for IreeOnce {
    fn name(&self) -> &'static str {
        IreeExecution.name()
    }

    fn run(
        &self,
        graph: &Graph,
        bindings: &Bindings,
        weights: &Arc<dyn WeightSource>,
        inputs: &Inputs<'_>,
    ) -> Result<Vec<Observed>, ExecutionError> {
        let mut slot = self.0.borrow_mut();
        let module = match slot.take() {
            Some((known, sizes, module)) if known == *graph && sizes == *bindings => module,
            _ => load(graph, bindings, weights)?,
        };
        let outcome = call(&module, graph, bindings, inputs);
        *slot = Some((graph.clone(), *bindings, module));
        outcome
    }
}

fn load(
    graph: &Graph,
    bindings: &Bindings,
    weights: &Arc<dyn WeightSource>,
) -> Result<Module, ExecutionError> {
    let name = IreeExecution.name();
    let function = FunctionSpec {
        name: FUNCTION.into(),
        graph: graph.clone(),
        bindings: *bindings,
    };
    let compiled = compile_graphs(&[function], &Target::host()).map_err(failed(name, graph))?;
    let device = Device::host().map_err(failed(name, graph))?;
    Module::from_bytes(&device, &compiled.vmfb, weights, &graph.weights)
        .map_err(failed(name, graph))
}

fn call(
    module: &Module,
    graph: &Graph,
    bindings: &Bindings,
    inputs: &Inputs<'_>,
) -> Result<Vec<Observed>, ExecutionError> {
    let name = IreeExecution.name();
    let arguments = arguments(graph, bindings, inputs).map_err(failed(name, graph))?;
    let results = module
        .call(FUNCTION, &arguments)
        .map_err(failed(name, graph))?;
    Ok(observed(graph, &results))
}

/// What one case of a batch gave.
pub type Outcome = Result<Vec<Observed>, ExecutionError>;

impl IreeExecution {
    /// Runs many cases, compiled together, since starting the compiler takes longer than compiling
    /// a small graph. A case that is refused before the compiler runs is left out; a batch that then does
    /// not compile is halved until the cases at fault are alone.
    pub fn run_batch(&self, cases: &[&Case]) -> Vec<Outcome> {
        match (self.run_module(cases), cases) {
            (Ok(outcomes), _) => outcomes,
            (Err(error), [_]) => vec![Err(error)],
            (Err(error), _) => {
                if let Some(index) = refused(&error).filter(|&index| index < cases.len()) {
                    let mut rest = cases.to_vec();
                    rest.remove(index);
                    let mut outcomes = self.run_batch(&rest);
                    outcomes.insert(index, Err(error));
                    return outcomes;
                }
                let (left, right) = cases.split_at(cases.len() / 2);
                let mut outcomes = self.run_batch(left);
                outcomes.extend(self.run_batch(right));
                outcomes
            }
        }
    }

    fn run_module(&self, cases: &[&Case]) -> Result<Vec<Outcome>, ExecutionError> {
        let Some(first) = cases.first() else {
            return Ok(vec![]);
        };
        let functions: Vec<FunctionSpec> = cases
            .iter()
            .enumerate()
            .map(|(index, case)| {
                let mut graph = case.graph.clone();
                graph.name = format!("{CASE}{index}");
                for weight in &mut graph.weights {
                    weight.name = format!("{index}/{}", weight.name);
                }
                FunctionSpec {
                    name: graph.name.clone(),
                    graph,
                    bindings: case.bindings,
                }
            })
            .collect();
        let compiled = compile_graphs(&functions, &Target::host())
            .map_err(failed(self.name(), &first.graph))?;
        let device = Device::host().map_err(failed(self.name(), &first.graph))?;
        let data: Vec<_> = cases.iter().map(|case| case.data()).collect();
        let sources: Vec<Arc<dyn WeightSource>> = data
            .iter()
            .map(|data| data.weights.clone() as Arc<dyn WeightSource>)
            .collect();
        let joined: Arc<dyn WeightSource> = Arc::new(Joined(sources));
        let declared = functions
            .iter()
            .flat_map(|function| &function.graph.weights);
        let module = Module::from_bytes(&device, &compiled.vmfb, &joined, declared)
            .map_err(failed(self.name(), &first.graph))?;
        let call =
            |(case, (function, data)): (&&Case, (&FunctionSpec, &mlxcel_ir::random::Data))| {
                let arguments = arguments(&case.graph, &case.bindings, &data.named())
                    .map_err(failed(self.name(), &case.graph))?;
                let results = module
                    .call(&function.name, &arguments)
                    .map_err(failed(self.name(), &case.graph))?;
                Ok(observed(&case.graph, &results))
            };
        Ok(cases
            .iter()
            .zip(functions.iter().zip(&data))
            .map(call)
            .collect())
    }
}

/// The place of the case that cannot be expressed for the compiler.
fn refused(error: &ExecutionError) -> Option<usize> {
    match error.source.downcast_ref() {
        Some(CompileError::Emit { function, .. }) => function.strip_prefix(CASE)?.parse().ok(),
        _ => None,
    }
}

/// The weights of several cases, whose names start with the case's number and a slash.
struct Joined(Vec<Arc<dyn WeightSource>>);

impl WeightSource for Joined {
    fn get(&self, name: &str) -> Option<WeightData<'_>> {
        let (index, name) = name.split_once('/')?;
        self.0.get(index.parse::<usize>().ok()?)?.get(name)
    }
}

fn observed(graph: &Graph, results: &[HostTensor]) -> Vec<Observed> {
    graph
        .outputs
        .iter()
        .zip(results)
        .map(|(output, tensor)| Observed::from_host(&output.name, tensor))
        .collect()
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
