//! The program behind `cargo xtask oracle`: runs the oracle's levels, or one case again.

use lexopt::prelude::*;
use mlxcel_oracle::case::{self, Case};
use mlxcel_oracle::known;
use mlxcel_oracle::levels::{Effort, LEVELS};
use mlxcel_oracle::summary::{HEADING, Level};
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "\
usage: mlxcel-oracle [--ci | --deep] [--level NAME]... [--first NUMBER] [--graphs NUMBER]
                     [--compiled NUMBER] [--ops NUMBER] [--batch NUMBER] [--repro FOLDER]
       mlxcel-oracle --case FILE.mxg

Exit codes: 0 all within bounds, 1 a mismatch, 2 wrong usage, 3 could not run.
";

fn main() -> ExitCode {
    // IREE's compiler runs in a process of its own, which is this program again.
    if let Some(code) = mlxcel_lower::child::main() {
        return code;
    }
    match arguments() {
        Ok(Task::Help) => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        Ok(Task::Case(path)) => again(&path),
        Ok(Task::Levels(options)) => levels(&options),
        Err(error) => {
            eprint!("error: {error}\n\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

enum Task {
    Help,
    Case(PathBuf),
    Levels(Options),
}

struct Options {
    effort: Effort,
    levels: Vec<String>,
    repro: PathBuf,
}

fn arguments() -> Result<Task, lexopt::Error> {
    let mut parser = lexopt::Parser::from_env();
    let mut options = Options {
        effort: Effort::ci(),
        levels: vec![],
        repro: PathBuf::from("target/oracle"),
    };
    while let Some(argument) = parser.next()? {
        match argument {
            Long("ci") => options.effort = Effort::ci(),
            Long("deep") => options.effort = Effort::deep(),
            Long("level") => {
                let name = parser.value()?.string()?;
                if !LEVELS.iter().any(|(known, _)| *known == name) {
                    let known: Vec<&str> = LEVELS.iter().map(|(known, _)| *known).collect();
                    return Err(format!(
                        "there is no level {name:?}; there are {}",
                        known.join(", ")
                    )
                    .into());
                }
                options.levels.push(name);
            }
            Long("first") => options.effort.random.first = parser.value()?.parse()?,
            Long("graphs") => options.effort.random.graphs = parser.value()?.parse()?,
            Long("compiled") => options.effort.random.compiled = parser.value()?.parse()?,
            Long("ops") => options.effort.ops = parser.value()?.parse()?,
            Long("batch") => options.effort.random.batch = parser.value()?.parse()?,
            Long("repro") => options.repro = parser.value()?.into(),
            Long("case") => return Ok(Task::Case(parser.value()?.into())),
            Short('h') | Long("help") => return Ok(Task::Help),
            other => return Err(other.unexpected()),
        }
    }
    Ok(Task::Levels(options))
}

/// Runs one case on every execution.
fn again(path: &std::path::Path) -> ExitCode {
    let case = match Case::read(path) {
        Ok(case) => case,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    let trials = match case.trials() {
        Ok(trials) => trials,
        Err(error) => {
            eprintln!("error: {}", known::full(&error));
            return ExitCode::from(3);
        }
    };
    for trial in &trials {
        println!("{trial}");
    }
    ExitCode::from(case::code(&trials))
}

fn levels(options: &Options) -> ExitCode {
    let begin = std::time::Instant::now();
    let mut done: Vec<Level> = vec![];
    for (name, level) in LEVELS {
        if options.levels.is_empty() || options.levels.iter().any(|wanted| wanted == name) {
            eprintln!("== {name}");
            let found = level(&options.effort, &|stage| eprintln!("   {stage}"));
            for line in &found.notes {
                println!("{line}");
            }
            done.extend(found.levels);
        }
    }
    println!("{HEADING}");
    for level in &done {
        println!("{level}");
    }
    let mut number = 0;
    for failure in done.iter().flat_map(|level| &level.failures) {
        number += 1;
        println!("fault: {}: {}", failure.execution, failure.reason);
        if failure.case.is_empty() || number > 50 {
            continue;
        }
        let file = options.repro.join(format!("fault-{number}.mxg"));
        let written = std::fs::create_dir_all(&options.repro)
            .and_then(|()| std::fs::write(&file, &failure.case));
        match written {
            Ok(()) => println!("  again: cargo xtask oracle --case {}", file.display()),
            Err(error) => println!("  {} cannot be written: {error}", file.display()),
        }
    }
    println!("{:.0} seconds in all", begin.elapsed().as_secs_f64());
    match done.iter().all(Level::passed) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
