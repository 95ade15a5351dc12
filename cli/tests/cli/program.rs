//! Running the program under test.

use mlxcel_test_support::{copy_folder, golden};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The program under test, as a user in a plain environment starts it.
pub(crate) fn command<I: AsRef<str>>(arguments: impl IntoIterator<Item = I>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlxcel"));
    command.args(
        arguments
            .into_iter()
            .map(|argument| argument.as_ref().to_string()),
    );
    for variable in ["COLUMNS", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
        command.env_remove(variable);
    }
    command
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The exit code; `None` if a signal ended the process.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `command` with `input` on stdin.
pub(crate) fn run_with(mut command: Command, input: &str) -> Ended {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    // A program that fails early closes the pipe.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("the program ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
    Ended {
        code: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

/// Runs the program with nothing on stdin.
pub(crate) fn run<I: AsRef<str>>(arguments: impl IntoIterator<Item = I>) -> Ended {
    run_with(command(arguments), "")
}

impl Ended {
    /// Its stdout, after success.
    #[track_caller]
    pub(crate) fn success(self) -> String {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self.stdout
    }

    /// Requires an end with `code` and a message with every one of `parts`, and no panic.
    #[track_caller]
    pub(crate) fn failure(self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:#?}");
        assert!(self.stderr.contains("error"), "{self:#?}");
        assert!(!self.stderr.contains("panicked"), "{self:#?}");
        for part in parts {
            assert!(self.stderr.contains(part), "no {part:?} in {self:#?}");
        }
    }
}

/// A path as an argument.
pub(crate) fn argument(path: &Path) -> String {
    path.to_str().expect("paths of tests are plain").to_string()
}

/// A copy of a golden checkpoint that a test may damage.
pub(crate) struct Copy {
    /// Removed when dropped.
    _parent: TempDir,
    pub(crate) folder: PathBuf,
}

impl Copy {
    pub(crate) fn of(source: &Path) -> Self {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let folder = parent.path().join("model");
        copy_folder(source, &folder);
        Self {
            _parent: parent,
            folder,
        }
    }

    pub(crate) fn golden(family: &str) -> Self {
        Self::of(&golden(family))
    }

    pub(crate) fn path(&self) -> String {
        argument(&self.folder)
    }

    /// Rewrites a file of the copy.
    pub(crate) fn edit(&self, name: &str, change: impl FnOnce(Vec<u8>) -> Vec<u8>) {
        let file = self.folder.join(name);
        let bytes = std::fs::read(&file).expect("the file is there");
        std::fs::write(&file, change(bytes)).expect("the file can be written");
    }

    /// Rewrites a JSON file of the copy.
    pub(crate) fn edit_json(&self, name: &str, change: impl FnOnce(&mut serde_json::Value)) {
        self.edit(name, |bytes| {
            let mut value = serde_json::from_slice(&bytes).expect("the file is JSON");
            change(&mut value);
            value.to_string().into_bytes()
        });
    }
}
