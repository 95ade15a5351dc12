//! Why a model could not be compiled.

use std::path::PathBuf;
use std::time::Duration;

/// How grave a message of the compiler is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// More about the message before it.
    Note,
    /// Something that the compiler works around.
    Warning,
    /// Something that stops it.
    Error,
    /// A remark on how it compiled.
    Remark,
}

/// A message of the compiler.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Diagnostic {
    /// How grave it is.
    pub severity: Severity,
    /// The text, which starts with the node that it is about where there is one.
    pub message: String,
}

/// Why a model could not be compiled.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// IREE's compiler library is not on this machine.
    #[error(
        "IREE's compiler library (libIREECompiler.so) was not found: set IREE_COMPILER_LIB to it, \
         or install it with `cargo xtask setup` or `pip install iree-base-compiler=={}`. \
         Looked at: {}",
        mlir_sys::compiler::VERSION,
        list(looked)
    )]
    LibraryMissing {
        /// Where it was looked for.
        looked: Vec<PathBuf>,
    },
    /// A target that this build does not know.
    #[error("unknown target `{target}`: known are {}", known.join(", "))]
    UnknownTarget {
        /// As given.
        target: String,
        /// What could be given.
        known: Vec<&'static str>,
    },
    /// A chip that the target does not have.
    #[error("unknown chip `{chip}` for {target}: known are {}", known.join(", "))]
    UnknownChip {
        /// The target.
        target: &'static str,
        /// As given.
        chip: String,
        /// What could be given.
        known: Vec<&'static str>,
    },
    /// An option that makes no sense.
    #[error("{option}: {reason}")]
    Option {
        /// The option.
        option: &'static str,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// A graph that cannot be expressed in StableHLO.
    #[error("function `{function}`, {node}: {reason}")]
    Emit {
        /// The function.
        function: String,
        /// The node, by name or number and op.
        node: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The compiler refused the module or failed on it.
    #[error("the compiler failed: {message}{}", lines(diagnostics))]
    Compiler {
        /// Which step failed.
        message: String,
        /// What the compiler said, in order.
        diagnostics: Vec<Diagnostic>,
    },
    /// The compiler's process ended without an answer.
    #[error(
        "the compiler's process {how}. This is a fault of the compiler; another chip or context \
         may avoid it.{}{}",
        lines(diagnostics),
        tail(output)
    )]
    Crash {
        /// How it ended.
        how: String,
        /// What the compiler said before.
        diagnostics: Vec<Diagnostic>,
        /// The end of what it printed.
        output: String,
    },
    /// The compiler's process did not end in time and was stopped.
    #[error("the compiler did not finish within {} seconds and was stopped", limit.as_secs())]
    Timeout {
        /// The time it had.
        limit: Duration,
    },
    /// It was told to stop.
    #[error("stopped; nothing was written")]
    Cancelled,
    /// The program that compiles could not be started.
    #[error("cannot start the compiler's process `{}`: {reason}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// The model could not be read.
    #[error("{0}")]
    Model(String),
    /// A weight that does not fit the graph that names it.
    #[error("weight `{name}`: {reason}")]
    Weight {
        /// The weight.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// A file or folder could not be written or read.
    #[error("cannot {action} `{}`: {source}", path.display())]
    File {
        /// What was tried, as in `cannot write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

fn list(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    paths.join(", ")
}

/// How many messages an error shows; the first ones name the cause.
const SHOWN: usize = 5;

fn lines(diagnostics: &[Diagnostic]) -> String {
    let grave: Vec<_> = diagnostics
        .iter()
        .filter(|diagnostic| diagnostic.severity == Severity::Error)
        .collect();
    let mut text: String = grave
        .iter()
        .take(SHOWN)
        .map(|diagnostic| format!("\n  {}", diagnostic.message.trim_end()))
        .collect();
    if grave.len() > SHOWN {
        text.push_str(&format!("\n  and {} more", grave.len() - SHOWN));
    }
    text
}

fn tail(output: &str) -> String {
    match output.trim() {
        "" => String::new(),
        output => format!("\n  It printed: {output}"),
    }
}
