//! `bench compile`: how long models take to compile for each target, in what memory, and into what.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::checkpoint::{self, Form, SMALL};
use crate::mlxcel::Program;
use crate::table;
use crate::workspace::Workspace;

/// Targets that people compile for, each with its default chip.
const TARGETS: [&str; 3] = ["iree-cpu", "iree-cuda", "iree-rocm"];

/// Seconds that the model of 0.6 billion may take on two cores, and bytes of the larger of both processes.
const SECONDS: f64 = 60.0;
const MEMORY: u64 = 2_000_000_000;

/// Compiles SmolLM2 and two random models of 0.6 billion for `targets`, nothing from the cache, and prints what
/// each took.
pub(super) fn run(
    workspace: &Workspace,
    program: &Program,
    targets: &[String],
    as_json: bool,
) -> Result<()> {
    let folder = workspace.deps("bench-compile");
    let result = measure(workspace, program, targets, &folder);
    // The models take 1.5 GB.
    if folder.exists() {
        std::fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    let figures = result?;
    match as_json {
        true => println!("{:#}", Value::from(figures)),
        false => print!("{}", told(&figures)),
    }
    Ok(())
}

fn measure(
    workspace: &Workspace,
    program: &Program,
    targets: &[String],
    folder: &Path,
) -> Result<Vec<Value>> {
    let mut models: Vec<(&str, PathBuf)> = Vec::new();
    let file = workspace.deps("models/SmolLM2-135M-Instruct.Q4_1.gguf");
    match file.is_file() {
        true => models.push(("SmolLM2-135M Q4_1", file)),
        false => eprintln!("without SmolLM2, which `cargo xtask setup --model` fetches"),
    }
    for (name, form) in [("0.6B 4-bit", Form::FourBits), ("0.6B bf16", Form::Bf16)] {
        let model = folder.join(name.replace(' ', "-"));
        std::fs::create_dir_all(&model)
            .with_context(|| format!("cannot make {}", model.display()))?;
        eprintln!("writing {}", model.display());
        checkpoint::write(&model, &SMALL, form)?;
        models.push((name, model));
    }
    let known = TARGETS.map(String::from);
    let targets = if targets.is_empty() { &known } else { targets };
    let mut figures = Vec::new();
    for (name, model) in &models {
        for target in targets {
            eprintln!("compiling {name} for {target}");
            let mut told = program.compile_anew(model, target, &folder.join("artifact"))?;
            told["model"] = json!(name);
            figures.push(told);
        }
    }
    Ok(figures)
}

fn told(figures: &[Value]) -> String {
    let headings = [
        "model",
        "target",
        "chip",
        "seconds",
        "compiler MB",
        "program MB",
        "artifact MB",
        "code MB",
        "dispatches",
        "kernels",
        "bar",
    ];
    let mut rows = vec![headings.map(String::from).to_vec()];
    for figure in figures {
        let text = |field: &str| figure[field].as_str().unwrap_or_default().to_owned();
        let number = |field: &str| figure[field].as_f64().unwrap_or(f64::NAN);
        let megabytes = |field: &str| format!("{:.1}", number(field) / 1e6);
        let memory = number("compiler_memory_bytes").max(number("peak_memory_bytes"));
        let good = number("seconds") <= SECONDS && memory <= MEMORY as f64;
        rows.push(vec![
            text("model"),
            text("target"),
            text("chip"),
            format!("{:.1}", number("seconds")),
            megabytes("compiler_memory_bytes"),
            megabytes("peak_memory_bytes"),
            megabytes("bytes"),
            format!("{:.2}", number("module_bytes") / 1e6),
            figure["dispatches"].to_string(),
            figure["kernels"].to_string(),
            if good { "reached" } else { "missed" }.to_owned(),
        ]);
    }
    table::layout(&rows)
}
