//! The process that compiles.
//!
//! The compiler can end its process on input that it should reject. So the program starts itself
//! again with [`SUBCOMMAND`], and that process loads the library, builds the module and compiles
//! it. It reports on its standard output, one JSON message per line.

use crate::cache::{self, Entry};
use crate::emit::{self, Kernels};
use crate::request::{Message, Product, Request, Step};
use crate::session::Session;
use crate::{CompileError, Diagnostic, Severity, memory};
use melior::ir::operation::OperationLike;
use mlxcel_frontend::artifact::MODULE;
use std::ffi::OsStr;
use std::io::{Read, Write};
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
    end_with_parent();
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

/// Ends this process when its standard input ends, that is when its parent is gone.
fn end_with_parent() {
    std::thread::spawn(|| {
        let mut input = std::io::stdin().lock();
        let mut rest = [0; 64];
        while matches!(input.read(&mut rest), Ok(1..)) {}
        std::process::exit(1);
    });
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
    let mut flags = request.flags.clone();
    flags.push("--iree-scheduling-dump-statistics-format=json".into());
    flags.push(format!(
        "--iree-scheduling-dump-statistics-file={}",
        request.statistics.display()
    ));
    let session = Session::open(&request.library, &flags)?;
    let emitted = emit::module(
        session.context(),
        &functions,
        request.kernels,
        request.rotate,
    )?;
    let found: Arc<Mutex<Vec<Diagnostic>>> = Arc::default();
    let valid = session.verify(&emitted.module, &found);
    for diagnostic in found.lock().iter().flat_map(|found| found.iter()) {
        say(&Message::Diagnostic(diagnostic.clone()));
    }
    if !valid {
        return Err(failed("the module is not valid StableHLO".into()));
    }
    let file = |action, path: &Path| {
        let path = path.to_path_buf();
        move |source| CompileError::File {
            action,
            path,
            source,
        }
    };
    let done = |cached| Message::Done {
        parameters: emitted.parameters.clone(),
        kernels: emitted.kernels.as_ref().map_or(0, Kernels::calls),
        revision: mlir_sys::compiler::revision(),
        cached,
        peak_memory: memory::peak(),
    };
    let write =
        |path: &Path, bytes: &[u8]| std::fs::write(path, bytes).map_err(file("write", path));
    let operation = emitted.module.as_operation();
    match request.product {
        Product::Module | Product::Phases => {}
        Product::Stablehlo => {
            write(&request.output, format!("{operation}\n").as_bytes())?;
            return Ok(done(false));
        }
        Product::Bytecode => {
            write(&request.output, &operation.write_bytecode())?;
            return Ok(done(false));
        }
    }
    let phases = match request.product {
        Product::Phases => {
            let folder = request.output.as_path();
            std::fs::create_dir_all(folder).map_err(file("create", folder))?;
            Some(folder)
        }
        _ => None,
    };
    let kept = match &request.cache {
        Some(cache) if phases.is_none() => {
            let module = operation.write_bytecode();
            let key = cache::key(&module, &request.flags, &request.library);
            Some((cache, key.map_err(file("read", &request.library))?))
        }
        _ => None,
    };
    if let Some((cache, key)) = &kept
        && let Some(entry) = cache.get(key)
    {
        write(&request.output, &entry.module)?;
        write(&request.statistics, &entry.statistics)?;
        return Ok(done(true));
    }
    say(&Message::Step(Step::Compile));
    let mut message = done(false);
    let module = session
        .compile(emitted.module, phases, &mut |diagnostic| {
            say(&Message::Diagnostic(diagnostic));
        })
        .map_err(failed)?;
    if let Message::Done { peak_memory, .. } = &mut message {
        *peak_memory = memory::peak();
    }
    match phases {
        Some(folder) => write(&folder.join(MODULE), &module)?,
        None => write(&request.output, &module)?,
    }
    if let Some((cache, key)) = &kept {
        let statistics = &request.statistics;
        let statistics = std::fs::read(statistics).map_err(file("read", statistics))?;
        // A cache that cannot be written only costs time.
        if let Err(error) = cache.put(key, &Entry { statistics, module }) {
            say(&Message::Diagnostic(Diagnostic {
                severity: Severity::Warning,
                message: format!("{}: not kept: {error}", cache.folder.display()),
            }));
        }
    }
    Ok(message)
}
