//! Tensors of a file: descriptions checked against the data, then mapped or repacked.

use super::blocks::Blocks;
use super::names::{checkpoint_name, is_apart};
use super::repack::repack;
use super::{Architecture, Metadata, derived};
use crate::LoadError;
use crate::families::Names;
use crate::map::MappedFile;
use crate::weights::{Bytes, Stored, Weights};
use mlxcel_ir::{DType, WeightDecl, WeightFormat};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::Path;

/// How a tensor is stored.
#[derive(Clone, Copy, Debug)]
enum Form {
    Dense(DType),
    Blocks(Blocks),
}

/// A tensor whose bytes are known to be in the file.
#[derive(Debug)]
pub(super) struct Described<'a> {
    /// The file's name for it.
    pub(super) name: &'a str,
    /// The checkpoint's name for it.
    pub(super) checkpoint_name: String,
    /// Its dimensions, outermost first.
    pub(super) shape: Vec<usize>,
    form: Result<Form, String>,
    /// Which of the files it is in,
    part: usize,
    /// and where.
    range: Range<usize>,
    bytes: &'a [u8],
}

impl Described<'_> {
    /// The numbers of a tensor of f32.
    pub(super) fn floats(&self) -> Option<Vec<f64>> {
        match self.form {
            Ok(Form::Dense(DType::F32)) => Some(
                self.bytes
                    .chunks_exact(4)
                    .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap_or([0; 4])).into())
                    .collect(),
            ),
            _ => None,
        }
    }
}

/// The form with the code `kind`, numbers in a block of it and bytes that the block takes.
///
/// Forms that cannot be used have a name and no size: their tensors are refused when needed.
fn form(kind: u32) -> (Result<Form, String>, usize, usize) {
    let dense = |dtype: DType| (Ok(Form::Dense(dtype)), 1, dtype.size());
    if let Some(blocks) = Blocks::of(kind) {
        return (Ok(Form::Blocks(blocks)), blocks.numbers(), blocks.size());
    }
    let name = match kind {
        0 => return dense(DType::F32),
        1 => return dense(DType::F16),
        30 => return dense(DType::BF16),
        9 => "Q8_1",
        15 => "Q8_K",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        21 => "IQ3_S",
        22 => "IQ2_S",
        28 => "F64",
        29 => "IQ1_M",
        40 => "NVFP4",
        _ => "",
    };
    let reason = format!(
        "is stored as {}, which is not supported; use a file of another quantisation of the model. \
         Supported are F32, F16, BF16, {}",
        match name {
            "" => format!("type {kind}"),
            name => name.to_string(),
        },
        Blocks::ALL.map(Blocks::name).join(", ")
    );
    (Err(reason), 1, 0)
}

/// Layers of the model: those of the file but for those that predict further tokens.
pub(super) fn layers(
    metadata: &Metadata<'_>,
    architecture: &Architecture,
) -> Result<u64, LoadError> {
    let field = format!("{}.block_count", architecture.name);
    let all = metadata.required(&field, metadata.size(&field)?)?;
    let field = format!("{}.nextn_predict_layers", architecture.name);
    let further = metadata.size(&field)?.unwrap_or(0);
    all.checked_sub(further)
        .filter(|&layers| layers > 0)
        .ok_or_else(|| metadata.error(&field, format!("exceeds the {all} layers of the file")))
}

/// Checks the descriptions of all tensors. The tensors of the model come first to last as in the
/// file; each lies within the data and overlaps no other.
pub(super) fn describe<'a>(
    metadata: &Metadata<'a>,
    architecture: &Architecture,
) -> Result<Vec<Described<'a>>, LoadError> {
    // What is wrong with their number is said when the settings are read.
    let layers = layers(metadata, architecture).unwrap_or(u64::MAX);
    let mut described = Vec::new();
    let mut names = HashSet::new();
    let parts = metadata.parts.iter().enumerate();
    let tensors = parts.flat_map(|(index, part)| {
        let tensors = part.tensors.iter();
        tensors.map(move |tensor| (index, part, tensor))
    });
    for (index, part, tensor) in tensors {
        let fail = |reason: String| LoadError::Tensor {
            file: part.file.to_path_buf(),
            tensor: tensor.name.into(),
            reason,
        };
        let checkpoint_name = match tensor.name {
            name if is_apart(name, layers) => name.to_string(),
            name => checkpoint_name(name, architecture).ok_or_else(|| {
                fail(format!(
                    "belongs to no part of a {} model",
                    architecture.name
                ))
            })?,
        };
        if !names.insert(checkpoint_name.clone()) {
            return Err(fail("is described twice".into()));
        }
        let (form, block, size) = form(tensor.kind);
        let shape: Option<Vec<usize>> = tensor
            .dims
            .iter()
            .rev()
            .map(|&dim| usize::try_from(dim).ok())
            .collect();
        let range = shape.as_ref().and_then(|shape| {
            let row = shape.last().copied().unwrap_or(1);
            if !row.is_multiple_of(block) {
                return None;
            }
            let elements = shape
                .iter()
                .try_fold(1usize, |product, &dim| product.checked_mul(dim))?;
            let bytes = (elements / block).checked_mul(size)?;
            let offset = usize::try_from(tensor.offset).ok()?;
            let start = part.data.start.checked_add(offset)?;
            let end = start.checked_add(bytes)?;
            (end <= part.data.end).then_some(start..end)
        });
        let (Some(shape), Some(range)) = (shape, range) else {
            return Err(fail(format!(
                "dimensions {:?} at offset {} do not fit the {} bytes of data; the file is \
                 truncated or damaged",
                tensor.dims,
                tensor.offset,
                part.data.len()
            )));
        };
        let mut shape = shape;
        let name = checkpoint_name.as_str();
        // What is a vector in the checkpoint may have the shape of a broadcast, and groups of its own.
        let is_broadcast = name.ends_with("A_log") && shape.last() == Some(&1);
        let is_vector = name.ends_with(".D") || name.ends_with("mixer.norm.weight");
        if is_broadcast || is_vector {
            shape = vec![shape.iter().product()];
        }
        // A layer that gives one number is written as a vector.
        if checkpoint_name.ends_with(".shared_expert_gate.weight") && shape.len() == 1 {
            shape.insert(0, 1);
        }
        described.push(Described {
            name: tensor.name,
            checkpoint_name,
            shape,
            form,
            part: index,
            bytes: part.bytes.get(range.clone()).unwrap_or(&[]),
            range,
        });
    }
    check_overlap(metadata, &described)?;
    Ok(described)
}

fn check_overlap(metadata: &Metadata<'_>, described: &[Described<'_>]) -> Result<(), LoadError> {
    let mut order: Vec<&Described<'_>> = described.iter().collect();
    order.sort_by_key(|tensor| (tensor.part, tensor.range.start, tensor.range.end));
    for pair in order.windows(2) {
        let same = pair[0].part == pair[1].part;
        if same && pair[1].range.start < pair[0].range.end {
            return Err(LoadError::Tensor {
                file: metadata.parts[pair[1].part].file.to_path_buf(),
                tensor: pair[1].name.into(),
                reason: format!("its bytes overlap those of `{}`", pair[0].name),
            });
        }
    }
    Ok(())
}

/// The weights in `mapped`; their `files` are left for the caller to fill with these.
pub(super) fn weights(
    metadata: &Metadata<'_>,
    mapped: &[MappedFile],
    described: &[Described<'_>],
    (architecture, names): (&Architecture, Names),
    heads: [usize; 3],
) -> Result<Weights, LoadError> {
    let mut stored = HashMap::new();
    let mut refused = HashMap::new();
    for tensor in described {
        if tensor.name == tensor.checkpoint_name {
            continue;
        }
        let path: &Path = metadata.parts[tensor.part].file;
        let name = tensor.checkpoint_name.clone();
        let form = match &tensor.form {
            Ok(form) => *form,
            Err(reason) => {
                refused.insert(name, (path.to_path_buf(), reason.clone()));
                continue;
            }
        };
        let source = RowOrder::of(architecture, heads, tensor);
        let declare = |format| WeightDecl {
            name: name.clone(),
            shape: tensor.shape.clone(),
            format,
        };
        if matches!(form, Form::Blocks(_)) && tensor.shape.len() < 2 {
            let reason = "is a vector in blocks; only matrices are supported in that form";
            refused.insert(name, (path.to_path_buf(), reason.into()));
            continue;
        }
        if let Some(change) = change(architecture, &name) {
            let Some(numbers) = tensor.floats() else {
                let reason = "must be stored as F32, because what it holds is changed";
                refused.insert(name, (path.to_path_buf(), reason.into()));
                continue;
            };
            let numbers: Vec<f32> = numbers.into_iter().map(|x| change(x) as f32).collect();
            let weight = Stored {
                file: path.to_path_buf(),
                declaration: declare(WeightFormat::Dense(DType::F32)),
                values: Bytes::owned(bytemuck::cast_slice(&numbers)),
                scales: Bytes::Empty,
                biases: Bytes::Empty,
            };
            stored.insert(name.clone(), weight);
            continue;
        }
        let rows = tensor.shape.first().copied().unwrap_or(1).max(1);
        let row = tensor.bytes.len() / rows;
        let weight = match form {
            Form::Dense(dtype) => Stored {
                file: path.to_path_buf(),
                declaration: declare(WeightFormat::Dense(dtype)),
                values: match source {
                    RowOrder::Kept => {
                        Bytes::of_file(mapped, tensor.part, tensor.range.clone(), dtype.size())
                    }
                    RowOrder::Paired { .. } | RowOrder::Grouped { .. } => {
                        let mut bytes = Vec::with_capacity(tensor.bytes.len());
                        for index in 0..rows {
                            bytes.extend_from_slice(
                                &tensor.bytes[source.of_row(index) * row..][..row],
                            );
                        }
                        Bytes::owned(&bytes)
                    }
                },
                scales: Bytes::Empty,
                biases: Bytes::Empty,
            },
            Form::Blocks(blocks) => {
                // Each row of each matrix of a stack; only matrices have rows in another order.
                let columns = tensor.shape.last().copied().unwrap_or(0);
                let row = columns / blocks.numbers() * blocks.size();
                let repacked = repack(blocks, tensor.bytes, row, |row| source.of_row(row));
                let [values, scales, biases] = repacked.parts.map(Bytes::Owned);
                Stored {
                    file: path.to_path_buf(),
                    declaration: declare(repacked.format),
                    values,
                    scales,
                    biases,
                }
            }
        };
        stored.insert(name, weight);
    }
    derived::add(metadata, mapped, &mut stored)?;
    // Matrices have their outputs first, whatever the checkpoint has.
    let names = Names {
        transposed: &[],
        ..names
    };
    Ok(Weights::new(metadata.file, names, stored, refused))
}

/// What becomes of the numbers of the tensor `name`, where a file has others than a checkpoint.
fn change(architecture: &Architecture, name: &str) -> Option<fn(f64) -> f64> {
    if architecture.about_one && name.ends_with("norm.weight") {
        return Some(|weight| weight - 1.0);
    }
    // Files have what the exponential of the logarithm is used for.
    name.ends_with("A_log")
        .then_some(|decay: f64| (-decay).ln())
}

/// Which row of the file a row of the weight is.
///
/// Files of Llama hold the rows of queries and keys so that rotary embedding turns neighbours;
/// published checkpoints, and the graphs here, turn element `i` with element `i + dim / 2`.
#[derive(Clone, Copy)]
enum RowOrder {
    Kept,
    Paired {
        head_dim: usize,
    },
    /// Files have all queries, then all keys, then all values; checkpoints have, for each key-value
    /// head, its queries, its key and its value.
    Grouped {
        heads: usize,
        kv_heads: usize,
        head_dim: usize,
    },
}

impl RowOrder {
    fn of(architecture: &Architecture, sizes: [usize; 3], tensor: &Described<'_>) -> Self {
        let [heads, kv_heads, head_dim] = sizes;
        let rows = tensor.shape.first().copied().unwrap_or(0);
        if architecture.grouped && tensor.checkpoint_name.contains(".query_key_value.") {
            let all = kv_heads
                .checked_mul(2)
                .and_then(|kv| kv.checked_add(heads)?.checked_mul(head_dim));
            return match all == Some(rows) && kv_heads > 0 {
                true => RowOrder::Grouped {
                    heads,
                    kv_heads,
                    head_dim,
                },
                false => RowOrder::Kept,
            };
        }
        let heads = if tensor.checkpoint_name.contains(".q_proj.") {
            heads
        } else if tensor.checkpoint_name.contains(".k_proj.") {
            kv_heads
        } else {
            return RowOrder::Kept;
        };
        // A wrong shape is reported when the graph asks for the tensor.
        match architecture.paired && heads.checked_mul(head_dim) == Some(rows) {
            true => RowOrder::Paired { head_dim },
            false => RowOrder::Kept,
        }
    }

    fn of_row(self, row: usize) -> usize {
        match self {
            RowOrder::Kept => row,
            RowOrder::Paired { head_dim } => {
                let half = head_dim / 2;
                let (head, within) = (row / head_dim, row % head_dim);
                head * head_dim + 2 * (within % half) + within / half
            }
            RowOrder::Grouped {
                heads,
                kv_heads,
                head_dim,
            } => {
                let queries = heads / kv_heads;
                let (head, within) = (row / head_dim, row % head_dim);
                let (group, place) = (head / (queries + 2), head % (queries + 2));
                let head = match place {
                    place if place < queries => group * queries + place,
                    place => heads + (place - queries) * kv_heads + group,
                };
                head * head_dim + within
            }
        }
    }
}
