//! Greedy texts of a model, as `verify` has its executions write them.

use super::{Backend, VerifyModelError};
use crate::execution::IreeOnce;
use crate::greedy::{by_recomputing, by_steps};
use crate::verify::Party;
use mlxcel_engine::MlxSession;
use mlxcel_frontend::{GraphOptions, LoadError, Logits, Model};
use mlxcel_ir::{DType, Graph};
use mlxcel_runtime_mlx::{Device, Graphs, Options};

/// A graph of `model` with caches of `kv`, if that is not as the model has them.
pub(super) fn graph(
    model: &Model,
    kv: Option<DType>,
    options: &GraphOptions,
) -> Result<Graph, LoadError> {
    let mut graph = model.graph(options)?;
    if let Some(dtype) = kv {
        graph.keep_caches_in(dtype);
    }
    Ok(graph)
}

/// The graph with logits after each token that greedy texts of `model` are held by.
///
/// # Errors
/// If the model has a flaw.
pub fn read(model: &Model, kv: Option<DType>) -> Result<Graph, LoadError> {
    let options = GraphOptions {
        name: "read".into(),
        logits: Logits::All,
        ..GraphOptions::default()
    };
    graph(model, kv, &options)
}

/// What is needed to have executions write greedy texts.
pub(super) struct Writer<'a> {
    last: Graph,
    /// With logits after each token.
    pub(super) all: Graph,
    prompt: &'a [u32],
    count: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        model: &Model,
        kv: Option<DType>,
        prompt: &'a [u32],
        count: usize,
    ) -> Result<Self, LoadError> {
        let options = GraphOptions {
            name: "write".into(),
            token: true,
            ..GraphOptions::default()
        };
        Ok(Self {
            last: graph(model, kv, &options)?,
            all: read(model, kv)?,
            prompt,
            count,
        })
    }

    /// The prompt and what a party chooses after it.
    pub(super) fn write(
        &self,
        backend: Backend,
        party: &Party,
    ) -> Result<Vec<u32>, VerifyModelError> {
        let (name, weights) = (party.execution.name(), &party.weights);
        let device = match backend {
            Backend::Mlx => Device::CpuMlx,
            Backend::Kernels => Device::Cpu,
            Backend::Iree => {
                let iree = IreeOnce::default();
                let text = by_recomputing(&iree, &self.all, weights, self.prompt, self.count);
                return Ok(text?);
            }
        };
        let graphs = Graphs {
            last: self.last.clone(),
            all: self.all.clone(),
        };
        let options = Options {
            device,
            ..Options::new(self.prompt.len() + self.count)
        };
        let mut session = MlxSession::new(&graphs, weights.clone(), options)?;
        Ok(by_steps(name, &mut session, self.prompt, self.count)?)
    }
}
