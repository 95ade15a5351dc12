//! `mlxcel inspect`: what is told of models and artifacts.

use crate::program::{argument, run};
use mlxcel_test_support::{demo_model, golden};
use serde_json::Value;

fn json(arguments: &[&str]) -> Value {
    let all = [&["inspect"], arguments, &["--json"]].concat();
    serde_json::from_str(&run(all).success()).expect("JSON")
}

#[test]
fn a_model_is_told_with_its_budget() {
    let model = argument(&golden("llama-mlx-q4-g64"));
    let found = json(&[&model, "-n", "100", "--batch", "2", "--tensors"]);
    assert_eq!(found["family"], "llama");
    assert_eq!(found["kind"], "safetensors");
    assert_eq!(found["sizes"]["layers"], 3);
    // Embedding, head and final norm, and in each layer attention, feed-forward part and two norms.
    let layer = (128 + 64 + 64 + 128) * 64 + 3 * 64 * 128 + 2 * 64;
    assert_eq!(found["parameters"], 2 * 320 * 64 + 64 + 3 * layer);
    assert_eq!(found["formats"]["f32"]["weights"], 7);
    assert!(found["tokenizer"].is_null());
    let tensors = found["tensors"].as_array().expect("a list");
    let head = tensors
        .iter()
        .find(|one| one["name"] == "lm_head.weight")
        .expect("the head");
    assert_eq!(head["shape"], serde_json::json!([320, 64]));
    assert_eq!(head["bytes"], 320 * 64 / 2 + 320 * 8);

    let memory = &found["memory"];
    for field in [
        "weights_bytes",
        "weights_source",
        "kv_cache_bytes",
        "kv_cache_source",
        "kv_detail",
        "activation_bytes",
        "runtime_headroom_bytes",
        "backend_inflight_bytes",
        "total_bytes",
        "available_bytes",
        "fits",
        "headroom_factor",
        "ctx_len",
        "batch",
        "quant",
        "kv_dtype_int8",
    ] {
        assert!(memory.get(field).is_some(), "{field} in {memory}");
    }
    // Three caches of two heads of 32, keys and values in f32, of 256 tokens for two sequences.
    assert_eq!(memory["ctx_len"], 256);
    assert_eq!(memory["kv_cache_bytes"], 3 * 2 * 64 * 4 * 256 * 2);
}

#[test]
fn encoders_are_told_too() {
    let found = json(&[&argument(&golden("bert"))]);
    assert_eq!(found["family"], "bert");
    assert!(found["parameters"].as_u64() > Some(0), "{found}");
    assert_eq!(found["memory"]["kv_cache_bytes"], 0);
}

#[test]
fn text_has_a_section_for_each_matter() {
    let demo = argument(&demo_model());
    let told = run(["inspect", &demo, "--tensors"]).success();
    for part in [
        "model\n",
        "weights\n",
        "tokenizer\n",
        "memory\n",
        "tensors\n",
        "18.88 million",
        "model.norm.weight",
        "affine4",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn what_does_not_fit_is_no_failure() {
    let demo = argument(&demo_model());
    let mut command = crate::program::command(["inspect", &demo, "--json"]);
    command.env("MLXCEL_MEMORY_LIMIT", "1000");
    let found: Value =
        serde_json::from_str(&crate::program::run_with(command, "").success()).expect("JSON");
    assert_eq!(found["memory"]["fits"], false);
    assert_eq!(found["memory"]["available_bytes"], 1000);
}

#[test]
fn what_is_no_model_is_refused() {
    run(["inspect", "/nowhere"]).failure(1, &["/nowhere"]);
    run(["inspect", "/nowhere", "--batch", "0"]).failure(2, &["at least 1"]);
}
