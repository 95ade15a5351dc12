//! Golden encoders, interpreted in f32, give the states and scores that Hugging Face transformers
//! recorded. One test for each folder of the archives that holds an encoder.

mod common;

use common::{encoded, relative_error};
use libtest_mimic::{Arguments, Failed, Trial};
use mlxcel_frontend::{Model, read_tensors};
use mlxcel_ir::{HostTensor, step};
use mlxcel_test_support as support;
use std::collections::BTreeMap;
use std::path::Path;

/// The budget of a relative error, from the issue of the goldens: both sides compute in f32.
const BUDGET: f64 = 1e-5;

/// Encoders whose family is not read yet. One that loads must leave the list.
const PENDING: &[&str] = &[];

fn integers(tensor: &HostTensor) -> Vec<i32> {
    let numbers = tensor.to_f64().into_iter();
    numbers.map(|number| number as i32).collect()
}

/// Runs the texts of `tokens[B, T]`, `length` of whose tokens count.
fn encode(
    model: &Model,
    tokens: &HostTensor,
    types: Option<&HostTensor>,
    length: &[i32],
) -> BTreeMap<String, Vec<f64>> {
    let types = types.map_or(vec![0; tokens.elements()], integers);
    encoded(model, &integers(tokens), &types, length)
}

fn check(folder: &Path) -> Result<(), Failed> {
    let expected = read_tensors(&folder.join("expected.safetensors"))?;
    let model = Model::load(folder)?;
    let mut wrong = Vec::new();
    let mut near = |got: &[f64], expected: &[f64], what: &str| {
        let error = relative_error(got, expected);
        if error.is_nan() || error > BUDGET {
            wrong.push(format!("{what}: relative error {error:.3e}"));
        }
    };
    for length in [9, 45] {
        let name = |what: &str| format!("p{length}.{what}");
        let Some(tokens) = expected.get(&name("input_ids")) else {
            continue;
        };
        let outputs = encode(&model, tokens, None, &[length]);
        for (output, recorded) in [
            (step::STATES, "last_hidden_state"),
            (step::POOLED, "pooler_output"),
        ] {
            if let Some(expected) = expected.get(&name(recorded)) {
                near(&outputs[output], &expected.to_f64(), &name(recorded));
            }
        }
    }
    let tokens = &expected["batch.input_ids"];
    let mask = integers(&expected["batch.attention_mask"]);
    let longest = tokens.shape[1];
    let length: Vec<i32> = mask.chunks(longest).map(|row| row.iter().sum()).collect();
    let outputs = encode(
        &model,
        tokens,
        expected.get("batch.token_type_ids"),
        &length,
    );
    if let Some(expected) = expected.get("batch.logits") {
        near(&outputs[step::SCORES], &expected.to_f64(), "batch.logits");
    }
    if let Some(states) = expected.get("batch.last_hidden_state") {
        let width = states.shape[2];
        // The rows of padding hold nothing.
        let kept = |all: &[f64]| -> Vec<f64> {
            let rows = all.chunks(width).zip(&mask);
            rows.filter(|(_, mask)| **mask == 1)
                .flat_map(|(row, _)| row.to_vec())
                .collect()
        };
        let got = kept(&outputs[step::STATES]);
        near(&got, &kept(&states.to_f64()), "batch.last_hidden_state");
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong.join("\n").into()),
    }
}

fn pending(folder: &Path) -> Result<(), Failed> {
    match Model::load(folder) {
        Err(_) => Ok(()),
        Ok(_) => Err("loads; take it out of PENDING".into()),
    }
}

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    let entries = [support::goldens(), support::families()]
        .into_iter()
        .flat_map(|all| std::fs::read_dir(all).expect("the goldens can be listed"));
    for entry in entries {
        let folder = entry.expect("the goldens can be listed").path();
        let recorded = read_tensors(&folder.join("expected.safetensors"));
        // Decoders and models of several kinds of input record other things.
        let is_encoder = recorded.is_ok_and(|recorded| {
            recorded.contains_key("batch.input_ids") && !recorded.contains_key("p9.greedy")
        });
        if !is_encoder {
            continue;
        }
        let name = folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let check = match PENDING.contains(&name.as_str()) {
            true => pending,
            false => check,
        };
        trials.push(Trial::test(name, move || check(&folder)));
    }
    libtest_mimic::run(&arguments, trials).exit();
}
