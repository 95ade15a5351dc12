//! Golden checkpoints, interpreted in f32, give the logits, hidden states and tokens that Hugging
//! Face transformers recorded. One test for each folder of the archives that holds a decoder.

mod common;

use common::{Run, relative_error};
use libtest_mimic::{Arguments, Failed, Trial};
use mlxcel_frontend::{GraphOptions, Model, read_tensors};
use mlxcel_ir::{HostTensor, step, text};
use mlxcel_test_support as support;
use std::collections::BTreeMap;
use std::path::Path;

/// The budget of a relative error, from the issue of the goldens: both sides compute in f32.
const BUDGET: f64 = 1e-5;

/// Decoders whose family is not read yet. One that loads must leave the list.
const PENDING: &[&str] = &[];

fn integers(tensor: &HostTensor) -> Vec<i32> {
    let numbers = tensor.to_f64().into_iter();
    numbers.map(|number| number as i32).collect()
}

/// What is wrong with one model; empty when nothing is.
struct Report {
    faults: Vec<String>,
    /// How large a relative error may be.
    budget: f64,
}

impl Report {
    fn near(&mut self, got: &[f64], expected: &HostTensor, what: &str) {
        let error = relative_error(got, &expected.to_f64());
        if error.is_nan() || error > self.budget {
            self.faults
                .push(format!("{what}: relative error {error:.3e}"));
        }
    }

    fn equal<T: PartialEq + std::fmt::Debug>(&mut self, got: T, expected: T, what: &str) {
        if got != expected {
            self.faults
                .push(format!("{what}: {got:?} instead of {expected:?}"));
        }
    }
}

/// One prompt at once, then token by token.
fn check_prompt(
    report: &mut Report,
    model: &Model,
    expected: &BTreeMap<String, HostTensor>,
    length: usize,
) {
    let prompt = integers(&expected[&format!("p{length}.input_ids")]);
    let logits = &expected[&format!("p{length}.logits")];
    let what = format!("{length} tokens");
    let at_once = Run::new(model, 1, 64).step(std::slice::from_ref(&prompt), &[0]);
    for layer in 0..model.layers() {
        if let Some(hidden) = expected.get(&format!("p{length}.layer.{layer}")) {
            let got = &at_once[&step::hidden(layer)];
            report.near(got, hidden, &format!("{what}, layer {layer}"));
        }
    }
    report.near(&at_once[step::LOGITS], logits, &what);
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
    report.near(&stepped, logits, &format!("{what}, one by one"));
}

fn check_greedy(report: &mut Report, model: &Model, expected: &BTreeMap<String, HostTensor>) {
    let prompt = integers(&expected["p9.input_ids"]);
    let tokens = integers(&expected["p9.greedy"]);
    let got = Run::new(model, 1, 64).greedy(&[prompt], tokens.len());
    report.equal(got, vec![tokens], "greedy");

    // Some families have no batch: transformers does not give its padded row the right tokens.
    if !expected.contains_key("batch.greedy") {
        return;
    }
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
    report.equal(got, rows, "batch");
}

fn graph(model: &Model) -> String {
    let graph = model.graph(&GraphOptions::default());
    text::print(&graph.expect("a loaded model has a graph"))
}

fn check(folder: &Path) -> Result<(), Failed> {
    let expected = read_tensors(&folder.join("expected.safetensors"))?;
    let model = Model::load(folder)?;
    let name = folder.file_name().unwrap_or_default();
    let mut report = Report {
        faults: Vec::new(),
        budget: BUDGET + support::inexactness(&name.to_string_lossy()),
    };
    let examine = |model: &Model, report: &mut Report| {
        for length in [1, 9, 45] {
            check_prompt(report, model, &expected, length);
        }
        check_greedy(report, model, &expected);
    };
    examine(&model, &mut report);
    if folder.join("config.v4.json").exists() {
        let other = tempfile::tempdir()?;
        let other = other.path().join("v4");
        support::copy_folder(folder, &other);
        std::fs::rename(other.join("config.v4.json"), other.join("config.json"))?;
        let other = Model::load(&other)?;
        // The same graph needs no second run.
        if graph(&other) != graph(&model) {
            report
                .faults
                .push("the older spelling gives another graph".into());
            examine(&other, &mut report);
        }
    }
    match report.faults.is_empty() {
        true => Ok(()),
        false => Err(report.faults.join("\n").into()),
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
        // Encoders and models of several kinds of input record other things.
        if !recorded.is_ok_and(|recorded| recorded.contains_key("p9.greedy")) {
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
