//! What the machine must have before set-up can begin, and what to install when it has not.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};

use crate::command::capture;

/// The oldest Python for which the wheels exist.
const OLDEST_PYTHON: (u32, u32) = (3, 10);

/// Uses what separates C++20 from its predecessors: concepts, `<span>`, and designated initialisers.
const CPP20: &str = "
#include <concepts>
#include <span>
struct Point { int x; int y; };
template <std::integral T> T twice(T value) { return value + value; }
int main() {
  Point point{.x = 1, .y = 2};
  int values[] = {point.x, point.y};
  return twice(std::span<int>(values)[0]);
}
";

/// The programs that were found.
#[derive(Debug)]
pub(super) struct Tools {
    /// A Python interpreter that can make environments.
    pub(super) python: PathBuf,
}

/// Finds the programs in `PATH`, `CXX` naming the C++ compiler where it is set.
pub(super) fn check() -> Result<Tools> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    check_in(&path, std::env::var_os("CXX"))
}

/// As [`check`], for a given search path. All that is missing is told at once.
fn check_in(path: &OsStr, compiler: Option<OsString>) -> Result<Tools> {
    let python = find_python(path);
    match (python, check_compiler(path, compiler)) {
        (Ok(python), Ok(())) => Ok(Tools { python }),
        (python, compiler) => {
            let missing: Vec<String> = [python.err(), compiler.err()]
                .into_iter()
                .flatten()
                .map(|missing| missing.to_string())
                .collect();
            bail!(missing.join("\n"))
        }
    }
}

/// Something that the machine lacks.
#[derive(Debug)]
enum Missing {
    /// No Python; with the best version found, if there is one.
    Python(Option<(u32, u32)>),
    /// A Python without the module that makes environments.
    Venv { python: PathBuf, module: String },
    /// No C++ compiler by this name.
    Compiler(OsString),
    /// A C++ compiler that rejects C++20; with its message.
    Cpp20 { compiler: PathBuf, message: String },
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = OLDEST_PYTHON;
        match self {
            Self::Python(found) => {
                write!(f, "Python {major}.{minor} or later is missing")?;
                if let Some((major, minor)) = found {
                    write!(f, " (found {major}.{minor})")?;
                }
                f.write_str(
                    "; install it: Debian `apt install python3 python3-venv`, Fedora `dnf install python3`, \
                     macOS `brew install python`",
                )
            }
            Self::Venv { python, module } => write!(
                f,
                "{} has no module {module}, which makes Python environments; install it: Debian \
                 `apt install python3-venv`, Fedora `dnf install python3`, macOS `brew install python`",
                python.display()
            ),
            Self::Compiler(name) => write!(
                f,
                "a C++ compiler is missing (no {} in PATH); install one: Debian `apt install g++`, Fedora \
                 `dnf install gcc-c++`, macOS `xcode-select --install`; or set CXX",
                name.display()
            ),
            Self::Cpp20 { compiler, message } => write!(
                f,
                "{} does not compile C++20; install a later one (g++ 11, clang 14): Debian `apt install g++`, \
                 Fedora `dnf install gcc-c++`, macOS `xcode-select --install`; or set CXX. Its message:\n{message}",
                compiler.display()
            ),
        }
    }
}

/// The first Python in `path` that is recent enough and can make environments.
fn find_python(path: &OsStr) -> Result<PathBuf, Missing> {
    let names = [
        "python3",
        "python3.13",
        "python3.12",
        "python3.11",
        "python3.10",
    ];
    let mut fault = Missing::Python(None);
    for python in names
        .iter()
        .flat_map(|name| find_all(path, OsStr::new(name)))
    {
        let Some(version) = python_version(&python) else {
            continue;
        };
        if version < OLDEST_PYTHON {
            if let Missing::Python(None) = fault {
                fault = Missing::Python(Some(version));
            }
            continue;
        }
        match missing_module(&python) {
            None => return Ok(python),
            Some(module) => fault = Missing::Venv { python, module },
        }
    }
    Err(fault)
}

/// The version of an interpreter, if it runs.
fn python_version(python: &PathBuf) -> Option<(u32, u32)> {
    let script = "import sys; print(*sys.version_info[:2])";
    let output = capture(Command::new(python).args(["-c", script]), "").ok()?;
    let (major, minor) = output.trim().split_once(' ')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The module that `python -m venv` would miss. Debian ships `venv` without `ensurepip`.
fn missing_module(python: &PathBuf) -> Option<String> {
    ["venv", "ensurepip"]
        .into_iter()
        .find(|module| {
            let script = format!("import {module}");
            capture(Command::new(python).args(["-c", &script]), "").is_err()
        })
        .map(str::to_owned)
}

fn check_compiler(path: &OsStr, compiler: Option<OsString>) -> Result<(), Missing> {
    let name = compiler.unwrap_or_else(|| "c++".into());
    let Some(compiler) = find_all(path, &name).next() else {
        return Err(Missing::Compiler(name));
    };
    let arguments = ["-std=c++20", "-fsyntax-only", "-x", "c++", "-"];
    match capture(Command::new(&compiler).args(arguments), CPP20) {
        Ok(_) => Ok(()),
        Err(error) => Err(Missing::Cpp20 {
            compiler,
            message: error.to_string(),
        }),
    }
}

/// The files called `name` in the folders of `path`, in order; `name` itself if it is a path.
fn find_all<'a>(path: &'a OsStr, name: &'a OsStr) -> impl Iterator<Item = PathBuf> + 'a {
    std::env::split_paths(path)
        .map(move |folder| folder.join(name))
        .filter(|file| file.is_file())
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Checks a machine whose search path holds only these shell scripts. `expect` are parts of the message; none
    /// of them means that nothing is missing.
    #[track_caller]
    fn check(programs: &[(&str, &str)], expect: &[&str]) {
        let folder = tempfile::tempdir().unwrap();
        for (name, script) in programs {
            let file = folder.path().join(name);
            fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        match check_in(folder.path().as_os_str(), None) {
            Ok(tools) => assert!(expect.is_empty(), "{tools:?}"),
            Err(error) => {
                let message = error.to_string();
                assert!(!expect.is_empty(), "{message}");
                for part in expect {
                    assert!(message.contains(part), "{part:?} is not in {message}");
                }
            }
        }
    }

    const PYTHON: (&str, &str) = ("python3", "echo 3 12");
    const COMPILER: (&str, &str) = ("c++", "exit 0");

    #[test]
    fn a_machine_with_everything_passes() {
        check(&[PYTHON, COMPILER], &[]);
        check(
            &[
                ("python3", "echo 3 9"),
                ("python3.11", "echo 3 11"),
                COMPILER,
            ],
            &[],
        );
    }

    #[test]
    fn each_missing_thing_is_named_with_its_package() {
        check(
            &[COMPILER],
            &[
                "Python 3.10 or later is missing;",
                "apt install python3 python3-venv",
            ],
        );
        check(
            &[("python3", "echo 3 9"), COMPILER],
            &["Python 3.10 or later is missing (found 3.9)"],
        );
        check(
            &[
                (
                    "python3",
                    "case \"$2\" in *ensurepip) exit 1;; esac; echo 3 11",
                ),
                COMPILER,
            ],
            &[
                "python3 has no module ensurepip",
                "apt install python3-venv",
            ],
        );
        check(
            &[PYTHON],
            &[
                "a C++ compiler is missing",
                "no c++ in PATH",
                "dnf install gcc-c++",
            ],
        );
        check(
            &[
                PYTHON,
                ("c++", "echo unknown option -std=c++20 >&2; exit 1"),
            ],
            &[
                "does not compile C++20",
                "unknown option",
                "apt install g++",
            ],
        );
    }

    #[test]
    fn all_that_is_missing_is_told_at_once() {
        check(&[], &["Python 3.10", "C++ compiler"]);
    }

    #[test]
    fn the_snippet_is_valid() {
        let path = std::env::var_os("PATH").unwrap();
        check_compiler(&path, None).unwrap();
    }
}
