//! Eager execution on MLX as a party.

use super::{Execution, ExecutionError, Inputs, Observed, failed};
use mlxcel_ir::{Bindings, Graph, WeightSource};
use std::sync::Arc;

/// MLX on this machine's processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MlxExecution {
    /// By operations of MLX alone.
    Operations,
    /// By own kernels where there are any, as the product runs.
    Kernels,
}

impl Execution for MlxExecution {
    fn name(&self) -> &'static str {
        match self {
            Self::Operations => "mlx",
            Self::Kernels => "kernels",
        }
    }

    fn run(
        &self,
        graph: &Graph,
        bindings: &Bindings,
        weights: &Arc<dyn WeightSource>,
        inputs: &Inputs<'_>,
    ) -> Result<Vec<Observed>, ExecutionError> {
        let evaluate = match self {
            Self::Operations => mlxcel_runtime_mlx::evaluate,
            Self::Kernels => mlxcel_runtime_mlx::evaluate_with_kernels,
        };
        let outputs = evaluate(graph, bindings, weights.clone(), inputs)
            .map_err(failed(self.name(), graph))?;
        Ok(outputs
            .iter()
            .map(|(name, tensor)| Observed::from_host(name, tensor))
            .collect())
    }
}
