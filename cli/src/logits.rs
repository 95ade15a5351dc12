//! `mlxcel logits`: the numbers behind the text, for scripts and other harnesses.

use crate::args::{BackendName, ChangeArguments};
use crate::failure::Usage;
use crate::progress::Spinner;
use anyhow::{Context, bail};
use clap::Args;
use mlxcel_engine::{OpenOptions, Session, open};
use mlxcel_frontend::artifact::is_artifact;
use mlxcel_frontend::{GraphOptions, LoadOptions, Logits, Model};
use mlxcel_ir::step::{self, Row, RowOutput, SequenceId, Tokens, Want};
use mlxcel_ir::{Bindings, HostTensor, Symbol};
use mlxcel_lower::{CompileOptions, Target, compile};
use mlxcel_oracle::Execution;
use mlxcel_oracle::execution::{IreeExecution, MlxExecution, ReferenceExecution};
use safetensors::tensor::{Dtype, TensorView};
use std::path::{Path, PathBuf};

/// Write the logits of a model, and more of what it computes, to a safetensors file.
///
/// The file has `logits` f32 [T, V], with --hidden `hidden.N` f32 [T, H] after each layer ([S, T, H] of a
/// model with S streams), and with --greedy `tokens` i32 [N].
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mlxcel logits ./demo --tokens 1,2,3 --out logits.safetensors\n  \
    mlxcel logits ./demo --tokens 1,2,3 --hidden --backend reference --out trace.safetensors\n  \
    mlxcel logits ./demo-cpu --tokens 1,2,3 --greedy 24 --out artifact.safetensors")]
pub(crate) struct Arguments {
    /// A model folder, a .gguf file, or a compiled artifact.
    model: PathBuf,
    /// The token ids to run.
    #[arg(long, value_name = "IDS", value_delimiter = ',', required = true)]
    tokens: Vec<u32>,
    /// What executes it; iree for an artifact, else mlx, if not given. A model is compiled for iree.
    #[arg(long, short = 'b', value_enum, value_name = "NAME")]
    backend: Option<BackendName>,
    /// Write the hidden states after each layer too.
    #[arg(long)]
    hidden: bool,
    /// Run one token at a time, as decoding does, instead of all at once.
    #[arg(long, conflicts_with = "hidden")]
    one_by_one: bool,
    /// Go on by the N most likely tokens and write them too.
    #[arg(long, value_name = "N", default_value_t = 0)]
    greedy: usize,
    /// The file to write.
    #[arg(long, short = 'o', value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    changes: ChangeArguments,
}

/// A tensor of the file.
struct Tensor {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Tensor {
    fn f32(name: &str, shape: Vec<usize>, values: impl IntoIterator<Item = f32>) -> Self {
        Self {
            name: name.into(),
            dtype: Dtype::F32,
            shape,
            bytes: values.into_iter().flat_map(f32::to_le_bytes).collect(),
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let spinner = Spinner::new(format!("loading {}", arguments.model.display()));
    let mut tensors = Vec::new();
    if arguments.hidden {
        spinner.say("running");
        tensors = trace(arguments)?;
    }
    if !arguments.hidden || arguments.greedy > 0 {
        let (mut session, _compiled) = session(arguments)?;
        spinner.say("running");
        if !arguments.hidden {
            tensors.push(logits(&mut *session, arguments)?);
        }
        if arguments.greedy > 0 {
            tensors.push(greedy(&mut *session, arguments)?);
        }
    }
    drop(spinner);
    write(&arguments.out, &tensors)
}

/// A session, and the folder that it was compiled into if it was.
fn session(arguments: &Arguments) -> anyhow::Result<(Box<dyn Session>, Option<tempfile::TempDir>)> {
    let mut options = OpenOptions {
        backend: arguments.backend.map(Into::into),
        whole: !arguments.one_by_one && arguments.greedy == 0,
        load: arguments.changes.options(),
        ..OpenOptions::default()
    };
    let compiles = arguments.backend == Some(BackendName::Iree) && !is_artifact(&arguments.model);
    if !compiles {
        return Ok((open(&arguments.model, &options)?.session, None));
    }
    let folder = tempfile::tempdir().context("cannot make a folder for the artifact")?;
    let artifact = folder.path().join("artifact");
    let model = arguments.changes.load(&arguments.model)?;
    let needed = arguments.tokens.len() + arguments.greedy;
    let mut compile_options = CompileOptions::new(&model, Target::host(), artifact.clone());
    compile_options.context = needed.min(model.context());
    compile(&model, &compile_options, &|_| {})?;
    options.backend = None;
    // They are in the artifact.
    options.load = LoadOptions::default();
    Ok((open(&artifact, &options)?.session, Some(folder)))
}

/// The logits `[T, V]` as a session computes them.
fn logits(session: &mut dyn Session, arguments: &Arguments) -> anyhow::Result<Tensor> {
    let sequence = session.create()?;
    let size = if arguments.one_by_one {
        1
    } else {
        arguments.tokens.len()
    };
    let mut values = Vec::new();
    for chunk in arguments.tokens.chunks(size) {
        match step(session, sequence, Tokens::Given(chunk), Want::AllLogits)? {
            RowOutput::Logits(logits) => values.extend(logits),
            _ => bail!("the runtime returned no logits"),
        }
    }
    session.release(sequence)?;
    let shape = vec![arguments.tokens.len(), session.limits().vocabulary];
    Ok(Tensor::f32(step::LOGITS, shape, values))
}

/// The most likely tokens after the prompt.
fn greedy(session: &mut dyn Session, arguments: &Arguments) -> anyhow::Result<Tensor> {
    let sequence = session.create()?;
    let mut bytes = Vec::new();
    let mut next = Tokens::Given(&arguments.tokens);
    for _ in 0..arguments.greedy {
        match step(session, sequence, next, Want::Token)? {
            RowOutput::Token(token) => bytes.extend(token.to_le_bytes()),
            _ => bail!("the runtime returned no token"),
        }
        next = Tokens::Chosen;
    }
    Ok(Tensor {
        name: step::TOKENS.into(),
        dtype: Dtype::I32,
        shape: vec![arguments.greedy],
        bytes,
    })
}

fn step(
    session: &mut dyn Session,
    sequence: SequenceId,
    tokens: Tokens<'_>,
    want: Want,
) -> anyhow::Result<RowOutput> {
    let ticket = session.submit(&[Row {
        sequence,
        tokens,
        want,
    }])?;
    let outputs = session.wait(ticket)?;
    outputs
        .into_iter()
        .next()
        .context("the runtime returned no output")
}

/// The hidden states and logits of one run of the whole graph.
fn trace(arguments: &Arguments) -> anyhow::Result<Vec<Tensor>> {
    if is_artifact(&arguments.model) {
        let model = arguments.model.display();
        return Err(Usage(format!(
            "{model}: a compiled artifact has no hidden states; give --hidden with its model"
        ))
        .into());
    }
    let model = arguments.changes.load(&arguments.model)?;
    let graph = model.graph(&GraphOptions {
        logits: Logits::All,
        hidden: true,
        ..GraphOptions::default()
    })?;
    let ids = token_ids(&model, &arguments.tokens)?;
    let count = ids.len();
    let bindings = Bindings::new()
        .with(Symbol::B, 1)
        .with(Symbol::T, count)
        .with(Symbol::S, count);
    let inputs = [
        (step::TOKENS, HostTensor::i32([1, count], &ids)),
        (step::START, HostTensor::i32([1], &[0])),
        (step::LENGTH, HostTensor::i32([1], &[count as i32])),
    ];
    let execution: &dyn Execution = match arguments.backend {
        Some(BackendName::Reference) => &ReferenceExecution::F32,
        Some(BackendName::Iree) => &IreeExecution,
        Some(BackendName::Mlx) | None => &MlxExecution::Operations,
    };
    let observed = execution.run(&graph, &bindings, &model.weights(), &inputs)?;
    let tensor = |observed: mlxcel_oracle::Observed| {
        // The batch of one is left out: the third dimension from the end, as streams stand before it.
        let mut shape = observed.shape;
        if let Some(batch) = shape.len().checked_sub(3) {
            shape.remove(batch);
        }
        let values = observed.values.into_iter().map(|value| value as f32);
        Tensor::f32(&observed.name, shape, values)
    };
    Ok(observed.into_iter().map(tensor).collect())
}

/// The tokens as the graph takes them.
fn token_ids(model: &Model, tokens: &[u32]) -> anyhow::Result<Vec<i32>> {
    let vocabulary = model.vocabulary();
    if tokens.len() > model.longest() {
        bail!(
            "the prompt has {} tokens but the context holds {}; give fewer",
            tokens.len(),
            model.longest()
        );
    }
    match tokens.iter().find(|&&token| token as usize >= vocabulary) {
        Some(token) => {
            bail!("token {token} is outside the model's vocabulary of {vocabulary} entries")
        }
        None => Ok(tokens.iter().map(|&token| token as i32).collect()),
    }
}

fn write(path: &Path, tensors: &[Tensor]) -> anyhow::Result<()> {
    let views = tensors
        .iter()
        .map(|tensor| {
            let view = TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.bytes)?;
            Ok((tensor.name.as_str(), view))
        })
        .collect::<Result<Vec<_>, safetensors::SafeTensorError>>()?;
    safetensors::serialize_to_file(views, None, path)
        .with_context(|| format!("cannot write {}", path.display()))
}
