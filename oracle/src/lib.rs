//! Differential testing: which execution of a graph is wrong, and at which node.
//!
//! One graph has several executions: the interpreter in f64 says what it means, MLX, own kernels and
//! IREE compute it fast. The oracle runs them on the same inputs, compares every tensor it is asked to
//! observe, and names the first one that is further from the meaning than rounding explains, together
//! with the side that computed it.
//!
//! Two measures serve two sizes. A small graph is held, element by element, against a bound that the
//! interpreter computes beside each number ([`standard`]); random graphs ([`fuzz`]), single ops
//! ([`sweep`]) and each node of a model by itself ([`localise`]) are. A whole model would have a bound
//! that says nothing, and is held against an estimate of honest rounding errors ([`budget`]).
//!
//! Invariants:
//! - An execution is held against the interpreter, never against another execution: two fast paths
//!   that agree on a wrong number are both found.
//! - A budget is computed ([`budget`]), not chosen: it follows from reduction lengths, element types
//!   and the rounding error that the interpreter itself makes in f32 on the same inputs.
//! - A fault for testing the oracle ([`fault`], [`mutation`]) reaches an execution only through the
//!   graph and the weights it is given; no execution has a switch for it.
//!
//! Start reading at [`verify()`] for models, at [`fuzz`] for random graphs; [`levels`] lists what
//! `cargo xtask oracle` runs.

pub mod bisect;
pub mod budget;
pub mod case;
pub mod compare;
pub mod contract;
mod data;
pub mod execution;
pub mod fault;
pub mod field;
pub mod fuzz;
pub mod greedy;
pub mod html;
pub mod known;
pub mod lengths;
pub mod levels;
pub mod localise;
pub mod model;
pub mod mutation;
pub mod reduce;
pub mod relations;
pub mod repeats;
pub mod report;
pub mod rewritten;
pub mod rows;
pub mod standard;
pub mod summary;
pub mod sweep;
pub mod tokens;
pub mod toy;
pub mod verify;

pub use execution::{Execution, ExecutionError, Observed};
pub use model::{Backend, Fault, VerifyModelError, VerifyOptions, verify_model};
pub use report::{Finding, Report, Verdict};
pub use standard::Standard;
pub use verify::{Party, Subject, VerifyError, verify};
