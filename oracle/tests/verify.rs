//! The oracle on small checkpoints: honest executions pass, a wrong one is found where it is wrong.

use mlxcel_frontend::Model;
use mlxcel_oracle::{Backend, Fault, Report, Verdict, VerifyOptions, verify_model};

fn report(family: &str, fault: Option<(Backend, &str)>) -> Report {
    let model = Model::load(&mlxcel_test_support::golden(family))
        .unwrap_or_else(|error| panic!("{family}: {error}"));
    let options = VerifyOptions {
        tokens: Some(vec![1, 5, 9, 2, 7, 7, 3, 11, 4]),
        fault: fault.map(|(backend, weight)| Fault {
            backend,
            weight: weight.into(),
        }),
        ..VerifyOptions::default()
    };
    verify_model(&model, &options, &|_| {}).unwrap_or_else(|error| panic!("{family}: {error}"))
}

#[test]
fn honest_executions_pass() {
    for family in mlxcel_test_support::GOLDEN_FAMILIES {
        let report = report(family, None);
        assert_eq!(report.verdict, Verdict::Pass, "{family}\n{report}");
        assert_eq!(report.executions.len(), Backend::ALL.len(), "{family}");
        for execution in &report.executions {
            // The hidden state after each layer, and the logits.
            assert_eq!(execution.measurements.len(), report.layers + 1, "{family}");
            assert_eq!(execution.distribution.same_top, 1.0, "{family}\n{report}");
        }
    }
}

/// The fault is found on the side that has it, in its layer, at the node that reads the weight.
fn check_fault(family: &str, backend: Backend, weight: &str, region: &str, node: &str) {
    let report = report(family, Some((backend, weight)));
    assert_eq!(report.verdict, Verdict::Mismatch, "{report}");
    let [finding] = &report.findings[..] else {
        panic!("one side is at fault\n{report}");
    };
    assert!(finding.execution.starts_with(backend.name()), "{report}");
    assert!(finding.local, "{report}");
    assert_eq!(
        (&*finding.region, &*finding.node),
        (region, node),
        "{report}"
    );
}

#[test]
fn a_wrong_weight_is_located() {
    check_fault(
        "llama",
        Backend::Mlx,
        "model.layers.1.mlp.up_proj.weight",
        "hidden.1",
        "layers.1.up",
    );
    check_fault(
        "qwen3-mlx-q4-g64-bf16",
        Backend::Mlx,
        "model.layers.0.self_attn.q_proj.weight",
        "hidden.0",
        "layers.0.q",
    );
    check_fault(
        "qwen3",
        Backend::Iree,
        "model.norm.weight",
        "logits",
        "norm",
    );
}

#[test]
fn every_node_holds_by_itself() {
    let model = Model::load(&mlxcel_test_support::golden("qwen3")).unwrap();
    let options = VerifyOptions {
        tokens: Some((1..25).collect()),
        chunk: Some(8),
        nodes: true,
        ..VerifyOptions::default()
    };
    let report = verify_model(&model, &options, &|_| {}).unwrap();
    assert_eq!(
        (report.verdict, report.tokens),
        (Verdict::Pass, 24),
        "{report}"
    );
    for execution in &report.executions {
        assert!(execution.nodes.len() > 20 * report.layers / 2, "{report}");
        assert_eq!(execution.distribution.positions, 24);
    }
}
