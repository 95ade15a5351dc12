//! One execution of a plan: its inputs, the caches of its rows and the values so far.

use crate::Error;
use crate::cache::ArrayCache;
use crate::fail::Fail;
use crate::kernel::{HostCache, HostMemory};
use crate::plan::Plan;
use crate::weight::{dims, dtype};
use mlxcel_ir::{Bindings, HostTensor, TensorType};
use mlxcel_mlx_sys::{Array, Stream, ops};
use std::sync::Arc;

/// What one sequence keeps for one state.
#[derive(Clone, Debug)]
pub(crate) enum Cache {
    /// A cache in arrays of MLX.
    Arrays(ArrayCache),
    /// A cache in memory of Rust, which kernels write in stream order.
    Host(Arc<HostCache>),
    /// A memory in an array of MLX `[1, heads, key, value]`; `None` stands for zeros.
    Memory(Option<Array>),
    /// A memory in memory of Rust, which kernels write in stream order.
    HostMemory(Arc<HostMemory>),
}

/// The state of an execution.
pub(crate) struct Machine<'a> {
    pub(crate) stream: &'a Stream,
    pub(crate) bindings: Bindings,
    /// For each row of the batch the caches by state id.
    pub(crate) rows: Vec<&'a mut Vec<Cache>>,
    /// Inputs that the host knows, by number.
    pub(crate) host: Vec<Option<HostTensor>>,
    /// Whether indices are read and checked before they are used.
    pub(crate) checked: bool,
    /// Values by number.
    pub(crate) values: Vec<Option<Array>>,
}

impl Machine<'_> {
    /// A value.
    pub(crate) fn value(&self, value: usize) -> Result<&Array, Fail> {
        self.values
            .get(value)
            .and_then(Option::as_ref)
            .ok_or_else(|| Fail(format!("%{value} has no value")))
    }

    /// The sizes of `ty` in this execution.
    pub(crate) fn sizes(&self, ty: &TensorType) -> Result<Vec<usize>, Fail> {
        ty.sizes(&self.bindings)
            .map_err(|symbol| Fail(format!("the symbol {} is not bound", symbol.name())))
    }

    /// The sizes of `ty`, as MLX takes them.
    pub(crate) fn shape(&self, ty: &TensorType) -> Result<Vec<i32>, Fail> {
        Ok(dims(&self.sizes(ty)?)?)
    }

    /// The i32 elements of a value on the host, which waits for it unless it is a known input.
    pub(crate) fn integers(&self, value: usize) -> Result<Vec<i64>, Fail> {
        if let Some(Some(host)) = self.host.get(value) {
            return Ok(host.to_f64().into_iter().map(|x| x as i64).collect());
        }
        let host = to_host(self.value(value)?, self.stream)?;
        Ok(host.to_f64().into_iter().map(|x| x as i64).collect())
    }

    /// Positions of the rows' first new tokens.
    pub(crate) fn starts(&self, value: usize) -> Result<Vec<usize>, Fail> {
        self.integers(value)?
            .into_iter()
            .map(|start| {
                usize::try_from(start).map_err(|_| Fail(format!("start {start} is negative")))
            })
            .collect()
    }
}

/// Inputs as the host knows them, and all values with the inputs in place.
pub(crate) type Inputs = (Vec<Option<HostTensor>>, Vec<Option<Array>>);

/// Puts the inputs of a call into a machine's values.
pub(crate) fn bind(
    plan: &Plan,
    bindings: &Bindings,
    inputs: &[(&str, HostTensor)],
) -> Result<Inputs, Error> {
    let graph = &plan.graph;
    let mut host = Vec::with_capacity(graph.inputs.len());
    let mut values = Vec::with_capacity(graph.inputs.len() + graph.nodes.len());
    for input in &graph.inputs {
        let fail = |got: String| Error::Input {
            graph: graph.name.clone(),
            input: input.name.clone(),
            expected: input.ty.to_string(),
            got,
        };
        let given = inputs.iter().find(|(name, _)| *name == input.name);
        let (_, tensor) = given.ok_or_else(|| fail("missing".into()))?;
        let ty = TensorType::new(tensor.dtype, tensor.shape.iter().copied());
        let fits = tensor.dtype == input.ty.dtype
            && input.ty.sizes(bindings).as_ref() == Ok(&tensor.shape);
        if !fits {
            return Err(fail(ty.to_string()));
        }
        let array = from_host(tensor).map_err(|Fail(reason)| fail(format!("{ty}: {reason}")))?;
        host.push(Some(tensor.clone()));
        values.push(Some(array));
    }
    values.resize(graph.inputs.len() + graph.nodes.len(), None);
    Ok((host, values))
}

/// A tensor of the host as an array.
pub(crate) fn from_host(tensor: &HostTensor) -> Result<Array, Fail> {
    let shape = dims(&tensor.shape)?;
    Ok(Array::from_bytes(
        &tensor.bytes,
        &shape,
        dtype(tensor.dtype),
    )?)
}

/// Computes an array and copies it to the host.
pub(crate) fn to_host(array: &Array, stream: &Stream) -> Result<HostTensor, Fail> {
    use mlxcel_ir::DType;
    use mlxcel_mlx_sys::Dtype;
    let array = ops::contiguous(array, stream)?;
    array.wait()?;
    let dtype = match array.dtype()? {
        Dtype::Bool => DType::Bool,
        Dtype::I32 => DType::I32,
        Dtype::U32 => DType::U32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::F32 => DType::F32,
        other => return Err(Fail(format!("an element type of {other:?}"))),
    };
    Ok(HostTensor {
        dtype,
        shape: array.shape().iter().map(|&size| size as usize).collect(),
        bytes: array.bytes()?.to_vec(),
    })
}
