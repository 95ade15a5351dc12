//! Where things lie in the repository.

use std::path::{Path, PathBuf};

/// The repository's root and what the tasks keep under it.
#[derive(Debug)]
pub(crate) struct Workspace {
    root: PathBuf,
}

impl Workspace {
    /// The repository that this program was built from.
    pub(crate) fn new() -> Self {
        let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        Self {
            root: crate_folder.parent().unwrap_or(crate_folder).to_owned(),
        }
    }

    /// A workspace elsewhere, for tests.
    #[cfg(test)]
    pub(crate) fn at(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    /// The folder of the workspace's Cargo.toml.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// `.deps`, or a place in it.
    pub(crate) fn deps(&self, place: &str) -> PathBuf {
        self.root.join(".deps").join(place)
    }

    /// The interpreter of the Python environment that set-up makes.
    pub(crate) fn python(&self) -> PathBuf {
        self.deps("python/bin/python")
    }
}
