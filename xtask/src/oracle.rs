//! `cargo xtask oracle`: differential testing of every execution, level by level.
//!
//! The levels are the library's; this builds the program that runs them and hands its arguments on.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Result, bail};

use crate::command;
use crate::workspace::Workspace;

/// The arguments of the program that runs the levels; none are those of a change's test.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Options(Vec<OsString>);

impl Options {
    pub(crate) fn parse(arguments: &mut lexopt::Parser) -> Result<Self, lexopt::Error> {
        Ok(Self(arguments.raw_args()?.collect()))
    }
}

/// Runs the levels with what they print shown as it comes.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let program = command::build_binary(workspace, "mlxcel-oracle", &[])?;
    let mut command = Command::new(program);
    command.current_dir(workspace.root()).args(&options.0);
    let success = command::run_lines(&mut command, |line| println!("{line}"))?;
    if !success {
        bail!("the oracle found a mismatch, or could not run; see above");
    }
    Ok(())
}
