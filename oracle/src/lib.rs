//! Differential testing: which execution of a graph is wrong, and at which node.
//!
//! One graph has three executions: the interpreter in f64 says what it means, MLX and IREE compute
//! it fast. The oracle runs them on the same inputs, compares every tensor it is asked to observe,
//! and names the first one that is further from the meaning than rounding explains, together with
//! the side that computed it.
//!
//! Invariants:
//! - An execution is held against the interpreter, never against another execution: two fast paths
//!   that agree on a wrong number are both found.
//! - A budget is computed ([`budget`]), not chosen: it follows from reduction lengths, element types
//!   and the rounding error that the interpreter itself makes in f32 on the same inputs.
//! - A fault for testing the oracle ([`fault`]) reaches an execution only through the weights it is
//!   given; no execution has a switch for it.
//!
//! Start reading at [`verify()`].

pub mod budget;
pub mod case;
pub mod compare;
pub mod execution;
pub mod fault;
pub mod fuzz;
pub mod known;
pub mod levels;
pub mod localise;
pub mod model;
pub mod mutation;
pub mod reduce;
pub mod report;
pub mod standard;
pub mod summary;
pub mod sweep;
pub mod toy;
pub mod verify;

pub use execution::{Execution, ExecutionError, Observed};
pub use model::{Backend, Fault, VerifyModelError, VerifyOptions, verify_model};
pub use report::{Finding, Report, Verdict};
pub use verify::{Party, Subject, VerifyError, verify};
