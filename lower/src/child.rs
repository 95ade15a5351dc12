//! The process that compiles.
//!
//! The compiler can end its process on input that it should reject. So the program starts itself
//! again with [`SUBCOMMAND`], and that process loads the library, builds the module and compiles
//! it. It reports on its standard output, one JSON message per line.

use crate::emit;
use crate::request::{Message, Request, Step};
use crate::session::Session;
use crate::{CompileError, Diagnostic};
use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

/// The first argument that makes a program the compiling process; the second is a file.
pub const SUBCOMMAND: &str = "compile-child";

/// Compiles, if that is what this process was started for. A program calls this first in `main` and
/// returns the code.
pub fn main() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().as_deref() != Some(OsStr::new(SUBCOMMAND)) {
        return None;
    }
    let Some(path) = arguments.next() else {
        eprintln!("`{SUBCOMMAND}` takes a request file; it is not meant to be called by hand");
        return Some(ExitCode::from(2));
    };
    match serve(Path::new(&path)) {
        Ok(message) => {
            let done = matches!(message, Message::Done { .. });
            say(&message);
            Some(ExitCode::from(u8::from(!done)))
        }
        Err(error) => {
            eprintln!("{error}");
            Some(ExitCode::FAILURE)
        }
    }
}

fn say(message: &Message) {
    if let Ok(line) = serde_json::to_string(message) {
        let mut output = std::io::stdout().lock();
        // A parent that is gone needs no message.
        let _ = writeln!(output, "{line}").and_then(|()| output.flush());
    }
}

fn serve(path: &Path) -> Result<Message, CompileError> {
    let read = |source| CompileError::File {
        action: "read",
        path: path.to_path_buf(),
        source,
    };
    let text = std::fs::read(path).map_err(read)?;
    let request: Request = serde_json::from_slice(&text).map_err(|error| read(error.into()))?;
    match compile(&request) {
        Err(CompileError::Emit {
            function,
            node,
            reason,
        }) => Ok(Message::Emit {
            function,
            node,
            reason,
        }),
        Err(CompileError::Compiler { message, .. }) => Ok(Message::Failed { message }),
        other => other,
    }
}

fn compile(request: &Request) -> Result<Message, CompileError> {
    let failed = |message: String| CompileError::Compiler {
        message,
        diagnostics: Vec::new(),
    };
    say(&Message::Step(Step::Emit));
    let functions = request
        .functions
        .iter()
        .map(|function| function.read())
        .collect::<Result<Vec<_>, _>>()?;
    let session = Session::open(&request.library, &request.flags)?;
    let emitted = emit::module(session.context(), &functions, request.kernels)?;
    let found: Arc<Mutex<Vec<Diagnostic>>> = Arc::default();
    let valid = session.verify(&emitted.module, &found);
    for diagnostic in found.lock().iter().flat_map(|found| found.iter()) {
        say(&Message::Diagnostic(diagnostic.clone()));
    }
    if !valid {
        return Err(failed("the module is not valid StableHLO".into()));
    }
    say(&Message::Step(Step::Compile));
    let bytes = session
        .compile(emitted.module, &mut |diagnostic| {
            say(&Message::Diagnostic(diagnostic));
        })
        .map_err(failed)?;
    std::fs::write(&request.output, bytes).map_err(|source| CompileError::File {
        action: "write",
        path: request.output.clone(),
        source,
    })?;
    Ok(Message::Done {
        parameters: emitted.parameters,
        revision: mlir_sys::compiler::revision(),
    })
}
