//! The parties: ways to execute a graph.

mod iree;
mod mlx;
mod reference;

pub use iree::{IreeExecution, IreeOnce, Outcome};
pub use mlx::MlxExecution;
pub use reference::ReferenceExecution;

use mlxcel_ir::{Bindings, Graph, HostTensor, WeightSource};
use std::sync::Arc;

/// Why a graph could not be executed.
#[derive(Debug, thiserror::Error)]
#[error("{execution} could not run `{graph}`: {source}")]
pub struct ExecutionError {
    /// The party.
    pub execution: &'static str,
    /// The function.
    pub graph: String,
    /// What it said.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// An output of a graph as an execution computed it.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The output's name.
    pub name: String,
    /// Its dimensions.
    pub shape: Vec<usize>,
    /// Its elements.
    pub values: Vec<f64>,
}

impl Observed {
    /// A tensor in host memory under a name.
    pub fn from_host(name: &str, tensor: &HostTensor) -> Self {
        Self {
            name: name.to_string(),
            shape: tensor.shape.clone(),
            values: tensor.to_f64(),
        }
    }

    /// Row `index` of the elements along the last dimension.
    pub fn row(&self, index: usize) -> Option<&[f64]> {
        let width = self.shape.last().copied().unwrap_or(1);
        self.values.chunks_exact(width.max(1)).nth(index)
    }
}

/// Inputs of a graph by name.
pub type Inputs<'a> = [(&'a str, HostTensor)];

/// A way to execute any graph once, from empty states.
pub trait Execution {
    /// The name in reports, for instance `mlx-cpu`.
    fn name(&self) -> &'static str;

    /// Runs `graph` and returns its outputs in declaration order.
    ///
    /// # Errors
    /// What the runtime (or the compiler) said.
    fn run(
        &self,
        graph: &Graph,
        bindings: &Bindings,
        weights: &Arc<dyn WeightSource>,
        inputs: &Inputs<'_>,
    ) -> Result<Vec<Observed>, ExecutionError>;
}

/// Wraps what a runtime said.
pub(crate) fn failed<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    execution: &'static str,
    graph: &Graph,
) -> impl FnOnce(E) -> ExecutionError {
    let graph = graph.name.clone();
    move |source| ExecutionError {
        execution,
        graph,
        source: source.into(),
    }
}
