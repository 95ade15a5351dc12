//! `cargo xtask oracle`: differential testing of every execution, level by level.
//!
//! The levels are the library's; this builds the program that runs them and hands its arguments on.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Result, bail};

use crate::command;
use crate::workspace::Workspace;

/// The oldest processor of this architecture that artifacts are compiled for, where it is older than
/// what machines with a developer at them have. What compiles for those may not for this one.
const OLDEST: Option<&str> = if cfg!(target_arch = "x86_64") {
    Some("x86-64-v3")
} else {
    None
};

/// The levels with the most graphs that differ in what is compiled for a processor.
const COMPILED: [&str; 6] = ["--level", "ops", "--level", "numbers", "--level", "random"];

/// What the program that runs the levels is given; nothing for those of a change's test.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Options {
    arguments: Vec<OsString>,
    chip: Option<&'static str>,
}

impl Options {
    pub(crate) fn parse(arguments: &mut lexopt::Parser) -> Result<Self, lexopt::Error> {
        Ok(Self {
            arguments: arguments.raw_args()?.collect(),
            chip: None,
        })
    }

    /// The levels that compile most, compiled for the oldest processor; none where there is no older.
    pub(crate) fn oldest() -> Option<Self> {
        OLDEST.map(|chip| Self {
            arguments: COMPILED.map(OsString::from).to_vec(),
            chip: Some(chip),
        })
    }
}

/// Runs the levels with what they print shown as it comes.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let program = command::build_binary(workspace, "mlxcel-oracle", &[])?;
    let mut command = Command::new(program);
    command
        .current_dir(workspace.root())
        .args(&options.arguments);
    if let Some(chip) = options.chip {
        command.env("MLXCEL_HOST_CHIP", chip);
    }
    let success = command::run_lines(&mut command, |line| println!("{line}"))?;
    if !success {
        bail!("the oracle found a mismatch, or could not run; see above");
    }
    Ok(())
}
