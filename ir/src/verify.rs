//! Which graphs are legal.
//!
//! A legal graph has unique names within each kind of thing, weights and states that are stored in
//! whole words, operands defined before use, node types equal to what [`crate::infer`] gives, sizes
//! that fit the address space, one number of rows for all states, and at most one append to each
//! part of a state. Every pass, interpreter and runtime may rely on this; [`crate::text::parse`]
//! alone does not establish it.

mod declaration;
mod error;

pub use error::{Place, VerifyError};

use crate::infer::Site;
use crate::{Dim, Graph, Node, Op, StatePart};
use declaration::{sizes, state, weight};
use std::collections::HashSet;

/// The most dimensions of a tensor.
pub const HIGHEST_RANK: usize = 16;

/// The longest name, in bytes.
pub const LONGEST_NAME: usize = 4096;

/// Checks that `graph` is legal.
///
/// # Errors
/// The first rule that it breaks, in the order of the text form; [`errors`] gives all of them.
pub fn verify(graph: &Graph) -> Result<(), VerifyError> {
    match errors(graph).into_iter().next() {
        None => Ok(()),
        Some(error) => Err(error),
    }
}

/// Every rule that `graph` breaks, in the order of the text form.
pub fn errors(graph: &Graph) -> Vec<VerifyError> {
    let mut report = Report {
        function: &graph.name,
        errors: Vec::new(),
    };
    report.check(|| Place::Function, function(graph));
    let mut names = HashSet::new();
    for input in &graph.inputs {
        let place = || Place::Input(input.name.clone());
        report.check(place, fresh(&mut names, &input.name));
        report.check(place, sizes(&input.ty));
    }
    names.clear();
    for declaration in &graph.weights {
        let place = || Place::Weight(declaration.name.clone());
        report.check(place, fresh(&mut names, &declaration.name));
        report.check(place, weight(declaration));
    }
    names.clear();
    for declaration in &graph.states {
        let place = || Place::State(declaration.name.clone());
        report.check(place, fresh(&mut names, &declaration.name));
        report.check(place, state(declaration));
    }
    names.clear();
    let mut changed = HashSet::new();
    let mut rows = None;
    for (index, node) in graph.nodes.iter().enumerate() {
        let place = || Place::Node {
            value: graph.inputs.len() + index,
            op: node.op.info().name,
            name: node.name.clone(),
        };
        if let Some(name) = &node.name {
            report.check(place, fresh(&mut names, name));
        }
        report.check(place, self::node(graph, index, node));
        if node.state.is_some() {
            report.check(place, same_rows(&mut rows, graph, node));
        }
        for &part in changes(&node.op) {
            let again = node.state.is_some_and(|s| !changed.insert((s, part)));
            report.check(
                place,
                require(!again, || match part {
                    StatePart::Key => "appends to the keys of its state a second time".into(),
                    StatePart::Value => "appends to the values of its state a second time".into(),
                    StatePart::Whole => "changes its state a second time".into(),
                }),
            );
        }
    }
    names.clear();
    for output in &graph.outputs {
        let place = || Place::Output(output.name.clone());
        report.check(place, fresh(&mut names, &output.name));
        report.check(
            place,
            require(graph.ty(output.value).is_some(), || {
                format!("there is no value %{}", output.value.0)
            }),
        );
    }
    report.errors
}

struct Report<'a> {
    function: &'a str,
    errors: Vec<VerifyError>,
}

impl Report<'_> {
    fn check(&mut self, place: impl FnOnce() -> Place, result: Result<(), String>) {
        if let Err(reason) = result {
            self.errors.push(VerifyError {
                function: self.function.to_string(),
                place: place(),
                reason,
            });
        }
    }
}

fn require(condition: bool, reason: impl FnOnce() -> String) -> Result<(), String> {
    if condition { Ok(()) } else { Err(reason()) }
}

fn function(graph: &Graph) -> Result<(), String> {
    usable(&graph.name)?;
    let values = graph.inputs.len().checked_add(graph.nodes.len());
    require(
        values.is_some_and(|values| u32::try_from(values).is_ok()),
        || "has more values than can be numbered".into(),
    )
}

fn usable(name: &str) -> Result<(), String> {
    require(!name.is_empty(), || "the name is empty".into())?;
    require(name.len() <= LONGEST_NAME, || {
        format!("the name is longer than {LONGEST_NAME} bytes")
    })
}

fn fresh<'a>(names: &mut HashSet<&'a str>, name: &'a str) -> Result<(), String> {
    usable(name)?;
    require(names.insert(name), || "the name is taken already".into())
}

fn node(graph: &Graph, index: usize, node: &Node) -> Result<(), String> {
    let own = graph.value_of(index);
    if let Some(late) = node.operands.iter().find(|&&operand| operand >= own) {
        return Err(format!("operand %{} is not defined above", late.0));
    }
    let site = Site::of(graph, &node.op, &node.operands, &node.weights, node.state)?;
    let inferred = node.op.infer(&site)?;
    require(node.ty == inferred, || {
        format!("the type must be {inferred}, is {}", node.ty)
    })?;
    sizes(&node.ty)?;
    attributes(&node.op)
}

/// Whether the attributes read back to themselves; a size above `i64::MAX` does not.
fn attributes(op: &Op) -> Result<(), String> {
    let written: Vec<_> = op
        .attributes()
        .into_iter()
        .map(|(name, value)| (name.to_string(), value))
        .collect();
    let read = Op::from_text(op.info().name, &written)?;
    require(read == *op, || "an attribute has no text form".into())
}

/// Whether all states of a graph have as many rows; `rows` is the number found so far.
fn same_rows(rows: &mut Option<Dim>, graph: &Graph, node: &Node) -> Result<(), String> {
    let operand = node.operands.first().and_then(|&value| graph.ty(value));
    let Some(&here) = operand.and_then(|ty| ty.shape.first()) else {
        return Ok(());
    };
    let first = *rows.get_or_insert(here);
    require(first == here, || {
        format!("has {here} rows of its state, where a node above has {first}")
    })
}

/// Which parts of its state an op changes.
fn changes(op: &Op) -> &'static [StatePart] {
    match op {
        Op::CacheAppend { part } => match part {
            StatePart::Key => &[StatePart::Key],
            StatePart::Value => &[StatePart::Value],
            StatePart::Whole => &[StatePart::Whole],
        },
        Op::Attention { .. } => &[StatePart::Key, StatePart::Value],
        Op::CausalConvolution {} | Op::Recurrence {} | Op::DeltaRecurrence {} => {
            &[StatePart::Whole]
        }
        _ => &[],
    }
}
