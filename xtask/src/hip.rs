//! `cargo xtask hip`: how far an artifact for AMD GPUs loads where there is none.
//!
//! Builds IREE's driver for them and runs its tests on a library that stands for AMD's. No part of
//! `cargo xtask test`, since building the driver takes minutes.

use anyhow::{Result, bail};

use crate::command::{self, cargo};
use crate::setup;
use crate::workspace::Workspace;

/// Sets up, builds and runs.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let options = setup::Options {
        rocm: true,
        ..setup::Options::default()
    };
    setup::run(workspace, &options)?;
    let mut command = cargo(workspace);
    command.args(["test", "--package", "mlxcel-runtime-iree"]);
    command.args(["--features", "hip", "--test", "hip"]);
    let success = command::run_lines(&mut command, |line| println!("{line}"))?;
    if !success {
        bail!("tests failed");
    }
    Ok(())
}
