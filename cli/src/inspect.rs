//! `mlxcel inspect`: what a model is and what it needs, without running it.

mod budget;
mod tell;

use crate::args::positive;
use crate::output;
use anyhow::Context;
use budget::{Budget, Needs};
use clap::Args;
use mlxcel_frontend::artifact::{Files, MANIFEST, Manifest, WEIGHTS, is_artifact};
use mlxcel_frontend::{FormatInfo, Model, StateInfo, Summary, TensorInfo, list_tensors};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Tell what a model is and how much memory it needs, without running it.
///
/// Reads headers and configurations only. A model that does not fit is no failure: the exit code is 0.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mlxcel inspect ./SmolLM2-135M-Instruct\n  \
    mlxcel inspect SmolLM2-135M-Instruct.Q4_1.gguf --tensors\n  \
    mlxcel inspect smollm2-cpu -n 512 --batch 4 --json")]
pub(crate) struct Arguments {
    /// A model folder, a .gguf file, or a compiled artifact.
    model: PathBuf,
    /// Tokens of a sequence to reckon with, at most what the model or artifact has.
    #[arg(long, short = 'n', value_name = "N", default_value_t = 8192, value_parser = positive)]
    max_tokens: usize,
    /// Sequences at a time to reckon with.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive)]
    batch: usize,
    /// List every tensor.
    #[arg(long)]
    tensors: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What is known of a model or artifact.
struct Facts {
    name: String,
    family: String,
    kind: &'static str,
    /// Sizes by name, in order.
    sizes: Vec<(&'static str, u64)>,
    /// What an artifact was compiled for and by.
    compiled: Option<Value>,
    tokenizer: Option<Value>,
    summary: Summary,
    tensors: Vec<TensorInfo>,
    needs: Needs,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let facts = match is_artifact(&arguments.model) {
        true => artifact(arguments)?,
        false => model(arguments)?,
    };
    let budget = Budget::new(&facts.needs);
    match arguments.json {
        true => output::json(&as_json(&facts, &budget, arguments.tensors)),
        false => Ok(output::text(&tell::text(
            &facts,
            &budget,
            arguments.tensors,
        ))?),
    }
}

fn model(arguments: &Arguments) -> anyhow::Result<Facts> {
    let model = Model::load(&arguments.model)?;
    let config = model.config();
    let summary = model.summary()?;
    let tokenizer = match model.has_text() {
        true => Some(model.text()?),
        false => None,
    };
    Ok(Facts {
        name: model.name().into(),
        family: model.family().into(),
        kind: if model.path().is_file() {
            "gguf"
        } else {
            "safetensors"
        },
        sizes: vec![
            ("layers", config.layers as u64),
            ("hidden", config.hidden as u64),
            ("widest_value", summary.widest),
            ("heads", summary.heads[0] as u64),
            ("head_dim", summary.heads[1] as u64),
            ("vocabulary", model.vocabulary() as u64),
            ("context", model.context() as u64),
        ],
        compiled: None,
        tokenizer: tokenizer.map(|text| {
            json!({
                "tokens": text.vocabulary(),
                "chat_template": text.has_template(),
                "end_tokens": text.end_tokens(),
            })
        }),
        needs: Needs {
            weights: summary.weight_bytes,
            states: summary.states,
            hidden: config.hidden as u64,
            widest: summary.widest,
            vocabulary: model.vocabulary() as u64,
            context: arguments.max_tokens.min(model.context()) as u64,
            is_fixed: false,
            batch: arguments.batch as u64,
        },
        tensors: model.tensors(),
        summary,
    })
}

fn artifact(arguments: &Arguments) -> anyhow::Result<Facts> {
    let files = Files::open(&arguments.model)?;
    let manifest = manifest(&files)?;
    let tensors = match &manifest.reference {
        Some(model) => Model::load(model.as_ref())?.tensors(),
        None => list_tensors(&files.place(WEIGHTS), &files.get(WEIGHTS)?)?,
    };
    let mut summary = Summary::default();
    for tensor in &tensors {
        let format: &mut FormatInfo = summary.formats.entry(tensor.format.clone()).or_default();
        format.weights += 1;
        format.parameters += tensor.shape.iter().product::<usize>() as u64;
        format.bytes += tensor.bytes;
        summary.weight_bytes += tensor.bytes;
    }
    // An artifact's buffers are as large as they will ever be, for one sequence.
    let bytes = |buffer: &mlxcel_frontend::artifact::Buffer| {
        let size = buffer
            .dtype
            .parse()
            .map_or(4, |dtype: mlxcel_ir::DType| dtype.size());
        buffer.shape.iter().fold(size as u64, |bytes, &size| {
            bytes.saturating_mul(size as u64)
        })
    };
    let states = StateInfo {
        caches: manifest.buffers.len(),
        bytes_per_sequence: manifest.buffers.iter().map(bytes).sum(),
        ..StateInfo::default()
    };
    summary.states = states;
    Ok(Facts {
        name: manifest.model.clone(),
        family: manifest.family.clone(),
        kind: "artifact",
        sizes: vec![
            ("vocabulary", manifest.vocabulary as u64),
            ("context", manifest.context as u64),
            ("functions", manifest.functions.len() as u64),
            ("dispatches", manifest.dispatches as u64),
            ("kernels", manifest.kernels as u64),
            ("transient_bytes", manifest.transient_bytes),
        ],
        compiled: Some(json!({
            "target": manifest.target,
            "chip": manifest.chip,
            "compiler": manifest.compiler.version,
            "mlxcel": manifest.mlxcel,
            "source": manifest.source,
            "flags": manifest.compiler.flags,
            "functions": manifest.functions,
            "buffers": manifest.buffers,
            "parts": manifest.parts,
            "contract": manifest.contract,
            "reference": manifest.reference,
            "seal": manifest.seal,
        })),
        tokenizer: None,
        needs: Needs {
            weights: summary.weight_bytes,
            states,
            hidden: 0,
            widest: 0,
            vocabulary: manifest.vocabulary as u64,
            context: manifest.context as u64,
            is_fixed: true,
            batch: arguments.batch as u64,
        },
        tensors,
        summary,
    })
}

/// The manifest alone: an artifact is inspected without a device and without reading its weights.
fn manifest(files: &Files) -> anyhow::Result<Manifest> {
    serde_json::from_slice(&files.get(MANIFEST)?).with_context(|| {
        let file = files.place(MANIFEST);
        format!("{} is no manifest of this version", file.display())
    })
}

fn as_json(facts: &Facts, budget: &Budget, tensors: bool) -> Value {
    let formats = facts.summary.formats.iter().map(|(name, format)| {
        let FormatInfo {
            weights,
            parameters,
            bytes,
        } = *format;
        (
            name.clone(),
            json!({ "weights": weights, "parameters": parameters, "bytes": bytes }),
        )
    });
    let sizes = facts
        .sizes
        .iter()
        .map(|(name, size)| (name.to_string(), json!(size)));
    let mut value = json!({
        "model": facts.name,
        "family": facts.family,
        "kind": facts.kind,
        "sizes": sizes.collect::<serde_json::Map<_, _>>(),
        "formats": formats.collect::<serde_json::Map<_, _>>(),
        "tokenizer": facts.tokenizer,
        "memory": budget,
    });
    match &facts.compiled {
        Some(compiled) => value["compiled"] = compiled.clone(),
        None => value["parameters"] = json!(facts.summary.parameters),
    }
    if tensors {
        let one = |tensor: &TensorInfo| {
            json!({
                "name": tensor.name,
                "shape": tensor.shape,
                "format": tensor.format,
                "bytes": tensor.bytes,
                "file": tensor.file.file_name().map(|name| name.to_string_lossy()),
            })
        };
        value["tensors"] = facts.tensors.iter().map(one).collect();
    }
    value
}
