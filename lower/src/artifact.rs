//! A model as an artifact: a folder or file that a machine without a compiler can run.

use crate::capacity::{self, most_tokens};
use crate::panels;
use crate::parent::{self, Order};
use crate::parts::Parts;
use crate::place::Place;
use crate::request::{Product, Step};
use crate::weights_file;
use crate::{Cache, CompileError, Compiled, Diagnostic, FunctionSpec, LIMIT, Target};
use mlxcel_frontend::artifact::{
    Buffer, CONTRACT, Compiler, Contract, FORMAT, Function, MODULE, Manifest, Part, is_artifact,
};
use mlxcel_frontend::{GraphOptions, Logits, Model};
use mlxcel_ir::{Bindings, DType, Graph, StateId, StateKind, Symbol, WeightDecl};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The most rows of a function.
const MOST_ROWS: usize = 256;

/// How to compile a model.
#[derive(Clone, Debug)]
pub struct CompileOptions {
    /// What for.
    pub target: Target,
    /// The artifact's folder or file. It must not exist, or hold an artifact, which is replaced.
    pub output: PathBuf,
    /// Tokens that a cache holds. At most what the model was made for.
    pub context: usize,
    /// A folder or one file.
    pub form: Form,
    /// Element type of the caches: f32, f16 or bf16.
    pub kv: DType,
    /// Sizes of the prefill functions, in tokens. Those larger than the context are left out.
    pub buckets: Vec<usize>,
    /// Rows of the functions: sequences that a call extends. There are always functions for one. Those for
    /// several prefill no more tokens, of all rows together, than the largest one for a single row: beyond
    /// that, a call gains nothing from having more of them.
    pub batches: Vec<usize>,
    /// A prefill function of this size that returns the logits after every token, or none. Without
    /// one the runtime gets such logits token by token.
    pub all_logits: Option<usize>,
    /// What the artifact must compute, to be stored in it.
    pub contract: Option<StoredContract>,
    /// The checkpoint that the artifact shall take its weights from, if it shall not have them itself: an absolute
    /// path of the model, loaded with no changes to its weights.
    pub reference: Option<String>,
    /// How long the compiler may take.
    pub limit: Duration,
    /// Where compiled modules are kept; none to compile anew.
    pub cache: Option<Cache>,
    /// Set to true from another thread, it stops the compilation, which then leaves nothing behind.
    pub cancel: Arc<AtomicBool>,
}

impl CompileOptions {
    /// The default options for a model, target and output: a cache of 1024 tokens or the model's
    /// context if that is smaller, prefill of 32, 128 and 512 tokens.
    pub fn new(model: &Model, target: Target, output: impl Into<PathBuf>) -> Self {
        Self {
            target,
            output: output.into(),
            context: model.context().min(1024),
            form: Form::Folder,
            kv: DType::F32,
            buckets: vec![32, 128, 512],
            batches: vec![1],
            all_logits: None,
            contract: None,
            reference: None,
            limit: LIMIT,
            cache: None,
            cancel: Arc::default(),
        }
    }

    fn order<'a>(
        &'a self,
        functions: &'a [FunctionSpec],
        cancel: &'a dyn Fn() -> bool,
    ) -> Order<'a> {
        Order {
            functions,
            target: &self.target,
            rotate: true,
            limit: self.limit,
            cache: self.cache.as_ref(),
            cancel,
        }
    }
}

/// How an artifact lies on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A folder with a file for each part.
    Folder,
    /// One file.
    File,
}

/// What an artifact must compute, and the numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredContract {
    /// The tokens and the budget.
    pub contract: Contract,
    /// The logits `[tokens, vocabulary]` after each token.
    pub logits: Vec<f32>,
}

/// How far a compilation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Another process writes the same artifact.
    Waiting,
    /// Graphs become StableHLO.
    Emitting,
    /// The compiler works; it does not say how far it is.
    Compiling,
    /// Weights are written.
    Weights {
        /// Bytes written.
        done: u64,
        /// Bytes in all.
        total: u64,
    },
}

/// A finished artifact.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Its folder or file.
    pub path: PathBuf,
    /// How long compiling and writing took.
    pub time: Duration,
    /// Bytes of all its files.
    pub bytes: u64,
    /// Bytes of the compiled module.
    pub module_bytes: u64,
    /// Dispatches of its functions.
    pub dispatches: usize,
    /// How many of them call a kernel of the runtime.
    pub kernels: usize,
    /// Bytes for values between dispatches, of all functions together.
    pub transient_bytes: u64,
    /// The names of its functions.
    pub functions: Vec<String>,
    /// Whether the compiled module was in the cache.
    pub cached: bool,
    /// Bytes that were resident at most in the process that compiled, where the system tells.
    pub peak_memory: Option<u64>,
    /// What the compiler said.
    pub diagnostics: Vec<Diagnostic>,
}

/// The functions of the artifact that `options` describe in the form `product`, written to
/// [`CompileOptions::output`]: a file, or for [`Product::Phases`] a folder, which must not exist.
///
/// # Errors
/// See [`CompileError`].
pub fn emit(model: &Model, options: &CompileOptions, product: Product) -> Result<(), CompileError> {
    let output = &options.output;
    if product == Product::Phases && output.exists() {
        return Err(CompileError::Option {
            option: "output",
            reason: format!("`{}` exists", output.display()),
        });
    }
    check_sizes(model, options)?;
    let (specs, _) = functions(model, options)?;
    let cancelled = || options.cancel.load(Ordering::Relaxed);
    parent::emit(&options.order(&specs, &cancelled), product, output)
}

/// Compiles a model to an artifact, which appears whole or not at all.
///
/// # Errors
/// See [`CompileError`].
pub fn compile(
    model: &Model,
    options: &CompileOptions,
    progress: &dyn Fn(Progress),
) -> Result<Summary, CompileError> {
    let begin = Instant::now();
    check(model, options)?;
    let (specs, functions) = functions(model, options)?;
    let text = match model.has_text() {
        true => model.text().map_err(model_error)?.files(),
        false => Vec::new(),
    };
    let cancelled = || options.cancel.load(Ordering::Relaxed);
    let place = Place::take(&options.output, || match cancelled() {
        true => Err(CompileError::Cancelled),
        false => {
            progress(Progress::Waiting);
            Ok(())
        }
    })?;
    let compiled = parent::compile(&options.order(&specs, &cancelled), &mut |step| {
        progress(match step {
            Step::Emit => Progress::Emitting,
            Step::Compile => Progress::Compiling,
        });
    })?;

    let mut parts = Parts::new(place.part(), options.form)?;
    parts.put(MODULE, &compiled.vmfb)?;
    for (name, bytes) in &text {
        parts.put(name, bytes)?;
    }
    if let Some(stored) = &options.contract {
        let bytes = stored.logits.iter().flat_map(|logit| logit.to_le_bytes());
        parts.put(CONTRACT, &bytes.collect::<Vec<u8>>())?;
    }
    if options.reference.is_none() {
        weights_file::write(
            &mut parts,
            &declared(&specs),
            model.weights().as_ref(),
            &mut |done, total| {
                progress(Progress::Weights { done, total });
                !cancelled()
            },
        )?;
    }
    let names = functions.iter().map(|function| function.name.clone());
    let names = names.collect();
    let manifest = manifest(model, options, &compiled, functions, &specs, parts.list())?;
    let (whole, bytes) = parts.finish(&manifest)?;
    if cancelled() {
        return Err(CompileError::Cancelled);
    }
    place.publish(&whole)?;
    Ok(Summary {
        path: options.output.clone(),
        time: begin.elapsed(),
        bytes,
        module_bytes: compiled.vmfb.len() as u64,
        dispatches: compiled.dispatches,
        kernels: compiled.kernels,
        transient_bytes: compiled.transient_bytes,
        functions: names,
        cached: compiled.cached,
        peak_memory: compiled.peak_memory,
        diagnostics: compiled.diagnostics,
    })
}

fn model_error(error: impl std::fmt::Display) -> CompileError {
    CompileError::Model(error.to_string())
}

/// Finds what is wrong before any work is done.
fn check(model: &Model, options: &CompileOptions) -> Result<(), CompileError> {
    check_sizes(model, options)?;
    let output = &options.output;
    if output.exists() && !is_artifact(output) {
        return Err(CompileError::Option {
            option: "output",
            reason: format!("`{}` exists and is no artifact", output.display()),
        });
    }
    Ok(())
}

fn check_sizes(model: &Model, options: &CompileOptions) -> Result<(), CompileError> {
    let most = model.context();
    if options.context == 0 || options.context > most {
        return Err(CompileError::Option {
            option: "context",
            reason: format!(
                "{} is not within 1 and {most}, what the model allows",
                options.context
            ),
        });
    }
    if !options.kv.is_float() {
        return Err(CompileError::Option {
            option: "kv-dtype",
            reason: format!("{} is none of f32, f16 and bf16", options.kv),
        });
    }
    if let Some(rows) = options.batches.iter().find(|&&rows| rows > MOST_ROWS) {
        return Err(CompileError::Option {
            option: "batch",
            reason: format!("{rows} rows are more than {MOST_ROWS}"),
        });
    }
    Ok(())
}

/// The functions of the module, and how the manifest describes them.
fn functions(
    model: &Model,
    options: &CompileOptions,
) -> Result<(Vec<FunctionSpec>, Vec<Function>), CompileError> {
    let fits = |tokens: &usize| *tokens > 1 && *tokens <= options.context;
    let sorted = |sizes: &mut dyn Iterator<Item = usize>| {
        let sizes: BTreeSet<usize> = sizes.collect();
        sizes.into_iter().collect::<Vec<_>>()
    };
    let buckets = sorted(&mut options.buckets.iter().copied().filter(fits));
    let batches = sorted(&mut options.batches.iter().copied().chain([1]));
    let most = buckets.last().copied().unwrap_or(1);
    let mut wanted = Vec::new();
    for rows in batches {
        let suffix = match rows {
            1 => String::new(),
            _ => format!("_b{rows}"),
        };
        wanted.push((format!("decode{suffix}"), rows, 1, Logits::Last));
        for &tokens in buckets.iter().filter(|&&tokens| tokens * rows <= most) {
            let name = format!("prefill_{tokens}{suffix}");
            wanted.push((name, rows, tokens, Logits::Last));
        }
    }
    if let Some(tokens) = options.all_logits.filter(fits) {
        wanted.push((format!("all_{tokens}"), 1, tokens, Logits::All));
    }
    let made = wanted
        .into_iter()
        .map(|(name, rows, tokens, logits)| {
            let mut graph = model
                .graph(&GraphOptions {
                    name: name.clone(),
                    logits,
                    token: true,
                    hidden: false,
                })
                .map_err(model_error)?;
            graph.keep_caches_in(options.kv);
            let outputs = graph.outputs.iter().map(|output| output.name.clone());
            let function = Function {
                name: name.clone(),
                batch: rows,
                tokens,
                outputs: outputs.collect(),
            };
            let bindings = Bindings::new()
                .with(Symbol::B, rows)
                .with(Symbol::T, tokens)
                .with(Symbol::S, options.context);
            let spec = FunctionSpec {
                name,
                graph,
                bindings,
            };
            Ok((spec, function))
        })
        .collect::<Result<Vec<_>, CompileError>>()?;
    let (mut specs, functions): (Vec<_>, Vec<_>) = made.into_iter().unzip();
    // A checkpoint has its weights row after row.
    if options.reference.is_none() {
        panels::arrange(&mut specs, &options.target);
    }
    Ok((specs, functions))
}

/// The weights of all functions, each once.
fn declared(specs: &[FunctionSpec]) -> Vec<WeightDecl> {
    let mut declared: Vec<WeightDecl> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for weight in specs.iter().flat_map(|spec| &spec.graph.weights) {
        if seen.insert(&weight.name) {
            declared.push(weight.clone());
        }
    }
    declared
}

fn manifest(
    model: &Model,
    options: &CompileOptions,
    compiled: &Compiled,
    functions: Vec<Function>,
    specs: &[FunctionSpec],
    parts: BTreeMap<String, Part>,
) -> Result<Manifest, CompileError> {
    let graph: &Graph = &specs[0].graph;
    let most = Some(most_tokens(specs));
    let mut buffers = Vec::new();
    for (index, state) in graph.states.iter().enumerate() {
        let id = StateId(index as u32);
        let rows = capacity::rows(graph, id, options.context, most);
        let bindings = Bindings::new().with(Symbol::B, 1).with(Symbol::S, rows);
        let rotates = rows < options.context;
        let window = capacity::window(graph, id).filter(|_| rotates);
        for &part in state.parts() {
            let name = part.name();
            let buffer = state.buffer(part);
            let shape = buffer.sizes(&bindings).map_err(|symbol| {
                CompileError::Model(format!("the state `{}` depends on {symbol:?}", state.name))
            })?;
            buffers.push(Buffer {
                name: format!("{}.{name}", state.name),
                dtype: buffer.dtype.name().into(),
                shape,
                tokens_dim: match state.kind {
                    StateKind::Cache => Some(1),
                    StateKind::Memory => None,
                },
                window,
            });
        }
    }
    let mut manifest = Manifest {
        format: FORMAT,
        mlxcel: env!("CARGO_PKG_VERSION").into(),
        model: model.name().into(),
        family: model.family().into(),
        source: model.digest().map_err(model_error)?,
        target: options.target.name().into(),
        chip: options.target.chip(),
        compiler: Compiler {
            version: compiled.compiler.clone(),
            flags: compiled.flags.clone(),
        },
        context: options.context,
        vocabulary: model.vocabulary(),
        functions,
        buffers,
        dispatches: compiled.dispatches,
        kernels: compiled.kernels,
        transient_bytes: compiled.transient_bytes,
        contract: options
            .contract
            .as_ref()
            .map(|stored| stored.contract.clone()),
        reference: options.reference.clone(),
        parts,
        seal: String::new(),
    };
    manifest.seal = manifest.digest();
    Ok(manifest)
}
