//! `cargo xtask test`: what a change must pass.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::command::{self, cargo, run_lines};
use crate::oracle;
use crate::setup;
use crate::table;
use crate::workspace::Workspace;

/// Sets up, then checks formatting, lints and what crates are used, then runs every test and the
/// oracle's levels. All use cargo's development profile, so that each crate is built once. Ends with the time of each step and the number of tests.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let mut times = Times::default();
    times.step("set-up", || {
        setup::run(workspace, &setup::Options::with_model())
    })?;
    times.step("formatting", || {
        let mut command = cargo(workspace);
        command::run(command.args(["fmt", "--all", "--check"])).context("run `cargo fmt --all`")
    })?;
    times.step("lints", || {
        let mut command = cargo(workspace);
        command.args([
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ]);
        command::run(&mut command)
    })?;
    times.step("licences", || check_licences(workspace))?;
    let mut counts = Counts::default();
    let success = times.step("tests", || {
        let mut command = cargo(workspace);
        command.args(["test", "--workspace", "--no-fail-fast"]);
        run_lines(&mut command, |line| {
            println!("{line}");
            counts.add(line);
        })
    })?;
    let agrees = times.step("oracle", || {
        // A mismatch is told with the other results.
        Ok(oracle::run(workspace, &oracle::Options::default()))
    })?;
    let agrees_on_oldest = match oracle::Options::oldest() {
        Some(options) => times.step("oracle, for the oldest processor", || {
            Ok(oracle::run(workspace, &options))
        })?,
        None => Ok(()),
    };
    print!("\n{}\n{counts}\n", times.table());
    agrees?;
    agrees_on_oldest?;
    if !success {
        bail!("tests failed");
    }
    Ok(())
}

/// Checks licences, sources and versions of all crates, where cargo-deny is there to do it. What needs the network
/// (advisories) is left out: a change cannot cause it to fail.
fn check_licences(workspace: &Workspace) -> Result<()> {
    let deny = || {
        let mut command = cargo(workspace);
        command.arg("deny");
        command
    };
    if command::capture(deny().arg("--version"), "").is_err() {
        eprintln!(
            "skipped: cargo-deny is not installed; `cargo install cargo-deny --locked` adds it"
        );
        return Ok(());
    }
    command::run(deny().args(["--offline", "check", "bans", "licenses", "sources"]))
}

/// How long each step took.
#[derive(Default)]
struct Times(Vec<(&'static str, Duration)>);

impl Times {
    fn step<T>(&mut self, name: &'static str, step: impl FnOnce() -> Result<T>) -> Result<T> {
        eprintln!("== {name}");
        let start = Instant::now();
        let result = step().with_context(|| format!("{name} failed"))?;
        self.0.push((name, start.elapsed()));
        Ok(result)
    }

    fn table(&self) -> String {
        let row = |name: &str, time: &str| vec![name.to_owned(), time.to_owned()];
        let seconds = |time: Duration| format!("{:.1}", time.as_secs_f64());
        let mut rows = vec![row("step", "seconds")];
        rows.extend(self.0.iter().map(|(name, time)| row(name, &seconds(*time))));
        rows.push(row(
            "total",
            &seconds(self.0.iter().map(|step| step.1).sum()),
        ));
        table::layout(&rows)
    }
}

/// The tests of all test programs.
#[derive(Debug, Default, PartialEq)]
struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Counts {
    /// Adds what a line such as `test result: ok. 4 passed; 0 failed; 1 ignored; ...` reports.
    fn add(&mut self, line: &str) {
        let Some((_, counts)) = line
            .strip_prefix("test result: ")
            .and_then(|result| result.split_once(". "))
        else {
            return;
        };
        for part in counts.split("; ") {
            match part.split_once(' ') {
                Some((count, "passed")) => self.passed += count.parse().unwrap_or(0),
                Some((count, "failed")) => self.failed += count.parse().unwrap_or(0),
                Some((count, "ignored")) => self.skipped += count.parse().unwrap_or(0),
                _ => {}
            }
        }
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        match self.skipped {
            0 => Ok(()),
            skipped => write!(f, ", {skipped} skipped"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lines: &[&str], expect: &str) {
        let mut counts = Counts::default();
        lines.iter().for_each(|line| counts.add(line));
        assert_eq!(counts.to_string(), expect);
    }

    #[test]
    fn results_are_summed() {
        check(&[], "0 passed, 0 failed");
        check(
            &[
                "running 4 tests",
                "test a_test ... ok",
                "test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
                "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            ],
            "6 passed, 1 failed",
        );
        check(
            &["test result: ok. 1 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out"],
            "1 passed, 0 failed, 2 skipped",
        );
    }
}
