//! From a checkpoint's tensors to weights in the graph's formats.

use super::names::{Names, Rules};
use super::vendor::vendor;
use super::{Bytes, Stored, Weights};
use crate::checkpoint::{Checkpoint, Tensor};
use crate::config::{Grouping, Mode, Quantization};
use crate::{LoadError, convert, safetensors::Entry};
use mlxcel_ir::{DType, WeightDecl, WeightFormat};
use std::collections::HashMap;

impl Weights {
    /// The weights of `checkpoint`. A module `m` with a tensor `m.scales` is quantised as
    /// `quantization` says; every other tensor is dense.
    ///
    /// # Errors
    /// A quantised module whose parts do not fit together or contradict `quantization`.
    pub(crate) fn assemble(
        checkpoint: Checkpoint,
        quantization: Option<&Quantization>,
        family: Names,
    ) -> Result<Self, LoadError> {
        let rules = Rules::new(checkpoint.names(), family);
        let quantization = quantization.map(|all| all.renamed(|module| rules.module(module)));
        let spelled = |name: &str| rules.apply(name);
        let mut stored = HashMap::new();
        let mut refused = HashMap::new();
        let mut unordered = (0, 0);
        let mut names: Vec<&str> = checkpoint.names().collect();
        // In order, so that of several faults the same one is always reported.
        names.sort_unstable();
        for name in names {
            let Some(tensor) = checkpoint.get(name) else {
                continue;
            };
            if is_side(&checkpoint, name) {
                continue;
            }
            let module = name.strip_suffix(".weight");
            let scales = module.and_then(|module| checkpoint.get(&format!("{module}.scales")));
            let found = match (module, scales) {
                (Some(module), Some(scales)) => {
                    let module = (module, spelled(name));
                    let stored =
                        quantised(&checkpoint, module, tensor, scales, quantization.as_ref())?;
                    Some(stored)
                }
                _ => match vendor(&checkpoint, tensor, quantization.as_ref(), &spelled)? {
                    None => dense(&checkpoint, tensor, spelled(name)),
                    found => found,
                },
            };
            let Some(weight) = found else {
                let reason = format!("dtype {} is not supported", tensor.entry.dtype);
                let file = tensor.file.to_path_buf();
                refused.insert(spelled(name), (file, reason));
                continue;
            };
            if let WeightFormat::Dense(dtype) = weight.declaration.format
                && [".qweight", ".weight_packed"]
                    .iter()
                    .any(|end| name.ends_with(end))
            {
                let bytes = weight.declaration.elements() * dtype.size();
                unordered = (unordered.0 + 1, unordered.1 + bytes);
            }
            let file = weight.file.clone();
            let stands_for = weight.declaration.name.clone();
            if let Some(other) = stored.insert(stands_for, weight) {
                let reason = format!(
                    "and another tensor, in {}, both stand for `{}`",
                    other.file.display(),
                    other.declaration.name
                );
                let tensor = name.to_string();
                return Err(LoadError::Tensor {
                    file,
                    tensor,
                    reason,
                });
            }
        }
        let folder = checkpoint.folder().to_path_buf();
        let (count, bytes) = unordered;
        let note = format!(
            "the groups of {count} weights are not in the order of inputs (desc_act, actorder), which \
             no kernel reads: their numbers are kept as f32 and take {} MB. A checkpoint made \
             without it takes less",
            bytes / 1_000_000
        );
        Ok(Self {
            notes: (count > 0).then_some(note).into_iter().collect(),
            transposed: family.transposed,
            rules,
            files: checkpoint.into_files(),
            ..Self::new(&folder, family, stored, refused)
        })
    }
}

/// Ends of the names of parts that stand beside a tensor whose name ends otherwise.
const SIDES: &[(&str, &[&str])] = &[
    (".scales", &[".weight", ".qweight"]),
    (".biases", &[".weight"]),
    (".qzeros", &[".qweight"]),
    (".g_idx", &[".qweight"]),
    (".weight_scale_inv", &[".weight"]),
    (".weight_scale", &[".weight", ".weight_packed"]),
    (".weight_scale_2", &[".weight"]),
    (".weight_global_scale", &[".weight_packed"]),
    (".weight_zero_point", &[".weight", ".weight_packed"]),
    (".weight_g_idx", &[".weight_packed"]),
    (".weight_shape", &[".weight_packed"]),
    ("_scale_inv", &[""]),
    ("_scales", &["_blocks"]),
];

/// Whether `name` is a part of a quantised module beside its codes.
fn is_side(checkpoint: &Checkpoint, name: &str) -> bool {
    SIDES.iter().any(|(end, beside)| {
        let module = name.strip_suffix(end);
        module.is_some_and(|module| {
            let mut beside = beside.iter();
            beside.any(|end| checkpoint.get(&format!("{module}{end}")).is_some())
        })
    })
}

pub(super) fn float(entry: &Entry) -> Option<DType> {
    convert::float(&entry.dtype)
}

/// The bytes of a tensor, mapped if they are aligned.
pub(super) fn part(checkpoint: &Checkpoint, tensor: Tensor<'_>, alignment: usize) -> Bytes {
    let range = tensor.entry.range.clone();
    Bytes::of_file(checkpoint.files(), tensor.index, range, alignment)
}

/// An error about a tensor.
pub(super) fn fail(tensor: Tensor<'_>, reason: String) -> LoadError {
    LoadError::Tensor {
        file: tensor.file.to_path_buf(),
        tensor: tensor.entry.name.clone(),
        reason,
    }
}

fn dense(checkpoint: &Checkpoint, tensor: Tensor<'_>, name: String) -> Option<Stored> {
    let dtype = float(tensor.entry)?;
    Some(Stored {
        file: tensor.file.to_path_buf(),
        declaration: WeightDecl {
            name,
            shape: tensor.entry.shape.clone(),
            format: WeightFormat::Dense(dtype),
        },
        values: part(checkpoint, tensor, dtype.size()),
        scales: Bytes::Empty,
        biases: Bytes::Empty,
    })
}

fn quantised(
    checkpoint: &Checkpoint,
    (module, name): (&str, String),
    codes: Tensor<'_>,
    scales: Tensor<'_>,
    quantization: Option<&Quantization>,
) -> Result<Stored, LoadError> {
    let config = checkpoint.folder().join("config.json");
    let Some(grouping) = quantization.and_then(|all| all.of(module, &name)) else {
        return Err(LoadError::Field {
            file: config,
            field: "quantization".into(),
            reason: format!(
                "says nothing of module `{module}`, which is quantised in {}",
                scales.file.display()
            ),
        });
    };
    let Grouping { group, .. } = grouping;
    if group == 0 {
        return Err(LoadError::Field {
            file: config,
            field: quantization.map_or("quantization", |all| all.field).into(),
            reason: format!(
                "gives no size of groups, which module `{module}`, quantised as MLX does it in {}, \
                 needs: add `quantization` with `group_size` and `bits`",
                scales.file.display()
            ),
        });
    }
    // Rows of one matrix, or of one for each expert.
    let (Some((&words, rows @ ([_] | [_, _]))), "U32") =
        (codes.entry.shape.split_last(), codes.entry.dtype.as_str())
    else {
        let Entry { dtype, shape, .. } = codes.entry;
        let reason = format!("must be U32 [N, words] or [E, N, words], is {dtype} {shape:?}");
        return Err(fail(codes, reason));
    };
    let shaped = |last: usize| [rows, &[last]].concat();
    let groups = scales.entry.shape.last().copied().unwrap_or(0);
    let bits = bits_of(grouping, words, groups);
    let width = words
        .checked_mul(32)
        .filter(|width| width.is_multiple_of(bits as usize))
        .map(|width| width / bits as usize)
        .filter(|width| width.is_multiple_of(group))
        .ok_or_else(|| {
            let reason = format!(
                "{words} words of 32 bits do not hold codes of {bits} bits in groups of {group}, \
                 which `quantization` in {} asks for",
                config.display()
            );
            fail(codes, reason)
        })?;
    let biases = checkpoint.get(&format!("{module}.biases"));
    let mode = match (grouping.mode, biases) {
        (Mode::Affine, None) => Mode::without_biases(bits, group),
        (mode, _) => Some(mode),
    };
    let Some(mode) = mode else {
        return Err(LoadError::MissingTensor {
            path: checkpoint.folder().to_path_buf(),
            tensor: format!("{module}.biases"),
            reason: format!("affine codes of {bits} bits in groups of {group} need it"),
        });
    };
    let format = match mode {
        Mode::MxFp4 => WeightFormat::MxFp4,
        Mode::MxFp8 => WeightFormat::MxFp8,
        Mode::NvFp4 => WeightFormat::NvFp4,
        Mode::Affine => {
            let Some(scale) = float(scales.entry) else {
                let reason = format!("dtype {} is not supported", scales.entry.dtype);
                return Err(fail(scales, reason));
            };
            WeightFormat::Affine { bits, group, scale }
        }
    };
    let biases = biases.filter(|_| mode == Mode::Affine);
    let (side, size) = match format {
        WeightFormat::Affine { scale, .. } => (scales.entry.dtype.as_str(), scale.size()),
        _ => ("U8", 1),
    };
    for found in [Some(scales), biases].into_iter().flatten() {
        let expected = shaped(width / group);
        if found.entry.shape != expected || found.entry.dtype != side {
            let Entry { dtype, shape, .. } = found.entry;
            let reason = format!(
                "must be {side} {expected:?} for codes {:?} of {bits} bits in groups of {group} \
                 (`quantization` in {}), is {dtype} {shape:?}",
                codes.entry.shape,
                config.display()
            );
            return Err(fail(found, reason));
        }
    }
    let side = |tensor| part(checkpoint, tensor, size);
    Ok(Stored {
        file: codes.file.to_path_buf(),
        declaration: WeightDecl {
            name,
            shape: shaped(width),
            format,
        },
        values: part(checkpoint, codes, 4),
        scales: side(scales),
        biases: biases.map_or(Bytes::Empty, side),
    })
}

/// Bits of a code: as the configuration says, unless the shapes say otherwise. Some checkpoints
/// name a module that has other bits than the rest by a name that it does not have.
fn bits_of(grouping: Grouping, words: usize, groups: usize) -> u8 {
    let Grouping { bits, group, mode } = grouping;
    let numbers = groups.saturating_mul(group);
    let stored = words.saturating_mul(32);
    if mode != Mode::Affine || numbers == 0 || numbers.saturating_mul(bits.into()) == stored {
        return bits;
    }
    match stored / numbers {
        found @ (2..=6 | 8) if stored.is_multiple_of(numbers) => found as u8,
        _ => bits,
    }
}
