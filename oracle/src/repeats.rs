//! The level of determinism: the same bits from run to run, and whether a row's bits depend on the rows
//! beside it.
//!
//! Run to run is demanded of every execution. Independence from the batch is declared of each
//! ([`ALONE`]), and the declaration is held to what is seen, in both directions.

use crate::execution::{Execution, IreeOnce, MlxExecution, ReferenceExecution};
use crate::rows::{Decoder, Fault, step, tokens, whole};
use crate::summary::{Failure, Level};
use crate::toy::Head;
use mlxcel_ir::step::Want;
use std::time::Instant;

/// How often each call is repeated.
const TIMES: usize = 5;
/// Tokens of a text.
const TOKENS: usize = 24;
/// Sizes of batches.
const BATCHES: [usize; 4] = [2, 3, 5, 8];

/// The executions whose rows have the same bits in a batch of any size as alone. Own kernels take the rows
/// of a batch together where that is faster, and add in another order then.
pub const ALONE: [(&str, bool); 3] = [("reference-f32", true), ("mlx", true), ("kernels", false)];

/// Runs the level.
pub fn run() -> Vec<Level> {
    let levels = || -> Result<Vec<Level>, Fault> {
        let decoder = Decoder::new(Head::Own, false)?;
        Ok(vec![again(&decoder)?, batches(&decoder)?])
    };
    levels().unwrap_or_else(|error| {
        let mut level = Level::new("determinism");
        level.fail(failure("oracle", crate::known::full(&*error)));
        vec![level]
    })
}

fn failure(execution: &str, reason: String) -> Failure {
    Failure {
        execution: execution.into(),
        reason,
        case: String::new(),
    }
}

/// The same call again and again: whole graphs on every execution, steps on every session.
fn again(decoder: &Decoder) -> Result<Level, Fault> {
    let begin = Instant::now();
    let mut level = Level::new("run to run, every execution");
    let mut hold = |execution: &str, same: bool| match same {
        true => level.pass(0.0, String::new),
        false => level.fail(failure(execution, "other bits in another run".into())),
    };
    let iree = IreeOnce::default();
    let executions: [&dyn Execution; 4] = [
        &ReferenceExecution::F32,
        &MlxExecution::Operations,
        &MlxExecution::Kernels,
        &iree,
    ];
    let rows: [&[u32]; 2] = [&tokens(TOKENS, 1), &tokens(TOKENS - 3, 2)];
    let (bindings, inputs) = whole(&rows, TOKENS)?;
    for execution in executions {
        let run = || execution.run(&decoder.all, &bindings, &decoder.weights, &inputs);
        let first = run()?;
        for _ in 1..TIMES {
            hold(execution.name(), run()? == first);
        }
    }
    for (name, mut session) in decoder.sessions(TOKENS)? {
        let mut run = || -> Result<Vec<Vec<f32>>, Fault> {
            let sequence = session.create()?;
            let mut all = vec![];
            for part in [0..9, 9..10, 10..TOKENS] {
                let rows = [(sequence, &rows[0][part])];
                all.extend(step(&mut *session, &rows, Want::Logits)?);
            }
            session.release(sequence)?;
            Ok(all)
        };
        let first = run()?;
        for _ in 1..TIMES {
            hold(name, run()? == first);
        }
    }
    level.seconds = begin.elapsed().as_secs_f64();
    Ok(level)
}

/// A row alone, and the same row among others.
fn batches(decoder: &Decoder) -> Result<Level, Fault> {
    let begin = Instant::now();
    let mut level = Level::new("bits alone and in a batch");
    for (name, mut session) in decoder.sessions(TOKENS)? {
        let mut same = true;
        let mut alone = None;
        for size in [1].into_iter().chain(BATCHES) {
            let texts: Vec<Vec<u32>> = (0..size)
                .map(|row| tokens(TOKENS, row as u64 + 1))
                .collect();
            let mut sequences = vec![];
            for _ in 0..size {
                sequences.push(session.create()?);
            }
            let mut seen = vec![];
            for part in [0..15, 15..16, 16..17] {
                let rows: Vec<_> = sequences
                    .iter()
                    .zip(&texts)
                    .map(|(&sequence, text)| (sequence, &text[part.clone()]))
                    .collect();
                seen.extend(step(&mut *session, &rows, Want::Logits)?.into_iter().next());
            }
            for sequence in sequences {
                session.release(sequence)?;
            }
            same &= *alone.get_or_insert_with(|| seen.clone()) == seen;
        }
        let declared = ALONE.iter().find(|(known, _)| *known == name);
        match declared == Some(&(name, same)) {
            true => level.pass(0.0, String::new),
            false => {
                let found = if same { "the same" } else { "other" };
                let reason =
                    format!("{found} bits in a batch, which is not what is declared of it");
                level.fail(failure(name, reason));
            }
        }
    }
    level.seconds = begin.elapsed().as_secs_f64();
    Ok(level)
}
