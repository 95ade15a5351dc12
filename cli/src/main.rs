//! The program `mlxcel`: models on the command line.
//!
//! Invariants:
//! - Text of a model and results that scripts read go to stdout, everything else to stderr.
//! - Exit codes: 0 done, 1 failed, 2 wrong usage, 3 `verify` could not run. A reader that closes the
//!   pipe is no failure.
//! - Nothing here needs IREE's compiler library but `compile`, in a process of its own, and `verify`.
//! - The completions and manual pages come from the definitions that parse the command line.
//!
//! Start reading at `args`; each subcommand is a module of its name.

mod arch;
mod args;
mod chat;
mod compile;
mod embed;
mod encoding;
mod failure;
mod generate;
mod input;
mod inspect;
mod logits;
mod output;
mod progress;
mod reply;
mod rerank;
mod run;
mod shell;
mod verify;

use args::{Cli, Command};
use clap::{ColorChoice, Parser};
use std::process::ExitCode;

fn main() -> ExitCode {
    // `compile` starts this program again as the process that compiles.
    if let Some(code) = mlxcel_lower::child::main() {
        return code;
    }
    let cli = Cli::parse();
    anstream::ColorChoice::write_global(match cli.color {
        ColorChoice::Auto => anstream::ColorChoice::Auto,
        ColorChoice::Always => anstream::ColorChoice::Always,
        ColorChoice::Never => anstream::ColorChoice::Never,
    });
    let failed = match cli.command {
        // One says that the executions differ.
        Command::Verify(_) => 3,
        _ => 1,
    };
    let outcome = match cli.command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Generate(arguments) => generate::run(&arguments),
        Command::Compile(arguments) => compile::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Embed(arguments) => embed::run(&arguments),
        Command::Rerank(arguments) => rerank::run(&arguments),
        Command::Logits(arguments) => logits::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Arch(arguments) => arch::run(&arguments),
        Command::Completions(arguments) => shell::completions(&arguments),
        Command::Man(arguments) => shell::man(&arguments),
    };
    failure::exit_code(outcome, failed)
}
