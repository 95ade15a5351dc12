//! The repository's tasks, run as `cargo xtask <task>`.
//!
//! | task | does |
//! | --- | --- |
//! | [`setup`] | makes `.deps`: MLX, IREE's compiler and the build tools |
//! | [`demo`] | runs, compiles and verifies a real model |
//! | [`test`] | formatting, lints and every test |
//! | [`oracle`] | differential testing of every execution, level by level |
//! | [`hip`] | artifacts for AMD GPUs, as far as they load without one |
//! | [`bench`] | decoding and prefill speed against the machine's; loading; compiling |
//!
//! Invariants: a task needs a Rust toolchain, a C++20 compiler and Python 3.10, and no more; it never asks for
//! root; what it makes lies in `.deps` and cargo's target folder; what it downloads is pinned by hash.
//! The crate has few dependencies, so that the first task starts within seconds of a clone.

mod bench;
mod command;
mod demo;
mod hip;
mod mlxcel;
mod oracle;
mod setup;
mod table;
mod test;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use lexopt::prelude::*;

use crate::workspace::Workspace;

const USAGE: &str = "\
usage: cargo xtask <task>

  setup [--cuda] [--rocm] [--model]  make .deps: MLX, IREE's compiler, build tools
                                     --cuda, --rocm: headers for those IREE drivers
                                     --model: SmolLM2-135M-Instruct, for demo and tests
  demo                               run, compile and verify a real model
  test                               formatting, lints, all tests
  oracle [--ci | --deep] [--level NAME]... [--case FILE.mxg]
                                     single ops, random graphs and injected bugs on every execution, or one case
                                     again; --help lists more
  hip                                load artifacts for AMD GPUs on a library that stands for AMD's
  bench decode|prefill <model> [--artifact FOLDER] [--tokens N] [--rounds N] [--peer LLAMA-BENCH] [--json]
                                     speed, eager and compiled, against the memory's bandwidth
                                     --artifact: measure this one instead of compiling the model
                                     --peer: add llama.cpp's figure on the same GGUF file
  bench load [--layers N] [--rounds N] [--json]
                                     first token and peak memory of a made-up 8B model of 4 bits (4.5 GB in .deps)
  bench compile [--target TARGET]... [--json]
                                     time, memory and size of compiling SmolLM2 and made-up 0.6B models
                                     each builds a release of mlxcel; --program FILE measures one that there is
";

/// Exit codes as mlxcel's own: 0 done, 1 failed, 2 wrong usage.
fn main() -> ExitCode {
    let task = match parse(lexopt::Parser::from_env()) {
        Ok(task) => task,
        Err(error) => {
            eprintln!("error: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What the command line asks for.
#[derive(Debug, PartialEq)]
enum Task {
    Help,
    Setup(setup::Options),
    Demo,
    Test,
    Oracle(oracle::Options),
    Hip,
    Bench(bench::Bench),
}

fn parse(mut arguments: lexopt::Parser) -> Result<Task, lexopt::Error> {
    let task = match arguments.next()? {
        None | Some(Short('h') | Long("help")) => return Ok(Task::Help),
        Some(Value(name)) => name.string()?,
        Some(other) => return Err(other.unexpected()),
    };
    match task.as_str() {
        "setup" => setup::Options::parse(&mut arguments).map(Task::Setup),
        "oracle" => oracle::Options::parse(&mut arguments).map(Task::Oracle),
        "bench" => bench::Bench::parse(&mut arguments).map(Task::Bench),
        "demo" | "test" | "hip" => match arguments.next()? {
            Some(other) => Err(other.unexpected()),
            None if task == "demo" => Ok(Task::Demo),
            None if task == "hip" => Ok(Task::Hip),
            None => Ok(Task::Test),
        },
        _ => Err(format!("there is no task {task:?}").into()),
    }
}

fn run(task: Task) -> Result<()> {
    let workspace = Workspace::new();
    match task {
        Task::Help => {
            print!("{USAGE}");
            Ok(())
        }
        Task::Setup(options) => {
            setup::run(&workspace, &options)?;
            eprintln!("{} is complete", workspace.deps("").display());
            Ok(())
        }
        Task::Demo => demo::run(&workspace),
        Task::Test => test::run(&workspace),
        Task::Oracle(options) => oracle::run(&workspace, &options),
        Task::Hip => hip::run(&workspace),
        Task::Bench(options) => bench::run(&workspace, &options),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Task, String> {
        let words = line.split_whitespace().map(str::to_owned);
        parse(lexopt::Parser::from_iter(
            std::iter::once("xtask".to_owned()).chain(words),
        ))
        .map_err(|error| error.to_string())
    }

    #[track_caller]
    fn check(line: &str, expect: Task) {
        assert_eq!(parsed(line), Ok(expect), "{line}");
    }

    #[track_caller]
    fn check_error(line: &str, expect: &str) {
        match parsed(line) {
            Ok(task) => panic!("{line} gives {task:?}"),
            Err(error) => assert!(error.contains(expect), "{line}: {error}"),
        }
    }

    #[test]
    fn tasks_are_parsed() {
        check("", Task::Help);
        check("--help", Task::Help);
        check("demo", Task::Demo);
        check("test", Task::Test);
        check("oracle", Task::Oracle(oracle::Options::default()));
        check("setup", Task::Setup(setup::Options::default()));
        check(
            "setup --rocm --model",
            Task::Setup(setup::Options {
                cuda: false,
                rocm: true,
                model: true,
            }),
        );
    }

    #[test]
    fn wrong_usage_names_the_word() {
        check_error("tets", "tets");
        check_error("demo now", "now");
        check_error("setup --vulkan", "--vulkan");
        check_error("bench", "decode, prefill");
        check_error("bench warm-up model", "warm-up");
        check_error("bench decode", "model");
        check_error("dist", "dist");
        check_error("bench decode model --tokens none", "none");
        check_error("bench decode model --rounds 0", "--rounds");
    }
}
