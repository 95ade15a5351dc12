//! IREE's compiler: sessions, and modules compiled in them.

use crate::{MlirContext, MlirOperation};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::path::Path;
use std::ptr;
use std::sync::Mutex;

/// The version of the Python package iree-base-compiler whose library this crate fits.
pub const VERSION: &str = "3.13.0";

#[allow(
    missing_docs,
    non_snake_case,
    unreachable_pub,
    clippy::missing_safety_doc
)]
pub(crate) mod raw {
    use crate::table::forwarded;
    use crate::{MlirContext, MlirDialectRegistry, MlirOperation};
    use std::ffi::{c_char, c_int, c_void};

    macro_rules! opaque {
        ($($name:ident)*) => { $(#[repr(C)] pub struct $name { _private: [u8; 0] })* };
    }
    opaque!(Error Session Invocation Output);

    pub(crate) type DiagnosticCallback =
        unsafe extern "C" fn(c_int, *const c_char, usize, *mut c_void);

    forwarded! {
        fn ireeCompilerGlobalInitialize();
        fn ireeCompilerGetRevision() -> *const c_char;
        fn ireeCompilerRegisterDialects(registry: MlirDialectRegistry);
        fn ireeCompilerErrorGetMessage(error: *mut Error) -> *const c_char;
        fn ireeCompilerErrorDestroy(error: *mut Error);
        fn ireeCompilerSessionCreate() -> *mut Session;
        fn ireeCompilerSessionDestroy(session: *mut Session);
        fn ireeCompilerSessionSetFlags(session: *mut Session, count: c_int, flags: *const *const c_char) -> *mut Error;
        fn ireeCompilerSessionBorrowContext(session: *mut Session) -> MlirContext;
        fn ireeCompilerInvocationCreate(session: *mut Session) -> *mut Invocation;
        fn ireeCompilerInvocationDestroy(invocation: *mut Invocation);
        fn ireeCompilerInvocationEnableCallbackDiagnostics(invocation: *mut Invocation, flags: c_int, callback: DiagnosticCallback, user: *mut c_void);
        fn ireeCompilerInvocationSetDumpCompilationPhasesTo(invocation: *mut Invocation, folder: *const c_char);
        fn ireeCompilerInvocationImportStealModule(invocation: *mut Invocation, module: MlirOperation) -> bool;
        fn ireeCompilerInvocationPipeline(invocation: *mut Invocation, pipeline: c_int) -> bool;
        fn ireeCompilerInvocationOutputVMBytecode(invocation: *mut Invocation, output: *mut Output) -> *mut Error;
        fn ireeCompilerOutputOpenMembuffer(output: *mut *mut Output) -> *mut Error;
        fn ireeCompilerOutputMapMemory(output: *mut Output, data: *mut *mut c_void, length: *mut u64) -> *mut Error;
        fn ireeCompilerOutputDestroy(output: *mut Output);
    }
}

/// Starts the compiler, once, as part of loading.
pub(crate) fn initialize() {
    // SAFETY: the functions were resolved just before.
    unsafe { raw::ireeCompilerGlobalInitialize() }
}

/// The compiler's revision as it reports it.
pub fn revision() -> String {
    // SAFETY: the library returns a string with static lifetime.
    unsafe { CStr::from_ptr(raw::ireeCompilerGetRevision()) }
        .to_string_lossy()
        .into_owned()
}

/// How grave a message of the compiler is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How grave it is.
    pub severity: Severity,
    /// The text, which starts with a source location where there is one.
    pub message: String,
}

/// Compiler settings, and the MLIR context that modules are built in.
#[derive(Debug)]
pub struct Session(*mut raw::Session);

/// A compiled module.
#[derive(Clone, Debug)]
pub struct Executable {
    /// The module as IREE's runtime loads it.
    pub bytes: Vec<u8>,
}

impl Session {
    /// A session with the given flags, which are those of the program iree-compile.
    ///
    /// # Errors
    /// The compiler's message about a flag, or that the library is not loaded.
    pub fn new(flags: &[String]) -> Result<Self, String> {
        if !crate::is_loaded() {
            return Err("IREE's compiler library is not loaded".into());
        }
        let flags = flags
            .iter()
            .map(|flag| CString::new(flag.as_str()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| "a flag has a zero byte".to_string())?;
        let pointers: Vec<*const c_char> = flags.iter().map(|flag| flag.as_ptr()).collect();
        // SAFETY: the library is loaded; the flags outlive the call, which copies them.
        unsafe {
            let session = Session(raw::ireeCompilerSessionCreate());
            check(raw::ireeCompilerSessionSetFlags(
                session.0,
                pointers.len() as c_int,
                pointers.as_ptr(),
            ))?;
            Ok(session)
        }
    }

    /// The session's context, which lives as long as the session.
    pub fn context(&self) -> MlirContext {
        // SAFETY: the session is alive.
        unsafe { raw::ireeCompilerSessionBorrowContext(self.0) }
    }

    /// Compiles `module`, giving the messages to `report` as they come. With `phases`, a folder that exists,
    /// the module after each phase is written to it as text.
    ///
    /// # Errors
    /// Which step failed; the reason went to `report`.
    ///
    /// # Safety
    /// `module` is a whole `builtin.module` of this session's context. The compiler takes it, on
    /// failure too.
    pub unsafe fn compile(
        &self,
        module: MlirOperation,
        phases: Option<&Path>,
        report: &mut (dyn FnMut(Diagnostic) + Send),
    ) -> Result<Executable, String> {
        let mut invocation = Invocation::new(self, report);
        if let Some(folder) = phases {
            invocation.dump_phases(folder)?;
        }
        // SAFETY: the caller's.
        unsafe { invocation.import(module) }?;
        invocation.run()?;
        invocation
            .output(raw::ireeCompilerInvocationOutputVMBytecode)
            .map(|bytes| Executable { bytes })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: owned, and what borrows it is gone.
        unsafe { raw::ireeCompilerSessionDestroy(self.0) }
    }
}

/// What receives messages, behind a lock: the compiler reports from its threads.
type Report<'a> = Mutex<&'a mut (dyn FnMut(Diagnostic) + Send)>;

/// One compilation.
struct Invocation<'a> {
    handle: *mut raw::Invocation,
    /// Boxed: the compiler holds its address.
    _report: Box<Report<'a>>,
    _session: PhantomData<&'a Session>,
}

impl<'a> Invocation<'a> {
    fn new(session: &'a Session, report: &'a mut (dyn FnMut(Diagnostic) + Send)) -> Self {
        let report = Box::new(Mutex::new(report));
        let user: *const Report<'a> = &*report;
        // SAFETY: the session is alive; `user` lives until the invocation is destroyed.
        let handle = unsafe {
            let handle = raw::ireeCompilerInvocationCreate(session.0);
            raw::ireeCompilerInvocationEnableCallbackDiagnostics(
                handle,
                0,
                receive,
                user.cast_mut().cast(),
            );
            handle
        };
        Self {
            handle,
            _report: report,
            _session: PhantomData,
        }
    }

    /// Gives the module to the compiler.
    ///
    /// # Safety
    /// As [`Session::compile`].
    unsafe fn import(&mut self, module: MlirOperation) -> Result<(), String> {
        // SAFETY: the caller's.
        match unsafe { raw::ireeCompilerInvocationImportStealModule(self.handle, module) } {
            true => Ok(()),
            false => Err("the compiler refused the module".into()),
        }
    }

    fn dump_phases(&mut self, folder: &Path) -> Result<(), String> {
        let folder = folder.to_str().and_then(|folder| CString::new(folder).ok());
        let folder = folder.ok_or("the folder for phases has a name that is no text")?;
        // SAFETY: the invocation is alive and copies the text.
        unsafe {
            raw::ireeCompilerInvocationSetDumpCompilationPhasesTo(self.handle, folder.as_ptr());
        }
        Ok(())
    }

    fn run(&mut self) -> Result<(), String> {
        /// The whole pipeline from an input dialect on.
        const STANDARD: c_int = 0;
        // SAFETY: the invocation is alive and has a module.
        match unsafe { raw::ireeCompilerInvocationPipeline(self.handle, STANDARD) } {
            true => Ok(()),
            false => Err("the compiler failed".into()),
        }
    }

    fn output(
        &mut self,
        write: unsafe extern "C" fn(*mut raw::Invocation, *mut raw::Output) -> *mut raw::Error,
    ) -> Result<Vec<u8>, String> {
        // SAFETY: the invocation is alive; the mapped memory is copied before its output is closed.
        unsafe {
            let mut output = ptr::null_mut();
            check(raw::ireeCompilerOutputOpenMembuffer(&mut output))?;
            let result = check(write(self.handle, output)).and_then(|()| {
                let (mut data, mut length) = (ptr::null_mut(), 0);
                check(raw::ireeCompilerOutputMapMemory(
                    output,
                    &mut data,
                    &mut length,
                ))?;
                if data.is_null() || length == 0 {
                    return Err("the compiler wrote nothing".to_string());
                }
                Ok(std::slice::from_raw_parts(data.cast::<u8>(), length as usize).to_vec())
            });
            raw::ireeCompilerOutputDestroy(output);
            result
        }
    }
}

impl Drop for Invocation<'_> {
    fn drop(&mut self) {
        // SAFETY: owned; the report is freed after it.
        unsafe { raw::ireeCompilerInvocationDestroy(self.handle) }
    }
}

/// Hands a message on.
unsafe extern "C" fn receive(
    severity: c_int,
    message: *const c_char,
    length: usize,
    user: *mut c_void,
) {
    // SAFETY: the compiler passes a text of this length, and the pointer that `Invocation::new` gave.
    let (text, report) = unsafe {
        let text = std::slice::from_raw_parts(message.cast::<u8>(), length);
        (String::from_utf8_lossy(text), &*user.cast::<Report<'_>>())
    };
    let severity = match severity {
        0 => Severity::Note,
        1 => Severity::Warning,
        2 => Severity::Error,
        _ => Severity::Remark,
    };
    let mut report = report
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    report(Diagnostic {
        severity,
        message: text.into_owned(),
    });
}

/// The error's message, if there is an error.
///
/// # Safety
/// `error` is null or an owned error.
unsafe fn check(error: *mut raw::Error) -> Result<(), String> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's; the message is copied before the error is freed.
    unsafe {
        let message = CStr::from_ptr(raw::ireeCompilerErrorGetMessage(error))
            .to_string_lossy()
            .into_owned();
        raw::ireeCompilerErrorDestroy(error);
        Err(message)
    }
}
