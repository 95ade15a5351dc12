//! Graphs to executables: StableHLO, IREE's compiler, artifacts.
//!
//! [`compile_graphs`] turns functions given as graphs into one module for IREE's runtime, and
//! [`compile`] turns a whole model into an artifact that a machine without a compiler can run.
//!
//! Invariants:
//! - The compiler runs in a child process ([`child`]), because it can crash on input that it should
//!   reject. The program itself never loads the compiler's library.
//! - Only the chips in `targets.rs` reach the compiler.
//! - Weights are parameters of the module, never constants in it, and all functions share them.
//! - Cache buffers are arguments that come back as results in the same memory.
//! - Sums are accumulated in f32.
//!
//! Start reading at `emit/function.rs` for what a graph becomes, and at `parent.rs` for how it is
//! compiled.

mod artifact;
mod cache;
mod capacity;
pub mod child;
mod emit;
mod error;
mod host;
mod library;
pub mod memory;
mod panels;
mod parent;
mod parts;
mod place;
mod request;
mod session;
mod statistics;
mod targets;
mod weights_file;

pub use artifact::{CompileOptions, Form, Progress, StoredContract, Summary, compile, emit};
pub use cache::Cache;
pub use error::{CompileError, Diagnostic, Severity};
pub use library::find as find_compiler_library;
pub use request::Product;
pub use targets::Target;

use mlxcel_ir::{Bindings, Graph};
use std::time::Duration;

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

/// A compiled module.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The module as IREE's runtime loads it. A function takes the graph's inputs in order, then for
    /// each state its keys and its values, and returns the graph's outputs in order, then the
    /// states' buffers, updated in place.
    pub vmfb: Vec<u8>,
    /// Names of the parameters that it reads, in the scope
    /// [`PARAMETER_SCOPE`](mlxcel_frontend::artifact::PARAMETER_SCOPE).
    pub parameters: Vec<String>,
    /// Dispatches of its functions.
    pub dispatches: usize,
    /// How many of them call a kernel of the runtime.
    pub kernels: usize,
    /// Bytes for values between dispatches, of all functions together.
    pub transient_bytes: u64,
    /// The flags that the compiler was given.
    pub flags: Vec<String>,
    /// The compiler's version and revision.
    pub compiler: String,
    /// How long it took.
    pub time: Duration,
    /// Whether it was in the cache.
    pub cached: bool,
    /// Bytes that were resident at most in the process that compiled, where the system tells.
    pub peak_memory: Option<u64>,
    /// What the compiler said.
    pub diagnostics: Vec<Diagnostic>,
}

/// How long the compiler may take if the caller does not say.
const LIMIT: Duration = Duration::from_secs(3600);

/// Compiles functions into one module. They share the weights that they name alike. All caches hold S
/// tokens.
///
/// # Errors
/// See [`CompileError`].
pub fn compile_graphs(
    functions: &[FunctionSpec],
    target: &Target,
) -> Result<Compiled, CompileError> {
    let order = parent::Order {
        functions,
        target,
        rotate: false,
        limit: LIMIT,
        cache: None,
        cancel: &|| false,
    };
    parent::compile(&order, &mut |_| {})
}
