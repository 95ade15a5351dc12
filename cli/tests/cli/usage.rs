//! The command line itself: help, usage errors, completions and manual pages.

use crate::program::{argument, command, run, run_with};
use mlxcel_test_support::demo_model;
use std::io::Read;
use std::process::Stdio;

const SUBCOMMANDS: [&str; 11] = [
    "run",
    "generate",
    "compile",
    "verify",
    "embed",
    "rerank",
    "logits",
    "inspect",
    "arch",
    "completions",
    "man",
];

#[test]
fn help_is_as_it_was() {
    insta::assert_snapshot!("mlxcel", run(["--help"]).success());
    for subcommand in SUBCOMMANDS {
        let help = run([subcommand, "--help"]).success();
        assert!(help.contains("Examples:"), "{help}");
        insta::assert_snapshot!(subcommand, help);
    }
}

#[test]
fn wrong_usage_ends_with_two() {
    let demo = argument(&demo_model());
    let check = |arguments: &[&str], parts: &[&str]| run(arguments).failure(2, parts);
    check(&["perform"], &["perform"]);
    check(&["run"], &["<MODEL>"]);
    check(
        &["run", &demo, "--backend", "abacus"],
        &["abacus", "mlx", "iree", "reference"],
    );
    check(
        &["run", &demo, "-p", "x", "--temp", "-1"],
        &["temperature is -1"],
    );
    check(
        &["run", &demo, "-p", "x", "--top-p", "1.5"],
        &["top-p is 1.5"],
    );
    check(
        &["run", &demo, "-p", "x", "--context", "0"],
        &["at least 1"],
    );
    check(&["run", &demo], &["stdin: there is no prompt"]);
    check(
        &["generate", &demo, "--system", "s", "--raw", "-p", "x"],
        &["--system"],
    );
    check(
        &["logits", &demo, "--tokens", "1,x", "--out", "f"],
        &["--tokens"],
    );
    check(
        &["compile", &demo, "--target", "iree-abacus"],
        &["iree-abacus", "iree-cpu"],
    );
    check(
        &[
            "compile",
            &demo,
            "--target",
            "iree-cuda",
            "--chip",
            "nonsense",
        ],
        &["nonsense", "sm_80", "sm_86", "sm_89"],
    );
    check(&["verify", &demo, "--backends", "abacus"], &["abacus"]);
    // Without arguments the help is the message.
    assert_eq!(run([""; 0]).code, Some(2));
}

#[test]
fn colours_can_be_chosen() {
    let message = |choice: &str| run(["run", "/nowhere", "-p", "x", "--color", choice]).stderr;
    assert!(message("always").contains("\x1b["));
    for choice in ["never", "auto"] {
        assert!(!message(choice).contains("\x1b["));
    }
}

#[test]
fn shells_and_manuals_know_every_subcommand() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = run(["completions", shell]).success();
        for subcommand in SUBCOMMANDS {
            assert!(script.contains(subcommand), "{shell}: {subcommand}");
        }
    }
    assert!(run(["man"]).success().contains(".TH mlxcel"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    run(["man", "--output", &argument(folder.path())]).success();
    for subcommand in SUBCOMMANDS {
        assert!(
            folder
                .path()
                .join(format!("mlxcel-{subcommand}.1"))
                .is_file(),
            "{subcommand}"
        );
    }
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let demo = argument(&demo_model());
    let mut child = command(["arch", &demo])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // Closed before anything is written.
    drop(child.stdout.take());
    let mut message = String::new();
    let mut stderr = child.stderr.take().expect("stderr is piped");
    stderr.read_to_string(&mut message).expect("stderr is text");
    assert_eq!(message, "");
    assert_eq!(child.wait().expect("the program ends").code(), Some(0));
}

#[test]
fn families_and_graphs_are_listed() {
    let families = run(["arch"]).success();
    assert!(
        families.lines().any(|line| line.starts_with("llama ")),
        "{families}"
    );
    let json: serde_json::Value = serde_json::from_str(&run(["arch", "--json"]).success()).unwrap();
    assert!(
        json["families"]
            .as_array()
            .is_some_and(|families| families.len() >= 2)
    );
    for field in [
        "id",
        "display_name",
        "category",
        "model_types",
        "formats",
        "backends",
    ] {
        assert!(!json["families"][0][field].is_null(), "{field}");
    }
    let demo = argument(&demo_model());
    let graph = mlxcel_ir::text::parse(&run(["arch", &demo]).success()).expect("a graph");
    assert!(graph.outputs.iter().any(|output| output.name == "logits"));
}

#[test]
fn stdin_must_be_text() {
    let demo = argument(&demo_model());
    run_with(command(["run", &demo, "-b", "reference"]), "\n").failure(2, &["no prompt"]);
}
