//! Low-rank adapters (LoRA): small matrices that change the linear layers of a model.
//!
//! The layer `y = W x` becomes `y = W x + s B A x`, with `A` `[r, K]`, `B` `[N, r]` and a scale `s`.
//! Two layouts are read: that of PEFT (`adapter_model.safetensors`) and that of mlx-lm
//! (`adapters.safetensors`), each with its `adapter_config.json`. What either can say that would
//! change the numbers and is not done here is refused by name.
//!
//! A dense weight takes its change at load. A quantised one is left as it is, and the graph gets two
//! more linear layers beside it; see [`Weights::low_rank`](crate::weights::Weights::low_rank).

mod apply;
mod mlx;
mod peft;

pub(crate) use apply::{apply, check_used, part_names};

use crate::convert;
use crate::map::{self, MappedFile};
use crate::safetensors::{self, Entry};
use crate::weights::Words;
use crate::{LoadError, config::fields::Fields};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// An adapter to load with a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapter {
    /// Its folder.
    pub path: PathBuf,
    /// What its effect is multiplied by; 1 is as trained, 0 is none.
    pub scale: f64,
    /// Whether dense weights too are left as they are and the graph gets the adapter's layers.
    pub separate: bool,
}

impl Adapter {
    /// The adapter in the folder `path`, as it was trained.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            scale: 1.0,
            separate: false,
        }
    }
}

/// A matrix of an adapter, row-major.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Matrix {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) values: Vec<f32>,
}

impl Matrix {
    /// Rows as columns.
    fn transposed(&self) -> Self {
        let mut values = Vec::with_capacity(self.values.len());
        for column in 0..self.columns {
            values.extend((0..self.rows).map(|row| self.values[row * self.columns + column]));
        }
        Self {
            rows: self.columns,
            columns: self.rows,
            values,
        }
    }

    /// The values times `factor`, as bytes.
    pub(crate) fn scaled(&self, factor: f32) -> Words {
        let mut words = Words::zeros(self.values.len() * 4);
        let values = self.values.iter().map(|value| value * factor);
        for (to, value) in words.bytes_mut().chunks_exact_mut(4).zip(values) {
            to.copy_from_slice(&value.to_le_bytes());
        }
        words
    }
}

/// What an adapter does to one layer: `W + scale B A`.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// `A`, `[r, K]`.
    pub(crate) a: Matrix,
    /// `B`, `[N, r]`.
    pub(crate) b: Matrix,
    /// The scale that it was trained with.
    pub(crate) scale: f64,
    /// The tensor that `A` is from, for messages.
    pub(crate) tensor: String,
}

/// An adapter's content: what it does to each layer, by the layer's name in the adapter.
#[derive(Debug)]
pub(crate) struct Changes {
    /// The content of its configuration.
    pub(crate) config: Vec<u8>,
    /// The file of its tensors.
    pub(crate) file: MappedFile,
    pub(crate) changes: BTreeMap<String, Change>,
}

const CONFIG: &str = "adapter_config.json";

/// Reads the adapter in `folder`.
pub(crate) fn read(folder: &Path) -> Result<Changes, LoadError> {
    let (peft, mlx) = (folder.join(peft::FILE), folder.join(mlx::FILE));
    let config = folder.join(CONFIG);
    let is_peft = peft.is_file();
    if !is_peft && !mlx.is_file() {
        let mut reason = format!(
            "has neither {} (PEFT) nor {} (mlx-lm)",
            peft::FILE,
            mlx::FILE
        );
        if folder.join("adapter_model.bin").is_file() {
            reason =
                "has its tensors in adapter_model.bin, which can run code when read; save the \
                      adapter as safetensors"
                    .into();
        }
        return Err(LoadError::NotAnAdapter {
            path: folder.to_path_buf(),
            reason,
        });
    }
    if !config.is_file() {
        return Err(LoadError::NotAnAdapter {
            path: folder.to_path_buf(),
            reason: format!("has no {CONFIG}"),
        });
    }
    let bytes = map::read(&config, map::CONFIG)?;
    let value = map::parse_json(&config, &bytes)?;
    let fields = Fields::root(&config, &value)?;
    let (tensors, changes) = match is_peft {
        true => {
            let tensors = Tensors::open(&peft)?;
            let changes = peft::read(&fields, &tensors)?;
            (tensors, changes)
        }
        false => {
            let tensors = Tensors::open(&mlx)?;
            let changes = mlx::read(&fields, &tensors)?;
            (tensors, changes)
        }
    };
    let file = tensors.mapped;
    match changes.is_empty() {
        true => Err(LoadError::format(
            file.path(),
            "has no tensors, so that it changes nothing",
        )),
        false => Ok(Changes {
            config: bytes,
            file,
            changes,
        }),
    }
}

/// The two halves of the change of one layer, as they are found.
#[derive(Default)]
struct Halves {
    a: Option<(String, Matrix)>,
    b: Option<Matrix>,
}

impl Halves {
    /// Both, if they fit each other; `module` is their layer.
    fn join(
        self,
        file: &Path,
        module: &str,
        scale: impl FnOnce(usize) -> Result<f64, LoadError>,
    ) -> Result<Change, LoadError> {
        let fail = |tensor: &str, reason: String| LoadError::Tensor {
            file: file.to_path_buf(),
            tensor: tensor.into(),
            reason,
        };
        let (Some((tensor, a)), Some(b)) = (self.a, self.b) else {
            return Err(fail(
                module,
                "has one of its two matrices A and B only".into(),
            ));
        };
        if a.rows != b.columns || a.rows == 0 {
            let reason = format!(
                "is of rank {}, and the matrix B that belongs to it of rank {}",
                a.rows, b.columns
            );
            return Err(fail(&tensor, reason));
        }
        Ok(Change {
            scale: scale(a.rows)?,
            tensor,
            a,
            b,
        })
    }
}

/// The tensors of an adapter's file.
struct Tensors {
    mapped: MappedFile,
    entries: Vec<Entry>,
}

impl Tensors {
    fn open(file: &Path) -> Result<Self, LoadError> {
        let mapped = MappedFile::open(file)?;
        let mut entries = safetensors::parse(file, mapped.bytes())?;
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(Self { mapped, entries })
    }

    fn file(&self) -> &Path {
        self.mapped.path()
    }

    fn fail(&self, entry: &Entry, reason: impl Into<String>) -> LoadError {
        LoadError::Tensor {
            file: self.file().to_path_buf(),
            tensor: entry.name.clone(),
            reason: reason.into(),
        }
    }

    /// The matrix `entry`.
    fn matrix(&self, entry: &Entry) -> Result<Matrix, LoadError> {
        let &[rows, columns] = &entry.shape[..] else {
            let reason = format!(
                "has shape {:?}; adapters of matrices only are supported, not of stacked experts \
                 or convolutions",
                entry.shape
            );
            return Err(self.fail(entry, reason));
        };
        let bytes = &self.mapped.bytes()[entry.range.clone()];
        let values = convert::float(&entry.dtype)
            .and_then(|dtype| convert::to_f32(dtype, bytes))
            .ok_or_else(|| self.fail(entry, format!("dtype {} is not supported", entry.dtype)))?;
        if values.iter().any(|value| !value.is_finite()) {
            return Err(self.fail(entry, "has a value that is no finite number"));
        }
        Ok(Matrix {
            rows,
            columns,
            values,
        })
    }
}
