//! `mlxcel compile`: a model becomes an artifact.

use crate::args::{ChangeArguments, float_dtype, positive};
use crate::failure::{Reported, Usage};
use crate::output;
use crate::progress::CompileBar;
use crate::verify::{after_compiling, stored};
use anyhow::Context;
use clap::{Args, ValueEnum};
use mlxcel_frontend::LoadOptions;
use mlxcel_frontend::artifact::is_artifact;
use mlxcel_ir::DType;
use mlxcel_lower::{Cache, CompileOptions, Form, Product, Summary, Target, compile, emit, memory};
use mlxcel_oracle::{Report, Verdict};
use serde_json::json;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// Compile a model into an artifact: a folder or file that runs with no compiler.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mlxcel compile ./SmolLM2-135M-Instruct --target iree-cpu\n  \
    mlxcel compile SmolLM2-135M-Instruct.Q4_1.gguf --target iree-cuda --chip sm_89 -o smollm2-sm89\n  \
    mlxcel compile ./Qwen3-0.6B --target iree-vulkan --context 4096 --json")]
pub(crate) struct Arguments {
    /// A model folder or a .gguf file.
    #[arg(required_unless_present = "list_targets")]
    model: Option<PathBuf>,
    /// What to compile for: iree-cpu, iree-cuda, iree-rocm, iree-vulkan or iree-metal.
    #[arg(
        long,
        short = 't',
        value_name = "TARGET",
        required_unless_present = "list_targets"
    )]
    target: Option<String>,
    /// The chip of the target; the message about an unknown one lists those that are known.
    #[arg(long, value_name = "CHIP")]
    chip: Option<String>,
    /// The artifact's folder or file, which is replaced if it is an artifact [default: MODEL-TARGET].
    #[arg(long, short = 'o', value_name = "PATH")]
    output: Option<PathBuf>,
    /// Tokens that the artifact's cache holds; without it, the model's context up to 1024.
    #[arg(long, value_name = "TOKENS", value_parser = positive)]
    context: Option<usize>,
    /// How the artifact lies on disk: a folder, or one file, which is used as it is.
    #[arg(long, value_name = "FORM", value_enum, default_value = "folder")]
    format: Format,
    /// Element type in which the caches keep keys and values: f32, f16 or bf16.
    #[arg(long, value_name = "DTYPE", value_parser = float_dtype, default_value = "f32")]
    kv_dtype: DType,
    /// Sizes of the prefill functions in tokens; without it 32, 128 and 512.
    #[arg(long, value_name = "TOKENS", value_delimiter = ',', value_parser = positive)]
    buckets: Option<Vec<usize>>,
    /// Sequences that one call extends; without it 1 alone. Rows of a step beyond that run one after the other.
    #[arg(long, value_name = "ROWS", value_delimiter = ',', value_parser = positive)]
    batch: Option<Vec<usize>>,
    /// Have the compiler make all code, and call none of this program's kernels.
    #[arg(long)]
    no_kernels: bool,
    /// Copy the weights into the artifact, or have it read those of the model where that is now.
    #[arg(long, value_name = "HOW", value_enum, default_value = "embed")]
    weights: Weights,
    /// Store what the interpreter computes for a few tokens in the artifact, for `mlxcel verify` where the model
    /// is not at hand, and hold the artifact against it if it can run here.
    #[arg(long)]
    verify: bool,
    /// Compile anew, and keep nothing for the next time.
    #[arg(long)]
    no_cache: bool,
    /// Write what goes to the compiler, or what it makes in each phase, to the output instead of an artifact.
    #[arg(long, value_name = "FORM", requires = "output")]
    emit: Option<Emit>,
    /// List the targets and their chips, and what has run on them.
    #[arg(long, exclusive = true)]
    list_targets: bool,
    /// Print a JSON object with time, size and dispatch count.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    changes: ChangeArguments,
}

/// How an artifact lies on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A folder.
    Folder,
    /// One file.
    File,
}

/// Where an artifact has its weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Weights {
    /// In itself.
    Embed,
    /// In the checkpoint.
    Reference,
}

/// A form of what goes to the compiler, or comes from it.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Emit {
    /// StableHLO as text.
    Stablehlo,
    /// StableHLO as MLIR's bytecode.
    MlirBytecode,
    /// A folder of the module as text after each phase of the compiler, and the compiled module.
    Phases,
}

impl Emit {
    fn product(self) -> Product {
        match self {
            Emit::Stablehlo => Product::Stablehlo,
            Emit::MlirBytecode => Product::Bytecode,
            Emit::Phases => Product::Phases,
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let (Some(path), Some(target)) = (&arguments.model, &arguments.target) else {
        return list_targets();
    };
    // Before the model is loaded, which takes longer than being told of a wrong name.
    let mut target = Target::new(target, arguments.chip.as_deref())?;
    if arguments.no_kernels {
        target = target.without_kernels();
    }
    if is_artifact(path) {
        let model = path.display();
        return Err(Usage(format!("{model}: is compiled already; give the model")).into());
    }
    let bar = CompileBar::new(format!("loading {}", path.display()));
    let model = arguments.changes.load(path)?;
    let output = match &arguments.output {
        Some(output) => output.clone(),
        None => PathBuf::from(format!("{}-{}", model.name(), target.name())),
    };
    let mut options = CompileOptions::new(&model, target, output);
    if let Some(context) = arguments.context {
        options.context = context;
    }
    options.kv = arguments.kv_dtype;
    options.form = match arguments.format {
        Format::Folder => Form::Folder,
        Format::File => Form::File,
    };
    if let Some(buckets) = &arguments.buckets {
        options.buckets.clone_from(buckets);
    }
    if let Some(batches) = &arguments.batch {
        options.batches.clone_from(batches);
    }
    if arguments.weights == Weights::Reference {
        if arguments.changes.options() != LoadOptions::default() {
            let problem = "an artifact that refers to a model's weights cannot have changed ones";
            return Err(Usage(problem.into()).into());
        }
        let absolute = std::fs::canonicalize(path)
            .with_context(|| format!("cannot find {}", path.display()))?;
        let absolute = absolute.into_os_string().into_string();
        let absolute = absolute.map_err(|path| Usage(format!("{path:?} is no text")))?;
        options.reference = Some(absolute);
    }
    if let Some(form) = arguments.emit {
        return Ok(emit(&model, &options, form.product())?);
    }
    if !arguments.no_cache {
        options.cache = Cache::of_user();
    }
    if arguments.verify {
        bar.say("computing reference values");
        options.contract = Some(stored(&model, options.context, options.kv)?);
    }
    stop_on_signals(&options)?;
    let summary = compile(&model, &options, &|progress| bar.show(progress))?;
    let verified = match arguments.verify {
        true => {
            bar.say("verifying");
            after_compiling(&model, &summary.path)?
        }
        false => None,
    };
    drop(bar);
    match arguments.json {
        true => output::json(&json(&target, &options, &summary, verified.as_ref()))?,
        false => {
            tell(&target, &summary);
            if let Some(report) = &verified {
                anstream::eprintln!("{report}");
            }
        }
    }
    match verified {
        Some(report) if report.verdict == Verdict::Mismatch => Err(Reported.into()),
        _ => Ok(()),
    }
}

/// Has signals stop the compilation, which then removes what it wrote. A second one ends at once.
fn stop_on_signals(options: &CompileOptions) -> anyhow::Result<()> {
    let cancel = options.cancel.clone();
    ctrlc::set_handler(move || {
        if cancel.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    })
    .context("cannot listen for signals")
}

fn list_targets() -> anyhow::Result<()> {
    for name in Target::names() {
        let Some(state) = Target::state(name) else {
            continue;
        };
        anstream::println!("\x1b[1m{name}\x1b[0m  {state}");
        anstream::println!("    {}", Target::chips(name).join(", "));
    }
    Ok(())
}

fn tell(target: &Target, summary: &Summary) {
    let Summary {
        path,
        time,
        bytes,
        module_bytes,
        dispatches,
        kernels,
        cached,
        ..
    } = summary;
    anstream::eprintln!(
        "\x1b[1m{}\x1b[0m: {} for {}, {}, of which {} code, {dispatches} dispatches ({kernels} of kernels), {} {:.1} s",
        path.display(),
        target.name(),
        target.chip(),
        output::bytes(*bytes),
        output::bytes(*module_bytes),
        if *cached { "from the cache in" } else { "in" },
        time.as_secs_f64(),
    );
}

fn json(
    target: &Target,
    options: &CompileOptions,
    summary: &Summary,
    verified: Option<&Report>,
) -> serde_json::Value {
    json!({
        "path": summary.path,
        "target": target.name(),
        "chip": target.chip(),
        "context": options.context,
        "kv_dtype": options.kv.name(),
        "seconds": summary.time.as_secs_f64(),
        "bytes": summary.bytes,
        "module_bytes": summary.module_bytes,
        "dispatches": summary.dispatches,
        "kernels": summary.kernels,
        "functions": summary.functions,
        "cached": summary.cached,
        "compiler_memory_bytes": summary.peak_memory,
        "peak_memory_bytes": memory::peak(),
        "verified": verified,
    })
}
