//! Graphs to executables: StableHLO, IREE's compiler, artifacts.
mod emit;
mod error;
mod library;
mod session;
pub use error::{CompileError, Diagnostic, Severity};
pub use library::find as find_compiler_library;

use mlxcel_ir::{Bindings, Graph};

/// A function to compile: a graph for given sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionSpec {
    /// The name under which it is exported.
    pub name: String,
    /// What it computes.
    pub graph: Graph,
    /// The sizes of the graph's symbols.
    pub bindings: Bindings,
}
