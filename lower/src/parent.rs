//! Starting the process that compiles, and listening to it.

use crate::request::{FunctionText, Message, Product, Request, Step};
use crate::statistics::Needs;
use crate::{
    Cache, CompileError, Compiled, Diagnostic, FunctionSpec, Target, child, library, statistics,
};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The environment variable that names the program to start instead of this one.
const PROGRAM: &str = "MLXCEL_COMPILE_CHILD";

/// How much of what the child prints besides messages is kept, from its end.
const KEPT_OUTPUT: usize = 4096;

/// How often the parent looks whether it shall stop.
const TICK: Duration = Duration::from_millis(100);

/// What to compile, and how.
pub(crate) struct Order<'a> {
    pub(crate) functions: &'a [FunctionSpec],
    pub(crate) target: &'a Target,
    /// Whether caches that are read through windows rotate ([`crate::capacity`]).
    pub(crate) rotate: bool,
    /// How long the child may take.
    pub(crate) limit: Duration,
    /// Where compiled modules are kept.
    pub(crate) cache: Option<&'a Cache>,
    /// Whether to stop.
    pub(crate) cancel: &'a dyn Fn() -> bool,
}

/// What the child tells at its end.
#[derive(Debug)]
struct Told {
    parameters: Vec<String>,
    kernels: usize,
    revision: String,
    cached: bool,
    peak_memory: Option<u64>,
}

/// Compiles functions into one module, in a child process.
pub(crate) fn compile(
    order: &Order<'_>,
    progress: &mut dyn FnMut(Step),
) -> Result<Compiled, CompileError> {
    let begin = Instant::now();
    let mut diagnostics = Vec::new();
    let folder = temporary()?;
    let output = folder.path().join("product");
    let product = Product::Module;
    let (told, needs) = make(
        order,
        product,
        &output,
        folder.path(),
        &mut diagnostics,
        progress,
    )?;
    let vmfb = std::fs::read(&output).map_err(read(&output))?;
    Ok(Compiled {
        vmfb,
        parameters: told.parameters,
        dispatches: needs.dispatches,
        transient_bytes: needs.transient_bytes,
        kernels: told.kernels,
        flags: order.target.flags(),
        compiler: format!("{} ({})", mlir_sys::compiler::VERSION, told.revision),
        time: begin.elapsed(),
        cached: told.cached,
        peak_memory: told.peak_memory,
        diagnostics,
    })
}

/// The functions in the form `product`, written to `output`: a file, or a folder of phases.
pub(crate) fn emit(order: &Order<'_>, product: Product, output: &Path) -> Result<(), CompileError> {
    let folder = temporary()?;
    make(
        order,
        product,
        output,
        folder.path(),
        &mut Vec::new(),
        &mut |_| {},
    )?;
    Ok(())
}

fn temporary() -> Result<tempfile::TempDir, CompileError> {
    tempfile::tempdir().map_err(|source| CompileError::File {
        action: "create a folder in",
        path: std::env::temp_dir(),
        source,
    })
}

/// Has a child make the product at `output`; gives what it told and what a module needs. Other files go to
/// `folder`.
fn make(
    order: &Order<'_>,
    product: Product,
    output: &Path,
    folder: &Path,
    diagnostics: &mut Vec<Diagnostic>,
    progress: &mut dyn FnMut(Step),
) -> Result<(Told, Needs), CompileError> {
    let library = library::find()?;
    let request = Request {
        library,
        flags: order.target.flags(),
        kernels: order.target.kernels(),
        rotate: order.rotate,
        functions: order.functions.iter().map(FunctionText::from).collect(),
        product,
        output: output.to_path_buf(),
        statistics: folder.join("statistics.json"),
        cache: order.cache.cloned(),
    };
    let path = folder.join("request.json");
    let write = |source| CompileError::File {
        action: "write",
        path: path.clone(),
        source,
    };
    let text = serde_json::to_vec(&request).map_err(|error| write(error.into()))?;
    std::fs::write(&path, text).map_err(write)?;

    let (limit, cancel) = (order.limit, order.cancel);
    let told = run(&program()?, &path, (limit, cancel), diagnostics, progress)?;
    let needs = match product {
        Product::Module => {
            statistics::read(&request.statistics).map_err(read(&request.statistics))?
        }
        Product::Stablehlo | Product::Bytecode | Product::Phases => Needs::default(),
    };
    Ok((told, needs))
}

fn read(path: &Path) -> impl FnOnce(std::io::Error) -> CompileError + use<> {
    let path = path.to_path_buf();
    move |source| CompileError::File {
        action: "read",
        path,
        source,
    }
}

/// The program that compiles when started with [`child::SUBCOMMAND`].
fn program() -> Result<PathBuf, CompileError> {
    if let Some(program) = std::env::var_os(PROGRAM) {
        return Ok(program.into());
    }
    let own = std::env::current_exe().map_err(|error| CompileError::Start {
        program: PathBuf::new(),
        reason: format!("this program's own path is unknown: {error}; set {PROGRAM}"),
    })?;
    // Test programs lie in `deps`, and the programs proper one folder up.
    let folder = own.parent().unwrap_or(Path::new(""));
    if folder.file_name().is_none_or(|name| name != "deps") {
        return Ok(own);
    }
    let name = format!("mlxcel-lower-child{}", std::env::consts::EXE_SUFFIX);
    let program = folder.with_file_name(name);
    match program.is_file() {
        true => Ok(program),
        false => Err(CompileError::Start {
            program,
            reason: format!(
                "there is none; build it with `cargo build -p mlxcel-lower`, or set {PROGRAM}"
            ),
        }),
    }
}

/// Runs the child on a request, for so long and unless it is cancelled. The child ends by itself when
/// this process is gone.
fn run(
    program: &Path,
    request: &Path,
    (limit, cancel): (Duration, &dyn Fn() -> bool),
    diagnostics: &mut Vec<Diagnostic>,
    progress: &mut dyn FnMut(Step),
) -> Result<Told, CompileError> {
    let start = |error: std::io::Error| CompileError::Start {
        program: program.to_path_buf(),
        reason: error.to_string(),
    };
    let mut child = Command::new(program)
        .arg(child::SUBCOMMAND)
        .arg(request)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(start)?;
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(start(std::io::Error::other("its output is not connected")));
    };
    let errors = std::thread::spawn(move || tail(stderr));
    let (send, lines) = channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            if send
                .send(String::from_utf8_lossy(&line).into_owned())
                .is_err()
            {
                break;
            }
        }
    });

    let deadline = Instant::now() + limit;
    let mut answer = None;
    let mut printed = String::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match lines.recv_timeout(left.min(TICK)) {
            Ok(line) => match serde_json::from_str(&line) {
                Ok(Message::Step(step)) => progress(step),
                Ok(Message::Diagnostic(diagnostic)) => diagnostics.push(diagnostic),
                Ok(message) => answer = Some(message),
                Err(_) => printed.push_str(&line),
            },
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if left > TICK && !cancel() => {}
            Err(RecvTimeoutError::Timeout) => {
                // It may have ended just now, which is as good.
                let _ = child.kill();
                let _ = child.wait();
                return Err(match left > TICK {
                    true => CompileError::Cancelled,
                    false => CompileError::Timeout { limit },
                });
            }
        }
    }
    let status = child.wait().map_err(start)?;
    let _ = reader.join();
    printed.push_str(&errors.join().unwrap_or_default());
    match answer {
        Some(Message::Done {
            parameters,
            kernels,
            revision,
            cached,
            peak_memory,
        }) if status.success() => Ok(Told {
            parameters,
            kernels,
            revision,
            cached,
            peak_memory,
        }),
        Some(Message::Emit {
            function,
            node,
            reason,
        }) => Err(CompileError::Emit {
            function,
            node,
            reason,
        }),
        Some(Message::Failed { message }) => Err(CompileError::Compiler {
            message,
            diagnostics: std::mem::take(diagnostics),
        }),
        _ => Err(CompileError::Crash {
            how: ended(status),
            diagnostics: std::mem::take(diagnostics),
            output: printed,
        }),
    }
}

/// The end of what a stream gives.
fn tail(mut stream: impl Read) -> String {
    let mut kept = Vec::new();
    let mut chunk = [0; 1024];
    while let Ok(count @ 1..) = stream.read(&mut chunk) {
        kept.extend_from_slice(&chunk[..count]);
        let surplus = kept.len().saturating_sub(KEPT_OUTPUT);
        kept.drain(..surplus);
    }
    String::from_utf8_lossy(&kept).into_owned()
}

fn ended(status: ExitStatus) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return format!("was ended by signal {signal}");
    }
    match status.code() {
        Some(code) => format!("ended with exit code {code} and no answer"),
        None => "ended without an answer".into(),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Runs a shell script in the child's place.
    fn play(script: &str, limit: Duration) -> (CompileError, usize) {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("child");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut diagnostics = Vec::new();
        let mut steps = 0;
        let error = run(
            &program,
            Path::new("none"),
            (limit, &|| false),
            &mut diagnostics,
            &mut |_| steps += 1,
        );
        (error.unwrap_err(), steps)
    }

    #[test]
    fn however_the_child_ends_it_is_an_error() {
        let check = |script: &str, expect: &[&str]| {
            let (error, _) = play(script, Duration::from_secs(60));
            let message = error.to_string();
            for part in expect {
                assert!(message.contains(part), "{script}: {message}");
            }
        };
        check("kill -SEGV $$", &["was ended by signal 11"]);
        check(
            "echo PLEASE report >&2; exit 3",
            &["exit code 3", "PLEASE report"],
        );
        check("exit 0", &["exit code 0 and no answer"]);
        check("echo '{\"done\":'; exit 1", &["exit code 1"]);
        let diagnostic = r#"{"diagnostic":{"severity":"error","message":"no such shape"}}"#;
        check(
            &format!("echo '{diagnostic}'; kill -ABRT $$"),
            &["signal 6", "no such shape"],
        );
        check(
            &format!(
                r#"echo '{diagnostic}'; echo '{{"failed":{{"message":"at import"}}}}'; exit 1"#
            ),
            &["at import", "no such shape"],
        );
        check(
            r#"echo '{"emit":{"function":"f","node":"n","reason":"r"}}'; exit 1"#,
            &["function `f`, n: r"],
        );
    }

    #[test]
    fn a_child_that_hangs_is_stopped() {
        let (error, steps) = play(
            r#"echo '{"step":"compile"}'; exec sleep 600"#,
            Duration::from_millis(300),
        );
        assert!(matches!(error, CompileError::Timeout { .. }), "{error}");
        assert!(steps <= 1);
    }

    #[test]
    fn a_program_that_is_missing_is_named() {
        let mut none = |_: Step| {};
        let program = Path::new("nowhere/child");
        let error = run(
            program,
            program,
            (LONG, &|| false),
            &mut Vec::new(),
            &mut none,
        );
        assert!(error.unwrap_err().to_string().contains("nowhere/child"));
    }

    const LONG: Duration = Duration::from_secs(60);
}
