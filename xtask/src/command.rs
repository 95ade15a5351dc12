//! Other programs: run, stopped at the first failure, their failure told in full.

use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::workspace::Workspace;

/// The cargo that runs this task.
pub(crate) fn cargo(workspace: &Workspace) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace.root());
    command
}

/// Runs `command` to its end with no input. What it prints goes to stderr.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command
        .stdin(Stdio::null())
        .stdout(io::stderr())
        .status()
        .with_context(|| failure(command, "cannot be started"))?;
    if !status.success() {
        bail!(failure(command, &format!("failed ({status})")));
    }
    Ok(())
}

/// Runs `command` and hands each line of its stdout to `line`. The result says whether it succeeded.
pub(crate) fn run_lines(command: &mut Command, mut line: impl FnMut(&str)) -> Result<bool> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| failure(command, "cannot be started"))?;
    let mut output = BufReader::new(child.stdout.take().context("stdout was piped")?);
    let mut bytes = Vec::new();
    while output.read_until(b'\n', &mut bytes)? > 0 {
        line(String::from_utf8_lossy(&bytes).trim_end());
        bytes.clear();
    }
    Ok(child.wait()?.success())
}

/// Runs `command` with `input` on stdin. Its stderr is in the error when it fails, else its stdout is returned.
pub(crate) fn capture(command: &mut Command, input: &str) -> Result<String> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| failure(command, "cannot be started"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends without reading its input says why by its exit code.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        bail!(
            "{}\n{}",
            failure(command, &format!("failed ({})", output.status)),
            message.trim_end()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// How a program ended, and what it printed.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Whether the exit code was 0.
    pub(crate) success: bool,
    /// All of stdout.
    pub(crate) stdout: String,
}

/// Runs `command` with no input, its stderr left to the terminal.
pub(crate) fn output(command: &mut Command) -> Result<Ended> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| failure(command, "cannot be started"))?;
    Ok(Ended {
        success: output.status.success(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
    })
}

/// Builds one binary of the workspace and returns where it lies.
pub(crate) fn build_binary(
    workspace: &Workspace,
    binary: &str,
    options: &[&str],
) -> Result<PathBuf> {
    let mut command = cargo(workspace);
    command
        // Of the whole workspace, so that features are what tests and lints resolve them to and
        // nothing is built twice.
        .args(["build", "--workspace", "--bin", binary])
        .args(options)
        .arg("--message-format=json-render-diagnostics");
    let mut executable = None;
    let success = run_lines(&mut command, |line| {
        executable = executable_of(line, binary)
            .map(PathBuf::from)
            .or_else(|| executable.take());
    })?;
    if !success {
        bail!(failure(&command, "failed"));
    }
    executable.with_context(|| format!("cargo built no binary {binary}"))
}

/// The executable that a line of cargo's JSON messages reports for `binary`.
fn executable_of(line: &str, binary: &str) -> Option<String> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let named = message["target"]["name"] == binary;
    named.then(|| message["executable"].as_str().map(str::to_owned))?
}

/// `command` as one would type it.
pub(crate) fn line(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy()];
    words.extend(command.get_args().map(|word| word.to_string_lossy()));
    words.join(" ")
}

/// One line that says what became of `command`.
fn failure(command: &Command, what: &str) -> String {
    format!("`{}` {what}", line(command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_shows_the_command_and_its_message() {
        let error = capture(
            Command::new("sh").args(["-c", "echo no such thing >&2; exit 3"]),
            "",
        )
        .unwrap_err()
        .to_string();
        assert!(
            error.contains("`sh -c") && error.contains("no such thing"),
            "{error}"
        );
    }

    #[test]
    fn input_reaches_the_program() {
        assert_eq!(capture(&mut Command::new("cat"), "text").unwrap(), "text");
    }

    #[test]
    fn a_failed_program_has_output_too() {
        let ended = output(Command::new("sh").args(["-c", "echo text; exit 1"])).unwrap();
        assert!(!ended.success);
        assert_eq!(ended.stdout, "text\n");
    }

    #[track_caller]
    fn check_executable(line: &str, expect: Option<&str>) {
        assert_eq!(executable_of(line, "mlxcel").as_deref(), expect);
    }

    #[test]
    fn the_executable_is_found_in_the_messages_of_cargo() {
        check_executable(
            r#"{"target":{"name":"mlxcel"},"executable":"/t/mlxcel"}"#,
            Some("/t/mlxcel"),
        );
        check_executable(r#"{"target":{"name":"mlxcel"},"executable":null}"#, None);
        check_executable(
            r#"{"target":{"name":"other"},"executable":"/t/other"}"#,
            None,
        );
        check_executable("warning: text", None);
    }
}
