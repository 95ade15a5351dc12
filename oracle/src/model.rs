//! Verification of a model as people ask for it: by its checkpoint.

mod write;

pub use write::read;

use crate::execution::{Execution, ExecutionError, IreeOnce, MlxExecution};
use crate::fault::PerturbedWeight;
use crate::greedy::Judge;
use crate::report::Report;
use crate::verify::{Party, Progress, Subject, VerifyError, texts, verify};
use mlxcel_frontend::{GraphOptions, LoadError, Logits, Model, TextError};
use mlxcel_ir::{DType, Graph, WeightSource};
use std::sync::Arc;
use write::{Writer, graph};

/// What is run where the caller names no tokens: long enough for every head to have something to
/// attend to, short enough for the interpreter in f64.
const PROMPT: &str = "A processor computes the same function by another route; how far apart may \
                      the results be?";
/// Tokens where the model has no tokenizer.
const TOKENS: usize = 16;

/// An execution that can be verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Eager execution by operations of MLX alone.
    Mlx,
    /// Eager execution with own kernels, as models are run on a CPU.
    Kernels,
    /// Compilation and execution by IREE on the processor.
    Iree,
}

impl Backend {
    /// Every backend, in the order in which they are reported.
    pub const ALL: [Backend; 3] = [Backend::Mlx, Backend::Kernels, Backend::Iree];

    /// The name that people use.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Mlx => "mlx",
            Backend::Kernels => "kernels",
            Backend::Iree => "iree",
        }
    }

    fn execution(self) -> Box<dyn Execution> {
        match self {
            Backend::Mlx => Box::new(MlxExecution::Operations),
            Backend::Kernels => Box::new(MlxExecution::Kernels),
            Backend::Iree => Box::<IreeOnce>::default(),
        }
    }
}

/// A deliberate fault: one weight that one backend sees wrongly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Who sees it.
    pub backend: Backend,
    /// The weight's name.
    pub weight: String,
}

/// What to verify a model on.
#[derive(Clone, Debug, Default)]
pub struct VerifyOptions {
    /// The prompt as tokens; without it a fixed sentence, or fixed numbers where the model has no
    /// tokenizer.
    pub tokens: Option<Vec<u32>>,
    /// How many tokens are run at once; the rest of the prompt follows in texts of the same size, each
    /// from an empty cache. What is left over is not run. Without it, all are run at once.
    pub chunk: Option<usize>,
    /// Whether every named node is checked by itself, not only where an output is over its budget.
    pub nodes: bool,
    /// How many tokens each execution chooses after the prompt, or its first text, if these are held too. Not
    /// more than fit into the model's context.
    pub choose: Option<usize>,
    /// The executions; none means all.
    pub backends: Vec<Backend>,
    /// Element type of the caches of all executions; without it, that of the model's graph.
    pub kv: Option<DType>,
    /// A fault to find.
    pub fault: Option<Fault>,
}

/// Why a model could not be verified.
#[derive(Debug, thiserror::Error)]
pub enum VerifyModelError {
    /// The model has a flaw of its own.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The model's tokenizer refuses the prompt.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A party could not run.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// A party could not be made ready to write a text.
    #[error(transparent)]
    Mlx(#[from] mlxcel_runtime_mlx::Error),
    /// A party could not write a text, or the interpreter could not run it.
    #[error(transparent)]
    Execution(#[from] ExecutionError),
    /// The fault names a weight that the model does not have.
    #[error("the model has no weight `{weight}` to perturb; its first ones are {known}")]
    UnknownWeight {
        /// The name that was given.
        weight: String,
        /// Some that exist.
        known: String,
    },
}

/// Holds every wanted execution of `model` against the interpreter.
///
/// # Errors
/// [`VerifyModelError`] if the model or a party cannot run; a wrong result is in the report.
pub fn verify_model(
    model: &Model,
    options: &VerifyOptions,
    progress: Progress<'_>,
) -> Result<Report, VerifyModelError> {
    let graph = graph(
        model,
        options.kv,
        &GraphOptions {
            name: "verify".into(),
            logits: Logits::All,
            token: false,
            hidden: true,
        },
    )?;
    let weights = model.weights();
    let backends = match options.backends.as_slice() {
        [] => &Backend::ALL[..],
        chosen => chosen,
    };
    let mut parties = Vec::new();
    for &backend in backends {
        let faulty = options
            .fault
            .as_ref()
            .filter(|fault| fault.backend == backend);
        parties.push(Party {
            execution: backend.execution(),
            weights: match faulty {
                Some(fault) => perturbed(&graph, &weights, &fault.weight)?,
                None => weights.clone(),
            },
        });
    }
    let subject = Subject {
        model: model.name().to_string(),
        tokens: match &options.tokens {
            Some(tokens) => tokens.clone(),
            None => default_tokens(model)?,
        },
        chunk: options.chunk,
        nodes: options.nodes,
        graph,
        weights,
    };
    let mut report = verify(&subject, &parties, progress)?;
    if let Some(count) = options.choose {
        let mut texts = texts(&subject.tokens, subject.chunk.unwrap_or(usize::MAX));
        let prompt = texts.next().unwrap_or_default();
        let count = count.min(model.context().saturating_sub(prompt.len()));
        let writer = Writer::new(model, options.kv, prompt, count)?;
        let mut judge = Judge::new(&writer.all, &subject.weights);
        for (index, (&backend, party)) in backends.iter().zip(&parties).enumerate() {
            progress(&format!("{}, writing", party.execution.name()));
            let text = writer.write(backend, party)?;
            progress("reference-f64, reading");
            report.choose(index, judge.hold(&text, prompt.len())?);
        }
    }
    Ok(report)
}

pub(crate) fn default_tokens(model: &Model) -> Result<Vec<u32>, TextError> {
    match model.text() {
        Ok(text) => text.encode(PROMPT, true),
        Err(_) => {
            let vocabulary = model.vocabulary().max(1);
            Ok((0..TOKENS)
                .map(|i| (i * 7919 % vocabulary) as u32)
                .collect())
        }
    }
}

fn perturbed(
    graph: &Graph,
    weights: &Arc<dyn WeightSource>,
    name: &str,
) -> Result<Arc<dyn WeightSource>, VerifyModelError> {
    let declaration = graph.weights.iter().find(|weight| weight.name == name);
    match declaration.and_then(|weight| PerturbedWeight::new(weights.clone(), weight)) {
        Some(perturbed) => Ok(Arc::new(perturbed)),
        None => Err(VerifyModelError::UnknownWeight {
            weight: name.into(),
            known: graph
                .weights
                .iter()
                .take(4)
                .map(|weight| format!("`{}`", weight.name))
                .collect::<Vec<_>>()
                .join(", "),
        }),
    }
}
