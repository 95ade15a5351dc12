//! Functions of MLIR that the library answers under another name.

use crate::{MlirContext, MlirDialectRegistry, compiler};

/// Registers the dialects that IREE's compiler knows, StableHLO among them.
///
/// # Safety
/// The registry is alive.
#[allow(non_snake_case)]
pub unsafe extern "C" fn mlirRegisterAllDialects(registry: MlirDialectRegistry) {
    // SAFETY: the caller's.
    unsafe { compiler::raw::ireeCompilerRegisterDialects(registry) }
}

/// Does nothing: the compiler has its own translations.
///
/// # Safety
/// None needed.
#[allow(non_snake_case)]
pub unsafe extern "C" fn mlirRegisterAllLLVMTranslations(_context: MlirContext) {}

/// Does nothing: the compiler has its own passes.
///
/// # Safety
/// None needed.
#[allow(non_snake_case)]
pub unsafe extern "C" fn mlirRegisterAllPasses() {}
