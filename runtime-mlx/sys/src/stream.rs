//! Streams: queues of work on a device.

use crate::Error;
use crate::bridge::ffi;
use cxx::UniquePtr;
use std::sync::{Mutex, PoisonError};
use std::{fmt, mem};

/// A queue of work on the CPU or the GPU. It may be used from any thread, by one at a time.
pub struct Stream(UniquePtr<ffi::Stream>);

/// Streams that are not in use. MLX keeps a thread for each stream as long as the process lives, and a
/// new stream changes a table in which other threads look theirs up meanwhile, so streams are used
/// again.
static FREE: Mutex<Vec<Free>> = Mutex::new(Vec::new());

struct Free {
    gpu: bool,
    stream: UniquePtr<ffi::Stream>,
}

// SAFETY: as for `Stream`.
unsafe impl Send for Free {}

fn free() -> impl std::ops::DerefMut<Target = Vec<Free>> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Whoever gets it next must not get what went wrong before.
        if ffi::synchronize(&self.0).is_ok() {
            free().push(Free {
                gpu: self.is_gpu(),
                stream: mem::replace(&mut self.0, UniquePtr::null()),
            });
        }
    }
}

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
    /// A stream on the CPU that nothing else uses.
    ///
    /// # Errors
    /// What MLX says.
    pub fn cpu() -> Result<Self, Error> {
        Self::on(false)
    }

    /// A stream on the GPU that nothing else uses.
    ///
    /// # Errors
    /// What MLX says, for instance that it has no GPU back end.
    pub fn gpu() -> Result<Self, Error> {
        Self::on(true)
    }

    fn on(gpu: bool) -> Result<Self, Error> {
        ffi::exact_arithmetic();
        let mut free = free();
        match free.iter().position(|free| free.gpu == gpu) {
            Some(place) => Ok(Self(free.swap_remove(place).stream)),
            // Under the lock: MLX's table takes one newcomer at a time.
            None => Ok(Self(ffi::new_stream(gpu)?)),
        }
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
