//! Verification through the command line.

use crate::program::{argument, run};
use mlxcel_test_support::{demo_model, golden};
use serde_json::Value;

#[test]
fn a_model_that_is_right_passes() {
    let model = argument(&golden("llama"));
    let report = run(["verify", &model, "--tokens", "1,2,3,4,5"]).success();
    assert!(report.contains("verdict: pass"), "{report}");
    assert!(
        report.contains("mlx") && report.contains("iree-cpu"),
        "{report}"
    );

    let demo = argument(&demo_model());
    let arguments = [
        "verify",
        &demo,
        "--prompt",
        "What is a violin?",
        "--backends",
        "mlx",
        "--json",
    ];
    let report: Value = serde_json::from_str(&run(arguments).success()).expect("JSON");
    assert_eq!(report["verdict"], "pass");
    assert_eq!(report["executions"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_fault_fails_after_its_report() {
    let model = argument(&golden("llama"));
    let fault = "mlx:model.layers.1.mlp.down_proj.weight";
    let ended = run([
        "verify",
        &model,
        "--tokens",
        "1,2,3",
        "--backends",
        "mlx",
        "--fault",
        fault,
    ]);
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    assert_eq!(ended.stderr, "");
    assert!(ended.stdout.contains("hidden.1"), "{ended:#?}");
    assert!(ended.stdout.contains("verdict: mismatch"), "{ended:#?}");
}

#[test]
fn what_cannot_be_verified_says_why() {
    let model = argument(&golden("llama"));
    run(["verify", &model, "--tokens", "999999", "--backends", "mlx"]).failure(3, &["999999"]);
    run(["verify", &model, "--fault", "mlx:nothing", "--tokens", "1"]).failure(3, &["`nothing`"]);
    run(["verify", &model, "--fault", "abacus:nothing"]).failure(2, &["abacus"]);
    // It has no tokenizer.
    run(["verify", &model, "--prompt", "x"]).failure(3, &["tokenizer.json"]);
}
