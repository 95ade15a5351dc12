//! Greedy texts: an execution takes the most likely token each time, and each of these is held against the
//! interpreter.
//!
//! The interpreter does not write a text of its own: it is asked what it would have chosen at each place of
//! the execution's text. Up to the first token that it would not have chosen both texts are the same, so that
//! is where they part; and where they part at a near tie, the tokens after it are still held to something,
//! while two texts would have nothing in common any more.
//!
//! Rounding may turn a choice between logits that are closer than it moves them. A budget is four times the
//! relative RMS error that is estimated of an honest execution ([`crate::budget`]), so the difference of two
//! logits has a standard deviation of √2 / 4 budgets, times the root mean square of the logits. Twice the
//! budget is 5.7 of them, which a normal error exceeds once in 10^8.

use crate::budget::Budgets;
use crate::execution::{Execution, ExecutionError, Inputs, ReferenceExecution, failed};
use mlxcel_engine::Session;
use mlxcel_ir::step::{self, Row, RowOutput, Tokens, Want};
use mlxcel_ir::{Bindings, Graph, HostTensor, Symbol, WeightSource};
use serde::Serialize;
use std::fmt;
use std::sync::Arc;

/// How many budgets the logit of a token may be behind the interpreter's largest.
const BUDGETS: f64 = 2.0;

/// The tokens that an execution chose, held against the interpreter.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Choices {
    /// Tokens that were chosen.
    pub tokens: usize,
    /// Those that the interpreter would not have chosen, but which rounding explains.
    pub near_ties: usize,
    /// The largest part of what rounding explains that these used.
    pub share: f64,
    /// The first token that the interpreter would not have chosen: from here on its text is another.
    pub first: Option<Other>,
    /// The first of these that rounding does not explain.
    pub fault: Option<Other>,
}

/// A token that the interpreter would not have chosen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Other {
    /// Its position in the text, from 0.
    pub position: usize,
    /// The token.
    pub token: u32,
    /// The token that the interpreter would have chosen.
    pub expected: u32,
    /// By how much the interpreter's largest logit is ahead of its second.
    pub margin: f64,
    /// By how much it is ahead of the token's.
    pub behind: f64,
    /// By how much rounding explains that it is ahead of the token's.
    pub bound: f64,
}

impl Other {
    /// How far the token is behind as a share of what rounding explains.
    fn share(&self) -> f64 {
        match self.behind {
            0.0 => 0.0,
            behind => behind / self.bound,
        }
    }

    fn near_tie(&self) -> bool {
        self.behind <= self.bound
    }
}

impl fmt::Display for Other {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "token {} at position {}, where the interpreter has {}: {:.1e} behind, of which rounding explains {:.1e}; \
             the interpreter's first two are {:.1e} apart",
            self.token, self.position, self.expected, self.behind, self.bound, self.margin
        )
    }
}

/// `prompt`, and the `count` tokens that a session chooses after it, one by one over its caches.
///
/// # Errors
/// What the session says.
pub fn by_steps(
    execution: &'static str,
    session: &mut dyn Session,
    prompt: &[u32],
    count: usize,
) -> Result<Vec<u32>, ExecutionError> {
    let wrong = |source| ExecutionError {
        execution,
        graph: "a greedy text".into(),
        source,
    };
    let mut text = prompt.to_vec();
    let mut write = || -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let sequence = session.create()?;
        for index in 0..count {
            let row = Row {
                sequence,
                tokens: Tokens::Given(match index {
                    0 => prompt,
                    _ => &text[text.len() - 1..],
                }),
                want: Want::Token,
            };
            let ticket = session.submit(&[row])?;
            match session.wait(ticket)?.first() {
                Some(&RowOutput::Token(token)) => text.push(token),
                _ => return Err("a step gave no token".into()),
            }
        }
        Ok(session.release(sequence)?)
    };
    write().map_err(wrong)?;
    Ok(text)
}

/// The same by an execution without caches, which computes the whole text again for each token. `graph` has
/// logits after each token; sizes are the same in all calls, so that it is compiled once.
///
/// # Errors
/// What the execution says.
pub fn by_recomputing(
    execution: &dyn Execution,
    graph: &Graph,
    weights: &Arc<dyn WeightSource>,
    prompt: &[u32],
    count: usize,
) -> Result<Vec<u32>, ExecutionError> {
    let missing = || failed(execution.name(), graph)("there are no logits after the text");
    let width = prompt.len() + count;
    let mut text = prompt.to_vec();
    while text.len() < width {
        // What stands after the text are tokens too, and must not be seen.
        let padding = prompt.iter().cycle();
        let padded: Vec<u32> = text.iter().chain(padding).copied().take(width).collect();
        let (bindings, inputs) = call(&padded, text.len());
        let inputs: &Inputs<'_> = &inputs;
        let outputs = execution.run(graph, &bindings, weights, inputs)?;
        let logits = outputs.last().ok_or_else(missing)?;
        let last = text.len().checked_sub(1).and_then(|last| logits.row(last));
        text.push(first(last.ok_or_else(missing)?) as u32);
    }
    Ok(text)
}

/// The interpreter, asked about texts.
pub struct Judge<'a> {
    graph: &'a Graph,
    weights: &'a Arc<dyn WeightSource>,
    /// What it said already: executions mostly write the same text.
    known: Vec<(Vec<u32>, usize, Choices)>,
}

impl<'a> Judge<'a> {
    /// A judge by `graph`, which has logits after each token, and the weights that define it.
    pub fn new(graph: &'a Graph, weights: &'a Arc<dyn WeightSource>) -> Self {
        Self {
            graph,
            weights,
            known: Vec::new(),
        }
    }

    /// Holds the tokens of `text` after its first `prompt` against what the interpreter would have chosen.
    ///
    /// # Errors
    /// If the interpreter cannot run the text.
    pub fn hold(&mut self, text: &[u32], prompt: usize) -> Result<Choices, ExecutionError> {
        let mut known = self.known.iter();
        let same = known.find(|(known, start, _)| (&known[..], *start) == (text, prompt));
        if let Some((.., choices)) = same {
            return Ok(choices.clone());
        }
        let choices = self.ask(text, prompt)?;
        self.known.push((text.to_vec(), prompt, choices.clone()));
        Ok(choices)
    }

    fn ask(&self, text: &[u32], prompt: usize) -> Result<Choices, ExecutionError> {
        let mut choices = Choices {
            tokens: text.len().saturating_sub(prompt),
            ..Choices::default()
        };
        let before = &text[..text.len().saturating_sub(1)];
        let (bindings, inputs) = call(before, before.len());
        let inputs: &Inputs<'_> = &inputs;
        let run = |execution: ReferenceExecution| {
            let outputs = execution.run(self.graph, &bindings, self.weights, inputs)?;
            let missing = || failed(execution.name(), self.graph)("the graph has no output");
            outputs.into_iter().next_back().ok_or_else(missing)
        };
        let (exact, rounded) = (run(ReferenceExecution::F64)?, run(ReferenceExecution::F32)?);
        let budgets = Budgets::by_row(self.graph, &bindings, &exact, &rounded);
        let positions = text.iter().copied().enumerate().skip(prompt);
        for (position, token) in positions {
            let last = position.checked_sub(1);
            let row = last.and_then(|last| Some((exact.row(last)?, *budgets.get(last)?)));
            let missing = || failed("reference-f64", self.graph)("there are no logits");
            let (logits, budget) = row.ok_or_else(missing)?;
            if let Some(other) = Other::of(logits, budget, position, token) {
                if other.near_tie() {
                    choices.near_ties += 1;
                    choices.share = choices.share.max(other.share());
                } else {
                    choices.fault = choices.fault.or(Some(other));
                }
                choices.first = choices.first.or(Some(other));
            }
        }
        Ok(choices)
    }
}

impl Other {
    /// `token`, unless the interpreter's `logits` say the same.
    fn of(logits: &[f64], budget: f64, position: usize, token: u32) -> Option<Self> {
        let best = first(logits);
        if best == token as usize {
            return None;
        }
        let largest = logits.get(best).copied().unwrap_or(f64::NAN);
        let others = logits
            .iter()
            .enumerate()
            .filter(|&(index, _)| index != best);
        let second = others.fold(f64::NEG_INFINITY, |second, (_, &x)| second.max(x));
        let square: f64 = logits.iter().map(|x| x * x).sum();
        let found = logits.get(token as usize).copied();
        Some(Self {
            position,
            token,
            expected: best as u32,
            margin: largest - second,
            // What is no token of the vocabulary is behind all of them.
            behind: largest - found.unwrap_or(f64::NEG_INFINITY),
            bound: BUDGETS * budget * (square / logits.len().max(1) as f64).sqrt(),
        })
    }
}

/// The place of the largest number, the first of equals, as the op `argmax` says.
fn first(logits: &[f64]) -> usize {
    let mut best = 0;
    for (index, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = index;
        }
    }
    best
}

/// Sizes and inputs of a call of a whole graph on a text, of which the first `length` tokens count.
fn call(text: &[u32], length: usize) -> (Bindings, Vec<(&'static str, HostTensor)>) {
    let width = text.len();
    let bindings = Bindings::new()
        .with(Symbol::B, 1)
        .with(Symbol::T, width)
        .with(Symbol::S, width);
    let tokens: Vec<i32> = text.iter().map(|&token| token as i32).collect();
    let inputs = vec![
        (step::TOKENS, HostTensor::i32([1, width], &tokens)),
        (step::START, HostTensor::i32([1], &[0])),
        (step::LENGTH, HostTensor::i32([1], &[length as i32])),
    ];
    (bindings, inputs)
}
