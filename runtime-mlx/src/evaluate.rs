//! Executions of any graph, each with empty states.

use crate::Error;
use crate::fail::Fail;
use crate::machine::{Cache, Machine, bind, to_host};
use crate::options::Device;
use crate::plan::Plan;
use mlxcel_ir::{Bindings, Graph, HostTensor, Symbol, WeightSource};
use mlxcel_kernels::Pool;
use mlxcel_mlx_sys::{Stream, eval};
use std::cell::OnceCell;
use std::sync::Arc;

/// A graph planned once and executed any number of times, each time from empty states.
pub struct Function {
    plan: Plan,
    stream: Stream,
}

impl Function {
    /// Plans `graph`, whose weights are in `source`. Threads of kernels are as many as
    /// `MLXCEL_THREADS` says, else one per core.
    ///
    /// # Errors
    /// A weight that is missing or ill-formed, a device that is not there.
    pub fn new(graph: &Graph, source: &Arc<dyn WeightSource>, on: Device) -> Result<Self, Error> {
        let stream = on.stream()?;
        let plan = plan(graph, source, on, &stream)?;
        Ok(Self { plan, stream })
    }

    /// Executes the graph. Extra inputs are ignored; outputs come in declaration order.
    ///
    /// # Errors
    /// A missing or ill-typed input, an unbound symbol, an index out of range, or what MLX says of a
    /// node.
    pub fn call(
        &self,
        bindings: &Bindings,
        inputs: &[(&str, HostTensor)],
    ) -> Result<Vec<(String, HostTensor)>, Error> {
        execute(&self.plan, &self.stream, bindings, inputs)
    }
}

/// Executes `graph` once with empty states by operations of MLX alone, on the CPU.
///
/// # Errors
/// As [`Function`].
pub fn evaluate(
    graph: &Graph,
    bindings: &Bindings,
    source: Arc<dyn WeightSource>,
    inputs: &[(&str, HostTensor)],
) -> Result<Vec<(String, HostTensor)>, Error> {
    once(graph, bindings, &source, inputs, Device::CpuMlx)
}

/// As [`evaluate`], with own kernels for the nodes that have one, as a [`crate::Runtime`] on the CPU
/// executes them.
///
/// # Errors
/// As [`Function`].
pub fn evaluate_with_kernels(
    graph: &Graph,
    bindings: &Bindings,
    source: Arc<dyn WeightSource>,
    inputs: &[(&str, HostTensor)],
) -> Result<Vec<(String, HostTensor)>, Error> {
    once(graph, bindings, &source, inputs, Device::Cpu)
}

thread_local! {
    /// The calling thread's stream. MLX keeps a thread for each stream as long as the process lives, so
    /// a new one for each evaluation would use them up.
    static STREAM: OnceCell<Stream> = const { OnceCell::new() };
}

fn once(
    graph: &Graph,
    bindings: &Bindings,
    source: &Arc<dyn WeightSource>,
    inputs: &[(&str, HostTensor)],
    on: Device,
) -> Result<Vec<(String, HostTensor)>, Error> {
    STREAM.with(|slot| {
        let stream = match slot.get() {
            Some(stream) => stream,
            None => {
                let new = on.stream()?;
                slot.get_or_init(|| new)
            }
        };
        let plan = plan(graph, source, on, stream)?;
        execute(&plan, stream, bindings, inputs)
    })
}

fn plan(
    graph: &Graph,
    source: &Arc<dyn WeightSource>,
    on: Device,
    stream: &Stream,
) -> Result<Plan, Error> {
    let count = match on {
        // The caller is the first thread of a pool, so this starts none.
        Device::CpuMlx | Device::Gpu => 1,
        Device::Cpu => threads(None),
    };
    let pool = Pool::new(count).map_err(|error| device("starting threads")(error.into()))?;
    Plan::new(graph, source, on.operations(), &Arc::new(pool), stream)
}

fn execute(
    plan: &Plan,
    stream: &Stream,
    bindings: &Bindings,
    inputs: &[(&str, HostTensor)],
) -> Result<Vec<(String, HostTensor)>, Error> {
    let (host, values) = bind(plan, bindings, inputs)?;
    let rows = bindings.get(Symbol::B).unwrap_or(1);
    let mut caches: Vec<Vec<Cache>> = (0..rows).map(|_| plan.empty_caches()).collect();
    let mut machine = Machine {
        stream,
        bindings: *bindings,
        rows: caches.iter_mut().collect(),
        host,
        checked: true,
        values,
    };
    plan.record(&mut machine)?;
    let failed = |Fail(reason): Fail| Error::Execution {
        graph: plan.graph.name.clone(),
        reason,
    };
    // The plan's graph has values of its own.
    let outputs = plan.graph.outputs.iter();
    outputs
        .map(|output| {
            let value = machine.value(output.value.0 as usize).map_err(failed)?;
            eval([value]).map_err(|error| failed(error.into()))?;
            let host = to_host(value, stream).map_err(failed)?;
            Ok((output.name.clone(), host))
        })
        .collect()
}

/// An error of MLX outside of any node.
pub(crate) fn device(operation: &'static str) -> impl Fn(Fail) -> Error {
    move |Fail(reason)| Error::Device { operation, reason }
}

/// The number of threads for kernels: as asked, else as `MLXCEL_THREADS` says, else one per core.
pub(crate) fn threads(asked: Option<usize>) -> usize {
    asked
        .or_else(|| std::env::var("MLXCEL_THREADS").ok()?.parse().ok())
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
        .clamp(1, 256)
}
