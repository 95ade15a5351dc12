//! Compiling at the same time, and compilations that are stopped.

use crate::program::{argument, command, run};
use mlxcel_test_support::golden;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn compile(folder: &Path) -> Command {
    let output = argument(&folder.join("artifact"));
    let model = argument(&golden("llama"));
    let target = ["--target", "iree-cpu", "--context", "32", "-o", &output];
    let mut command = command(["compile", &model].iter().chain(&target));
    command
        .env("MLXCEL_COMPILE_CACHE", folder.join("cache"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<_> = names
        .filter(|name| !["cache", "child"].contains(&name.as_str()))
        .collect();
    names.sort();
    names
}

#[test]
fn two_processes_write_one_artifact() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let children = [(); 2].map(|()| compile(folder.path()).spawn().expect("a process"));
    for child in children {
        let output = child.wait_with_output().expect("its end");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
    }
    assert_eq!(names(folder.path()), ["artifact"]);
    run(["inspect", &argument(&folder.path().join("artifact"))]).success();
}

/// A compilation whose compiler never answers, once it has begun to write.
fn stuck(folder: &Path) -> Child {
    let program = folder.join("child");
    std::fs::write(&program, "#!/bin/sh\nexec cat\n").expect("a file can be written");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, executable).expect("it is ours");
    let mut command = compile(folder);
    let child = command.env("MLXCEL_COMPILE_CHILD", program).spawn();
    let child = child.expect("a process");
    while !folder.join(".artifact.mlxcel-part").exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

#[test]
fn a_signal_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let child = stuck(folder.path());
    let id = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &id]).status();
    assert!(sent.expect("kill").success());
    let output = child.wait_with_output().expect("its end");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("stopped; nothing was written"), "{said}");
    assert!(names(folder.path()).is_empty());
}

#[test]
fn what_a_killed_process_left_does_not_hinder() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut child = stuck(folder.path());
    child.kill().expect("it runs");
    assert_eq!(child.wait().expect("its end").signal(), Some(9));
    assert!(!names(folder.path()).is_empty());
    let output = compile(folder.path()).output().expect("a process");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert_eq!(names(folder.path()), ["artifact"]);
}
