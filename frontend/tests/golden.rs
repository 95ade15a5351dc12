//! Golden checkpoints, interpreted in f32, give the logits, hidden states and tokens that Hugging
//! Face transformers recorded.

mod common;

use common::{Run, relative_error};
use mlxcel_frontend::{Model, read_tensors};
use mlxcel_ir::{HostTensor, step};
use mlxcel_test_support as support;
use std::collections::BTreeMap;

/// The budget of a relative error, from the issue of the goldens: both sides compute in f32.
const BUDGET: f64 = 1e-5;

fn integers(tensor: &HostTensor) -> Vec<i32> {
    tensor
        .to_f64()
        .into_iter()
        .map(|number| number as i32)
        .collect()
}

fn near(got: &[f64], expected: &HostTensor, what: &str) {
    let error = relative_error(got, &expected.to_f64());
    assert!(error <= BUDGET, "{what}: relative error {error:.3e}");
}

/// One prompt at once, then token by token.
fn check_prompt(model: &Model, expected: &BTreeMap<String, HostTensor>, length: usize) {
    let prompt = integers(&expected[&format!("p{length}.input_ids")]);
    let logits = &expected[&format!("p{length}.logits")];
    let what = format!("{}, {length} tokens", model.name());
    let at_once = Run::new(model, 1, 64).step(std::slice::from_ref(&prompt), &[0]);
    near(&at_once[step::LOGITS], logits, &what);
    for layer in 0..model.layers() {
        if let Some(hidden) = expected.get(&format!("p{length}.layer.{layer}")) {
            let got = &at_once[&step::hidden(layer)];
            near(got, hidden, &format!("{what}, layer {layer}"));
        }
    }
    let mut run = Run::new(model, 1, 64);
    let stepped: Vec<f64> = prompt
        .iter()
        .enumerate()
        .flat_map(|(position, &token)| {
            run.step(&[vec![token]], &[position as i32])
                .remove(step::LOGITS)
                .expect("logits")
        })
        .collect();
    near(&stepped, logits, &format!("{what}, one by one"));
}

fn check_greedy(model: &Model, expected: &BTreeMap<String, HostTensor>) {
    let prompt = integers(&expected["p9.input_ids"]);
    let tokens = integers(&expected["p9.greedy"]);
    let got = Run::new(model, 1, 64).greedy(&[prompt], tokens.len());
    assert_eq!(got, [tokens], "{}", model.name());

    // Recorded with padding at the start; here it stands at the end.
    let length = expected["batch.input_ids"].shape[1];
    let ids = integers(&expected["batch.input_ids"]);
    let mask = integers(&expected["batch.attention_mask"]);
    let prompts: Vec<Vec<i32>> = ids
        .chunks(length)
        .zip(mask.chunks(length))
        .map(|(ids, mask)| {
            let kept = ids.iter().zip(mask).filter(|&(_, &mask)| mask == 1);
            kept.map(|(&id, _)| id).collect()
        })
        .collect();
    let count = expected["batch.greedy"].shape[1];
    let rows: Vec<Vec<i32>> = integers(&expected["batch.greedy"])
        .chunks(count)
        .map(<[i32]>::to_vec)
        .collect();
    let got = Run::new(model, prompts.len(), 64).greedy(&prompts, count);
    assert_eq!(got, rows, "{}, batch", model.name());
}

fn check(family: &str) {
    let folder = support::golden(family);
    let expected = read_tensors(&folder.join("expected.safetensors")).expect("recorded values");
    let other = tempfile::tempdir().expect("a folder");
    let other = other.path().join(format!("{family}-v4"));
    support::copy_folder(&folder, &other);
    std::fs::rename(other.join("config.v4.json"), other.join("config.json")).expect("v4");
    for folder in [&folder, &other] {
        let model = Model::load(folder).unwrap_or_else(|error| panic!("{error}"));
        for length in [1, 9, 45] {
            check_prompt(&model, &expected, length);
        }
        check_greedy(&model, &expected);
    }
}

#[test]
fn llama() {
    check("llama");
}

#[test]
fn llama3_rope() {
    check("llama3-rope");
}

#[test]
fn llama_mlx_q4() {
    check("llama-mlx-q4-g64");
}

#[test]
fn qwen3() {
    check("qwen3");
}

#[test]
fn qwen3_mlx_q4_bf16() {
    check("qwen3-mlx-q4-g64-bf16");
}
