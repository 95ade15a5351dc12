//! Runs `tests/filetests/**/*.txt`.
//!
//! A file is a graph in the text form. Its first line is a comment that says what is checked:
//!
//! - `// print`: the text after the line `====` is the graph as it prints, and reads back.
//! - `// pass NAME` or `// pass specialise B = 1, ...`: the same for the graph after a pass.
//! - `// parse` and `// verify`: reading or verifying fails with the message after `// error: `.
//! - `// run`: the outputs are as the comments say, see `run.rs`.
//!
//! `MLXCEL_BLESS=1` rewrites what stands after `====`, and nothing else.

mod common;
#[path = "filetests/run.rs"]
mod run;

use mlxcel_ir::{Bindings, Graph, Op, Symbol, pass, text, verify};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A file, taken apart.
struct Case {
    path: PathBuf,
    /// The first line without `// `.
    kind: String,
    /// The other comment lines as key and rest, split at the first blank.
    directives: Vec<(String, String)>,
    /// Everything before `====`.
    source: String,
    /// Everything after `====`.
    expected: String,
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

    fn parse(&self) -> Result<Graph, String> {
        text::parse(&self.source).map_err(|error| error.to_string())
    }

    /// The graph, which must be legal.
    fn graph(&self) -> Result<Graph, String> {
        let graph = self.parse()?;
        verify::verify(&graph).map_err(|error| error.to_string())?;
        Ok(graph)
    }

    fn check(&self) -> Result<(), String> {
        let (kind, argument) = self.kind.split_once(' ').unwrap_or((&self.kind, ""));
        match kind {
            "print" => self.printed(&self.graph()?),
            "pass" => self.printed(&passed(argument, &self.graph()?)?),
            "parse" => self.fails(self.parse().map(|_| ())),
            "verify" => {
                let graph = self.parse()?;
                self.fails(verify::verify(&graph).map_err(|error| error.to_string()))
            }
            "run" => run::check(&self.graph()?, &self.directives),
            _ => Err(format!("unknown kind of test {:?}", self.kind)),
        }
    }

    /// Checks what a graph prints as, and that this reads back.
    fn printed(&self, graph: &Graph) -> Result<(), String> {
        verify::verify(graph).map_err(|error| error.to_string())?;
        let printed = text::print(graph);
        let read = text::parse(&printed).map_err(|error| error.to_string())?;
        if read != *graph {
            return Err(format!("does not read back to itself:\n{printed}"));
        }
        if printed != self.expected {
            if std::env::var_os("MLXCEL_BLESS").is_some() {
                let whole = format!("{}====\n{printed}", self.source);
                return std::fs::write(&self.path, whole).map_err(|error| error.to_string());
            }
            return Err(format!("expected\n{}found\n{printed}", self.expected));
        }
        Ok(())
    }

    fn fails(&self, result: Result<(), String>) -> Result<(), String> {
        let expected = self.directives.iter().find(|(key, _)| key == "error:");
        let (_, expected) = expected.ok_or("the file states no `// error: `")?;
        match result {
            Ok(()) => Err(format!("expected the error {expected}")),
            Err(message) if message == *expected => Ok(()),
            Err(message) => Err(format!(
                "expected the error\n  {expected}\nfound\n  {message}"
            )),
        }
    }
}

fn passed(argument: &str, graph: &Graph) -> Result<Graph, String> {
    if let Some(sizes) = argument.strip_prefix("specialise ") {
        return Ok(pass::specialise(graph, &bindings(sizes)?));
    }
    let found = pass::PASSES.iter().find(|(name, _)| *name == argument);
    let (_, pass) = found.ok_or_else(|| format!("unknown pass {argument:?}"))?;
    Ok(pass(graph))
}

/// Reads `B = 1, T = 2`.
fn bindings(text: &str) -> Result<Bindings, String> {
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

fn cases() -> Vec<Case> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests")];
    let mut paths = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a readable folder") {
            let path = entry.expect("a readable folder").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "txt") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    paths.iter().map(|path| Case::read(path)).collect()
}

#[test]
fn every_file_holds() {
    let failures: Vec<String> = cases()
        .iter()
        .filter_map(|case| {
            let reason = case.check().err()?;
            Some(format!("{}: {reason}", case.path.display()))
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn every_op_is_run() {
    let mut missing: BTreeSet<&str> = Op::TABLE.iter().map(|info| info.name).collect();
    for case in cases().iter().filter(|case| case.kind == "run") {
        for node in case.graph().iter().flat_map(|graph| &graph.nodes) {
            missing.remove(node.op.info().name);
        }
    }
    assert!(missing.is_empty(), "no run file has {missing:?}");
}
