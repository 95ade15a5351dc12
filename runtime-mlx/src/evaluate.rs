//! One execution of any graph, with empty caches.

use crate::Error;
use crate::fail::Fail;
use crate::machine::{Cache, Machine, bind, to_host};
use crate::plan::{Operations, Plan};
use mlxcel_ir::{Bindings, Graph, HostTensor, Symbol, WeightSource};
use mlxcel_kernels::Pool;
use mlxcel_mlx_sys::{Stream, eval};
use std::sync::Arc;

/// Executes `graph` once with empty states by operations of MLX alone, on the CPU. Extra inputs are
/// ignored; outputs come in declaration order.
///
/// # Errors
/// A missing or ill-typed input, an unbound symbol, a missing weight, an index out of range, or what
/// MLX says of a node.
pub fn evaluate(
    graph: &Graph,
    bindings: &Bindings,
    source: Arc<dyn WeightSource>,
    inputs: &[(&str, HostTensor)],
) -> Result<Vec<(String, HostTensor)>, Error> {
    run(graph, bindings, &source, inputs, Operations::Mlx)
}

/// As [`evaluate`], with own kernels for the nodes that have one, as a [`crate::Runtime`] on the CPU
/// executes them.
///
/// # Errors
/// As [`evaluate`].
pub fn evaluate_with_kernels(
    graph: &Graph,
    bindings: &Bindings,
    source: Arc<dyn WeightSource>,
    inputs: &[(&str, HostTensor)],
) -> Result<Vec<(String, HostTensor)>, Error> {
    run(graph, bindings, &source, inputs, Operations::Kernels)
}

/// An error of MLX outside of any node.
pub(crate) fn device(operation: &'static str) -> impl Fn(Fail) -> Error {
    move |Fail(reason)| Error::Device { operation, reason }
}

fn run(
    graph: &Graph,
    bindings: &Bindings,
    source: &Arc<dyn WeightSource>,
    inputs: &[(&str, HostTensor)],
    operations: Operations,
) -> Result<Vec<(String, HostTensor)>, Error> {
    let stream = Stream::cpu().map_err(|error| device("making a stream")(error.into()))?;
    let count = match operations {
        // The caller is the first thread of a pool, so this starts none.
        Operations::Mlx => 1,
        Operations::Kernels => threads(None),
    };
    let pool = Pool::new(count).map_err(|error| device("starting threads")(error.into()))?;
    let plan = Plan::new(graph, source, operations, &Arc::new(pool), &stream)?;
    let (host, values) = bind(&plan, bindings, inputs)?;
    let rows = bindings.get(Symbol::B).unwrap_or(1);
    let mut caches: Vec<Vec<Cache>> = (0..rows).map(|_| plan.empty_caches()).collect();
    let mut machine = Machine {
        stream: &stream,
        bindings: *bindings,
        rows: caches.iter_mut().collect(),
        host,
        checked: true,
        values,
    };
    plan.record(&mut machine)?;
    let failed = |Fail(reason): Fail| Error::Execution {
        graph: graph.name.clone(),
        reason,
    };
    // The plan's graph has values of its own.
    plan.graph
        .outputs
        .iter()
        .map(|output| {
            let value = machine.value(output.value.0 as usize).map_err(failed)?;
            eval([value]).map_err(|error| failed(error.into()))?;
            let host = to_host(value, &stream).map_err(failed)?;
            Ok((output.name.clone(), host))
        })
        .collect()
}

/// The number of threads for kernels: as asked, else as `MLXCEL_THREADS` says, else one per core.
pub(crate) fn threads(asked: Option<usize>) -> usize {
    asked
        .or_else(|| std::env::var("MLXCEL_THREADS").ok()?.parse().ok())
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
        .clamp(1, 256)
}
