//! Runs `tests/filetests/**/*.mxg`; the book's page on file tests says what they mean.

mod common;
#[path = "../../tests/filetests/language.rs"]
mod language;
#[path = "filetests/run.rs"]
mod run;

use language::{Case, bindings, cases, hold};
use mlxcel_ir::decompose::decompose_except;
use mlxcel_ir::{Graph, Node, Op, pass, text, verify};
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
            // What becomes of it is for the tests of `mlxcel-lower`.
            "lower" => self.graph().map(|_| ()),
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
        self.prints(&printed)
    }
}

fn passed(argument: &str, graph: &Graph) -> Result<Graph, String> {
    if let Some(sizes) = argument.strip_prefix("specialise ") {
        return Ok(pass::specialise(graph, &bindings(sizes)?));
    }
    if let Some(kept) = argument.strip_prefix("decompose") {
        let kept: Vec<&str> = kept
            .strip_prefix(" except ")
            .map_or(vec![], |kept| kept.split(", ").collect());
        let keep = |node: &Node| kept.contains(&node.op.info().name);
        return decompose_except(graph, keep).map_err(|error| error.to_string());
    }
    let found = pass::PASSES.iter().find(|(name, _)| *name == argument);
    let (_, pass) = found.ok_or_else(|| format!("unknown pass {argument:?}"))?;
    Ok(pass(graph))
}

#[test]
fn every_file_holds() {
    hold(&cases(), Case::check);
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
