//! What a runtime is made of, and what it tells about itself.

use crate::Error;
use crate::evaluate::device;
use crate::plan::Operations;
use mlxcel_ir::Graph;
use mlxcel_mlx_sys::Stream;

/// The graphs of a model that a runtime executes. Both have the same states.
#[derive(Clone, Debug)]
pub struct Graphs {
    /// With the outputs `logits` `f32[B, V]` and `token` `i32[B]` after the last token.
    pub last: Graph,
    /// With the output `logits` `f32[B, T, V]`.
    pub all: Graph,
}

/// Where a runtime computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// On the CPU, by own kernels where there are any.
    #[default]
    Cpu,
    /// On the CPU, by operations of MLX alone: slow, for comparison.
    CpuMlx,
    /// On the GPU that MLX sees, by its operations.
    Gpu,
}

impl Device {
    pub(crate) fn stream(self) -> Result<Stream, Error> {
        let stream = match self {
            Device::Cpu | Device::CpuMlx => Stream::cpu(),
            Device::Gpu => Stream::gpu(),
        };
        stream.map_err(|error| device("opening the device")(error.into()))
    }

    pub(crate) fn operations(self) -> Operations {
        match self {
            Device::Cpu => Operations::Kernels,
            Device::CpuMlx | Device::Gpu => Operations::Mlx,
        }
    }
}

/// How a runtime is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Tokens that a sequence may hold.
    pub context: usize,
    /// Threads for kernels on the CPU; `None` takes `MLXCEL_THREADS`, or one per core.
    pub threads: Option<usize>,
    /// Where to compute.
    pub device: Device,
}

impl Options {
    /// On the CPU with all cores.
    pub fn new(context: usize) -> Self {
        Self {
            context,
            threads: None,
            device: Device::Cpu,
        }
    }
}

/// What a runtime holds in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// The device.
    pub device: String,
    /// Bytes of the weights.
    pub weight_bytes: usize,
    /// Bytes of the caches of all sequences.
    pub cache_bytes: usize,
    /// Sequences alive.
    pub sequences: usize,
}
