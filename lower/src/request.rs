//! What passes between the program that compiles and its child, as JSON.

use crate::targets::KernelOwner;
use crate::{Cache, CompileError, Diagnostic, FunctionSpec};
use mlxcel_ir::{Bindings, Symbol, text};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What the child shall do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    /// The compiler library.
    pub(crate) library: PathBuf,
    /// The compiler's flags.
    pub(crate) flags: Vec<String>,
    /// Who has kernels, if not all code is the compiler's.
    pub(crate) kernels: Option<KernelOwner>,
    /// Whether caches that are read through windows rotate.
    pub(crate) rotate: bool,
    /// The functions of the module.
    pub(crate) functions: Vec<FunctionText>,
    /// What to make.
    pub(crate) product: Product,
    /// The file to write it to.
    pub(crate) output: PathBuf,
    /// The file for the compiler's statistics.
    pub(crate) statistics: PathBuf,
    /// Where compiled modules are kept, if they are.
    pub(crate) cache: Option<Cache>,
}

/// What functions can be made into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Product {
    /// A compiled module.
    Module,
    /// StableHLO as text.
    Stablehlo,
    /// StableHLO as MLIR's bytecode.
    Bytecode,
    /// A folder with what a module is after each phase of the compiler, and the compiled module.
    Phases,
}

/// A function, its graph in the text form.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FunctionText {
    name: String,
    graph: String,
    sizes: Vec<(String, usize)>,
}

impl From<&FunctionSpec> for FunctionText {
    fn from(spec: &FunctionSpec) -> Self {
        Self {
            name: spec.name.clone(),
            graph: text::print(&spec.graph),
            sizes: Symbol::ALL
                .into_iter()
                .filter_map(|symbol| {
                    let size = spec.bindings.get(symbol)?;
                    Some((symbol.name().to_string(), size))
                })
                .collect(),
        }
    }
}

impl FunctionText {
    /// The function again.
    pub(crate) fn read(&self) -> Result<FunctionSpec, CompileError> {
        let graph = text::parse(&self.graph).map_err(|error| CompileError::Emit {
            function: self.name.clone(),
            node: "the text form".into(),
            reason: error.to_string(),
        })?;
        let mut bindings = Bindings::new();
        for (name, size) in &self.sizes {
            if let Some(symbol) = Symbol::ALL.into_iter().find(|symbol| symbol.name() == name) {
                bindings = bindings.with(symbol, *size);
            }
        }
        Ok(FunctionSpec {
            name: self.name.clone(),
            graph,
            bindings,
        })
    }
}

/// A step of the child's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Step {
    /// Building the module.
    Emit,
    /// Compiling it.
    Compile,
}

/// What the child says, one per line of its output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    /// A step begins.
    Step(Step),
    /// The compiler said something.
    Diagnostic(Diagnostic),
    /// The module is written.
    Done {
        /// Names of the parameters that the module reads.
        parameters: Vec<String>,
        /// Calls of kernels.
        kernels: usize,
        /// The compiler's revision.
        revision: String,
        /// Whether the module was in the cache.
        cached: bool,
        /// Bytes that were resident at most, where the system tells.
        peak_memory: Option<u64>,
    },
    /// A graph cannot be expressed.
    Emit {
        /// The function.
        function: String,
        /// The node.
        node: String,
        /// What is wrong.
        reason: String,
    },
    /// The compiler failed.
    Failed {
        /// At what.
        message: String,
    },
}
