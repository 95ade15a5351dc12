//! Eager execution on MLX as a party.

use super::{Execution, ExecutionError, Inputs, Observed, failed};
use mlxcel_ir::{Bindings, Graph, WeightSource};
use std::sync::Arc;

/// MLX on this machine's default device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MlxExecution;

impl Execution for MlxExecution {
    fn name(&self) -> &'static str {
        "mlx"
    }

    fn run(
        &self,
        graph: &Graph,
        bindings: &Bindings,
        weights: &Arc<dyn WeightSource>,
        inputs: &Inputs<'_>,
    ) -> Result<Vec<Observed>, ExecutionError> {
        let outputs = mlxcel_runtime_mlx::evaluate(graph, bindings, weights.clone(), inputs)
            .map_err(failed(self.name(), graph))?;
        Ok(outputs
            .iter()
            .map(|(name, tensor)| Observed::from_host(name, tensor))
            .collect())
    }
}
