//! Every recorded checkpoint on every execution, against what Hugging Face transformers computed in f32:
//! logits after each token, of a prompt at once and token by token, hidden states after each layer, and
//! greedy tokens; of encoders their states, vectors and scores. One test for each checkpoint and execution.
//!
//! The book's page on families is the outcome: `MLXCEL_BLESS=1` writes it anew.

mod decoder;
mod encoder;
mod page;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use mlxcel_engine::Backend;
use mlxcel_frontend::{GraphOptions, Model};
use mlxcel_ir::Graph;
use mlxcel_test_support::{
    RecordedCase, Tensors, copy_folder, demo_model, families, gguf_files, goldens, inexactness,
    recorded_cases,
};
use serde::Deserialize;

const BACKENDS: [Backend; 3] = [Backend::Reference, Backend::Mlx, Backend::Iree];

/// Recorded checkpoints that take images or sound, which no family reads.
const OTHERS: [&str; 3] = ["qwen2_vl", "llava", "whisper"];

/// What an execution is held to: the relative RMS error.
fn budget(backend: Backend) -> f64 {
    match backend {
        Backend::Reference | Backend::Mlx => 1e-5,
        Backend::Iree => 1e-4,
    }
}

/// A recorded checkpoint.
#[derive(Clone, Debug)]
struct Checkpoint {
    name: String,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Decoder(PathBuf),
    Encoder(PathBuf),
    /// A decoder of which little is recorded.
    Case(Box<RecordedCase>),
    /// One in a GGUF file, with as little. Its graph is like those of the others, so that it runs on MLX
    /// alone, and is left out of the book's page.
    Gguf(PathBuf),
}

impl Checkpoint {
    /// `None` for what takes images or sound.
    fn at(folder: PathBuf) -> Option<Self> {
        let name = folder.file_name()?.to_string_lossy().into_owned();
        if OTHERS.contains(&name.as_str()) {
            return None;
        }
        let names = Tensors::read(&folder.join("expected.safetensors")).names();
        let has = |wanted: &str| names.iter().any(|name| name == wanted);
        let kind = match has("p9.greedy") || has("logits") {
            true => Kind::Decoder(folder),
            false => Kind::Encoder(folder),
        };
        Some(Self { name, kind })
    }

    fn all() -> Vec<Self> {
        let entries = [goldens(), families()]
            .into_iter()
            .flat_map(|all| fs::read_dir(all).expect("the checkpoints can be listed"));
        let folders = entries
            .map(|entry| entry.expect("the checkpoints can be listed").path())
            .chain([demo_model()]);
        let mut all: Vec<Self> = folders
            .filter(|folder| folder.is_dir())
            .filter_map(Self::at)
            .chain(
                recorded_cases()
                    .into_iter()
                    .filter(|case| !case.whole)
                    .map(|case| Self {
                        name: case.name.clone(),
                        kind: Kind::Case(Box::new(case)),
                    }),
            )
            .collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Those in GGUF files.
    fn gguf() -> Vec<Self> {
        let entries = fs::read_dir(gguf_files()).expect("the files can be listed");
        let files = entries.map(|entry| entry.expect("the files can be listed").path());
        let mut all: Vec<Self> = files
            .filter(|file| file.extension().is_some_and(|ending| ending == "gguf"))
            .map(|file| Self {
                name: file
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into(),
                kind: Kind::Gguf(file),
            })
            .collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Whether `backend` runs it at all.
    fn runs_on(&self, backend: Backend) -> bool {
        match self.kind {
            Kind::Encoder(_) => backend != Backend::Iree,
            Kind::Gguf(_) => backend == Backend::Mlx,
            Kind::Decoder(_) | Kind::Case(_) => true,
        }
    }

    /// A copy of the model in `folder`.
    fn write(&self, folder: &Path) -> PathBuf {
        let model = folder.join(&self.name);
        match &self.kind {
            Kind::Decoder(from) | Kind::Encoder(from) => copy_folder(from, &model),
            Kind::Case(case) => {
                fs::create_dir_all(&model).expect("a folder can be made");
                case.write(&model);
            }
            Kind::Gguf(file) => drop(fs::copy(file, &model).expect("a file can be copied")),
        }
        model
    }
}

/// What is recorded of a GGUF file: a prompt, and the logits after its ninth and its last token.
#[derive(Deserialize)]
struct Record {
    ids: Vec<u32>,
    logits: Vec<f32>,
}

/// Collects what is wrong.
#[derive(Debug, Default)]
struct Faults(Vec<String>);

impl Faults {
    fn near(&mut self, values: &[f32], expect: &[f32], budget: f64, what: &str) {
        if values.len() != expect.len() {
            let [got, expected] = [values.len(), expect.len()];
            return self
                .0
                .push(format!("{what}: {got} values instead of {expected}"));
        }
        let error = mlxcel_test_support::relative_error(values, expect);
        if error.is_nan() || error > budget {
            self.0.push(format!(
                "{what}: relative error {error:.2e}, budget {budget:.0e}"
            ));
        }
    }

    fn equal<T: PartialEq + std::fmt::Debug>(&mut self, got: T, expect: T, what: &str) {
        if got != expect {
            self.0
                .push(format!("{what}: {got:?} instead of {expect:?}"));
        }
    }
}

fn check(checkpoint: &Checkpoint, backend: Backend) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let model = checkpoint.write(folder.path());
    let budget = budget(backend) + inexactness(&checkpoint.name);
    let mut faults = Faults::default();
    match &checkpoint.kind {
        Kind::Decoder(_) => decoder::check(&model, backend, budget, &mut faults)?,
        Kind::Encoder(_) => encoder::check(&model, backend, budget, &mut faults)?,
        Kind::Case(case) => {
            let expect = (case.ids.as_slice(), case.rows(), case.logits.as_slice());
            decoder::check_case(&model, expect, backend, budget, &mut faults)?;
        }
        Kind::Gguf(file) => {
            let record = fs::read(file.with_extension("json"))?;
            let Record { ids, logits } = serde_json::from_slice(&record)?;
            let expect = (ids.as_slice(), [8, ids.len() - 1], logits.as_slice());
            decoder::check_case(&model, expect, backend, budget, &mut faults)?;
        }
    }
    // A graph that is the same needs no second run.
    let older = model.join("config.v4.json");
    if older.exists() {
        let graph = |model: &Path| graph(&Model::load(model)?);
        let newer = graph(&model)?;
        fs::rename(&older, model.join("config.json"))?;
        if graph(&model)? != newer {
            faults
                .0
                .push("the older spelling gives another graph".into());
        }
    }
    match faults.0.is_empty() {
        true => Ok(()),
        false => Err(faults.0.join("\n").into()),
    }
}

/// The graph of a model, to be compared.
fn graph(model: &Model) -> Result<Graph, Failed> {
    Ok(match model.encoder() {
        Some(_) => model.encoder_graph("encode", false)?,
        None => model.graph(&GraphOptions::default())?,
    })
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let checkpoints = Checkpoint::all();
    let files = Checkpoint::gguf();
    let outcomes = page::Outcomes::default();
    let mut trials = Vec::new();
    for backend in BACKENDS {
        let all = checkpoints.iter().chain(&files);
        for checkpoint in all.filter(|one| one.runs_on(backend)) {
            let (checkpoint, outcomes) = (checkpoint.clone(), outcomes.clone());
            trials.push(Trial::test(
                format!("{}::{backend}", checkpoint.name),
                move || {
                    let outcome = check(&checkpoint, backend);
                    outcomes.tell(&checkpoint.name, backend, outcome.is_ok());
                    outcome
                },
            ));
        }
    }
    let count = trials.len();
    let conclusion = libtest_mimic::run(&arguments, trials);
    if conclusion.has_failed() || conclusion.num_passed as usize != count {
        return conclusion.exit_code();
    }
    match page::check(&checkpoints, &outcomes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}
