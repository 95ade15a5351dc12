//! GGUF files of every architecture that can be made, as llama.cpp's converter writes them, give the
//! logits that Hugging Face transformers gave for the checkpoint that was converted, in f32.

mod common;
#[path = "common/gguf.rs"]
mod writer;

use common::{Run, relative_error};
use libtest_mimic::{Arguments, Failed, Trial};
use mlxcel_frontend::{LoadError, Model};
use mlxcel_ir::step;
use mlxcel_test_support::gguf_files;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use writer::Writer;

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

/// Architectures whose files the converter does not make from what transformers has; `gguf.rs` makes some.
const ELSEWHERE: [&str; 1] = ["internlm2"];

/// Every architecture that is read has a file here. The message about one that is not known lists them.
fn every_architecture_has_a_file(files: &[PathBuf]) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let unknown = folder.path().join("unknown.gguf");
    let file = Writer::default().text("general.architecture", "unknown");
    std::fs::write(&unknown, file.finish())?;
    let Err(LoadError::Family { supported, .. }) = Model::load(&unknown) else {
        return Err("an unknown architecture is not refused as such".into());
    };
    let mut missing: BTreeSet<String> = supported.into_iter().collect();
    for name in ELSEWHERE {
        missing.remove(name);
    }
    for file in files {
        let bytes = std::fs::read(file)?;
        missing.remove(architecture(&bytes).ok_or("a file without an architecture")?);
    }
    match missing.is_empty() {
        true => Ok(()),
        false => Err(format!("no file of {missing:?}").into()),
    }
}

/// What the file `bytes` says of its architecture: a text after its key, its kind and its length.
fn architecture(bytes: &[u8]) -> Option<&str> {
    const KEY: &[u8] = b"general.architecture";
    let at = bytes.windows(KEY.len()).position(|part| part == KEY)? + KEY.len() + 4;
    let (length, rest) = bytes.get(at..)?.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    std::str::from_utf8(rest.get(..length)?).ok()
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
    let trials = files.clone().into_iter().map(|file| {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        Trial::test(name.into_owned(), move || check(&file))
    });
    let all = Trial::test("every_architecture_has_a_file", move || {
        every_architecture_has_a_file(&files)
    });
    libtest_mimic::run(&arguments, trials.chain([all]).collect()).exit();
}
