//! `mlxcel compile`: a model becomes an artifact.

use crate::args::{ChangeArguments, positive};
use crate::failure::Usage;
use crate::output;
use crate::progress::CompileBar;
use clap::Args;
use mlxcel_engine::is_artifact;
use mlxcel_lower::{CompileOptions, Summary, Target, compile};
use serde_json::json;
use std::path::PathBuf;

/// Compile a model into an artifact: a folder that runs with no compiler.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mlxcel compile ./SmolLM2-135M-Instruct --target iree-cpu\n  \
    mlxcel compile SmolLM2-135M-Instruct.Q4_1.gguf --target iree-cuda --chip sm_89 -o smollm2-sm89\n  \
    mlxcel compile ./Qwen3-0.6B --target iree-vulkan --context 4096 --json")]
pub(crate) struct Arguments {
    /// A model folder or a .gguf file.
    model: PathBuf,
    /// What to compile for: iree-cpu, iree-cuda, iree-rocm, iree-vulkan or iree-metal.
    #[arg(long, short = 't', value_name = "TARGET")]
    target: String,
    /// The chip of the target; the message about an unknown one lists those that are known.
    #[arg(long, value_name = "CHIP")]
    chip: Option<String>,
    /// The artifact's folder, which is replaced if it is an artifact [default: MODEL-TARGET].
    #[arg(long, short = 'o', value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Tokens that the artifact's cache holds; without it, the model's context up to 1024.
    #[arg(long, value_name = "TOKENS", value_parser = positive)]
    context: Option<usize>,
    /// Print a JSON object with time, size and dispatch count.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    changes: ChangeArguments,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    // Before the model is loaded, which takes longer than being told of a wrong name.
    let target = Target::new(&arguments.target, arguments.chip.as_deref())?;
    if is_artifact(&arguments.model) {
        let model = arguments.model.display();
        return Err(Usage(format!("{model}: is compiled already; give the model")).into());
    }
    let bar = CompileBar::new(format!("loading {}", arguments.model.display()));
    let model = arguments.changes.load(&arguments.model)?;
    let output = match &arguments.output {
        Some(output) => output.clone(),
        None => PathBuf::from(format!("{}-{}", model.name(), target.name())),
    };
    let mut options = CompileOptions::new(&model, target, output);
    if let Some(context) = arguments.context {
        options.context = context;
    }
    let summary = compile(&model, &options, &|progress| bar.show(progress))?;
    drop(bar);
    match arguments.json {
        true => output::json(&json(&target, &options, &summary)),
        false => {
            tell(&target, &summary);
            Ok(())
        }
    }
}

fn tell(target: &Target, summary: &Summary) {
    let Summary {
        path,
        time,
        bytes,
        module_bytes,
        dispatches,
        ..
    } = summary;
    anstream::eprintln!(
        "\x1b[1m{}\x1b[0m: {} for {}, {}, of which {} code, {dispatches} dispatches, in {:.1} s",
        path.display(),
        target.name(),
        target.chip(),
        output::bytes(*bytes),
        output::bytes(*module_bytes),
        time.as_secs_f64(),
    );
}

fn json(target: &Target, options: &CompileOptions, summary: &Summary) -> serde_json::Value {
    json!({
        "path": summary.path,
        "target": target.name(),
        "chip": target.chip(),
        "context": options.context,
        "seconds": summary.time.as_secs_f64(),
        "bytes": summary.bytes,
        "module_bytes": summary.module_bytes,
        "dispatches": summary.dispatches,
        "functions": summary.functions,
    })
}
