//! The command line: subcommands and the options that several of them share.

use crate::failure::Usage;
use crate::{arch, compile, embed, generate, inspect, logits, rerank, run, shell, verify};
use clap::{Args, ColorChoice, Parser, Subcommand, ValueEnum};
use mlxcel_engine::{Backend, OpenOptions, Options, Sampling};
use mlxcel_frontend::{Adapter, LoadOptions, Model};
use mlxcel_ir::DType;
use std::path::{Path, PathBuf};

/// Runs language models: eagerly on MLX, compiled by IREE, or interpreted.
#[derive(Debug, Parser)]
#[command(
    name = "mlxcel",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = "Examples:\n  \
        mlxcel run ./SmolLM2-135M-Instruct -p 'What is the capital of France?'\n  \
        mlxcel compile ./SmolLM2-135M-Instruct --target iree-cpu -o smollm2-cpu\n  \
        mlxcel run smollm2-cpu\n  \
        mlxcel verify ./SmolLM2-135M-Instruct\n\n\
        Exit codes: 0 done, 1 failed, 2 wrong usage, 3 `verify` could not run."
)]
pub(crate) struct Cli {
    /// When to use colours.
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "auto",
        value_name = "WHEN"
    )]
    pub(crate) color: ColorChoice,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(run::Arguments),
    Generate(generate::Arguments),
    Compile(compile::Arguments),
    Verify(verify::Arguments),
    Embed(embed::Arguments),
    Rerank(rerank::Arguments),
    Logits(logits::Arguments),
    Inspect(inspect::Arguments),
    Arch(arch::Arguments),
    Completions(shell::Completions),
    Man(shell::Man),
}

/// What executes a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendName {
    /// Eagerly, on MLX.
    Mlx,
    /// Compiled, by IREE. Takes an artifact that `mlxcel compile` made.
    Iree,
    /// By the interpreter: slow, and right by definition.
    Reference,
}

impl From<BackendName> for Backend {
    fn from(name: BackendName) -> Self {
        match name {
            BackendName::Mlx => Backend::Mlx,
            BackendName::Iree => Backend::Iree,
            BackendName::Reference => Backend::Reference,
        }
    }
}

/// A model and what executes it.
#[derive(Debug, Args)]
pub(crate) struct ModelArguments {
    /// A model folder (config.json and *.safetensors), a .gguf file, or a compiled artifact.
    pub(crate) model: PathBuf,
    /// What executes it; iree for an artifact, else mlx, if not given.
    #[arg(long, short = 'b', value_enum, value_name = "NAME")]
    pub(crate) backend: Option<BackendName>,
    /// Where to compute: cpu or gpu with mlx; local-task, local-sync, cuda:N, hip:N or vulkan:N with an
    /// artifact.
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Tokens of context, at most what the model or artifact has.
    #[arg(long, value_name = "TOKENS", value_parser = positive)]
    pub(crate) context: Option<usize>,
    /// Element type in which keys and values are kept, f32, f16 or bf16; f32 if not given. That of an artifact
    /// is chosen when it is compiled.
    #[arg(long, value_name = "DTYPE", value_parser = float_dtype)]
    pub(crate) kv_dtype: Option<DType>,
    #[command(flatten)]
    pub(crate) changes: ChangeArguments,
}

impl ModelArguments {
    pub(crate) fn options(&self) -> OpenOptions {
        OpenOptions {
            backend: self.backend.map(Backend::from),
            device: self.device.clone(),
            context: self.context,
            whole: false,
            kv: self.kv_dtype,
            load: self.changes.options(),
        }
    }
}

/// What is done to a model's weights when they are loaded.
#[derive(Debug, Args)]
#[command(next_help_heading = "Changes to the weights")]
pub(crate) struct ChangeArguments {
    /// Have the matrices that are not quantised as f32, f16 or bf16, rounded to the nearest, instead of as they are
    /// stored.
    #[arg(long, value_name = "DTYPE", value_parser = float_dtype)]
    dtype: Option<DType>,
    /// Load the LoRA adapter in this folder, of PEFT or mlx-lm.
    #[arg(long, value_name = "FOLDER")]
    adapter: Option<PathBuf>,
    /// Multiply the adapter's effect; 0 is none.
    #[arg(
        long,
        value_name = "X",
        requires = "adapter",
        default_value_t = 1.0,
        allow_negative_numbers = true
    )]
    adapter_scale: f64,
    /// Do the operations in this YAML file on the weights, before the adapter is loaded.
    #[arg(long, value_name = "FILE")]
    surgery: Option<PathBuf>,
}

impl ChangeArguments {
    pub(crate) fn options(&self) -> LoadOptions {
        LoadOptions {
            dtype: self.dtype,
            surgery: self.surgery.clone(),
            adapter: self.adapter.clone().map(|path| Adapter {
                scale: self.adapter_scale,
                ..Adapter::new(path)
            }),
        }
    }

    /// Loads the model at `path` with these changes, and tells what there is to know of it.
    pub(crate) fn load(&self, path: &Path) -> anyhow::Result<Model> {
        let model = Model::load_with(path, &self.options())?;
        tell(model.notes());
        Ok(model)
    }
}

/// Tells notes on stderr.
pub(crate) fn tell(notes: &[String]) {
    for note in notes {
        anstream::eprintln!("\x1b[1;33mnote:\x1b[0m {note}");
    }
}

/// How tokens are chosen and when a reply ends.
#[derive(Debug, Args)]
#[command(next_help_heading = "Generation")]
pub(crate) struct GenerationArguments {
    /// Temperature; 0 takes the most likely token each time.
    #[arg(
        long,
        visible_alias = "temperature",
        value_name = "T",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
    pub(crate) temp: f64,
    /// Draw from the K most likely tokens; 0 is all.
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub(crate) top_k: usize,
    /// Draw from the most likely tokens that together reach the probability P.
    #[arg(
        long,
        value_name = "P",
        default_value_t = 1.0,
        allow_negative_numbers = true
    )]
    pub(crate) top_p: f64,
    /// Draw from tokens at least P times as likely as the most likely one.
    #[arg(
        long,
        value_name = "P",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
    pub(crate) min_p: f64,
    /// Make the latest 64 tokens less likely to come again; 1 is off.
    #[arg(
        long,
        visible_alias = "repetition-penalty",
        value_name = "X",
        default_value_t = 1.0,
        allow_negative_numbers = true
    )]
    pub(crate) repeat_penalty: f64,
    /// Seed of the random numbers; the same seed gives the same reply.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// The most tokens of a reply; without it, until the model ends or its context is full.
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) max_tokens: Option<usize>,
    /// End the reply before this text. Can be given several times.
    #[arg(long, value_name = "TEXT")]
    pub(crate) stop: Vec<String>,
    /// Go on after the model's end tokens.
    #[arg(long)]
    pub(crate) ignore_eos: bool,
}

impl GenerationArguments {
    /// Refuses settings out of range before a model is loaded.
    pub(crate) fn check(&self) -> Result<(), Usage> {
        let settings = self.options(&[]).sampling;
        settings
            .validate()
            .map_err(|error| Usage(error.to_string()))
    }

    /// The options of a reply that ends at `end_tokens`.
    pub(crate) fn options(&self, end_tokens: &[u32]) -> Options {
        Options {
            max_tokens: self.max_tokens.unwrap_or(usize::MAX),
            sampling: Sampling {
                temperature: self.temp,
                top_k: self.top_k,
                top_p: self.top_p,
                min_p: self.min_p,
                repetition_penalty: self.repeat_penalty,
                seed: self.seed,
                ..Sampling::default()
            },
            stop: self.stop.clone(),
            end_tokens: match self.ignore_eos {
                true => Vec::new(),
                false => end_tokens.to_vec(),
            },
        }
    }
}

/// How a prompt becomes tokens.
#[derive(Debug, Args)]
#[command(next_help_heading = "Prompt")]
pub(crate) struct PromptArguments {
    /// The prompt. Without it, it is read from stdin, or a chat begins if stdin is a terminal.
    #[arg(long, short = 'p', value_name = "TEXT")]
    pub(crate) prompt: Option<String>,
    /// What the model is told before the conversation.
    #[arg(long, value_name = "TEXT", conflicts_with = "no_chat_template")]
    pub(crate) system: Option<String>,
    /// Take the prompt as it is, special tokens spelled out, without the model's chat template.
    #[arg(long, visible_alias = "raw")]
    pub(crate) no_chat_template: bool,
}

/// An element type that caches and matrices may have.
pub(crate) fn float_dtype(text: &str) -> Result<DType, String> {
    let dtype: Option<DType> = text.parse().ok();
    let fits = dtype.filter(|dtype| dtype.is_float());
    fits.ok_or_else(|| "must be f32, f16 or bf16".into())
}

/// A whole number of at least 1.
pub(crate) fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".into()),
        Ok(number) => Ok(number),
        Err(_) => Err("not a whole number".into()),
    }
}
