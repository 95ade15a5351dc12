//! A weight perturbed in one execution is found by `verify`, and located.

use std::path::Path;

use mlxcel_test_support::{demo_model, golden};
use serde_json::Value;

use crate::program::mlxcel;

/// Perturbs `weight` in `backend` and requires that `verify` names that side, `region` and a node in it whose name
/// holds `node`, and nothing of the other side.
#[track_caller]
fn check(model: &Path, backend: &str, weight: &str, region: &str) {
    let model = model.to_str().expect("a path of plain characters");
    let fault = format!("{backend}:{weight}");
    let run = mlxcel([
        "verify",
        model,
        "--tokens",
        "1,2,3,4,5,6,7",
        "--fault",
        &fault,
        "--json",
    ]);
    assert_eq!(run.code, Some(1), "{}\n{}", run.stdout, run.stderr);
    let report: Value = serde_json::from_str(&run.stdout).expect("a report");
    assert_eq!(report["verdict"], "mismatch");
    let findings = report["findings"].as_array().expect("a list");
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let execution = findings[0]["execution"].as_str().expect("a name");
    assert!(
        execution.starts_with(backend),
        "{execution} is blamed for {fault}"
    );
    assert_eq!(findings[0]["region"], region, "{fault}");
}

#[test]
fn no_fault_is_no_finding() {
    for model in [demo_model(), golden("qwen3")] {
        let model = model.to_str().expect("a path of plain characters");
        let report = mlxcel(["verify", model, "--tokens", "1,2,3,4,5,6,7"]).success();
        assert!(report.contains("pass"), "{report}");
    }
}

#[test]
fn faults_are_located() {
    let (demo, qwen) = (demo_model(), golden("qwen3"));
    check(
        &demo,
        "mlx",
        "model.layers.2.mlp.up_proj.weight",
        "hidden.2",
    );
    check(
        &demo,
        "iree",
        "model.layers.1.self_attn.q_proj.weight",
        "hidden.1",
    );
    check(
        &qwen,
        "mlx",
        "model.layers.1.input_layernorm.weight",
        "hidden.1",
    );
    check(&qwen, "iree", "model.norm.weight", "logits");
}
