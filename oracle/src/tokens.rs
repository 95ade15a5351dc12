//! The level of tokens: greedy texts of the small decoder, by each execution over its own caches.

use crate::execution::{Execution, ExecutionError, IreeOnce};
use crate::greedy::{Choices, Judge, by_recomputing, by_steps};
use crate::rows::{Decoder, Fault, tokens};
use crate::summary::{Failure, Level};
use crate::toy::Head;
use std::time::Instant;

/// Tokens that are chosen in each text.
const CHOSEN: usize = 40;
/// The most tokens of a prompt; they have 1, 2 and so on.
const PROMPT: usize = 24;

/// Writes and holds so many texts by each execution.
pub fn run(texts: usize) -> Vec<Level> {
    levels(texts).unwrap_or_else(|error| {
        let mut level = Level::new("greedy texts");
        level.fail(Failure {
            execution: "oracle".into(),
            reason: crate::known::full(&*error),
            case: String::new(),
        });
        vec![level]
    })
}

fn levels(texts: usize) -> Result<Vec<Level>, Fault> {
    let decoder = Decoder::new(Head::Own, false)?;
    let mut judge = Judge::new(&decoder.all, &decoder.weights);
    let mut levels = Vec::new();
    for (name, mut session) in decoder.sessions(PROMPT + CHOSEN)? {
        levels.push(level(texts, name, &mut judge, &mut |prompt| {
            by_steps(name, &mut *session, prompt, CHOSEN)
        }));
    }
    let iree = IreeOnce::default();
    levels.push(level(texts, iree.name(), &mut judge, &mut |prompt| {
        // The same size for all prompts, so that it is compiled once.
        let count = PROMPT + CHOSEN - prompt.len();
        by_recomputing(&iree, &decoder.all, &decoder.weights, prompt, count)
    }));
    Ok(levels)
}

/// A way to continue a prompt.
type Write<'a> = &'a mut dyn FnMut(&[u32]) -> Result<Vec<u32>, ExecutionError>;

/// The texts of an execution.
fn level(texts: usize, name: &str, judge: &mut Judge<'_>, write: Write<'_>) -> Level {
    let begin = Instant::now();
    let mut level = Level::new(format!("greedy texts, {name}"));
    for number in 0..texts {
        let prompt = tokens(number % PROMPT + 1, number as u64 + 1);
        let choices = write(&prompt).and_then(|text| judge.hold(&text, prompt.len()));
        let wrong = match choices {
            Ok(Choices {
                fault: Some(other), ..
            }) => other.to_string(),
            Ok(choices) => {
                level.pass(choices.share, || format!("near tie in text {number}"));
                continue;
            }
            Err(error) => crate::known::full(&error),
        };
        level.fail(Failure {
            execution: name.into(),
            reason: format!("text {number}: {wrong}"),
            case: String::new(),
        });
    }
    level.seconds = begin.elapsed().as_secs_f64();
    level
}
