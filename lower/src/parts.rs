//! The parts of an artifact while it is written: files of a folder, or one file.

use crate::weights_file::hex;
use crate::{CompileError, Form};
use mlxcel_frontend::artifact::archive::{self, BLOCK};
use mlxcel_frontend::artifact::{MANIFEST, Manifest, Part};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The name of the one file until it is where it belongs.
const ARCHIVE: &str = "artifact";

/// The parts that were written to a folder, or to one file in it.
pub(crate) struct Parts {
    folder: PathBuf,
    archive: Option<File>,
    written: BTreeMap<String, Part>,
    /// Bytes of all files.
    bytes: u64,
}

impl Parts {
    pub(crate) fn new(folder: &Path, form: Form) -> Result<Self, CompileError> {
        let path = folder.join(ARCHIVE);
        let archive = match form {
            Form::Folder => None,
            Form::File => Some(File::create(&path).map_err(file(&path))?),
        };
        Ok(Self {
            folder: folder.to_path_buf(),
            archive,
            written: BTreeMap::new(),
            bytes: 0,
        })
    }

    /// Writes the part `name` of `bytes` bytes: `write` is given the file and says what the sha256 is.
    pub(crate) fn write(
        &mut self,
        name: &str,
        bytes: u64,
        write: impl FnOnce(&Path, &File) -> Result<String, CompileError>,
    ) -> Result<(), CompileError> {
        let path = self.folder.join(name);
        let sha256 = match &mut self.archive {
            None => {
                let parent = path.parent().unwrap_or(&self.folder);
                std::fs::create_dir_all(parent).map_err(file(&path))?;
                let output = File::create(&path).map_err(file(&path))?;
                write(&path, &output)?
            }
            Some(archive) => {
                let header = archive::header(name, bytes).ok_or_else(|| {
                    let problem = "the name of the part is too long";
                    file(&path)(io::Error::other(problem))
                })?;
                archive.write_all(&header).map_err(file(&path))?;
                let sha256 = write(&path, archive)?;
                let fill = archive::fill(bytes);
                archive
                    .write_all(&[0; BLOCK][..fill])
                    .map_err(file(&path))?;
                self.bytes += (BLOCK + fill) as u64;
                sha256
            }
        };
        self.bytes += bytes;
        self.written
            .insert(name.to_string(), Part { sha256, bytes });
        Ok(())
    }

    /// Writes the part `name` with the content `bytes`.
    pub(crate) fn put(&mut self, name: &str, bytes: &[u8]) -> Result<(), CompileError> {
        self.write(name, bytes.len() as u64, |path, mut output| {
            output.write_all(bytes).map_err(file(path))?;
            Ok(hex(&Sha256::digest(bytes)))
        })
    }

    /// What was written, for the manifest.
    pub(crate) fn list(&self) -> BTreeMap<String, Part> {
        self.written.clone()
    }

    /// Writes the manifest. Gives what is whole then, and its bytes.
    pub(crate) fn finish(mut self, manifest: &Manifest) -> Result<(PathBuf, u64), CompileError> {
        let path = self.folder.join(MANIFEST);
        let text = serde_json::to_vec_pretty(manifest);
        let text = text.map_err(|error| file(&path)(error.into()))?;
        self.put(MANIFEST, &text)?;
        match &mut self.archive {
            None => Ok((self.folder, self.bytes)),
            Some(archive) => {
                archive.write_all(&[0; 2 * BLOCK]).map_err(file(&path))?;
                Ok((self.folder.join(ARCHIVE), self.bytes + 2 * BLOCK as u64))
            }
        }
    }
}

fn file(path: &Path) -> impl FnOnce(io::Error) -> CompileError + use<> {
    let path = path.to_path_buf();
    move |source| CompileError::File {
        action: "write",
        path,
        source,
    }
}
