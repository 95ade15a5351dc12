//! The safetensors files of a model folder as one set of named tensors.

use crate::map::{self, MappedFile};
use crate::safetensors::{self, Entry};
use crate::{LoadError, config::fields::Fields};
use mlxcel_ir::{DType, HostTensor};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// Name of the file of a checkpoint in one piece.
const SINGLE: &str = "model.safetensors";
/// Name of the index of a checkpoint in several files.
const INDEX: &str = "model.safetensors.index.json";

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
    /// Maps the checkpoint in `folder`. If there is an index, its files alone count, even where a
    /// stray `model.safetensors` stands beside them.
    pub(crate) fn open(folder: &Path) -> Result<Self, LoadError> {
        let index = folder.join(INDEX);
        let placed = match index.is_file() {
            true => Some(read_index(&index)?),
            false => None,
        };
        let names = match &placed {
            Some(placed) => {
                let mut names: Vec<&str> = placed.values().map(String::as_str).collect();
                names.sort_unstable();
                names.dedup();
                names.into_iter().map(String::from).collect()
            }
            None => vec![single(folder)?],
        };
        if let Some(shard) = names.iter().find(|name| !folder.join(name).is_file()) {
            return Err(LoadError::MissingShard {
                index,
                shard: shard.clone(),
            });
        }
        let mut checkpoint = Self {
            folder: folder.to_path_buf(),
            files: Vec::with_capacity(names.len()),
            tensors: HashMap::new(),
        };
        for name in names {
            checkpoint.add(MappedFile::open(&folder.join(name))?)?;
        }
        for (tensor, shard) in placed.iter().flatten() {
            let found = checkpoint.tensors.get(tensor);
            let right = found.is_some_and(|&(file, _)| {
                checkpoint.files[file].path().file_name() == Some(shard.as_ref())
            });
            if !right {
                return Err(LoadError::Tensor {
                    file: index,
                    tensor: tensor.clone(),
                    reason: format!("is not in the shard `{shard}` that `weight_map` names"),
                });
            }
        }
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

    /// The folder.
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

    fn add(&mut self, file: MappedFile) -> Result<(), LoadError> {
        for entry in safetensors::parse(file.path(), file.bytes())? {
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

/// The name of the folder's only safetensors file.
fn single(folder: &Path) -> Result<String, LoadError> {
    if folder.join(SINGLE).is_file() {
        return Ok(SINGLE.into());
    }
    let mut found: Vec<String> = std::fs::read_dir(folder)
        .map_err(LoadError::read(folder))?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(".safetensors"))
        .collect();
    found.sort();
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(LoadError::NotAModel {
            path: folder.to_path_buf(),
            reason: "it has no .safetensors file".into(),
        }),
        _ => Err(LoadError::NotAModel {
            path: folder.to_path_buf(),
            reason: format!("it has several .safetensors files but no {INDEX}"),
        }),
    }
}

/// Tensor to shard, from the index.
fn read_index(index: &Path) -> Result<BTreeMap<String, String>, LoadError> {
    let value = map::read_json(index, map::SMALL)?;
    let fields = Fields::root(index, &value)?;
    let placed = fields
        .object("weight_map")?
        .ok_or_else(|| fields.missing("weight_map"))?;
    let mut shards = BTreeMap::new();
    for (tensor, shard) in placed.entries() {
        let name = shard
            .as_str()
            // A shard stands beside its index: a name with a path could leave the folder.
            .filter(|name| Path::new(name).file_name() == Some(name.as_ref()))
            .ok_or_else(|| placed.expected(tensor, "the name of a file in this folder", shard))?;
        shards.insert(tensor.to_string(), name.to_string());
    }
    if shards.is_empty() {
        return Err(fields.error("weight_map", "names no tensors"));
    }
    Ok(shards)
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
