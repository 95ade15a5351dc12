//! Own kernels as operations of MLX.

use crate::Error;
use crate::fail::Fail;
use crate::machine::Machine;
use crate::plan::{self, Plan};
use mlxcel_ir::{Graph, StateDecl, WeightSource};
use mlxcel_kernels::Pool;
use std::sync::Arc;

/// A kernel with everything resolved that does not depend on a call.
pub(crate) trait Step: Send + Sync {
    /// Records the kernel's operation and stores its results in the machine.
    fn record(&self, plan: &Plan, step: &plan::Step, machine: &mut Machine<'_>)
    -> Result<(), Fail>;
}

/// A cache in memory of Rust.
#[derive(Debug)]
pub(crate) struct HostCache;

impl HostCache {
    pub(crate) fn new(_: &StateDecl) -> Self {
        Self
    }
}

/// The steps of a graph, with kernels where there are any.
pub(crate) fn plan(
    graph: &Graph,
    _: &Arc<dyn WeightSource>,
    _: &Arc<Pool>,
) -> Result<Vec<plan::Step>, Error> {
    Ok((0..graph.nodes.len())
        .map(|node| plan::plain(graph, node))
        .collect())
}
