//! Where IREE's compiler library is.

use crate::CompileError;
use std::path::{Path, PathBuf};

/// File name of the library.
#[cfg(target_os = "macos")]
const FILE: &str = "libIREECompiler.dylib";
/// File name of the library.
#[cfg(not(target_os = "macos"))]
const FILE: &str = "libIREECompiler.so";

/// The environment variable that names the library or the folder that holds it.
const VARIABLE: &str = "IREE_COMPILER_LIB";

/// Finds IREE's compiler library: by `IREE_COMPILER_LIB`, beside the running program, in the active Python
/// environment, in the `.deps/python` of a folder that holds the program or is worked in. It is not
/// loaded.
///
/// # Errors
/// [`CompileError::LibraryMissing`], which says what to set.
pub fn find() -> Result<PathBuf, CompileError> {
    find_in(&candidates())
}

fn find_in(candidates: &[PathBuf]) -> Result<PathBuf, CompileError> {
    candidates
        .iter()
        .find(|path| path.is_file())
        .cloned()
        .ok_or_else(|| CompileError::LibraryMissing {
            looked: candidates.to_vec(),
        })
}

fn candidates() -> Vec<PathBuf> {
    // A user who names a library means that one and no other.
    if let Some(named) = std::env::var_os(VARIABLE) {
        let named = PathBuf::from(named);
        return match named.is_dir() {
            true => vec![named.join(FILE)],
            false => vec![named],
        };
    }
    let mut found = Vec::new();
    let program = std::env::current_exe().ok();
    if let Some(folder) = program.as_deref().and_then(Path::parent) {
        found.push(folder.join(FILE));
        found.push(folder.join("../lib").join(FILE));
    }
    if let Some(environment) = std::env::var_os("VIRTUAL_ENV") {
        found.extend(in_python(Path::new(&environment)));
    }
    let working = std::env::current_dir().ok();
    for start in [program, working].into_iter().flatten() {
        for folder in start.ancestors() {
            let environment = folder.join(".deps/python");
            if environment.is_dir() {
                found.extend(in_python(&environment));
            }
        }
    }
    found
}

/// The places of the library in a Python environment.
fn in_python(environment: &Path) -> Vec<PathBuf> {
    let versions = std::fs::read_dir(environment.join("lib"))
        .into_iter()
        .flatten();
    versions
        .flatten()
        .map(|version| {
            version
                .path()
                .join("site-packages/iree/compiler/_mlir_libs")
        })
        .filter(|folder| folder.is_dir())
        .map(|folder| folder.join(FILE))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_a_message() {
        let error = find_in(&[PathBuf::from("nowhere").join(FILE)]).unwrap_err();
        let message = error.to_string();
        for part in [
            "libIREECompiler",
            "IREE_COMPILER_LIB",
            "cargo xtask setup",
            "nowhere",
        ] {
            assert!(message.contains(part), "{message}");
        }
    }
}
