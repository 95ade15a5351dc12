//! The safetensors files of a model folder as one set of named tensors.

mod shards;

use crate::LoadError;
use crate::map::MappedFile;
use crate::safetensors::{self, Entry};
use mlxcel_ir::{DType, HostTensor};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// Mapped files and the tensors in them.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    folder: PathBuf,
    files: Vec<MappedFile>,
    tensors: HashMap<String, (usize, Entry)>,
}

/// A tensor of a checkpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tensor<'a> {
    /// Number of its file in [`Checkpoint::files`].
    pub(crate) index: usize,
    /// Its file.
    pub(crate) file: &'a Path,
    /// Its description.
    pub(crate) entry: &'a Entry,
}

impl Checkpoint {
    /// Maps the checkpoint in `folder`, of the files that [`shards::of`] finds.
    pub(crate) fn open(folder: &Path) -> Result<Self, LoadError> {
        let names = shards::of(folder)?;
        let mut checkpoint = Self {
            folder: folder.to_path_buf(),
            files: Vec::with_capacity(names.len()),
            tensors: HashMap::new(),
        };
        for name in names {
            checkpoint.add(MappedFile::open(&folder.join(name))?)?;
        }
        Ok(checkpoint)
    }

    /// Maps the checkpoint that is the safetensors file `file` alone.
    pub(crate) fn of_file(file: &Path) -> Result<Self, LoadError> {
        let mut checkpoint = Self {
            folder: file.to_path_buf(),
            files: Vec::with_capacity(1),
            tensors: HashMap::new(),
        };
        checkpoint.add(MappedFile::open(file)?)?;
        Ok(checkpoint)
    }

    /// The files, in order of their names.
    pub(crate) fn files(&self) -> &[MappedFile] {
        &self.files
    }

    /// The files, taken out.
    pub(crate) fn into_files(self) -> Vec<MappedFile> {
        self.files
    }

    /// The folder, or the file of a checkpoint of one.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Names of all tensors.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.tensors.keys().map(String::as_str)
    }

    /// The tensor called `name`.
    pub(crate) fn get(&self, name: &str) -> Option<Tensor<'_>> {
        self.tensors.get(name).map(|(index, entry)| Tensor {
            index: *index,
            file: self.files[*index].path(),
            entry,
        })
    }

    /// Maps the safetensors file `file` too, its tensors' names behind `prefix`.
    pub(crate) fn add_under(&mut self, prefix: &str, file: &Path) -> Result<(), LoadError> {
        self.add_named(MappedFile::open(file)?, prefix)
    }

    fn add(&mut self, file: MappedFile) -> Result<(), LoadError> {
        self.add_named(file, "")
    }

    fn add_named(&mut self, file: MappedFile, prefix: &str) -> Result<(), LoadError> {
        for mut entry in safetensors::parse(file.path(), file.bytes())? {
            entry.name.insert_str(0, prefix);
            let name = entry.name.clone();
            if let Some((other, _)) = self.tensors.insert(name.clone(), (self.files.len(), entry)) {
                return Err(LoadError::Tensor {
                    file: file.path().to_path_buf(),
                    tensor: name,
                    reason: format!("is also in {}", self.files[other].path().display()),
                });
            }
        }
        self.files.push(file);
        Ok(())
    }
}

/// Reads all tensors of a safetensors file into memory. Element types other than those of
/// [`mlxcel_ir::DType`] are refused.
///
/// # Errors
/// The file cannot be read or breaks the format.
pub fn read_tensors(file: &Path) -> Result<BTreeMap<String, HostTensor>, LoadError> {
    let mapped = MappedFile::open(file)?;
    let mut tensors = BTreeMap::new();
    for entry in safetensors::parse(file, mapped.bytes())? {
        let dtype = entry.dtype.to_lowercase();
        let dtype = dtype.parse::<DType>().map_err(|()| LoadError::Tensor {
            file: file.to_path_buf(),
            tensor: entry.name.clone(),
            reason: format!("dtype {} is not supported", entry.dtype),
        })?;
        let tensor = HostTensor {
            dtype,
            shape: entry.shape,
            bytes: mapped.bytes()[entry.range].to_vec(),
        };
        tensors.insert(entry.name, tensor);
    }
    Ok(tensors)
}
