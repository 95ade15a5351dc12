//! Runs `tests/filetests/**/*.mxg`; the book's page on file tests says what they mean.
//!
//! `MLXCEL_BLESS=1` rewrites what stands after `====`, and nothing else.

mod common;
#[path = "../../tests/filetests/language.rs"]
mod language;
#[path = "filetests/run.rs"]
mod run;

use language::{Case, bindings, cases};
use mlxcel_ir::{Graph, Op, pass, text, verify};
use std::collections::BTreeSet;

impl Case {
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
            "run" => run::check(self),
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
