//! `mlxcel arch`: which models there are, and what a model is.

use crate::output;
use clap::Args;
use mlxcel_frontend::{Category, FamilyInfo, GraphOptions, Logits, Model, catalogue};
use serde_json::json;
use std::collections::BTreeMap;
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

/// What executes a family, and how far.
fn backends(category: Category) -> [(&'static str, &'static str); 3] {
    let [eager, compiled] = match category {
        Category::Dense | Category::Experts => ["supported", "supported"],
        // Prompts are compiled token by token.
        Category::Recurrent => ["supported", "partial"],
        Category::Encoder => ["supported", "none"],
    };
    [
        ("mlx", eager),
        ("iree", compiled),
        ("reference", "supported"),
    ]
}

fn families(json: bool) -> anyhow::Result<()> {
    let mut families = catalogue();
    families.sort_by_key(|family| (family.category, family.id));
    if json {
        let one = |family: &FamilyInfo| {
            let formats = ["safetensors"]
                .into_iter()
                .chain(family.gguf.map(|_| "gguf"));
            json!({
                "id": family.id,
                "display_name": family.title,
                "category": family.category.name(),
                "model_types": family.model_types,
                "gguf_architecture": family.gguf,
                "formats": formats.collect::<Vec<_>>(),
                "backends": BTreeMap::from(backends(family.category)),
            })
        };
        return output::json(&json!({
            "mlxcel_version": env!("CARGO_PKG_VERSION"),
            "families": families.iter().map(one).collect::<Vec<_>>(),
        }));
    }
    let mut rows =
        vec![["family", "title", "category", "gguf", "iree", "model types"].map(String::from)];
    for family in &families {
        let [_, (_, iree), _] = backends(family.category);
        rows.push([
            family.id.into(),
            family.title.into(),
            family.category.name().into(),
            family.gguf.unwrap_or("-").into(),
            iree.into(),
            family.model_types.join(", "),
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..6).map(|column| width(column).unwrap_or(0)).collect();
    let mut last = "";
    for row in &rows {
        // A gap before each category.
        if row[2] != last && !last.is_empty() {
            output::line("")?;
        }
        last = &row[2];
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, &width)| format!("{cell:width$}"));
        let cells: Vec<String> = cells.collect();
        output::line(cells.join("  ").trim_end())?;
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
