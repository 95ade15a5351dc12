//! Whole models: compiled to an artifact, run from it, and held against recorded logits.

use mlxcel_frontend::Model;
use mlxcel_frontend::artifact::{MANIFEST, MODULE, Manifest, WEIGHTS};
use mlxcel_ir::step::{Row, RowOutput, SequenceId, Tokens, Want};
use mlxcel_lower::{CompileOptions, Target, compile};
use mlxcel_runtime_iree::{Artifact, Device, Runtime};
use mlxcel_test_support::{Tensors, golden, relative_error};

fn step(runtime: &mut Runtime, sequence: SequenceId, tokens: &[u32], want: Want) -> RowOutput {
    let row = Row {
        sequence,
        tokens: Tokens::Given(tokens),
        want,
    };
    let ticket = runtime.submit(&[row]).unwrap();
    runtime.wait(ticket).unwrap().remove(0)
}

fn logits(output: RowOutput) -> Vec<f32> {
    match output {
        RowOutput::Logits(logits) => logits,
        other => panic!("{other:?}"),
    }
}

fn check(family: &str, all_logits: Option<usize>) {
    let model = Model::load(&golden(family)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("artifact");
    let mut options = CompileOptions::new(&model, Target::host(), &output);
    options.context = 96;
    options.buckets = vec![32];
    options.all_logits = all_logits;
    let summary = compile(&model, &options, &|_| {}).unwrap();
    assert!(summary.dispatches > 0);
    println!("{family}: {summary:?}");
    let manifest = std::fs::read(output.join(MANIFEST)).unwrap();
    let manifest: Manifest = serde_json::from_slice(&manifest).unwrap();
    assert!(manifest.parts.contains_key(MODULE) && manifest.parts.contains_key(WEIGHTS));

    let artifact = Artifact::open(&output).unwrap();
    let mut runtime = Runtime::new(&artifact, &Device::host().unwrap()).unwrap();
    let expected = Tensors::read(&golden(family).join("expected.safetensors"));
    for length in [1, 9, 45] {
        let tokens = expected.tokens(&format!("p{length}.input_ids"));
        let expect = expected.f32(&format!("p{length}.logits")).values;
        let sequence = runtime.create().unwrap();
        let all = logits(step(&mut runtime, sequence, &tokens, Want::AllLogits));
        let error = relative_error(&all, &expect);
        println!("{family}, all logits of {length}: {error:e}");
        assert!(error <= 1e-4, "{family}, all logits of {length}: {error}");
        let sequence = runtime.create().unwrap();
        let last = logits(step(&mut runtime, sequence, &tokens, Want::Logits));
        let error = relative_error(&last, &expect[expect.len() - last.len()..]);
        println!("{family}, last logits of {length}: {error:e}");
        assert!(error <= 1e-4, "{family}, last logits of {length}: {error}");
    }
    let sequence = runtime.create().unwrap();
    let mut next = expected.tokens("p9.input_ids");
    for (index, expect) in expected.tokens("p9.greedy").into_iter().enumerate() {
        let RowOutput::Token(token) = step(&mut runtime, sequence, &next, Want::Token) else {
            panic!("no token");
        };
        assert_eq!(token, expect, "{family}, token {index}");
        next = vec![token];
    }
}

#[test]
fn llama() {
    check("llama", Some(32));
}

#[test]
fn llama3_rope() {
    check("llama3-rope", None);
}

#[test]
fn llama_4bit() {
    check("llama-mlx-q4-g64", None);
}

#[test]
fn qwen3() {
    check("qwen3", None);
}

#[test]
fn qwen3_4bit_bf16() {
    check("qwen3-mlx-q4-g64-bf16", None);
}
