//! From a graph to its text.

use super::lex::is_bare;
use crate::{Graph, Node, ValueId};
use std::fmt::Write;

/// The text of `graph`. Of a graph that does not verify, it is a picture that need not read back.
pub fn print(graph: &Graph) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_graph(&mut text, graph);
    text
}

fn write_graph(out: &mut String, graph: &Graph) -> std::fmt::Result {
    write!(out, "func @{}(", quoted(&graph.name))?;
    for (index, input) in graph.inputs.iter().enumerate() {
        let comma = if index > 0 { ", " } else { "" };
        write!(out, "{comma}%{}: {}", quoted(&input.name), input.ty)?;
    }
    out.push_str(")\n");
    for weight in &graph.weights {
        let name = quoted(&weight.name);
        let shape = list(weight.shape.iter());
        writeln!(out, "  weight @{name}: {}[{shape}]", weight.format)?;
    }
    for state in &graph.states {
        writeln!(
            out,
            "  state ${}: {} {} heads {} key {} value {}",
            quoted(&state.name),
            state.dtype,
            state.kind.name(),
            state.heads,
            state.key_dim,
            state.value_dim
        )?;
    }
    out.push_str("{\n");
    for (index, node) in graph.nodes.iter().enumerate() {
        write!(out, "  %{} = ", graph.inputs.len() + index)?;
        write_node(out, graph, node)?;
        out.push('\n');
    }
    out.push_str("  return");
    for (index, output) in graph.outputs.iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        let value = value_name(graph, output.value);
        write!(out, "{comma} {} = {value}", quoted(&output.name))?;
    }
    out.push_str("\n}\n");
    Ok(())
}

fn write_node(out: &mut String, graph: &Graph, node: &Node) -> std::fmt::Result {
    let operands = list(node.operands.iter().map(|&value| value_name(graph, value)));
    write!(out, "{}({operands})", node.op.info().name)?;
    for &weight in &node.weights {
        match graph.weight(weight) {
            Some(declaration) => write!(out, " @{}", quoted(&declaration.name))?,
            None => write!(out, " @?{}", weight.0)?,
        }
    }
    if let Some(state) = node.state {
        match graph.state(state) {
            Some(declaration) => write!(out, " ${}", quoted(&declaration.name))?,
            None => write!(out, " $?{}", state.0)?,
        }
    }
    let attributes = node.op.attributes();
    if !attributes.is_empty() {
        let attributes = attributes
            .iter()
            .map(|(name, value)| format!("{name} = {value}"));
        write!(out, " {{{}}}", list(attributes))?;
    }
    write!(out, " : {}", node.ty)?;
    match &node.name {
        Some(name) => write!(out, "  {}", in_quotes(name)),
        None => Ok(()),
    }
}

/// How `value` is referred to: an input by name, a node by number.
fn value_name(graph: &Graph, value: ValueId) -> String {
    match graph.inputs.get(value.0 as usize) {
        Some(input) => format!("%{}", quoted(&input.name)),
        None => format!("%{}", value.0),
    }
}

fn list(items: impl Iterator<Item = impl ToString>) -> String {
    let items: Vec<String> = items.map(|item| item.to_string()).collect();
    items.join(", ")
}

/// `name` as it stands after a sigil: bare where that can be read back.
fn quoted(name: &str) -> String {
    if is_bare(name) {
        name.to_string()
    } else {
        in_quotes(name)
    }
}

fn in_quotes(name: &str) -> String {
    let mut text = String::with_capacity(name.len() + 2);
    text.push('"');
    for character in name.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            // Controls and the line separators that an editor might break a line at.
            other if other.is_control() || matches!(other, '\u{2028}' | '\u{2029}') => {
                text.push_str(&format!("\\u{{{:x}}}", other as u32));
            }
            other => text.push(other),
        }
    }
    text.push('"');
    text
}
