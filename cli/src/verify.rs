//! `mlxcel verify`: every execution of a model, or an artifact, held against the interpreter.

mod artifact;
mod options;

pub(crate) use artifact::{after_compiling, stored};

use crate::args::{ChangeArguments, float_dtype, positive};
use crate::failure::{Reported, Usage};
use crate::output;
use crate::progress::Spinner;
use clap::{Args, ValueEnum};
use mlxcel_frontend::Model;
use mlxcel_ir::DType;
use mlxcel_oracle::case::{self, Case};
use mlxcel_oracle::{Backend, Fault, Report, Verdict, VerifyOptions, html, verify_model};
use options::{Given, Subject};
use std::path::{Path, PathBuf};

/// Compare every execution of a model with the interpreter, layer by layer; or what an artifact computes.
///
/// An artifact is held against the checkpoint that it was compiled from, if --source names it, else against
/// the numbers that `mlxcel compile --verify` stored in it.
///
/// Exits with 0 if every execution is as close to the interpreter as rounding explains, with 1, after
/// its report, if one is not, with 2 for wrong usage and with 3 if something could not run. The report
/// names the first node at fault and the side that computes it wrongly.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mlxcel verify ./SmolLM2-135M-Instruct\n  \
    mlxcel verify ./demo --prompt 'What is a violin?' --backends mlx\n  \
    mlxcel verify ./demo --tokens 1,2,3 --json > report.json\n  \
    mlxcel verify ./demo --text-file novel.txt --limit 2048 --html report.html\n  \
    mlxcel verify ./demo --level nodes\n  \
    mlxcel verify ./demo --level tokens --max-tokens 64\n  \
    mlxcel verify smollm2-cpu --source ./SmolLM2-135M-Instruct\n  \
    mlxcel verify ./faults/kernels.mxg")]
pub(crate) struct Arguments {
    // The first field, since those before it take their values out of what it looks at.
    #[command(flatten)]
    given: Given,
    /// A model folder, a .gguf file, a compiled artifact, or a case (.mxg) that was written with --repro.
    model: PathBuf,
    /// The model that an artifact was compiled from.
    #[arg(long, value_name = "MODEL")]
    source: Option<PathBuf>,
    /// Where to run an artifact: local-task, local-sync, cuda:N, hip:N or vulkan:N.
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// The text to run; a sentence of mlxcel's own if not given.
    #[arg(long, short = 'p', value_name = "TEXT", conflicts_with_all = ["tokens", "text_file"])]
    prompt: Option<String>,
    /// A file with the text to run, many tokens at a time, each time from an empty cache.
    #[arg(long, value_name = "FILE", conflicts_with = "tokens")]
    text_file: Option<PathBuf>,
    /// How many tokens of a text file are run.
    #[arg(
        long,
        value_name = "TOKENS",
        default_value = "2048",
        requires = "text_file",
        value_parser = positive
    )]
    limit: usize,
    /// How many tokens of a text file are run at a time.
    #[arg(
        long,
        value_name = "TOKENS",
        default_value = "256",
        requires = "text_file",
        value_parser = positive
    )]
    chunk: usize,
    /// How closely to look: at the hidden state after each layer and the logits; at every node by itself as
    /// well; or at the tokens that each execution chooses after the prompt as well. Of an artifact only the
    /// logits can be seen, and the tokens.
    #[arg(long, value_name = "LEVEL", value_enum, default_value = "layers")]
    level: Level,
    /// How many tokens are chosen at the level `tokens`.
    #[arg(long, value_name = "TOKENS", default_value = "32", value_parser = positive)]
    max_tokens: usize,
    /// The token ids to run, instead of a text.
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    tokens: Option<Vec<u32>>,
    /// The executions to compare.
    #[arg(
        long,
        value_name = "NAMES",
        value_enum,
        value_delimiter = ',',
        default_value = "mlx,kernels,iree"
    )]
    backends: Vec<BackendName>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    /// Write the report, with plots, as one HTML page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Element type of the caches of all executions, the interpreter included: f32, f16 or bf16.
    #[arg(long, value_name = "DTYPE", value_parser = float_dtype)]
    kv_dtype: Option<DType>,
    /// Where to write a node at fault as a case of its own, which `verify` of that file runs again.
    #[arg(long, value_name = "FOLDER")]
    repro: Option<PathBuf>,
    #[command(flatten)]
    changes: ChangeArguments,
    /// Perturb a weight that one backend sees, to test this command.
    #[arg(long, value_name = "BACKEND:WEIGHT", hide = true, value_parser = fault)]
    fault: Option<Fault>,
}

/// How closely to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Level {
    Layers,
    Nodes,
    Tokens,
}

/// An execution that can be verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BackendName {
    Mlx,
    Kernels,
    Iree,
}

impl From<BackendName> for Backend {
    fn from(name: BackendName) -> Self {
        match name {
            BackendName::Mlx => Backend::Mlx,
            BackendName::Kernels => Backend::Kernels,
            BackendName::Iree => Backend::Iree,
        }
    }
}

fn fault(text: &str) -> Result<Fault, String> {
    let (backend, weight) = text.split_once(':').ok_or("must be BACKEND:WEIGHT")?;
    Ok(Fault {
        backend: BackendName::from_str(backend, true)?.into(),
        weight: weight.into(),
    })
}

/// What kept a verification from being carried out.
#[derive(Debug, thiserror::Error)]
#[error("the verification could not be carried out: {0}")]
pub(crate) struct NotRun(String);

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match options::subject(arguments)? {
        Subject::Model => executions(arguments),
        Subject::WithSource | Subject::Artifact => artifact::run(arguments),
        Subject::Case => again(&arguments.model),
    }
}

/// Verifies every execution of a model.
fn executions(arguments: &Arguments) -> anyhow::Result<()> {
    let spinner = Spinner::new(format!("loading {}", arguments.model.display()));
    let model = arguments.changes.load(&arguments.model)?;
    let (tokens, chunk) = tokens(arguments, &model)?.unzip();
    let options = VerifyOptions {
        tokens,
        chunk: chunk.flatten(),
        nodes: arguments.level == Level::Nodes,
        choose: (arguments.level == Level::Tokens).then_some(arguments.max_tokens),
        backends: arguments
            .backends
            .iter()
            .copied()
            .map(Backend::from)
            .collect(),
        kv: arguments.kv_dtype,
        fault: arguments.fault.clone(),
    };
    let report = verify_model(&model, &options, &|stage| {
        spinner.say(format!("verifying: {stage}"))
    });
    let mut report = report.map_err(|error| NotRun(mlxcel_oracle::known::full(&error)))?;
    drop(spinner);
    if let Some(folder) = &arguments.repro {
        keep(folder, &mut report)?;
    }
    tell(arguments, &report)
}

/// The tokens to run, and how many at a time if not all; `None` if none were chosen.
fn tokens(
    arguments: &Arguments,
    model: &Model,
) -> anyhow::Result<Option<(Vec<u32>, Option<usize>)>> {
    let (tokens, chunk) = match (&arguments.prompt, &arguments.text_file, &arguments.tokens) {
        (Some(prompt), _, _) => (model.text()?.encode(prompt, true)?, None),
        (_, Some(file), _) => {
            let mut tokens = model.text()?.encode(&read(file)?, true)?;
            tokens.truncate(arguments.limit);
            (tokens, Some(arguments.chunk))
        }
        (_, _, Some(tokens)) => (tokens.clone(), None),
        _ => return Ok(None),
    };
    match tokens.is_empty() {
        true => Err(Usage("the prompt has no tokens; give at least one".into()).into()),
        false => Ok(Some((tokens, chunk))),
    }
}

/// Writes the cases of a report.
fn keep(folder: &Path, report: &mut Report) -> Result<(), NotRun> {
    let wrong = |error: &dyn std::error::Error| NotRun(error.to_string());
    for finding in &mut report.findings {
        let Some(case) = &finding.case else { continue };
        std::fs::create_dir_all(folder).map_err(|error| wrong(&error))?;
        let file = folder.join(format!("{}.mxg", finding.execution));
        case.write(&file).map_err(|error| wrong(&error))?;
        finding.again = Some(format!("mlxcel verify {}", file.display()));
    }
    Ok(())
}

/// Runs a case on every execution.
fn again(file: &Path) -> anyhow::Result<()> {
    let case = Case::read(file).map_err(|error| Usage(error.to_string()))?;
    let spinner = Spinner::new(format!("verifying {}", file.display()));
    let trials = case.trials();
    drop(spinner);
    let trials = trials.map_err(|error| NotRun(mlxcel_oracle::known::full(&error)))?;
    for trial in &trials {
        output::line(&trial.to_string())?;
    }
    match case::code(&trials) {
        0 => Ok(()),
        1 => Err(Reported.into()),
        _ => Err(NotRun("an execution did not run".into()).into()),
    }
}

/// Tells a report; fails if its verdict is bad.
fn tell(arguments: &Arguments, report: &Report) -> anyhow::Result<()> {
    if let Some(file) = &arguments.html {
        std::fs::write(file, html::page(report))
            .map_err(|error| NotRun(format!("{} cannot be written: {error}", file.display())))?;
    }
    match arguments.json {
        true => output::json(report)?,
        false => output::line(&report.to_string())?,
    }
    match report.verdict {
        Verdict::Pass => Ok(()),
        Verdict::Mismatch => Err(Reported.into()),
    }
}

fn read(file: &Path) -> Result<String, Usage> {
    std::fs::read_to_string(file)
        .map_err(|error| Usage(format!("{} cannot be read: {error}", file.display())))
}
