//! From a checkpoint's tensors to weights in the graph's formats.

use super::names::{Names, Rules};
use super::{Bytes, Stored, Weights};
use crate::checkpoint::{Checkpoint, Tensor};
use crate::config::{Affine, Quantization};
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
            let weight = match (module, scales) {
                (Some(module), Some(scales)) => {
                    let module = (module, spelled(name));
                    quantised(&checkpoint, module, tensor, scales, quantization.as_ref())?
                }
                _ => match dense(&checkpoint, tensor, spelled(name)) {
                    Some(weight) => weight,
                    None => {
                        let reason = format!("dtype {} is not supported", tensor.entry.dtype);
                        let file = tensor.file.to_path_buf();
                        refused.insert(spelled(name), (file, reason));
                        continue;
                    }
                },
            };
            let file = weight.file.clone();
            if let Some(other) = stored.insert(spelled(name), weight) {
                let reason = format!(
                    "and another tensor, in {}, both stand for `{}`",
                    other.file.display(),
                    spelled(name)
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
        Ok(Self {
            transposed: family.transposed,
            rules,
            files: checkpoint.into_files(),
            ..Self::new(&folder, family, stored, refused)
        })
    }
}

/// Whether `name` is the scales or biases of a quantised module.
fn is_side(checkpoint: &Checkpoint, name: &str) -> bool {
    [".scales", ".biases"].into_iter().any(|suffix| {
        name.strip_suffix(suffix)
            .is_some_and(|module| checkpoint.get(&format!("{module}.weight")).is_some())
    })
}

fn float(entry: &Entry) -> Option<DType> {
    convert::float(&entry.dtype)
}

fn part(checkpoint: &Checkpoint, tensor: Tensor<'_>, alignment: usize) -> Bytes {
    let range = tensor.entry.range.clone();
    Bytes::of_file(checkpoint.files(), tensor.index, range, alignment)
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
    let fail = |tensor: Tensor<'_>, reason: String| LoadError::Tensor {
        file: tensor.file.to_path_buf(),
        tensor: tensor.entry.name.clone(),
        reason,
    };
    let config = checkpoint.folder().join("config.json");
    let Some(Affine { bits, group }) = quantization.and_then(|all| all.of(module, &name)) else {
        return Err(LoadError::Field {
            file: config,
            field: "quantization".into(),
            reason: format!(
                "says nothing of module `{module}`, which is quantised in {}",
                scales.file.display()
            ),
        });
    };
    let biases =
        checkpoint
            .get(&format!("{module}.biases"))
            .ok_or_else(|| LoadError::MissingTensor {
                path: checkpoint.folder().to_path_buf(),
                tensor: format!("{module}.biases"),
                reason: "affine quantisation, the only one supported, needs it beside scales"
                    .into(),
            })?;
    // Rows of one matrix, or of one for each expert.
    let (Some((&words, rows @ ([_] | [_, _]))), "U32") =
        (codes.entry.shape.split_last(), codes.entry.dtype.as_str())
    else {
        let Entry { dtype, shape, .. } = codes.entry;
        let reason = format!("must be U32 [N, words] or [E, N, words], is {dtype} {shape:?}");
        return Err(fail(codes, reason));
    };
    let shaped = |last: usize| [rows, &[last]].concat();
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
    let Some(scale) = float(scales.entry) else {
        return Err(fail(
            scales,
            format!("dtype {} is not supported", scales.entry.dtype),
        ));
    };
    for side in [scales, biases] {
        let expected = shaped(width / group);
        if side.entry.shape != expected || side.entry.dtype != scales.entry.dtype {
            let Entry { dtype, shape, .. } = side.entry;
            let reason = format!(
                "must be {} {expected:?} for codes {:?} of {bits} bits in groups of {group} \
                 (`quantization` in {}), is {dtype} {shape:?}",
                scales.entry.dtype,
                codes.entry.shape,
                config.display()
            );
            return Err(fail(side, reason));
        }
    }
    Ok(Stored {
        file: codes.file.to_path_buf(),
        declaration: WeightDecl {
            name,
            shape: shaped(width),
            format: WeightFormat::Affine { bits, group, scale },
        },
        values: part(checkpoint, codes, 4),
        scales: part(checkpoint, scales, scale.size()),
        biases: part(checkpoint, biases, scale.size()),
    })
}
