//! The oracle on small checkpoints: honest executions pass, a wrong one is found where it is wrong.

use mlxcel_frontend::{GraphOptions, Logits, Model};
use mlxcel_ir::{Bindings, Graph, Op, WeightSource};
use mlxcel_oracle::case::Case;
use mlxcel_oracle::execution::{ExecutionError, Inputs, MlxExecution, Observed};
use mlxcel_oracle::{
    Backend, Execution, Fault, Party, Report, Subject, Verdict, VerifyOptions, verify, verify_model,
};
use std::sync::Arc;

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
            let layers = report.layers.unwrap();
            assert_eq!(execution.measurements.len(), layers + 1, "{family}");
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
    // With the model's own weight the node is right.
    assert_eq!(
        (finding.alone, &finding.pass),
        (Some(false), &None),
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
        assert!(
            execution.nodes.len() > 10 * report.layers.unwrap(),
            "{report}"
        );
        assert_eq!(execution.distribution.positions, 24);
    }
}

/// An execution that takes another epsilon in every norm.
struct Epsilon;

impl Execution for Epsilon {
    fn name(&self) -> &'static str {
        "wrong"
    }

    fn run(
        &self,
        graph: &Graph,
        bindings: &Bindings,
        weights: &Arc<dyn WeightSource>,
        inputs: &Inputs<'_>,
    ) -> Result<Vec<Observed>, ExecutionError> {
        let mut graph = graph.clone();
        for node in &mut graph.nodes {
            if let Op::RmsNorm { epsilon, .. } = &mut node.op {
                *epsilon = 0.01;
            }
        }
        MlxExecution::Operations.run(&graph, bindings, weights, inputs)
    }
}

/// A node that is wrong whatever is around it becomes a case of its own, of which a file is enough.
#[test]
fn a_wrong_node_is_kept() {
    let model = Model::load(&mlxcel_test_support::golden("qwen3")).unwrap();
    let options = GraphOptions {
        name: "verify".into(),
        logits: Logits::All,
        token: false,
        hidden: true,
    };
    let subject = Subject {
        model: "qwen3".into(),
        graph: model.graph(&options).unwrap(),
        weights: model.weights(),
        tokens: (1..9).collect(),
        chunk: None,
        nodes: false,
    };
    let parties = [Party {
        execution: Box::new(Epsilon),
        weights: model.weights(),
    }];
    let report = verify(&subject, &parties, &|_| {}).unwrap();
    let [finding] = &report.findings[..] else {
        panic!("one side is at fault\n{report}");
    };
    assert_eq!(
        (finding.alone, &*finding.op),
        (Some(true), "rms_norm"),
        "{report}"
    );
    let case = finding.case.as_ref().unwrap();
    assert_eq!(case.graph.nodes.len(), 1, "{case}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.mxg");
    case.write(&file).unwrap();
    let read = Case::read(&file).unwrap();
    let share = |case: &Case, execution: &dyn Execution| {
        let worst = case.check(execution).unwrap();
        worst.map_or(0.0, |worst| worst.share)
    };
    assert!(share(&read, &Epsilon) > 1.0 && share(&read, &MlxExecution::Operations) <= 1.0);
}
