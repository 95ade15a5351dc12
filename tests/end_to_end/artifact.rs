//! An artifact that was moved to a machine without a compiler and without a network.

use std::fs;
use std::path::Path;
use std::process::Command;

use mlxcel_test_support::{copy_folder, demo_model};
use serde_json::Value;

use crate::program::{MLXCEL, Run, compile, folder, mlxcel};

const PROMPT: &str = "What is a violin?";

/// Generates with the program at `program` on a machine that has no compiler, no network and no repository: nothing in
/// the environment, no network interface where the system lets one be left out, another working folder.
fn isolated(program: &Path, artifact: &str, folder: &Path) -> Run {
    let unshare = ["--user", "--map-root-user", "--net"];
    let probe = Command::new("unshare").args(unshare).arg("true").output();
    let mut command = if probe.is_ok_and(|output| output.status.success()) {
        let mut command = Command::new("unshare");
        command.args(unshare).arg(program);
        command
    } else {
        Command::new(program)
    };
    command.args(["generate", artifact, "-p", PROMPT, "-n", "16", "--json"]);
    command.current_dir(folder).env_clear();
    // Where a compiler would be looked for, there is none.
    command.env("IREE_COMPILER_LIB", folder.join("absent.so"));
    Run::of(&mut command)
}

#[test]
fn an_artifact_runs_elsewhere_without_a_compiler() {
    let folder = folder("moved");
    let made = folder.join("made");
    compile(&demo_model(), &made);
    let before = mlxcel([
        "generate",
        made.to_str().expect("plain"),
        "-p",
        PROMPT,
        "-n",
        "16",
        "--json",
    ]);
    let moved = folder.join("another place");
    copy_folder(&made, &moved);
    fs::remove_dir_all(&made).expect("the first place can be removed");

    let after = isolated(Path::new(MLXCEL), "another place", &folder);
    let tokens = |run: Run| -> Value {
        let reply: Value = serde_json::from_str(&run.success()).expect("a reply");
        reply["tokens"].clone()
    };
    let tokens_before = tokens(before);
    assert_eq!(tokens_before.as_array().map(Vec::len), Some(16));
    assert_eq!(tokens(after), tokens_before);

    // The same place without a compiler says so when it is asked to compile.
    let mut command = Command::new(MLXCEL);
    command
        .arg("compile")
        .arg(demo_model())
        .args(["--target", "iree-cpu", "-o", "new"]);
    command
        .current_dir(&folder)
        .env("IREE_COMPILER_LIB", folder.join("absent.so"));
    Run::of(&mut command).failure(1, &["absent.so"]);
}
