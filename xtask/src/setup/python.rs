//! The Python environment: MLX, IREE's compiler, cmake, ninja and libclang, all taken from wheels.

use std::process::Command;

use anyhow::Result;

use super::component::{Component, pip, run_pip};
use super::prerequisites;
use crate::command;
use crate::workspace::Workspace;

/// `.deps/python`, in which build scripts look for libraries and tools.
pub(super) const COMPONENT: Component = Component {
    name: "MLX, IREE's compiler and the build tools",
    folder: "python",
    requirements: include_str!("../../requirements/python.txt"),
    install,
};

fn install(workspace: &Workspace, component: &Component) -> Result<()> {
    let tools = prerequisites::check()?;
    let folder = component.path(workspace);
    command::run(Command::new(&tools.python).args(["-m", "venv"]).arg(folder))?;
    let requirements = component.write_requirements(workspace)?;
    run_pip(pip(workspace, "install", &requirements).args(["--only-binary", ":all:"]))
}
