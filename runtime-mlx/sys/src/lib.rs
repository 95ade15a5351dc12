//! The part of MLX that mlxcel uses, as safe Rust over an own C++ shim.
//!
//! - An exception of MLX, and a panic or error of a Rust kernel, is an [`Error`]; nothing aborts.
//! - Every operation takes the [`Stream`] it runs on. Operations only record; [`eval`] and
//!   [`async_eval`] run what was recorded.
//! - A stream runs what was given to it in order, on one thread of its own if it is a CPU stream.
//!
//! Start reading at [`Array`], then [`ops`], then [`custom`] for Rust code as an operation.

mod array;
mod bridge;
pub mod custom;
mod error;
pub mod memory;
pub mod ops;
mod stream;

pub use array::{Array, async_eval, eval};
pub use bridge::ffi::{Binary, Dtype, Reduction, Unary};
pub use error::Error;
pub use stream::{Stream, gpu_available};
