//! Running the program under test.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The program under test.
pub(crate) const MLXCEL: &str = env!("CARGO_BIN_EXE_mlxcel");

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Run {
    /// The command line, for messages.
    line: String,
    /// The exit code; `None` if a signal ended the process.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// Runs `command` with no input.
    pub(crate) fn of(command: &mut Command) -> Self {
        let output = command
            .stdin(Stdio::null())
            .output()
            .expect("the program starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            line: format!("{command:?}"),
            code: output.status.code(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }

    /// Its stdout.
    ///
    /// # Panics
    /// If it did not end with exit code 0.
    #[track_caller]
    pub(crate) fn success(self) -> String {
        assert_eq!(
            self.code,
            Some(0),
            "{}\n{}\n{}",
            self.line,
            self.stdout,
            self.stderr
        );
        self.stdout
    }

    /// Requires that it ended with `code` and a message that has every one of `parts`, and did not panic.
    #[track_caller]
    pub(crate) fn failure(self, code: i32, parts: &[&str]) {
        let Self { line, stderr, .. } = &self;
        assert_eq!(self.code, Some(code), "{line}\n{}\n{stderr}", self.stdout);
        assert!(!stderr.contains("panicked"), "{line}\n{stderr}");
        for part in parts {
            assert!(
                stderr.contains(part),
                "{line}\n{part:?} is not in\n{stderr}"
            );
        }
    }
}

/// Runs `mlxcel` with `arguments`.
pub(crate) fn mlxcel<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Run {
    Run::of(Command::new(MLXCEL).args(arguments))
}

/// An empty folder for the test called `name`, which must be the only one to use that name.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).expect("the folder of an earlier run can be removed");
    }
    fs::create_dir_all(&folder).expect("a folder can be made");
    folder
}

/// Compiles `model` for the CPU into `artifact`.
#[track_caller]
pub(crate) fn compile(model: &Path, artifact: &Path) {
    let mut command = Command::new(MLXCEL);
    command
        .arg("compile")
        .arg(model)
        .args(["--target", "iree-cpu", "-o"])
        .arg(artifact);
    Run::of(&mut command).success();
}
