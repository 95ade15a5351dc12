//! The files of an artifact, in a folder or in one file.

use super::{CONTRACT, MANIFEST, MODULE, WEIGHTS, archive};
use crate::LoadError;
use crate::map::MappedFile;
use std::fs::File;
use std::io::Read;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Whether `path` is a compiled artifact, by its looks.
pub fn is_artifact(path: &Path) -> bool {
    if path.is_dir() {
        return path.join(MANIFEST).is_file();
    }
    let mut start = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(archive::BLOCK as u64).read_to_end(&mut start));
    read.is_ok() && archive::begins(&start)
}

/// The files of an artifact. What is in them is not checked here.
#[derive(Debug)]
pub struct Files {
    path: PathBuf,
    /// If all are in one file, that and where each is.
    archive: Option<Archive>,
}

/// One file with all files of an artifact in it.
#[derive(Debug)]
struct Archive {
    file: Arc<MappedFile>,
    parts: Vec<(String, Range<usize>)>,
}

/// The bytes of a file, mapped. They must not be changed while they are in use.
#[derive(Clone, Debug)]
pub struct Bytes {
    file: Arc<MappedFile>,
    range: Range<usize>,
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.file.bytes().get(self.range.clone()).unwrap_or(&[])
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Files {
    /// Finds the files of the artifact at `path`.
    ///
    /// # Errors
    /// If `path` is a file that cannot be read, or not as an artifact is written; with the part at fault.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        let archive = match path.is_file() {
            false => None,
            true => {
                let file = MappedFile::open(path)?;
                let parts = archive::parts(file.bytes()).map_err(|problem| {
                    LoadError::format(
                        path,
                        format!("{problem}: copy the artifact again or compile the model again"),
                    )
                })?;
                Some(Archive {
                    file: Arc::new(file),
                    parts,
                })
            }
        };
        Ok(Self {
            path: path.to_path_buf(),
            archive,
        })
    }

    /// The artifact's folder or file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the file called `name` is, for messages.
    pub fn place(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The file called `name`.
    ///
    /// # Errors
    /// If there is none or it cannot be read.
    pub fn get(&self, name: &str) -> Result<Bytes, LoadError> {
        let Some(Archive { file, parts }) = &self.archive else {
            let file = MappedFile::open(&self.place(name))?;
            let range = 0..file.bytes().len();
            return Ok(Bytes {
                file: Arc::new(file),
                range,
            });
        };
        let part = parts.iter().find(|(known, _)| known == name);
        let (_, range) = part.ok_or_else(|| {
            LoadError::format(self.place(name), "there is no such part".to_string())
        })?;
        Ok(Bytes {
            file: Arc::clone(file),
            range: range.clone(),
        })
    }

    /// The model's text files, if all files are in one.
    pub(crate) fn texts(&self) -> Option<Vec<(String, Vec<u8>)>> {
        let Archive { file, parts } = self.archive.as_ref()?;
        let texts = parts
            .iter()
            .filter(|(name, _)| ![MANIFEST, MODULE, WEIGHTS, CONTRACT].contains(&name.as_str()));
        let bytes = |range: &Range<usize>| file.bytes().get(range.clone()).unwrap_or(&[]).to_vec();
        Some(
            texts
                .map(|(name, range)| (name.clone(), bytes(range)))
                .collect(),
        )
    }
}
