//! The weights of a model: where the bytes of each stand and in which format.

use crate::map::MappedFile;
use mlxcel_ir::{WeightData, WeightDecl, WeightSource};
use std::collections::HashMap;
use std::ops::Range;

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
    pub(crate) declaration: WeightDecl,
    pub(crate) values: Bytes,
    pub(crate) scales: Bytes,
    pub(crate) biases: Bytes,
}

/// All weights of a model. Parts are aligned to their element type.
#[derive(Debug)]
pub(crate) struct Weights {
    pub(crate) files: Vec<MappedFile>,
    pub(crate) stored: HashMap<String, Stored>,
}

impl Weights {
    /// The declaration of the weight called `name`.
    pub(crate) fn declaration(&self, name: &str) -> Option<&WeightDecl> {
        self.stored.get(name).map(|stored| &stored.declaration)
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
