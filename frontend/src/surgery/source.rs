//! Checkpoints that a surgery takes weights from.

use super::file::Place;
use crate::checkpoint::Checkpoint;
use crate::weights::names::{Names, Rules};
use crate::{LoadError, convert};
use mlxcel_ir::{WeightDecl, WeightFormat};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A checkpoint, its tensors by the names that the model's own have.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) checkpoint: Checkpoint,
    names: HashMap<String, String>,
}

/// Bytes of a source.
#[derive(Clone, Debug)]
pub(super) struct Slice {
    source: Arc<Source>,
    file: usize,
    range: Range<usize>,
}

impl Slice {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.source.checkpoint.files()[self.file].bytes()[self.range.clone()]
    }
}

/// All sources of a surgery, each opened once.
#[derive(Debug)]
pub(super) struct Sources {
    family: Names,
    opened: BTreeMap<PathBuf, Arc<Source>>,
}

impl Sources {
    pub(super) fn new(family: Names) -> Self {
        Self {
            family,
            opened: BTreeMap::new(),
        }
    }

    /// The source at `path`: a model folder or a safetensors file.
    pub(super) fn open(&mut self, path: &Path, place: &Place) -> Result<Arc<Source>, LoadError> {
        if let Some(source) = self.opened.get(path) {
            return Ok(source.clone());
        }
        let checkpoint = match path.is_dir() {
            true => Checkpoint::open(path),
            false => Checkpoint::of_file(path),
        }
        .map_err(|error| place.error(error.to_string()))?;
        let rules = Rules::new(checkpoint.names(), self.family);
        let names = checkpoint
            .names()
            .map(|name| (rules.apply(name), name.to_string()));
        let names = names.collect();
        let source = Arc::new(Source { checkpoint, names });
        self.opened.insert(path.to_path_buf(), source.clone());
        Ok(source)
    }

    /// The opened sources.
    pub(super) fn into_opened(self) -> impl Iterator<Item = Arc<Source>> {
        self.opened.into_values()
    }
}

impl Source {
    /// The tensor called `name` here, of the shape `shape` and one of the element types `dtypes`.
    fn part(
        self: &Arc<Self>,
        name: &str,
        shape: &[usize],
        dtypes: &[&str],
        place: &Place,
    ) -> Result<(Slice, &str), LoadError> {
        let folder = self.checkpoint.folder().display();
        let tensor = self
            .names
            .get(name)
            .and_then(|name| self.checkpoint.get(name));
        let tensor =
            tensor.ok_or_else(|| place.error(format!("{folder} has no tensor `{name}`")))?;
        let entry = tensor.entry;
        if entry.shape != shape || !dtypes.contains(&entry.dtype.as_str()) {
            let reason = format!(
                "tensor `{}` of {} must be {} {shape:?}, is {} {:?}",
                entry.name,
                tensor.file.display(),
                dtypes.join(" or "),
                entry.dtype,
                entry.shape
            );
            return Err(place.error(reason));
        }
        let slice = Slice {
            source: self.clone(),
            file: tensor.index,
            range: entry.range.clone(),
        };
        Ok((slice, &entry.dtype))
    }

    /// The numbers of the tensor `name`, which must be dense and of the shape `shape`.
    pub(super) fn dense(
        self: &Arc<Self>,
        name: &str,
        shape: &[usize],
        place: &Place,
    ) -> Result<Numbers, LoadError> {
        let (slice, dtype) = self.part(name, shape, &["F32", "F16", "BF16"], place)?;
        match convert::float(dtype) {
            Some(dtype) => Ok(Numbers { slice, dtype }),
            None => Err(place.error(format!("dtype {dtype} is not supported"))),
        }
    }

    /// The parts of a weight `name` that is exactly as `wanted`, but for its name.
    pub(super) fn like(
        self: &Arc<Self>,
        name: &str,
        wanted: &WeightDecl,
        place: &Place,
    ) -> Result<Vec<Slice>, LoadError> {
        match wanted.format {
            WeightFormat::Dense(dtype) => {
                let spelled = dtype.to_string().to_uppercase();
                let (slice, _) = self.part(name, &wanted.shape, &[&spelled], place)?;
                Ok(vec![slice])
            }
            WeightFormat::Affine { bits, group, scale } => {
                let sized = |last: usize| {
                    let mut shape = wanted.shape.clone();
                    if let Some(width) = shape.last_mut() {
                        *width = last;
                    }
                    shape
                };
                let width = wanted.shape.last().copied().unwrap_or(0);
                let scale = scale.to_string().to_uppercase();
                let module = name.strip_suffix(".weight").unwrap_or(name);
                let (codes, _) =
                    self.part(name, &sized(width * bits as usize / 32), &["U32"], place)?;
                let mut parts = vec![codes];
                for side in ["scales", "biases"] {
                    let side = format!("{module}.{side}");
                    parts.push(self.part(&side, &sized(width / group), &[&scale], place)?.0);
                }
                Ok(parts)
            }
            format => {
                let reason = format!(
                    "`{}` is stored as {format}, which has no donors",
                    wanted.name
                );
                Err(place.error(reason))
            }
        }
    }
}

/// The numbers of a dense tensor of a source.
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    slice: Slice,
    dtype: mlxcel_ir::DType,
}

impl Numbers {
    pub(super) fn to_f32(&self) -> Vec<f32> {
        convert::to_f32(self.dtype, self.slice.bytes()).unwrap_or_default()
    }
}
