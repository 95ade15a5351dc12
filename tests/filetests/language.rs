//! The language of the files in this folder, read: a graph in the text form, with comments that say what is
//! checked. The book's page on file tests describes it.
//!
//! The tests of several crates include this module; beside it they have `common` of `ir`'s tests.
//! `MLXCEL_BLESS=1` rewrites what stands after `====`, and nothing else.
#![allow(dead_code, unreachable_pub)]

use super::common::{Outputs, bytes, store};
use mlxcel_ir::random::Weights;
use mlxcel_ir::{Bindings, Graph, HostTensor, Symbol, text, verify};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file, taken apart.
pub struct Case {
    /// Where it is.
    pub path: PathBuf,
    /// The first line without `// `.
    pub kind: String,
    /// The other comment lines as key and rest, split at the first blank.
    pub directives: Vec<(String, String)>,
    /// Everything before `====`.
    pub source: String,
    /// Everything after `====`.
    pub expected: String,
}

impl Case {
    fn read(path: &Path) -> Case {
        let text = std::fs::read_to_string(path).expect("a readable file");
        let (source, expected) = text.split_once("====\n").unwrap_or((&text, ""));
        let mut comments = source.lines().filter_map(|line| line.strip_prefix("// "));
        let kind = comments.next().unwrap_or("").to_string();
        let directive = |line: &str| {
            let (key, rest) = line.split_once(' ').unwrap_or((line, ""));
            (key.to_string(), rest.trim().to_string())
        };
        Case {
            path: path.to_path_buf(),
            kind,
            directives: comments.map(directive).collect(),
            source: source.to_string(),
            expected: expected.to_string(),
        }
    }

    /// The graph as it is read.
    pub fn parse(&self) -> Result<Graph, String> {
        text::parse(&self.source).map_err(|error| error.to_string())
    }

    /// The graph, which must be legal.
    pub fn graph(&self) -> Result<Graph, String> {
        let graph = self.parse()?;
        verify::verify(&graph).map_err(|error| error.to_string())?;
        Ok(graph)
    }

    /// The rest of the line `// key`, if the file has one.
    pub fn directive(&self, key: &str) -> Option<&str> {
        let mut directives = self.directives.iter();
        let (_, rest) = directives.find(|(known, _)| known == key)?;
        Some(rest)
    }

    /// Holds `printed` against what stands after `====`.
    pub fn prints(&self, printed: &str) -> Result<(), String> {
        if printed == self.expected {
            return Ok(());
        }
        if std::env::var_os("MLXCEL_BLESS").is_some() {
            let whole = format!("{}====\n{printed}", self.source);
            return std::fs::write(&self.path, whole).map_err(|error| error.to_string());
        }
        Err(format!("expected\n{}found\n{printed}", self.expected))
    }

    /// Holds the message of a failure against what the file says after `// error: `.
    pub fn fails(&self, result: Result<(), String>) -> Result<(), String> {
        let expected = self.directive("error:");
        let expected = expected.ok_or("the file states no `// error: `")?;
        match result {
            Ok(()) => Err(format!("expected the error {expected}")),
            Err(message) if message == expected => Ok(()),
            Err(message) => Err(format!(
                "expected the error\n  {expected}\nfound\n  {message}"
            )),
        }
    }

    /// The weights and calls of a file of kind `run`.
    pub fn calls(&self) -> Result<(Graph, Arc<Weights>, Vec<Call>), String> {
        let graph = self.graph()?;
        let mut weights = Weights::default();
        let mut calls = vec![Call::default()];
        for (key, rest) in &self.directives {
            let call = calls.last_mut().ok_or("there is always a call")?;
            match key.as_str() {
                "weight" => weight(&graph, &mut weights, rest)?,
                "bind" => call.bindings = bindings(rest)?,
                "step" => calls.push(Call::default()),
                "input" => {
                    let (name, numbers) = assignment(rest)?;
                    let tensor = input(&graph, &call.bindings, name, &numbers)?;
                    call.inputs.push((name.to_string(), tensor));
                }
                "output" => {
                    let (name, numbers) = assignment(rest)?;
                    call.outputs.push((name.to_string(), numbers));
                }
                _ => {}
            }
        }
        Ok((graph, Arc::new(weights), calls))
    }
}

/// One call of a graph, on the states that the calls before it left.
#[derive(Default)]
pub struct Call {
    /// The sizes of its symbols.
    pub bindings: Bindings,
    /// Its inputs by name.
    pub inputs: Vec<(String, HostTensor)>,
    /// What its outputs should be.
    pub outputs: Outputs,
}

/// Reads `B = 1, T = 2`.
pub fn bindings(text: &str) -> Result<Bindings, String> {
    let mut bindings = Bindings::new();
    for part in text.split(',') {
        let (name, size) = part.split_once('=').ok_or("expected `symbol = size`")?;
        let mut symbols = Symbol::ALL.into_iter();
        let symbol = symbols.find(|symbol| symbol.name() == name.trim());
        let size = size.trim().parse().ok();
        let (symbol, size) = symbol.zip(size).ok_or("expected `symbol = size`")?;
        bindings = bindings.with(symbol, size);
    }
    Ok(bindings)
}

/// Says what is wrong with each of `cases` that does not hold.
pub fn hold<'c>(
    cases: impl IntoIterator<Item = &'c Case>,
    check: impl Fn(&Case) -> Result<(), String>,
) {
    let failures: Vec<String> = cases
        .into_iter()
        .filter_map(|case| {
            let reason = check(case).err()?;
            Some(format!("{}: {reason}", case.path.display()))
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// Every file.
pub fn cases() -> Vec<Case> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/filetests")];
    let mut paths = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a readable folder") {
            let path = entry.expect("a readable folder").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "mxg") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    paths.iter().map(|path| Case::read(path)).collect()
}

/// Reads `w = [1, 2]` or `w codes = [..] scales = [..] biases = [..]`.
fn weight(graph: &Graph, weights: &mut Weights, text: &str) -> Result<(), String> {
    let name = text.split_whitespace().next().unwrap_or("");
    let declared = graph.weights.iter().find(|weight| weight.name == name);
    let declared = declared.ok_or_else(|| format!("the graph has no weight {name:?}"))?;
    let mut parts = Vec::new();
    for part in text.split_inclusive(']') {
        parts.push(assignment(part)?.1);
    }
    let part = |index: usize| parts.get(index).map_or(&[][..], |part| part);
    store(weights, declared, [part(0), part(1), part(2)]);
    Ok(())
}

/// Reads `name = [1, 2.5]`.
fn assignment(text: &str) -> Result<(&str, Vec<f64>), String> {
    let (name, list) = text
        .split_once('=')
        .ok_or_else(|| format!("expected `=` in {text:?}"))?;
    let list = list
        .trim()
        .strip_prefix('[')
        .and_then(|list| list.strip_suffix(']'));
    let list = list.ok_or_else(|| format!("expected a list in {text:?}"))?;
    let items = list
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty());
    let numbers = items.map(|item| item.parse().map_err(|_| format!("{item:?} is no number")));
    Ok((name.trim(), numbers.collect::<Result<_, _>>()?))
}

fn input(
    graph: &Graph,
    bindings: &Bindings,
    name: &str,
    numbers: &[f64],
) -> Result<HostTensor, String> {
    let declared = graph.inputs.iter().find(|input| input.name == name);
    let ty = &declared
        .ok_or_else(|| format!("the graph has no input {name:?}"))?
        .ty;
    let shape = ty.sizes(bindings);
    let shape = shape.map_err(|symbol| format!("{} is not bound", symbol.name()))?;
    if shape.iter().product::<usize>() != numbers.len() {
        return Err(format!(
            "input {name:?} does not have {} elements",
            numbers.len()
        ));
    }
    Ok(HostTensor {
        dtype: ty.dtype,
        shape,
        bytes: bytes(ty.dtype, numbers),
    })
}
