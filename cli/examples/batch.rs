//! How many tokens a second a model makes when it continues several sequences at a time.
//!
//! `cargo run --release --example batch -- ARTIFACT [DEVICE]`. Prompts are random and of different lengths;
//! what is timed are greedy steps of all rows, the token staying on the device. Each round measures every
//! number of rows once; medians are told.

use mlxcel_engine::{OpenOptions, Session, open};
use mlxcel_ir::step::{Row, SequenceId, Tokens, Want};
use std::error::Error;
use std::time::Instant;

const ROWS: [usize; 4] = [1, 2, 4, 8];
const ROUNDS: usize = 5;
const STEPS: usize = 32;
/// The longest prompt; row n of N has (n + 1) / N of it.
const PROMPT: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("which model or artifact?")?;
    let options = OpenOptions {
        device: arguments.next(),
        ..OpenOptions::default()
    };
    let mut session = open(path.as_ref(), &options)?.session;
    let mut speeds = vec![Vec::new(); ROWS.len()];
    for _ in 0..ROUNDS {
        for (rows, speeds) in ROWS.into_iter().zip(&mut speeds) {
            speeds.push(measure(&mut *session, rows)?);
        }
    }
    println!("rows   tok/s   tok/s a row");
    for (rows, mut speeds) in ROWS.into_iter().zip(speeds) {
        speeds.sort_by(f64::total_cmp);
        let median = speeds[speeds.len() / 2];
        println!("{rows:4} {median:7.1} {:7.1}", median / rows as f64);
    }
    Ok(())
}

/// Tokens a second of `count` rows together.
fn measure(session: &mut dyn Session, count: usize) -> Result<f64, Box<dyn Error>> {
    let vocabulary = session.limits().vocabulary;
    let prompts: Vec<Vec<u32>> = (0..count)
        .map(|row| {
            let length = PROMPT * (row + 1) / count;
            let token = |index: usize| ((index * 7919 + row * 104_729) % vocabulary) as u32;
            (0..length).map(token).collect()
        })
        .collect();
    let sequences = prompts.iter().map(|_| session.create());
    let sequences: Vec<SequenceId> = sequences.collect::<Result<_, _>>()?;
    let mut step = |tokens: Option<&[Vec<u32>]>| -> Result<(), Box<dyn Error>> {
        let row = |(index, &sequence): (usize, &SequenceId)| Row {
            sequence,
            tokens: tokens.map_or(Tokens::Chosen, |tokens| Tokens::Given(&tokens[index])),
            want: Want::Token,
        };
        let rows: Vec<Row<'_>> = sequences.iter().enumerate().map(row).collect();
        let ticket = session.submit(&rows)?;
        session.wait(ticket)?;
        Ok(())
    };
    step(Some(&prompts))?;
    // Brings the rows together.
    step(None)?;
    let start = Instant::now();
    for _ in 0..STEPS {
        step(None)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    for sequence in sequences {
        session.release(sequence)?;
    }
    Ok((count * STEPS) as f64 / seconds)
}
