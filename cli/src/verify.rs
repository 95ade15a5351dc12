//! `mlxcel verify`: every execution of a model, or an artifact, held against the interpreter.

mod artifact;

pub(crate) use artifact::{after_compiling, stored};

use crate::args::{ChangeArguments, cache_dtype};
use crate::failure::{Reported, Usage};
use crate::output;
use crate::progress::Spinner;
use clap::{Args, ValueEnum};
use mlxcel_frontend::artifact::is_artifact;
use mlxcel_ir::DType;
use mlxcel_oracle::{Backend, Fault, Report, Verdict, VerifyOptions, html, verify_model};
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
    mlxcel verify smollm2-cpu --source ./SmolLM2-135M-Instruct")]
pub(crate) struct Arguments {
    /// A model folder, a .gguf file, or a compiled artifact.
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
    #[arg(long, value_name = "TOKENS", default_value_t = 2048)]
    limit: usize,
    /// How many tokens of a text file are run at a time.
    #[arg(long, value_name = "TOKENS", default_value_t = 256)]
    chunk: usize,
    /// How closely to look: at the hidden state after each layer and the logits, or at every node by
    /// itself as well.
    #[arg(long, value_name = "LEVEL", value_enum, default_value = "layers")]
    level: Level,
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
    #[arg(long, value_name = "DTYPE", value_parser = cache_dtype)]
    kv_dtype: Option<DType>,
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
    if is_artifact(&arguments.model) {
        return artifact::run(arguments);
    }
    if arguments.source.is_some() || arguments.device.is_some() {
        let model = arguments.model.display();
        return Err(Usage(format!("{model}: --source and --device are for artifacts")).into());
    }
    let spinner = Spinner::new(format!("loading {}", arguments.model.display()));
    let model = arguments.changes.load(&arguments.model)?;
    let mut tokens = match (&arguments.prompt, &arguments.text_file) {
        (Some(prompt), _) => Some(model.text()?.encode(prompt, true)?),
        (_, Some(file)) => Some(model.text()?.encode(&read(file)?, true)?),
        _ => arguments.tokens.clone(),
    };
    if arguments.text_file.is_some()
        && let Some(tokens) = &mut tokens
    {
        tokens.truncate(arguments.limit);
    }
    if let Some([]) = tokens.as_deref() {
        return Err(Usage("the prompt has no tokens; give at least one".into()).into());
    }
    let options = VerifyOptions {
        tokens,
        chunk: arguments
            .text_file
            .is_some()
            .then_some(arguments.chunk.max(1)),
        nodes: arguments.level == Level::Nodes,
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
    let report = report.map_err(|error| NotRun(mlxcel_oracle::known::full(&error)))?;
    drop(spinner);
    tell(arguments, &report)
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
