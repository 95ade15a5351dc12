//! MLIR's C API as IREE's compiler library has it, found when a program asks for it.
//!
//! The crate melior calls the functions of a crate named `mlir-sys`. The one on the registry links
//! LLVM and MLIR; this one stands in for it. Each function here forwards through a table that
//! [`load`] fills from `libIREECompiler.so`, so a program that contains this crate builds and starts
//! with no MLIR on the machine. That library holds StableHLO and IREE's own dialects too, and
//! [`compiler`] is its interface for turning a module into an executable.
//!
//! Invariants:
//! - No function is called before [`load`] succeeded. Calling one ends the process with a message,
//!   since a C function has no way to return that error.
//! - [`load`] fails unless the library has every function in the table, so a call never finds a hole.
//!   The functions that melior names and the library lacks are listed as `absent!`; calling one also
//!   ends the process.
//! - The declarations are of LLVM 22 with the names of LLVM 23, and the library is built from LLVM
//!   24: signatures are trusted for the version of the library that [`compiler::VERSION`] names.
//!
//! `bindings` was made with bindgen 0.73 from Debian's libmlir-22-dev 22.1.8 (all of `mlir-c` but
//! `Target/LLVMIR.h`), then cut to what melior 0.28.2 names, with `mlirDisctinctAttrCreate`
//! spelled as LLVM 23 does. Start reading at `table.rs`.

pub mod compiler;
mod shims;
mod table;

pub use shims::*;
pub use table::{LoadError, is_loaded, load};

use table::{absent, forwarded};

#[allow(
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    non_snake_case
)]
mod types {
    include!("bindings/types.rs");
}
#[allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    clippy::missing_safety_doc,
    clippy::too_many_arguments
)]
mod functions {
    use super::types::*;
    use super::{absent, forwarded};

    include!("bindings/functions.rs");
}

pub use functions::*;
pub use types::*;
