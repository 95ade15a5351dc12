//! Graphs to executables: StableHLO, IREE's compiler, artifacts.
mod emit;
mod error;
pub use error::{CompileError, Diagnostic, Severity};
