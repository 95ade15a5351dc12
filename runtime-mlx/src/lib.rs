//! Eager execution of a graph on MLX.
//!
//! A graph becomes a plan once: a flat list of steps with weights resolved and last uses known. An
//! execution of the plan records operations of MLX on one stream. On the CPU, where MLX's own
//! operations are slow, most nodes run as own kernels ([`mlxcel_kernels`]) inside MLX's stream.
//!
//! Invariants:
//! - Everything that goes wrong is an [`Error`] which names the node, weight or input; nothing
//!   aborts, and the runtime stays usable.
//! - A plan holds everything that does not depend on a call; an execution looks up no name.
//! - Work is recorded on one stream in order. A cache that kernels write in place is touched by that
//!   stream alone while work is outstanding.
//!
//! Start reading at [`evaluate()`], then `plan`, then [`Runtime`].

mod cache;
mod error;
mod evaluate;
mod fail;
mod kernel;
mod machine;
mod mlx;
mod options;
mod plan;
mod routes;
mod runtime;
mod saved;
mod sequence;
mod steps;
mod weight;

pub use error::Error;
pub use evaluate::{Function, evaluate, evaluate_with_kernels};
pub use options::{Device, Graphs, Options, Statistics};
pub use routes::{By, Route};
pub use runtime::Runtime;
