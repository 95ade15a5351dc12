//! The weights of a model: where the bytes of each stand and in which format.

mod assemble;

use crate::LoadError;
use crate::map::MappedFile;
use mlxcel_ir::{WeightData, WeightDecl, WeightFormat, WeightSource};
use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;

/// The bytes of one part of a weight.
#[derive(Debug)]
pub(crate) enum Bytes {
    /// In a mapped file.
    Mapped {
        /// Number of the file.
        file: usize,
        /// Where in it.
        range: Range<usize>,
    },
    /// In memory of its own, where the file's form differs from the format's or is not aligned.
    /// Words, so that any element type may be read from it.
    Owned {
        /// The words.
        words: Vec<u64>,
        /// Bytes of them that count.
        length: usize,
    },
    /// No bytes.
    Empty,
}

impl Bytes {
    /// A copy of `bytes` at an address that suits any element type.
    pub(crate) fn owned(bytes: &[u8]) -> Self {
        let mut words = vec![0u64; bytes.len().div_ceil(8)];
        bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
        Bytes::Owned {
            words,
            length: bytes.len(),
        }
    }

    /// `range` of `file`, mapped where it starts at a multiple of `alignment`, else copied.
    pub(crate) fn of_file(
        files: &[MappedFile],
        file: usize,
        range: Range<usize>,
        alignment: usize,
    ) -> Self {
        match range.start.is_multiple_of(alignment) {
            true => Bytes::Mapped { file, range },
            false => Bytes::owned(&files[file].bytes()[range]),
        }
    }
}

/// A weight: its declaration and its parts.
#[derive(Debug)]
pub(crate) struct Stored {
    /// The file it is from.
    pub(crate) file: PathBuf,
    pub(crate) declaration: WeightDecl,
    pub(crate) values: Bytes,
    pub(crate) scales: Bytes,
    pub(crate) biases: Bytes,
}

/// All weights of a model. Parts are aligned to their element type.
#[derive(Debug)]
pub(crate) struct Weights {
    /// The model's folder or file.
    pub(crate) path: PathBuf,
    /// The files that parts lie in.
    pub(crate) files: Vec<MappedFile>,
    /// The weights by name.
    pub(crate) stored: HashMap<String, Stored>,
    /// Tensors in a form that cannot be used, with their file and why not.
    pub(crate) refused: HashMap<String, (PathBuf, String)>,
}

impl Weights {
    /// Whether the model's files have a tensor called `name`.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.stored.contains_key(name) || self.refused.contains_key(name)
    }

    /// The declaration of the weight `name`, which must have the shape `shape`; `reason` says where
    /// that comes from.
    ///
    /// # Errors
    /// It is missing, in a form that cannot be used, or of another shape.
    pub(crate) fn declaration(
        &self,
        name: &str,
        shape: &[usize],
        reason: &str,
    ) -> Result<WeightDecl, LoadError> {
        if let Some((file, reason)) = self.refused.get(name) {
            return Err(LoadError::Tensor {
                file: file.clone(),
                tensor: name.into(),
                reason: reason.clone(),
            });
        }
        let stored = self
            .stored
            .get(name)
            .ok_or_else(|| LoadError::MissingTensor {
                path: self.path.clone(),
                tensor: name.into(),
                reason: reason.into(),
            })?;
        if stored.declaration.shape != shape {
            return Err(LoadError::Tensor {
                file: stored.file.clone(),
                tensor: name.into(),
                reason: format!(
                    "must have shape {shape:?} ({reason}), has {:?}{}",
                    stored.declaration.shape,
                    match stored.declaration.format {
                        WeightFormat::Affine { bits, group, .. } => format!(
                            " if stored with {bits} bits in groups of {group}, as the \
                             quantization of the model says"
                        ),
                        WeightFormat::Dense(_) => String::new(),
                    }
                ),
            });
        }
        Ok(stored.declaration.clone())
    }

    fn bytes<'a>(&'a self, bytes: &'a Bytes) -> &'a [u8] {
        match bytes {
            Bytes::Mapped { file, range } => self
                .files
                .get(*file)
                .and_then(|file| file.bytes().get(range.clone()))
                .unwrap_or(&[]),
            Bytes::Owned { words, length } => &bytemuck::cast_slice(words)[..*length],
            Bytes::Empty => &[],
        }
    }
}

impl WeightSource for Weights {
    fn get(&self, name: &str) -> Option<WeightData<'_>> {
        let stored = self.stored.get(name)?;
        Some(WeightData {
            values: self.bytes(&stored.values),
            scales: self.bytes(&stored.scales),
            biases: self.bytes(&stored.biases),
        })
    }
}
