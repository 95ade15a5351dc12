//! Execution of compiled models through IREE.
//!
//! An [`Artifact`] is a folder that `mlxcel compile` made. [`Runtime`] holds sequences of tokens
//! over one, with the vocabulary of [`mlxcel_ir::step`]; [`Module`] calls a compiled function on
//! tensors in host memory.
//!
//! Invariants:
//! - No compiler: nothing here knows `lower`, and an artifact runs where no compiler is installed.
//! - Native code sees no byte of an artifact before its sha256 was checked ([`verify`]), for a
//!   module is machine code.
//! - Every failure of IREE becomes an [`Error`] that names the function, argument, parameter or
//!   file. Nothing aborts the process.
//! - On the processor, weights are used where the file is mapped. A cache has one copy: functions
//!   update it in place, so a cache tensor that was given to a call is never used again, only the
//!   one that the call returned.
//! - `unsafe` stands only where IREE is called, and objects are released in the reverse order of
//!   their creation.
//!
//! Start reading at [`runtime`], then [`artifact`] and [`module`].

mod artifact;
mod buffer;
mod chunks;
mod cpu;
mod device;
mod error;
mod function_table;
mod instance;
mod kernel;
mod layout;
mod local;
mod module;
mod parameters;
mod pool;
mod runtime;
mod sequence;
mod signature;
mod status;
mod target;
mod verify;

pub use artifact::{Artifact, Contract};
pub use device::{Device, DeviceSpec, GpuDriver, MAXIMUM_THREADS, THREADS_VARIABLE};
pub use error::Error;
pub use module::Module;
pub use parameters::Parameters;
pub use runtime::{Runtime, Statistics};
pub use signature::Signature;
