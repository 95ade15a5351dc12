//! A session of the compiler, seen as a context of melior.
//!
//! Here alone raw MLIR objects pass between melior and the compiler.

use crate::{CompileError, Diagnostic, Severity};
use melior::ir::Module;
use melior::ir::operation::OperationLike;
use melior::{Context, ContextRef};
use mlir_sys::compiler;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The dialects that modules are built of.
const DIALECTS: [&str; 8] = [
    "stablehlo",
    "chlo",
    "func",
    "util",
    "flow",
    "stream",
    "memref",
    "arith",
];

/// A session with the flags of one target.
pub(crate) struct Session {
    inner: compiler::Session,
    /// Stored, since what melior makes of it is a reference to it.
    context: ContextRef<'static>,
}

impl Session {
    /// Loads the library, for the rest of the process, and opens a session.
    pub(crate) fn open(library: &Path, flags: &[String]) -> Result<Self, CompileError> {
        let failed = |message: String| CompileError::Compiler {
            message,
            diagnostics: Vec::new(),
        };
        mlir_sys::load(library).map_err(|error| failed(error.to_string()))?;
        let inner = compiler::Session::new(flags).map_err(failed)?;
        // SAFETY: the context lives as long as the session, and `context` lends it no longer.
        let context = unsafe { ContextRef::from_raw(inner.context()) };
        let session = Self { inner, context };
        for dialect in DIALECTS {
            session.context().get_or_load_dialect(dialect);
        }
        Ok(session)
    }

    /// The session's context.
    pub(crate) fn context(&self) -> &Context {
        // SAFETY: the reference is to the field, and is not used after the session.
        unsafe { self.context.to_ref() }
    }

    /// Checks `module`; what is wrong goes to `report`.
    pub(crate) fn verify(&self, module: &Module<'_>, report: &Arc<Mutex<Vec<Diagnostic>>>) -> bool {
        let found = report.clone();
        let handler = self.context().attach_diagnostic_handler(move |diagnostic| {
            let severity = match diagnostic.severity() {
                melior::diagnostic::DiagnosticSeverity::Error => Severity::Error,
                melior::diagnostic::DiagnosticSeverity::Note => Severity::Note,
                melior::diagnostic::DiagnosticSeverity::Remark => Severity::Remark,
                melior::diagnostic::DiagnosticSeverity::Warning => Severity::Warning,
            };
            let message = format!("{}: {diagnostic}", diagnostic.location());
            if let Ok(mut found) = found.lock() {
                found.push(Diagnostic { severity, message });
            }
            true
        });
        let valid = module.as_operation().verify();
        self.context().detach_diagnostic_handler(handler);
        valid
    }

    /// Gives `module` up to the compiler.
    fn give(&self, module: Module<'_>) -> Result<mlir_sys::MlirOperation, String> {
        if *self.context() != module.context() {
            return Err("the module was built in another session".into());
        }
        let operation = module.as_operation().to_raw();
        std::mem::forget(module);
        Ok(operation)
    }

    /// Compiles `module`, which was built in this session's context; what becomes of it in each phase is
    /// written to the folder `phases`.
    pub(crate) fn compile(
        &self,
        module: Module<'_>,
        phases: Option<&Path>,
        report: &mut (dyn FnMut(Diagnostic) + Send),
    ) -> Result<Vec<u8>, String> {
        let operation = self.give(module)?;
        // SAFETY: the module is whole, was built in this session's context, and is not freed here.
        let executable = unsafe {
            self.inner
                .compile(operation, phases, &mut |d| report(convert(d)))
        };
        executable.map(|executable| executable.bytes)
    }
}

fn convert(diagnostic: compiler::Diagnostic) -> Diagnostic {
    Diagnostic {
        severity: match diagnostic.severity {
            compiler::Severity::Note => Severity::Note,
            compiler::Severity::Warning => Severity::Warning,
            compiler::Severity::Error => Severity::Error,
            compiler::Severity::Remark => Severity::Remark,
        },
        message: diagnostic.message,
    }
}
