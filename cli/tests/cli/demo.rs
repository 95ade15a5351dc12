//! The demo model on every backend, against its recorded replies.

use crate::program::{Ended, argument, command, run, run_with};
use mlxcel_test_support::demo_model;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tempfile::TempDir;

/// A recorded greedy reply.
#[derive(Deserialize)]
struct Recorded {
    prompt: String,
    input_ids: Vec<u32>,
    output_ids: Vec<u32>,
    /// The text up to and without the 32nd token.
    text: String,
}

fn recorded() -> Vec<Recorded> {
    let text = std::fs::read_to_string(demo_model().join("reference.json")).expect("the record");
    let value: serde_json::Value = serde_json::from_str(&text).expect("the record is JSON");
    serde_json::from_value(value["demo-4bit"]["greedy"].clone()).expect("greedy replies")
}

/// The artifact of the demo model for this machine, compiled once.
pub(crate) fn artifact() -> PathBuf {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    let make = || {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let output = argument(&folder.path().join("demo-cpu"));
        let demo = argument(&demo_model());
        let arguments = ["compile", &demo, "--target", "iree-cpu", "-o", &output];
        // Enough for what is recorded; fewer functions compile faster.
        run(arguments.iter().chain(&["--context", "64"])).success();
        folder
    };
    FOLDER.get_or_init(make).path().join("demo-cpu")
}

/// Requires the recorded ids of every prompt.
#[track_caller]
fn check(model: &Path, backend: &str) {
    let model = argument(model);
    for record in recorded() {
        let count = record.output_ids.len().to_string();
        let ended = run([
            "generate",
            &model,
            "-b",
            backend,
            "--raw",
            "--ignore-eos",
            "-n",
            &count,
            "--json",
            "-p",
            &record.prompt,
        ]);
        let reply: serde_json::Value = serde_json::from_str(&ended.success()).expect("JSON");
        assert_eq!(reply["prompt_ids"], serde_json::json!(record.input_ids));
        assert_eq!(reply["tokens"], serde_json::json!(record.output_ids));
        assert_eq!(reply["finish_reason"], "length");
        for field in [
            "time_to_first_token",
            "seconds",
            "prefill_tokens_per_second",
        ] {
            assert!(
                reply[field].as_f64().is_some_and(|number| number > 0.0),
                "{field}"
            );
        }
    }
}

#[test]
fn recorded_replies_on_the_interpreter() {
    check(&demo_model(), "reference");
}

#[test]
fn recorded_replies_on_mlx() {
    check(&demo_model(), "mlx");
}

#[test]
fn recorded_replies_compiled() {
    check(&artifact(), "iree");
}

#[test]
fn run_answers_by_the_template() {
    let record = &recorded()[0];
    let question = "What is a violin?";
    let demo = argument(&demo_model());
    let artifact = argument(&artifact());
    let common = ["-n", "31", "--temp", "0"];
    for (model, backend) in [(&demo, "reference"), (&demo, "mlx"), (&artifact, "iree")] {
        let arguments = ["run", model, "--backend", backend, "-p", question];
        let ended = run(arguments.iter().chain(&common));
        // Nothing but the reply: stderr is no terminal.
        assert_eq!(ended.stderr, "", "{backend}");
        let text = ended.success();
        let reply = text.strip_suffix('\n').expect("a line's end");
        assert!(
            record.text.starts_with(reply) && reply.len() > 100,
            "{backend}: {reply:?}"
        );
    }
    // The default backends, and the prompt on stdin.
    let piped = |model: &str| run_with(command(["run", model, "-n", "4"]), "What is a violin?\n");
    let text = piped(&demo).success();
    assert_eq!(piped(&artifact).success(), text);
    assert!(record.text.starts_with(text.trim_end()), "{text:?}");
}

#[test]
fn figures_go_to_stderr() {
    let demo = argument(&demo_model());
    let arguments = [
        "run",
        &demo,
        "-b",
        "reference",
        "-p",
        "What is a violin?",
        "-n",
        "3",
    ];
    let ended: Ended = run(arguments.iter().chain(&["--stats"]));
    for part in [
        "14 prompt tokens",
        "3 tokens",
        "tok/s",
        "first token after",
        "ended by length",
    ] {
        assert!(ended.stderr.contains(part), "{ended:#?}");
    }
    assert!(!ended.stdout.contains("tok/s"));
}

#[test]
fn a_stop_string_ends_the_reply_before_it() {
    let demo = argument(&demo_model());
    let arguments = [
        "run",
        &demo,
        "-p",
        "What is a violin?",
        "-n",
        "30",
        "--stop",
        " instrument",
    ];
    assert_eq!(run(arguments).success(), "Bowed stringed\n");
}

#[test]
fn a_seed_repeats_a_reply() {
    let demo = argument(&demo_model());
    let reply = |seed: &str| {
        let arguments = [
            "run",
            &demo,
            "-p",
            "Use \"strange\" in a sentence.",
            "-n",
            "12",
        ];
        run(arguments.iter().chain(&["--temp", "1.5", "--seed", seed])).success()
    };
    assert_eq!(reply("7"), reply("7"));
    let different = (1..6).any(|seed| reply(&seed.to_string()) != reply("7"));
    assert!(different, "five other seeds gave the same reply");
}

#[test]
fn backends_and_models_must_fit() {
    let demo = argument(&demo_model());
    let artifact = argument(&artifact());
    let refuse = |model: &str, backend: &str, parts: &[&str]| {
        run(["run", model, "-b", backend, "-p", "x"]).failure(1, parts);
    };
    refuse(&demo, "iree", &["mlxcel compile", "iree-cpu"]);
    refuse(&artifact, "mlx", &["iree", "not on mlx"]);
    refuse(&artifact, "reference", &["iree", "not on reference"]);
    run(["run", &artifact, "--device", "abacus", "-p", "x"])
        .failure(1, &["`abacus`", "local-task"]);
    run(["run", &artifact, "--context", "999999", "-p", "x"]).failure(1, &["--context"]);
    let ended = run([
        "run",
        &artifact,
        "--device",
        "local-sync",
        "-p",
        "What is a violin?",
        "-n",
        "2",
    ]);
    assert_eq!(ended.success(), "Bowed\n");
}
