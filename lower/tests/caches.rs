//! Caches in 16 bits and caches that rotate, in artifacts, against the interpreter with the same caches.

use mlxcel_frontend::{GraphOptions, Logits, Model};
use mlxcel_ir::interpret::{Interpreter, States};
use mlxcel_ir::step::{self, Row, RowOutput, SequenceId, Tokens, Want};
use mlxcel_ir::{Bindings, DType, HostTensor, Symbol};
use mlxcel_lower::{CompileOptions, Form, Target, compile};
use mlxcel_runtime_iree::{Artifact, Device, Error, Runtime};
use mlxcel_test_support::{golden, relative_error};

const CONTEXT: usize = 120;
/// Lengths of the prompts of a batch: around the window and far beyond it.
const PROMPTS: [usize; 4] = [3, 100, 41, 17];
const STEPS: usize = 6;

fn tokens(row: usize, count: usize, vocabulary: usize) -> Vec<u32> {
    let token = |index: usize| ((index * 37 + row * 101 + 11) % vocabulary) as u32;
    (0..count).map(token).collect()
}

/// The logits after every token, by the interpreter with a cache for the whole context.
fn expected(model: &Model, kv: DType, tokens: &[u32]) -> Vec<f32> {
    let options = GraphOptions {
        logits: Logits::All,
        ..GraphOptions::default()
    };
    let mut graph = model.graph(&options).unwrap();
    graph.keep_caches_in(kv);
    let count = tokens.len();
    let ids: Vec<i32> = tokens.iter().map(|&token| token as i32).collect();
    let bindings = Bindings::new()
        .with(Symbol::B, 1)
        .with(Symbol::T, count)
        .with(Symbol::S, count);
    let inputs = [
        (step::TOKENS, HostTensor::i32([1, count], &ids)),
        (step::START, HostTensor::i32([1], &[0])),
        (step::LENGTH, HostTensor::i32([1], &[count as i32])),
    ];
    let outputs = Interpreter::<f64>::new(&graph, model.weights())
        .unwrap()
        .run(&bindings, &inputs, &mut States::new(&graph))
        .unwrap();
    let logits = outputs[0].1.to_f64();
    logits.into_iter().map(|logit| logit as f32).collect()
}

fn submit(runtime: &mut Runtime, rows: &[(SequenceId, &[u32])]) -> Vec<Vec<f32>> {
    let row = |&(sequence, tokens)| Row {
        sequence,
        tokens: Tokens::Given(tokens),
        want: Want::Logits,
    };
    let rows: Vec<Row<'_>> = rows.iter().map(row).collect();
    let ticket = runtime.submit(&rows).unwrap();
    let outputs = runtime.wait(ticket).unwrap();
    outputs
        .into_iter()
        .map(|output| match output {
            RowOutput::Logits(logits) => logits,
            other => panic!("{other:?}"),
        })
        .collect()
}

struct Case {
    family: &'static str,
    target: Target,
    kv: DType,
    form: Form,
    /// What the caches of one sequence take, of what they would in f32 and for the whole context.
    share: f64,
}

fn check(case: &Case) {
    let Case { family, kv, .. } = *case;
    let name = format!("{family} {kv}");
    let model = Model::load(&golden(family)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("artifact");
    let mut options = CompileOptions::new(&model, case.target, &output);
    options.context = CONTEXT;
    options.buckets = vec![4, 16];
    options.batches = vec![4];
    options.kv = kv;
    options.form = case.form;
    let summary = compile(&model, &options, &|_| {}).unwrap();
    let artifact = Artifact::open(&output).unwrap();
    assert_eq!(artifact.manifest().cache_dtype(), Some(kv.name()), "{name}");
    assert_eq!(output.is_file(), case.form == Form::File);
    let mut runtime = Runtime::new(&artifact, &Device::host().unwrap()).unwrap();
    let vocabulary = runtime.vocabulary();

    // What is planned is what is used.
    let graph = model.graph(&GraphOptions::default()).unwrap();
    let whole: usize = graph
        .states
        .iter()
        .map(|state| 4 * state.elements(CONTEXT))
        .sum();
    let planned: usize = artifact
        .manifest()
        .buffers
        .iter()
        .map(|buffer| buffer.shape.iter().product::<usize>() * kv.size())
        .sum();
    let rotates = artifact
        .manifest()
        .buffers
        .iter()
        .any(|buffer| buffer.window.is_some());
    let statistics = runtime.statistics();
    assert_eq!(statistics.cache_bytes, planned, "{name}");
    let share = planned as f64 / whole as f64;
    assert!(
        (share - case.share).abs() < 1e-3,
        "{name}: {share}, {} dispatches",
        summary.dispatches
    );

    // Rows of different lengths in one step, then token by token.
    let texts: Vec<Vec<u32>> = PROMPTS
        .iter()
        .enumerate()
        .map(|(row, &count)| tokens(row, count + STEPS, vocabulary))
        .collect();
    let exact: Vec<Vec<f32>> = texts
        .iter()
        .map(|text| expected(&model, kv, text))
        .collect();
    // Numbers near the middle between two neighbours may be rounded to either side. What that does to the
    // logits of this model is less than what rounding all numbers of the caches does.
    let unrounded: Vec<Vec<f32>> = texts
        .iter()
        .map(|text| expected(&model, DType::F32, text))
        .collect();
    let near = |what: &str, row: usize, count: usize, logits: &[f32]| {
        let range = (count - 1) * vocabulary..count * vocabulary;
        let expect = &exact[row][range.clone()];
        let budget = relative_error(expect, &unrounded[row][range]).max(1e-4);
        let error = relative_error(logits, expect);
        assert!(
            error <= budget,
            "{name}, row {row}, {what} of {count}: {error}, of {budget}"
        );
    };
    let sequences: Vec<SequenceId> = texts.iter().map(|_| runtime.create().unwrap()).collect();
    for step in 0..=STEPS {
        let rows: Vec<(SequenceId, &[u32])> = sequences
            .iter()
            .zip(&texts)
            .zip(PROMPTS)
            .map(|((&sequence, text), prompt)| match step {
                0 => (sequence, &text[..prompt]),
                _ => (sequence, &text[prompt + step - 1..prompt + step]),
            })
            .collect();
        for (row, logits) in submit(&mut runtime, &rows).iter().enumerate() {
            near("together", row, PROMPTS[row] + step, logits);
        }
    }
    assert_eq!(runtime.statistics().reserved_bytes, 4 * planned, "{name}");
    for sequence in sequences {
        runtime.release(sequence).unwrap();
    }

    // Token by token, saved and restored, and cut back as far as it goes.
    let (row, text) = (1, &texts[1]);
    let mut sequence = runtime.create().unwrap();
    for (count, token) in text.iter().enumerate() {
        if count == 90 {
            let saved = runtime.save(sequence).unwrap();
            runtime.release(sequence).unwrap();
            sequence = runtime.restore(&saved).unwrap();
        }
        let logits = submit(&mut runtime, &[(sequence, &[*token][..])]);
        near("one by one", row, count + 1, &logits[0]);
    }
    let fork = runtime.fork(sequence).unwrap();
    for to in [100, 20] {
        match runtime.truncate(fork, to) {
            Ok(()) => {
                let logits = submit(&mut runtime, &[(fork, &text[to..to + 1])]);
                near("cut", row, to + 1, &logits[0]);
            }
            Err(error) => {
                assert!(rotates && to == 20, "{name}: {error}");
                assert!(matches!(error, Error::TruncateWindow { .. }), "{error}");
                runtime.truncate(fork, 0).unwrap();
                let logits = submit(&mut runtime, &[(fork, &text[..9])]);
                near("anew", row, 9, &logits[0]);
            }
        }
    }
}

#[test]
fn windows_rotate() {
    check(&Case {
        family: "mistral",
        target: Target::host(),
        kv: DType::F32,
        form: Form::Folder,
        share: 32.0 / 120.0,
    });
}

#[test]
fn windows_rotate_by_the_compiler_alone() {
    check(&Case {
        family: "mistral",
        target: Target::host().without_kernels(),
        kv: DType::BF16,
        form: Form::Folder,
        share: 16.0 / 120.0,
    });
}

#[test]
fn every_second_layer_rotates() {
    check(&Case {
        family: "gpt_oss",
        target: Target::host(),
        kv: DType::F16,
        form: Form::File,
        share: (32.0 + 120.0) / 480.0,
    });
}

#[test]
fn bfloat16() {
    check(&Case {
        family: "llama",
        target: Target::host(),
        kv: DType::BF16,
        form: Form::Folder,
        share: 0.5,
    });
}
