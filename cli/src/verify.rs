//! `mlxcel verify`: every execution of a model held against the interpreter.

use crate::args::ChangeArguments;
use crate::failure::{Reported, Usage};
use crate::output;
use crate::progress::Spinner;
use clap::{Args, ValueEnum};
use mlxcel_oracle::{Backend, Fault, Verdict, VerifyOptions, verify_model};
use std::path::PathBuf;

/// Compare every execution of a model with the interpreter, layer by layer.
///
/// Exits with 1, after its report, if an execution is further from the interpreter than rounding
/// explains. The report names the first node at fault and the side that computes it wrongly.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mlxcel verify ./SmolLM2-135M-Instruct\n  \
    mlxcel verify ./demo --prompt 'What is a violin?' --backends mlx\n  \
    mlxcel verify ./demo --tokens 1,2,3 --json > report.json")]
pub(crate) struct Arguments {
    /// A model folder or a .gguf file.
    model: PathBuf,
    /// The text to run; a sentence of mlxcel's own if not given.
    #[arg(long, short = 'p', value_name = "TEXT", conflicts_with = "tokens")]
    prompt: Option<String>,
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
    #[command(flatten)]
    changes: ChangeArguments,
    /// Perturb a weight that one backend sees, to test this command.
    #[arg(long, value_name = "BACKEND:WEIGHT", hide = true, value_parser = fault)]
    fault: Option<Fault>,
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

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let spinner = Spinner::new(format!("loading {}", arguments.model.display()));
    let model = arguments.changes.load(&arguments.model)?;
    let tokens = match &arguments.prompt {
        Some(prompt) => Some(model.text()?.encode(prompt, true)?),
        None => arguments.tokens.clone(),
    };
    if let Some([]) = tokens.as_deref() {
        return Err(Usage("the prompt has no tokens; give at least one".into()).into());
    }
    let options = VerifyOptions {
        tokens,
        backends: arguments
            .backends
            .iter()
            .copied()
            .map(Backend::from)
            .collect(),
        fault: arguments.fault.clone(),
    };
    let report = verify_model(&model, &options, &|stage| {
        spinner.say(format!("verifying: {stage}"))
    })?;
    drop(spinner);
    match arguments.json {
        true => output::json(&report)?,
        false => output::line(&report.to_string())?,
    }
    match report.verdict {
        Verdict::Pass => Ok(()),
        Verdict::Mismatch => Err(Reported.into()),
    }
}
