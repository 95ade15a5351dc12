//! Artifacts: what `compile` tells, artifacts on their own, damaged ones, ones for other devices.

use crate::demo::artifact;
use crate::program::{Copy, argument, command, run, run_with};
use mlxcel_test_support::{demo_model, golden};
use serde_json::{Value, json};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

const QUESTION: &str = "What is a violin?";

/// Runs a copy of the demo's artifact after `change`; the message must have every one of `parts`.
#[track_caller]
fn refuse(change: impl FnOnce(&Copy), parts: &[&str]) {
    let copy = Copy::of(&artifact());
    change(&copy);
    run(["run", &copy.path(), "-p", QUESTION, "-n", "1"]).failure(1, parts);
}

fn flip(bytes: Vec<u8>, at: usize) -> Vec<u8> {
    let mut bytes = bytes;
    bytes[at] ^= 1;
    bytes
}

#[test]
fn damage_is_found_before_anything_runs() {
    let middle = |bytes: Vec<u8>| {
        let at = bytes.len() / 2;
        flip(bytes, at)
    };
    for file in ["module.vmfb", "weights.safetensors", "tokenizer.json"] {
        refuse(|copy| copy.edit(file, middle), &[file, "sha256"]);
        refuse(
            |copy| std::fs::remove_file(copy.folder.join(file)).unwrap(),
            &[file],
        );
    }
    let manifest = |change: &dyn Fn(&mut Value), parts: &[&str]| {
        let parts = [&["manifest.json"], parts].concat();
        refuse(|copy| copy.edit_json("manifest.json", change), &parts);
    };
    manifest(
        &|manifest| manifest["format"] = json!(999),
        &["format", "999"],
    );
    manifest(
        &|manifest| manifest["context"] = json!("long"),
        &["context"],
    );
    manifest(
        &|manifest| manifest["target"] = json!("iree-abacus"),
        &["target", "iree-abacus"],
    );
    manifest(&|manifest| manifest["surprise"] = json!(1), &["surprise"]);
    manifest(
        &|manifest| manifest["buffers"][0]["shape"] = json!([1, 1u64 << 60, 64, 64]),
        &["cache.0.key"],
    );
    let outside = json!({"sha256": "00", "bytes": 1});
    manifest(
        &|manifest| manifest["parts"]["../x"] = outside.clone(),
        &["../x"],
    );
    refuse(
        |copy| copy.edit("manifest.json", |bytes| bytes[..9].to_vec()),
        &["manifest.json"],
    );
    // A manifest that is plausible and wrong.
    refuse(
        |copy| copy.edit_json("manifest.json", |m| m["context"] = json!(7)),
        &["manifest.json"],
    );
    refuse(
        |copy| copy.edit_json("manifest.json", |m| m["vocabulary"] = json!(7)),
        &["manifest"],
    );
}

#[test]
fn an_artifact_for_another_device_says_so() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = argument(&folder.path().join("vulkan"));
    let model = argument(&golden("llama"));
    let arguments = [
        "compile",
        &model,
        "--target",
        "iree-vulkan",
        "--context",
        "32",
        "-o",
        &output,
    ];
    run(arguments.iter().chain(&["--json"])).success();
    let out = argument(&folder.path().join("out.safetensors"));
    let arguments = ["logits", &output, "--tokens", "1", "--out", &out];
    run(arguments).failure(1, &["vulkan"]);
    let arguments = ["run", &output, "-p", "x", "--device", "local-task"];
    run(arguments).failure(1, &["iree-vulkan", "local-task"]);
}

#[test]
fn an_artifact_runs_anywhere_with_no_compiler() {
    let copy = Copy::of(&artifact());
    let here = run(["run", &argument(&artifact()), "-p", QUESTION, "-n", "8"]).success();
    let mut command = command(["run", ".", "-p", QUESTION, "-n", "8"]);
    command
        .env("IREE_COMPILER_LIB", "/nowhere/libIREECompiler.so")
        .current_dir(&copy.folder);
    assert_eq!(run_with(command, "").success(), here);
}

#[test]
fn a_missing_compiler_is_a_message() {
    let demo = argument(&demo_model());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = argument(&folder.path().join("artifact"));
    let mut command = command(["compile", &demo, "--target", "iree-cpu", "-o", &output]);
    command.env("IREE_COMPILER_LIB", "/nowhere/libIREECompiler.so");
    run_with(command, "").failure(1, &["IREE_COMPILER_LIB", "/nowhere/libIREECompiler.so"]);
    assert!(!folder.path().join("artifact").exists());
}

#[test]
fn a_crash_of_the_compiler_is_a_message() {
    let demo = argument(&demo_model());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = argument(&folder.path().join("artifact"));
    let mut command = command(["compile", &demo, "--target", "iree-cpu", "-o", &output]);
    let child = folder.path().join("child");
    std::fs::write(&child, "#!/bin/sh\nkill -ABRT $$\n").expect("a file can be written");
    std::fs::set_permissions(&child, Permissions::from_mode(0o755)).expect("it is ours");
    command.env("MLXCEL_COMPILE_CHILD", child);
    run_with(command, "").failure(1, &["the compiler's process", "signal"]);
    assert!(!folder.path().join("artifact").exists());
}

#[test]
fn compile_tells_what_it_made() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("artifact");
    let model = argument(&golden("llama"));
    let output = argument(&path);
    let arguments = [
        "compile",
        &model,
        "--target",
        "iree-cpu",
        "-o",
        &output,
        "--context",
        "32",
    ];
    let told = run(arguments.iter().chain(&["--json"])).success();
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(told["target"], "iree-cpu");
    assert_eq!(told["context"], 32);
    let bytes: u64 = std::fs::read_dir(&path)
        .expect("the artifact")
        .map(|entry| entry.expect("an entry").metadata().expect("a file").len())
        .sum();
    assert_eq!(told["bytes"], bytes);
    assert!(told["dispatches"].as_u64().is_some_and(|count| count > 0));
    assert!(
        told["seconds"]
            .as_f64()
            .is_some_and(|seconds| seconds > 0.0)
    );

    // An artifact is replaced, anything else is not; an artifact is not compiled again.
    let again = run(arguments);
    assert!(again.stderr.contains("dispatches"), "{again:#?}");
    assert_eq!(again.success(), "");
    let other = argument(folder.path());
    run(["compile", &model, "--target", "iree-cpu", "-o", &other]).failure(2, &["output", &other]);
    run(["compile", &output, "--target", "iree-cpu"]).failure(2, &["compiled already"]);
    run([
        "compile",
        &model,
        "--target",
        "iree-cpu",
        "--context",
        "999999",
        "-o",
        &output,
    ])
    .failure(2, &["context", "999999"]);
    run(["compile", "/nowhere", "--target", "iree-cpu"]).failure(1, &["/nowhere"]);
}

#[test]
fn what_the_compiler_does_can_be_seen() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let model = argument(&golden("llama"));
    let emit = |form: &str, name: &str| {
        let output = argument(&folder.path().join(name));
        let arguments = [
            "compile",
            &model,
            "--target",
            "iree-cpu",
            "--context",
            "32",
            "--buckets",
            "1",
        ];
        run([&arguments[..], &["--emit", form, "-o", &output]].concat())
    };
    let read = |name: &str| std::fs::read(folder.path().join(name)).expect("it was written");
    assert_eq!(emit("stablehlo", "text").success(), "");
    assert!(
        String::from_utf8(read("text"))
            .expect("text")
            .contains("stablehlo.")
    );
    assert_eq!(emit("mlir-bytecode", "bytes").success(), "");
    assert!(read("bytes").starts_with(b"ML\xefR"));
    assert_eq!(emit("phases", "phases").success(), "");
    let names = std::fs::read_dir(folder.path().join("phases")).expect("a folder");
    let names: Vec<String> = names
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("text")
        })
        .collect();
    for phase in ["input", "flow", "stream", "hal", "vm", "module.vmfb"] {
        assert!(
            names.iter().any(|name| name.contains(phase)),
            "{phase}: {names:?}"
        );
    }
    emit("phases", "phases").failure(2, &["output", "exists"]);
}

#[test]
fn weights_can_stay_with_the_model() {
    let model = Copy::of(&demo_model());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("artifact");
    let output = argument(&path);
    run([
        "compile",
        &model.path(),
        "--target",
        "iree-cpu",
        "--context",
        "64",
        "--buckets",
        "32",
        "--weights",
        "reference",
        "--verify",
        "-o",
        &output,
    ])
    .success();
    assert!(!path.join("weights.safetensors").exists());
    crate::schema::check(&path);
    let generate = |model: &str, more: &[&str]| {
        let arguments = ["generate", model, "-p", QUESTION, "-n", "8", "--json"];
        run([&arguments[..], more].concat())
    };
    let tokens = |model: &str, more: &[&str]| -> Value {
        let reply: Value = serde_json::from_str(&generate(model, more).success()).expect("JSON");
        reply["tokens"].clone()
    };
    assert_eq!(tokens(&output, &[]), tokens(&argument(&artifact()), &[]));
    let told = run(["inspect", &output]).success();
    assert!(
        told.contains("reference") && told.contains("affine4"),
        "{told}"
    );

    model.edit("model.safetensors", |bytes| {
        let last = bytes.len() - 1;
        flip(bytes, last)
    });
    generate(&output, &[]).failure(1, &["digest", "--weights embed"]);
    std::fs::remove_dir_all(&model.folder).expect("it is ours");
    generate(&output, &[]).failure(1, &[&model.path(), "put the checkpoint back"]);
}
