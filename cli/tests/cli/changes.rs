//! `--adapter`, `--surgery` and `--dtype`.

use crate::program::{argument, run};
use mlxcel_test_support::{NewTensor, golden, write_tensors};
use serde_json::{Value, json};
use std::path::Path;

/// An adapter of rank 2 on the golden Llama's first queries and its head.
fn adapter(folder: &Path) {
    let mut tensors = Vec::new();
    for (module, [n, k]) in [
        ("model.layers.0.self_attn.q_proj", [128, 64]),
        ("lm_head", [320, 64]),
    ] {
        let count = |index: usize| ((index * 7 + 3) % 11) as f32 / 11.0 - 0.5;
        let a: Vec<f32> = (0..2 * k).map(count).collect();
        let b: Vec<f32> = (0..n * 2).map(count).collect();
        tensors.push(NewTensor::f32(
            &format!("base_model.model.{module}.lora_A.weight"),
            &[2, k],
            &a,
        ));
        tensors.push(NewTensor::f32(
            &format!("base_model.model.{module}.lora_B.weight"),
            &[n, 2],
            &b,
        ));
    }
    write_tensors(&folder.join("adapter_model.safetensors"), &tensors);
    let config = json!({"peft_type": "LORA", "r": 2, "lora_alpha": 4});
    std::fs::write(folder.join("adapter_config.json"), config.to_string()).expect("written");
}

fn verified(model: &str, options: &[&str]) -> Value {
    let all = [
        &["verify", model, "--tokens", "1,2,3,4,5", "--json"],
        options,
    ]
    .concat();
    serde_json::from_str(&run(all).success()).expect("JSON")
}

#[test]
fn every_execution_takes_an_adapter() {
    let folder = tempfile::tempdir().expect("a folder");
    adapter(folder.path());
    let path = argument(folder.path());
    for family in ["llama", "llama-mlx-q4-g64"] {
        let model = argument(&golden(family));
        verified(&model, &["--adapter", &path]);
        verified(&model, &["--adapter", &path, "--adapter-scale", "-0.5"]);
    }
}

#[test]
fn every_execution_takes_a_surgery() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("surgery.yaml");
    let recipe = "version: 1\noperations:\n  - {op: prune, granularity: layer, layer_ids: [1], pattern: 'model.layers.*proj.weight'}\n";
    std::fs::write(&file, recipe).expect("written");
    verified(
        &argument(&golden("llama-mlx-q4-g64")),
        &["--surgery", &argument(&file)],
    );
}

#[test]
fn every_execution_takes_another_dtype() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = argument(&golden("llama"));
    for dtype in ["f16", "bf16"] {
        verified(&model, &["--dtype", dtype]);
    }
    // An artifact has the weights so, and is held against the model loaded likewise.
    let size = |name: &str, options: &[&str]| {
        let artifact = argument(&folder.path().join(name));
        let compile = [
            "compile",
            &model,
            "-t",
            "iree-cpu",
            "--buckets",
            "4",
            "-o",
            &artifact,
            "--json",
        ];
        let told = run([&compile, options].concat()).success();
        let source = [&["--source", &model], options].concat();
        verified(&artifact, &source);
        let told: Value = serde_json::from_str(&told).expect("JSON");
        told["bytes"].as_u64().expect("a number") - told["module_bytes"].as_u64().expect("a number")
    };
    let [as_stored, rounded] = [size("stored", &[]), size("rounded", &["--dtype", "bf16"])];
    assert!(rounded < as_stored * 3 / 4, "{rounded} {as_stored}");
    // Weights in the checkpoint cannot be other than they are there.
    let refer = [
        "compile",
        &model,
        "-t",
        "iree-cpu",
        "--weights",
        "reference",
        "--dtype",
        "bf16",
    ];
    run(refer).failure(2, &["changed"]);
    run(["verify", &model, "--dtype", "i32"]).failure(2, &["must be f32, f16 or bf16"]);
}

#[test]
fn what_cannot_be_changed_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = argument(&golden("llama"));
    let path = argument(folder.path());
    run(["verify", &model, "--adapter", &path]).failure(3, &["is not an adapter", &path]);
    run(["verify", &model, "--adapter-scale", "2"]).failure(2, &["--adapter"]);
    run(["verify", &model, "--surgery", "/nowhere.yaml"]).failure(3, &["/nowhere.yaml"]);
    let file = folder.path().join("surgery.yaml");
    std::fs::write(
        &file,
        "version: 1\noperations:\n  - {op: scale, pattern: '*.none', factor: 2}\n",
    )
    .expect("written");
    run(["generate", &model, "-p", "x", "--surgery", &argument(&file)])
        .failure(1, &["operations[0] (scale)", "selects none"]);
}

#[test]
fn an_artifact_keeps_its_weights() {
    let folder = tempfile::tempdir().expect("a folder");
    // A manifest makes an artifact; its weights are not looked at before this is refused.
    std::fs::write(folder.path().join("manifest.json"), "{}").expect("written");
    let artifact = argument(folder.path());
    run(["run", &artifact, "-p", "x", "--surgery", "x.yaml"]).failure(1, &["mlxcel compile"]);
}
