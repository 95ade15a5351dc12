//! Streams: queues of work on a device.

use crate::Error;
use crate::bridge::ffi;
use cxx::UniquePtr;
use std::fmt;

/// A queue of work on the CPU or the GPU. It may be used from any thread, by one at a time.
pub struct Stream(UniquePtr<ffi::Stream>);

// SAFETY: the shim makes streams that are not tied to the thread that made them, and a stream is an
// index and a device, which nothing mutates.
unsafe impl Send for Stream {}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = if self.is_gpu() { "gpu" } else { "cpu" };
        write!(f, "Stream({device})")
    }
}

impl Stream {
    /// A new stream on the CPU.
    ///
    /// # Errors
    /// What MLX says.
    pub fn cpu() -> Result<Self, Error> {
        Self::on(false)
    }

    /// A new stream on the GPU.
    ///
    /// # Errors
    /// What MLX says, for instance that it has no GPU back end.
    pub fn gpu() -> Result<Self, Error> {
        Self::on(true)
    }

    fn on(gpu: bool) -> Result<Self, Error> {
        ffi::exact_arithmetic();
        Ok(Self(ffi::new_stream(gpu)?))
    }

    /// Whether the stream is of the GPU.
    pub fn is_gpu(&self) -> bool {
        ffi::stream_is_gpu(&self.0)
    }

    /// Waits until all work given to the stream is done.
    ///
    /// # Errors
    /// What the work failed with.
    pub fn synchronize(&self) -> Result<(), Error> {
        Ok(ffi::synchronize(&self.0)?)
    }

    pub(crate) fn raw(&self) -> &ffi::Stream {
        &self.0
    }
}

/// Whether the MLX that is loaded sees a GPU.
pub fn gpu_available() -> bool {
    ffi::gpu_available()
}
