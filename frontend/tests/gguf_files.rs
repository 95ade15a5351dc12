//! GGUF files of every architecture that can be made, as llama.cpp's converter writes them, give the
//! logits that Hugging Face transformers gave for the checkpoint that was converted, in f32.

mod common;

use common::{Run, relative_error};
use libtest_mimic::{Arguments, Failed, Trial};
use mlxcel_frontend::Model;
use mlxcel_ir::step;
use mlxcel_test_support::gguf_files;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The budget of a relative error; both sides compute in f32.
const BUDGET: f64 = 1e-5;

/// What is recorded of a file: a prompt, and the logits after its ninth and its last token.
#[derive(Deserialize)]
struct Record {
    ids: Vec<i32>,
    logits: Vec<f64>,
}

fn check(file: &Path) -> Result<(), Failed> {
    let record: Record = serde_json::from_slice(&std::fs::read(file.with_extension("json"))?)?;
    let model = Model::load(file)?;
    let vocabulary = model.config().vocabulary;
    let logits = Run::new(&model, 1, 64)
        .step(std::slice::from_ref(&record.ids), &[0])
        .remove(step::LOGITS);
    let logits = logits.ok_or("no logits")?;
    let rows = [8, record.ids.len() - 1];
    let rows = rows.map(|row| &logits[row * vocabulary..(row + 1) * vocabulary]);
    let error = relative_error(&rows.concat(), &record.logits);
    match error <= BUDGET {
        true => Ok(()),
        false => Err(format!("relative error {error:.3e}").into()),
    }
}

fn main() {
    let arguments = Arguments::from_args();
    let entries = std::fs::read_dir(gguf_files()).expect("the files are unpacked");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("the files can be listed").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "gguf")
        })
        .collect();
    files.sort();
    let trials = files.into_iter().map(|file| {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        Trial::test(name.into_owned(), move || check(&file))
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}
