//! What a run of the oracle's levels found, one line a level.

use crate::case::Case;
use crate::execution::{Execution, ExecutionError, Observed};
use crate::known;
use crate::standard::Standard;
use std::fmt;

/// A case that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The side at fault.
    pub execution: String,
    /// What is wrong.
    pub reason: String,
    /// The case as text, reduced; empty where it is no graph of the oracle's own.
    pub case: String,
}

impl Failure {
    /// A failure on a case.
    pub fn new(execution: &str, case: &Case, reason: impl Into<String>) -> Self {
        Self {
            execution: execution.into(),
            reason: reason.into(),
            case: case.to_string(),
        }
    }
}

/// The outcome of a level.
#[derive(Clone, Debug)]
pub struct Level {
    /// What was compared.
    pub name: String,
    /// Cases that ran.
    pub cases: u64,
    /// Cases within their bounds.
    pub passed: u64,
    /// Cases that a declared limitation of the execution explains.
    pub declared: u64,
    /// The largest error of those within their bounds, as a share of its bound.
    pub worst: f64,
    /// Where that was.
    pub place: String,
    /// Time of the executions under test and, where they are not cheap, of the interpreter.
    pub seconds: f64,
    /// What failed.
    pub failures: Vec<Failure>,
}

impl Level {
    /// A level of which nothing ran yet.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            cases: 0,
            passed: 0,
            declared: 0,
            worst: 0.0,
            place: String::new(),
            seconds: 0.0,
            failures: vec![],
        }
    }

    /// Counts a case whose worst error is `share` of its bound.
    pub fn pass(&mut self, share: f64, place: impl FnOnce() -> String) {
        self.cases += 1;
        self.passed += 1;
        if share > self.worst {
            (self.worst, self.place) = (share, place());
        }
    }

    /// Counts a case that failed.
    pub fn fail(&mut self, failure: Failure) {
        self.cases += 1;
        self.failures.push(failure);
    }

    /// Counts a case that a declared limitation explains.
    pub fn declare(&mut self) {
        self.cases += 1;
        self.declared += 1;
    }

    /// Counts what an execution made of a case.
    pub fn record(
        &mut self,
        case: &Case,
        execution: &dyn Execution,
        standard: &Standard,
        outcome: Result<Vec<Observed>, ExecutionError>,
    ) {
        match outcome {
            Ok(observed) => match standard.worst(&observed) {
                Some(worst) if !worst.within() => {
                    self.fail(Failure::new(execution.name(), case, worst.to_string()));
                }
                worst => {
                    let op = |case: &Case| case.graph.nodes.last().map_or("", |n| n.op.info().name);
                    self.pass(worst.map_or(0.0, |w| w.share), || {
                        format!("{} of graph {}", op(case), case.seed)
                    });
                }
            },
            Err(error) => {
                let message = known::full(&error);
                match known::explains(execution, &message) {
                    Some(_) => self.declare(),
                    None => self.fail(Failure::new(execution.name(), case, message)),
                }
            }
        }
    }

    /// Whether every case passed, and there was one.
    pub fn passed(&self) -> bool {
        self.cases > 0 && self.failures.is_empty()
    }
}

/// The heading of lines of levels.
pub const HEADING: &str = "level                               cases   passed declared  worst error of budget  seconds  at";

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<34} {:>6} {:>8} {:>8}  {:>20.1}% {:>8.1}  {}",
            self.name,
            self.cases,
            self.passed,
            self.declared,
            self.worst * 100.0,
            self.seconds,
            self.place
        )
    }
}
