//! Artifacts in one file, and with caches in 16 bits.

use crate::program::{argument, run};
use mlxcel_test_support::golden;
use serde_json::Value;
use std::path::Path;

const TOKENS: [&str; 2] = ["--tokens", "5,9,2,77,31,4,8,15"];

fn compile(output: &Path, more: &[&str]) -> String {
    let (model, output) = (argument(&golden("llama")), argument(output));
    let arguments = [
        "compile",
        &model,
        "--target",
        "iree-cpu",
        "--context",
        "32",
        "--buckets",
        "16",
        "--no-cache",
        "-o",
        &output,
    ];
    run([&arguments[..], more].concat()).success()
}

#[test]
fn one_file_does_what_a_folder_does() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("artifact");
    let more = [
        "--format",
        "file",
        "--kv-dtype",
        "bf16",
        "--verify",
        "--json",
    ];
    let told: Value = serde_json::from_str(&compile(&path, &more)).expect("JSON");
    assert_eq!(told["kv_dtype"], "bf16");
    assert_eq!(told["verified"]["verdict"], "pass");
    let bytes = std::fs::read(&path).expect("one file");
    assert_eq!(told["bytes"], bytes.len());

    let one = argument(&path);
    run(["verify", &one]).success();
    let source = argument(&golden("llama"));
    let held = [&["verify", &one, "--source", &source][..], &TOKENS[..]].concat();
    run(held).success();
    let told = run(["inspect", &one, "--json"]).success();
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(told["kind"], "artifact");
    assert_eq!(told["compiled"]["buffers"][0]["dtype"], "bf16");
    run(["run", &one, "-p", "x", "--kv-dtype", "f16"]).failure(1, &["--kv-dtype", "compile"]);
    run(["verify", &one, "--kv-dtype", "f16"]).failure(2, &["compiled with"]);
    run(["compile", &one, "--target", "iree-cpu"]).failure(2, &["compiled already"]);
    run([
        "compile",
        &source,
        "--target",
        "iree-cpu",
        "--kv-dtype",
        "i32",
    ])
    .failure(2, &["f32, f16 or bf16"]);

    // What tar makes of it is the folder.
    let unpacked = folder.path().join("unpacked");
    std::fs::create_dir(&unpacked).expect("a folder");
    let tar = std::process::Command::new("tar")
        .args(["-xf", &one, "-C", &argument(&unpacked)])
        .status();
    if tar.is_ok_and(|status| status.success()) {
        crate::schema::check(&unpacked);
        run(["verify", &argument(&unpacked)]).success();
    }

    // Each form takes the place of the other.
    compile(&path, &[]);
    assert!(path.is_dir());
    compile(&path, &["--format", "file"]);
    assert!(path.is_file());
    assert_eq!(
        std::fs::read_dir(folder.path())
            .expect("it is there")
            .count(),
        2
    );

    let mut damaged = std::fs::read(&path).expect("one file");
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    std::fs::write(&path, damaged).expect("it is ours");
    let out = argument(&folder.path().join("out.safetensors"));
    let logits = [&["logits", &one, "--out", &out][..], &TOKENS[..]].concat();
    run(logits).failure(1, &[&one, "weights.safetensors", "sha256"]);
}

#[test]
fn every_execution_has_caches_of_16_bits() {
    let model = argument(&golden("llama"));
    for dtype in ["bf16", "f16"] {
        let arguments = ["verify", &model, "--kv-dtype", dtype];
        run([&arguments[..], &TOKENS[..]].concat()).success();
    }
}
