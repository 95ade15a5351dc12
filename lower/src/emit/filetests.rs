//! The files of kind `lower`: what graphs become, as text.
//!
//! Emitting needs the compiler's library, whose MLIR it builds with, but compiles nothing.

#[path = "../../../ir/tests/common/mod.rs"]
mod common;
#[path = "../../../tests/filetests/language.rs"]
mod language;

use super::module;
use crate::{FunctionSpec, Target, library, session::Session};
use language::{Case, bindings, cases, hold};
use melior::ir::block::BlockLike;
use melior::ir::operation::OperationLike;
use mlxcel_ir::Bindings;
use std::fmt::Write;
use std::sync::{Arc, Mutex};

/// The module for a target without the text of its kernels, each of which is replaced by the piece of the
/// graph that it computes: what they do is for tests that run them.
fn text(session: &Session, case: &Case, target: &str) -> Result<String, String> {
    let target = Target::new(target, None).map_err(|error| error.to_string())?;
    let graph = case.graph()?;
    let spec = FunctionSpec {
        name: graph.name.clone(),
        graph,
        bindings: match case.directive("bind") {
            Some(sizes) => bindings(sizes)?,
            None => Bindings::new(),
        },
    };
    let rotate = case.directive("rotate").is_some();
    let emitted = module(session.context(), &[spec], target.kernels(), rotate)
        .map_err(|error| error.to_string())?;
    let found = Arc::new(Mutex::default());
    if !session.verify(&emitted.module, &found) {
        return Err(format!("is not valid: {found:?}"));
    }
    let mut text = String::new();
    let body = emitted.module.body();
    let mut next = body.first_operation();
    while let Some(operation) = next {
        if operation.name().as_string_ref().as_str() != Ok("stream.executable") {
            let _ = writeln!(text, "{}", *operation);
        }
        next = operation.next_in_block();
    }
    let kernels = emitted
        .kernels
        .iter()
        .flat_map(|kernels| kernels.in_order());
    for (number, (name, _)) in kernels.enumerate() {
        let _ = write!(text, "kernel_{number}: {name}");
    }
    Ok(text)
}

/// A section for each of the file's targets; those for which the text is the same share one.
fn check(session: &Session, case: &Case) -> Result<(), String> {
    let targets = case.directive("for").ok_or("the file has no `// for `")?;
    let mut sections: Vec<(Vec<&str>, Result<String, String>)> = Vec::new();
    for target in targets.split(", ") {
        let text = text(session, case, target);
        match sections.iter_mut().find(|(_, known)| *known == text) {
            Some((targets, _)) => targets.push(target),
            None => sections.push((vec![target], text)),
        }
    }
    if case.directive("error:").is_some() {
        let mut sections = sections.into_iter();
        return sections.try_for_each(|(_, text)| case.fails(text.map(|_| ())));
    }
    let mut printed = String::new();
    for (targets, text) in sections {
        let _ = write!(printed, "// {}\n{}", targets.join(", "), text?);
    }
    case.prints(&printed)
}

#[test]
fn every_lower_file_holds() {
    let session = Session::open(&library::find().unwrap(), &Target::host().flags()).unwrap();
    let cases = cases();
    let files: Vec<&Case> = cases.iter().filter(|case| case.kind == "lower").collect();
    assert!(files.len() >= 20, "only {} files", files.len());
    hold(files, |case| check(&session, case));
}
