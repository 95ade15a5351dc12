//! `cargo xtask setup`: makes `.deps`, the part of the build that cargo cannot fetch.
//!
//! Each [`Component`] is a folder in `.deps`, made from a list of hash-pinned wheels. Its stamp, a copy of the
//! list, is written last: a component whose stamp equals its list is complete and left alone; any other is
//! removed and made anew, so a set-up that was stopped halfway, or a changed list, needs no special case.

mod component;
mod headers;
mod model;
mod prerequisites;
mod python;

use std::fs::{self, File, TryLockError};

use anyhow::{Context, Result};
use lexopt::prelude::*;

use crate::workspace::Workspace;
use component::Component;
pub(crate) use model::model_file;

/// What to set up beside the Python environment, which is always made.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Options {
    /// The headers of CUDA, for IREE's cuda driver.
    pub(crate) cuda: bool,
    /// The headers of HIP, for IREE's hip driver.
    pub(crate) rocm: bool,
    /// The model of the demo and the tests.
    pub(crate) model: bool,
}

impl Options {
    /// The set-up that running a model needs.
    pub(crate) fn with_model() -> Self {
        Self {
            model: true,
            ..Self::default()
        }
    }

    pub(crate) fn parse(arguments: &mut lexopt::Parser) -> Result<Self, lexopt::Error> {
        let mut options = Self::default();
        while let Some(argument) = arguments.next()? {
            match argument {
                Long("cuda") => options.cuda = true,
                Long("rocm") => options.rocm = true,
                Long("model") => options.model = true,
                other => return Err(other.unexpected()),
            }
        }
        Ok(options)
    }

    /// The components in the order in which they are made: later ones use the first one's pip.
    fn components(&self) -> Vec<Component> {
        let chosen = [
            (true, python::COMPONENT),
            (self.cuda, headers::CUDA),
            (self.rocm, headers::HIP),
            (self.model, model::COMPONENT),
        ];
        let chosen = chosen.into_iter().filter(|(wanted, _)| *wanted);
        chosen.map(|(_, component)| component).collect()
    }
}

/// Makes what `options` ask for and is not there yet.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let components = options.components();
    if components.iter().all(|part| part.is_complete(workspace)) {
        return Ok(());
    }
    let deps = workspace.deps("");
    fs::create_dir_all(&deps).with_context(|| deps.display().to_string())?;
    let _lock = lock(workspace)?;
    for component in &components {
        component.make(workspace)?;
    }
    Ok(())
}

/// Waits until no other set-up works on `.deps`. The lock ends with the returned file.
fn lock(workspace: &Workspace) -> Result<File> {
    let path = workspace.deps("lock");
    let file = File::create(&path).with_context(|| path.display().to_string())?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            eprintln!("waiting for another set-up to end");
            file.lock().with_context(|| path.display().to_string())?;
        }
        Err(TryLockError::Error(error)) => {
            return Err(error).with_context(|| path.display().to_string());
        }
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lock_waits_for_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::at(folder.path());
        fs::create_dir_all(workspace.deps("")).unwrap();
        let first = lock(&workspace).unwrap();
        let other = File::open(workspace.deps("lock")).unwrap();
        assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
        drop(first);
        other.try_lock().unwrap();
    }
}
