//! The weights of a model: where the bytes of each stand and in which format.
//!
//! Beside the tensors of a checkpoint, in the one spelling of [`names`], there are weights made from
//! them. Their names say how, so that a graph, an artifact or a runtime needs to know a name only:
//!
//! | Name | Is |
//! |---|---|
//! | `P.experts.S` | the weights `P.experts.0.S`, `P.experts.1.S`, .. stacked: `[E, ..]` |
//! | `P.norms.S` | the weights `P.norms.0.S`, `P.norms.1.S`, .. stacked in the same way |
//! | `X^T` | `X` with its last two dimensions swapped; dense weights only |
//! | `X(e,n,k)` | `X` in another shape, the numbers in the same order |
//! | `X[a..b]` | the indices `a` to `b - 1` of the first dimension of `X` |
//! | `X[:,a..b]` | the same of the second dimension; `[:,:,a..b]` of the third |
//! | `X[a..b:s]` | of these, every `s`-th: `X[1..64:2]` are the odd rows |
//! | `X[a..b:s:n]` | of these, the first `n` of every `s`: `X[64..576:192:64]` |
//!
//! Steps follow each other and are read from left to right: `X^T[:,0..64]`. A tensor of exactly the
//! name comes before all this. What takes no copy is mapped like the tensor it is made of; anything
//! else is copied once, when first used. A quantised weight cannot be cut along its last dimension.

mod assemble;
mod derive;
mod dtype;
mod lookup;
pub(crate) mod names;
mod repack;
mod scaled;
pub(crate) mod spelling;
#[cfg(test)]
mod tests;
mod vendor;
#[cfg(test)]
mod vendor_tests;

use crate::LoadError;
use crate::adapter::part_names;
use crate::map::MappedFile;
use elsa::sync::FrozenMap;
use mlxcel_ir::{WeightData, WeightDecl, WeightFormat, WeightSource};
use names::{Names, Rules};
use spelling::Step;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Bytes at an address that suits any element type.
#[derive(Debug)]
pub(crate) struct Words {
    words: Vec<u64>,
    /// Bytes of them that count.
    length: usize,
}

impl Words {
    /// Zeros.
    pub(crate) fn zeros(length: usize) -> Self {
        Self {
            words: vec![0; length.div_ceil(8)],
            length,
        }
    }

    /// A copy of `bytes`.
    pub(crate) fn copied(bytes: &[u8]) -> Self {
        let mut words = Self::zeros(bytes.len());
        words.bytes_mut().copy_from_slice(bytes);
        words
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.length]
    }

    /// The bytes, to be written.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.length]
    }
}

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
    Owned(Words),
    /// No bytes.
    Empty,
}

impl Bytes {
    /// A copy of `bytes` at an address that suits any element type.
    pub(crate) fn owned(bytes: &[u8]) -> Self {
        Bytes::Owned(Words::copied(bytes))
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
pub(crate) struct Weights {
    /// The model's folder or file.
    pub(crate) path: PathBuf,
    /// The files that parts lie in.
    pub(crate) files: Vec<MappedFile>,
    /// The weights by name.
    pub(crate) stored: HashMap<String, Stored>,
    /// Tensors in a form that cannot be used, with their file and why not.
    pub(crate) refused: HashMap<String, (PathBuf, String)>,
    /// Ends of the names of tensors that are asked for as they are and given transposed.
    pub(crate) transposed: &'static [&'static str],
    /// How the names of the files are spelled here.
    pub(crate) rules: Rules,
    /// Weights that an adapter changes by layers beside theirs.
    pub(crate) adapted: BTreeSet<String>,
    /// Sizes that the configuration leaves out, by name.
    pub(crate) assumed: Vec<(String, usize)>,
    /// What a user should know of how they were read, in sentences.
    pub(crate) notes: Vec<String>,
    /// What the weights were changed by, beside the model's own files: settings,
    pub(crate) recipe: Vec<u8>,
    /// and files.
    pub(crate) ingredients: Vec<MappedFile>,
    /// Bytes of weights made from others, by name.
    pub(crate) made: FrozenMap<String, Box<[Bytes; 3]>>,
}

impl std::fmt::Debug for Weights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Weights")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Weights {
    /// The weights `stored` of the model at `path`, none of them in a mapped file yet and all in the
    /// spelling of `family`.
    pub(crate) fn new(
        path: &Path,
        family: Names,
        stored: HashMap<String, Stored>,
        refused: HashMap<String, (PathBuf, String)>,
    ) -> Self {
        Self {
            path: path.to_path_buf(),
            files: Vec::new(),
            rules: Rules::new(stored.keys().map(String::as_str), family),
            stored,
            refused,
            transposed: &[],
            adapted: BTreeSet::new(),
            assumed: Vec::new(),
            notes: Vec::new(),
            recipe: Vec::new(),
            ingredients: Vec::new(),
            made: FrozenMap::new(),
        }
    }

    /// Whether the model's files have a tensor called `name`, or those that it is made from.
    pub(crate) fn has(&self, name: &str) -> bool {
        !matches!(self.find(&self.spelled(name)), Ok(None))
    }

    /// The first dimension of the tensor `name`, where there is one.
    pub(crate) fn rows(&self, name: &str) -> Option<usize> {
        let stored = self.stored.get(name)?;
        stored.declaration.shape.first().copied()
    }

    /// The declaration of the weight `name`, which must have the shape `shape`; `reason` says where
    /// that comes from. Its name is `name`, or `name^T` where the family's tensors of that name are
    /// stored transposed.
    ///
    /// # Errors
    /// It is missing, in a form that cannot be used, or of another shape.
    pub(crate) fn declaration(
        &self,
        name: &str,
        shape: &[usize],
        reason: &str,
    ) -> Result<WeightDecl, LoadError> {
        let name = self.spelled(name);
        let found = self.find(&name)?.ok_or_else(|| LoadError::MissingTensor {
            path: self.path.clone(),
            tensor: name.to_string(),
            reason: reason.into(),
        })?;
        let declaration = found.declaration;
        if declaration.shape != shape {
            return Err(LoadError::Tensor {
                file: found.file.to_path_buf(),
                tensor: name.to_string(),
                reason: format!(
                    "must have shape {shape:?} ({reason}{}), has {:?}{}",
                    self.assumptions(shape, &declaration.shape),
                    declaration.shape,
                    match declaration.format {
                        WeightFormat::Dense(_) => String::new(),
                        format =>
                            format!(" if stored as {format}, as the quantization of the model says"),
                    }
                ),
            });
        }
        Ok(declaration)
    }

    /// Which sizes that `wanted` and `found` differ in may come from a field that the configuration leaves
    /// out, for a message.
    fn assumptions(&self, wanted: &[usize], found: &[usize]) -> String {
        let differs = |place: usize, size: usize| found.get(place) != Some(&size);
        let wrong: Vec<usize> = wanted
            .iter()
            .enumerate()
            .filter(|&(place, &size)| differs(place, size))
            .map(|(_, &size)| size)
            .collect();
        let made_of = |size: usize| size > 1 && wrong.iter().any(|&all| all.is_multiple_of(size));
        let fields = self.assumed.iter().filter(|&&(_, size)| made_of(size));
        fields
            .map(|(name, size)| format!("; it leaves out `{name}`, which is {size} by default"))
            .collect()
    }

    /// The two matrices of the change that an adapter makes to the linear layer of the weight
    /// `name`, `A` and `B` as weights of `[rank, K]` and `[N, rank]`, their ranks and what `B` is
    /// scaled by already in it. None if no change stands beside that weight.
    ///
    /// # Errors
    /// `name` is made from a changed weight in a way that no change follows.
    pub(crate) fn low_rank(&self, name: &str) -> Result<Option<[WeightDecl; 2]>, LoadError> {
        let (mut base, mut steps) = (name, String::new());
        while let Some((before, step)) = spelling::split(base) {
            let is_rows = matches!(&step, Step::Slice(slice) if slice.axis == 0);
            let is_turn = step == Step::Transpose && self.is_transposed(before);
            match (is_rows, is_turn) {
                (true, _) => steps.insert_str(0, &step.to_string()),
                (_, true) => {}
                _ if self.adapted.is_empty() => return Ok(None),
                _ => steps.insert(0, '?'),
            }
            base = before;
        }
        if !self.adapted.contains(base) {
            return Ok(None);
        }
        let module = base.strip_suffix(".weight").unwrap_or(base);
        let [a, b] = part_names(module);
        let part = |name: String| match self.find(&name) {
            Ok(Some(found)) => Ok(found.declaration),
            _ => Err(LoadError::Tensor {
                file: self.path.clone(),
                tensor: base.into(),
                reason: "is changed by the adapter, which does not work for this layer of a \
                         quantised model; use the model that is not quantised"
                    .into(),
            }),
        };
        Ok(Some([part(a)?, part(format!("{b}{steps}"))?]))
    }

    /// Whether the tensor `name` is stored as `[inputs, outputs]`.
    pub(crate) fn is_transposed(&self, name: &str) -> bool {
        self.transposed.iter().any(|end| name.ends_with(end))
    }

    /// Whether there is a head that is not the embedding.
    pub(crate) fn has_head(&self) -> bool {
        self.stored.keys().any(|name| names::is_head(name))
    }

    pub(crate) fn bytes<'a>(&'a self, bytes: &'a Bytes) -> &'a [u8] {
        match bytes {
            Bytes::Mapped { file, range } => self
                .files
                .get(*file)
                .and_then(|file| file.bytes().get(range.clone()))
                .unwrap_or(&[]),
            Bytes::Owned(words) => words.bytes(),
            Bytes::Empty => &[],
        }
    }
}

impl WeightSource for Weights {
    fn get(&self, name: &str) -> Option<WeightData<'_>> {
        let [values, scales, biases] = self.parts(name)?;
        Some(WeightData {
            values,
            scales,
            biases,
        })
    }
}
