//! Every op of the table, by operations of MLX and by own kernels, against the interpreter in f64.

mod cases;
mod setting;

use mlxcel_ir::interpret::{Interpreter, States};
use mlxcel_ir::{Bindings, DType, HostTensor, Op, Symbol, WeightSource};
use mlxcel_runtime_mlx::{Error, evaluate, evaluate_with_kernels};
use setting::Setting;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The largest root mean square of the error, relative to that of the result.
const TOLERANCE: f64 = 1e-5;
/// The same for results of 16 bits: a few units in the last place.
const TOLERANCE_16: f64 = 8e-3;

type Evaluate = fn(
    &mlxcel_ir::Graph,
    &Bindings,
    Arc<dyn WeightSource>,
    &[(&str, HostTensor)],
) -> Result<Vec<(String, HostTensor)>, Error>;

const IMPLEMENTATIONS: [(&str, Evaluate); 2] = [
    ("MLX", evaluate as Evaluate),
    ("kernels", evaluate_with_kernels as Evaluate),
];

fn bindings() -> Bindings {
    Bindings::new()
        .with(Symbol::B, 2)
        .with(Symbol::T, 3)
        .with(Symbol::S, 11)
}

/// The error of `got` relative to the size of `expect`.
fn distance(got: &[f64], expect: &[f64]) -> f64 {
    let mut error = 0.0;
    let mut size = 0.0;
    for (&got, &expect) in got.iter().zip(expect) {
        if got == expect || got.is_nan() && expect.is_nan() {
            continue;
        }
        error += (got - expect).powi(2);
        size += if expect.is_finite() {
            expect.powi(2)
        } else {
            0.0
        };
    }
    match error == 0.0 {
        true => 0.0,
        false => (error / size).sqrt(),
    }
}

/// What is wrong with a case, per implementation and output.
fn check(name: &str, setting: Setting) -> Vec<String> {
    let (graph, weights, inputs) = setting.finish();
    let inputs: Vec<_> = inputs
        .iter()
        .map(|(n, t)| (n.as_str(), t.clone()))
        .collect();
    let weights: Arc<dyn WeightSource> = Arc::new(weights);
    let mut states = States::<f64>::new(&graph);
    let expect = Interpreter::<f64>::new(&graph, weights.clone())
        .and_then(|interpreter| interpreter.run(&bindings(), &inputs, &mut states))
        .unwrap_or_else(|error| panic!("{name}: the interpreter: {error}"));
    let mut wrong = Vec::new();
    for (implementation, run) in IMPLEMENTATIONS {
        let got = match run(&graph, &bindings(), weights.clone(), &inputs) {
            Ok(got) => got,
            Err(error) => {
                wrong.push(format!("{name} by {implementation}: {error}"));
                continue;
            }
        };
        assert_eq!(got.len(), expect.len(), "{name}");
        for ((output, expect), (_, got)) in expect.iter().zip(&got) {
            assert_eq!(got.shape, expect.shape, "{name} by {implementation}");
            assert_eq!(got.dtype, expect.dtype, "{name} by {implementation}");
            let distance = distance(&got.to_f64(), &expect.to_f64());
            let budget = match expect.dtype {
                DType::F32 => TOLERANCE,
                DType::F16 | DType::BF16 => TOLERANCE_16,
                _ => 0.0,
            };
            if distance > budget || distance.is_nan() {
                wrong.push(format!(
                    "{name} by {implementation}: `{output}` is off by {distance:e}: {:?}, not {:?}",
                    &got.to_f64()[..got.elements().min(8)],
                    &expect.to_f64()[..got.elements().min(8)],
                ));
            }
        }
    }
    wrong
}

#[test]
fn every_op_means_what_the_interpreter_says() {
    let mut wrong = Vec::new();
    for (name, build) in cases::CASES {
        let mut setting = Setting::new(name);
        let value = build(&mut setting).unwrap_or_else(|error| panic!("{name}: {error}"));
        setting.builder.output("y", value);
        wrong.extend(check(name, setting));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_cases_cover_the_table() {
    let mut seen = BTreeSet::new();
    for (name, build) in cases::CASES {
        let mut setting = Setting::new(name);
        build(&mut setting).unwrap_or_else(|error| panic!("{name}: {error}"));
        let nodes = &setting.builder.graph().nodes;
        seen.extend(nodes.iter().map(|node| node.op.info().name));
    }
    let all: BTreeSet<_> = Op::TABLE.iter().map(|info| info.name).collect();
    assert_eq!(
        all.difference(&seen).collect::<Vec<_>>(),
        Vec::<&&str>::new()
    );
}

#[test]
fn what_cannot_be_evaluated_is_named() {
    for (name, build, expect) in cases::FAULTS {
        let mut setting = Setting::new(name);
        let value = build(&mut setting).unwrap_or_else(|error| panic!("{name}: {error}"));
        setting.builder.output("y", value);
        let (graph, weights, inputs) = setting.finish();
        let inputs: Vec<_> = inputs
            .iter()
            .map(|(n, t)| (n.as_str(), t.clone()))
            .collect();
        let weights: Arc<dyn WeightSource> = Arc::new(weights);
        for (implementation, run) in IMPLEMENTATIONS {
            let error = run(&graph, &bindings(), weights.clone(), &inputs)
                .expect_err(name)
                .to_string();
            assert!(
                error.contains(expect),
                "{name} by {implementation}: {error}"
            );
        }
    }
}
