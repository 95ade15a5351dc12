//! `mlxcel arch`: which models there are, and what a model is.

use crate::output;
use clap::Args;
use mlxcel_frontend::{GraphOptions, Logits, Model, supported};
use serde_json::json;
use std::path::PathBuf;

/// List the supported model families, or print a model's graph.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mlxcel arch\n  \
    mlxcel arch --json\n  \
    mlxcel arch ./SmolLM2-135M-Instruct > smollm2.mxg")]
pub(crate) struct Arguments {
    /// Print the graph of this model: a folder or a .gguf file.
    model: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Give the graph its hidden states after each layer as outputs too.
    #[arg(long, requires = "model")]
    hidden: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.model {
        None => families(arguments.json),
        Some(path) => graph(&Model::load(path)?, arguments),
    }
}

fn families(json: bool) -> anyhow::Result<()> {
    let families = supported();
    if json {
        let families: Vec<_> = families.iter().map(|id| json!({ "id": id })).collect();
        return output::json(&json!({
            "mlxcel_version": env!("CARGO_PKG_VERSION"),
            "families": families,
        }));
    }
    for family in families {
        output::line(&family)?;
    }
    Ok(())
}

fn graph(model: &Model, arguments: &Arguments) -> anyhow::Result<()> {
    let graph = model.graph(&GraphOptions {
        logits: Logits::Last,
        hidden: arguments.hidden,
        ..GraphOptions::default()
    })?;
    if arguments.json {
        return output::json(&json!({
            "model": model.name(),
            "family": model.family(),
            "layers": model.layers(),
            "vocabulary": model.vocabulary(),
            "context": model.context(),
            "nodes": graph.nodes.len(),
            "weights": graph.weights.len(),
            "weight_bytes": graph.weights.iter().map(|weight| weight.bytes()).sum::<usize>(),
        }));
    }
    Ok(output::text(&mlxcel_ir::text::print(&graph))?)
}
