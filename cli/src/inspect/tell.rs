//! What was found, as text for people.

use super::Facts;
use super::budget::Budget;
use crate::output;
use mlxcel_frontend::{FormatInfo, TensorInfo};
use std::fmt::Write;

/// Everything as lines of a name and a value, in sections.
pub(super) fn text(facts: &Facts, budget: &Budget, tensors: bool) -> String {
    let mut model = vec![
        ("name", facts.name.clone()),
        ("family", facts.family.clone()),
        ("kind", facts.kind.to_string()),
    ];
    for (name, size) in &facts.sizes {
        model.push((name, size.to_string()));
    }
    if facts.compiled.is_none() {
        model.push(("parameters", count(facts.summary.parameters)));
    }
    if let Some(compiled) = &facts.compiled {
        for name in [
            "target",
            "chip",
            "compiler",
            "mlxcel",
            "source",
            "reference",
        ] {
            if let Some(value) = compiled[name].as_str() {
                model.push((name, value.to_string()));
            }
        }
        let contract = match compiled["contract"]["tokens"].as_array() {
            Some(tokens) => format!("reference values of {} tokens", tokens.len()),
            None => "none".to_string(),
        };
        model.push(("contract", contract));
    }
    let mut told = String::new();
    section(&mut told, "model", &model);
    let formats = facts.summary.formats.iter().map(|(name, format)| {
        let FormatInfo {
            weights,
            parameters,
            bytes,
        } = *format;
        let text = format!(
            "{weights} weights, {} numbers, {}",
            count(parameters),
            output::bytes(bytes)
        );
        (name.as_str(), text)
    });
    section(&mut told, "weights", &formats.collect::<Vec<_>>());
    if let Some(tokenizer) = &facts.tokenizer {
        let mut lines = vec![
            ("tokens", tokenizer["tokens"].to_string()),
            (
                "chat template",
                if tokenizer["chat_template"] == true {
                    "yes"
                } else {
                    "no"
                }
                .into(),
            ),
        ];
        // What gives no text ends none.
        if tokenizer["end_tokens"] != serde_json::json!([]) {
            lines.push(("end tokens", tokenizer["end_tokens"].to_string()));
        }
        section(&mut told, "tokenizer", &lines);
    }
    if let Some(compiled) = &facts.compiled {
        let functions = compiled["functions"].as_array();
        let functions = functions.into_iter().flatten().map(|one| {
            let text = format!("{} rows of {} tokens", one["batch"], one["tokens"]);
            (one["name"].as_str().unwrap_or_default(), text)
        });
        section(&mut told, "functions", &functions.collect::<Vec<_>>());
        let parts = compiled["parts"].as_object();
        let parts = parts.into_iter().flatten().map(|(name, part)| {
            let size = output::bytes(part["bytes"].as_u64().unwrap_or_default());
            let digest = part["sha256"].as_str().unwrap_or_default();
            (name.as_str(), format!("{size}, sha256 {digest}"))
        });
        section(&mut told, "parts", &parts.collect::<Vec<_>>());
    }
    section(&mut told, "memory", &budget.lines());
    if tensors {
        let lines: Vec<(&str, String)> = facts
            .tensors
            .iter()
            .map(|one| (&*one.name, tensor(one)))
            .collect();
        section(&mut told, "tensors", &lines);
    }
    told
}

fn tensor(tensor: &TensorInfo) -> String {
    let TensorInfo {
        shape,
        format,
        bytes,
        ..
    } = tensor;
    format!("{format} {shape:?} {}", output::bytes(*bytes))
}

fn section(told: &mut String, title: &str, lines: &[(&str, String)]) {
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    // Writing to a string cannot fail.
    let _ = writeln!(told, "{title}");
    for (name, value) in lines {
        let _ = writeln!(told, "  {name:width$}  {value}");
    }
}

/// A count as people read it.
fn count(number: u64) -> String {
    let scaled = |unit: u64, name: &str| format!("{:.2} {name}", number as f64 / unit as f64);
    match number {
        0..1_000 => number.to_string(),
        1_000..1_000_000 => scaled(1_000, "thousand"),
        1_000_000..1_000_000_000 => scaled(1_000_000, "million"),
        _ => scaled(1_000_000_000, "billion"),
    }
}
