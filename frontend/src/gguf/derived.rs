//! Tensors of a checkpoint that a file holds in another form.

use super::Metadata;
use crate::LoadError;
use crate::map::MappedFile;
use crate::weights::{Bytes, Stored};
use mlxcel_ir::weight::dequantize;
use mlxcel_ir::{DType, WeightData, WeightDecl, WeightFormat};
use std::collections::HashMap;

/// Adds them to `stored`, the weights in the files `mapped`.
pub(super) fn add(
    metadata: &Metadata<'_>,
    mapped: &[MappedFile],
    stored: &mut HashMap<String, Stored>,
) -> Result<(), LoadError> {
    join_latents(metadata, mapped, stored)?;
    add_slopes(metadata, stored)
}

fn dense(metadata: &Metadata<'_>, name: String, shape: Vec<usize>, numbers: &[f32]) -> Stored {
    Stored {
        file: metadata.file.to_path_buf(),
        declaration: WeightDecl {
            name,
            shape,
            format: WeightFormat::Dense(DType::F32),
        },
        values: Bytes::owned(bytemuck::cast_slice(numbers)),
        scales: Bytes::Empty,
        biases: Bytes::Empty,
    }
}

/// The name of a layer's part of keys in the file's form, and of values;
const PARTS: [&str; 2] = [".self_attn.k_b_proj.weight", ".self_attn.v_b_proj.weight"];
/// and of both together in a checkpoint.
const JOINED: &str = ".self_attn.kv_b_proj.weight";

/// Latent attention: files have keys `[heads, latent, plain]` and values `[heads, value, latent]` where
/// checkpoints have `[heads * (plain + value), latent]`. A transposed matrix in blocks has no blocks, so
/// the joined one holds the numbers of the codes as f32.
fn join_latents(
    metadata: &Metadata<'_>,
    mapped: &[MappedFile],
    stored: &mut HashMap<String, Stored>,
) -> Result<(), LoadError> {
    let layers: Vec<String> = stored
        .keys()
        .filter_map(|name| name.strip_suffix(PARTS[0]).map(String::from))
        .collect();
    for layer in layers {
        let names = PARTS.map(|part| format!("{layer}{part}"));
        let fail = |reason: String| LoadError::Tensor {
            file: metadata.file.to_path_buf(),
            tensor: names[0].clone(),
            reason,
        };
        let parts = names.each_ref().map(|name| stored.remove(name));
        let [Some(keys), Some(values)] = parts else {
            return Err(fail(format!("is there without `{}`", names[1])));
        };
        let shapes = [&keys, &values].map(|part| part.declaration.shape.clone());
        let (&[heads, latent, plain], &[others, value, width]) = (&shapes[0][..], &shapes[1][..])
        else {
            return Err(fail(
                "must have three dimensions, as its values must".into(),
            ));
        };
        if (heads, latent) != (others, width) {
            return Err(fail(format!(
                "{:?} does not fit {:?}",
                shapes[0], shapes[1]
            )));
        }
        let keys = numbers(mapped, &keys).map_err(&fail)?;
        let values = numbers(mapped, &values).map_err(&fail)?;
        let rows = plain + value;
        let mut joined = vec![0.0f32; heads * rows * latent];
        for (index, row) in joined.chunks_exact_mut(latent.max(1)).enumerate() {
            let (head, place) = (index / rows, index % rows);
            match place.checked_sub(plain) {
                Some(place) => {
                    let start = (head * value + place) * latent;
                    row.copy_from_slice(&values[start..start + latent]);
                }
                None => {
                    let start = head * latent * plain + place;
                    let column = keys[start..].iter().step_by(plain.max(1));
                    row.iter_mut()
                        .zip(column)
                        .for_each(|(to, from)| *to = *from);
                }
            }
        }
        let name = format!("{layer}{JOINED}");
        let weight = dense(metadata, name.clone(), vec![heads * rows, latent], &joined);
        stored.insert(name, weight);
    }
    Ok(())
}

/// What the codes of `weight` stand for.
fn numbers(mapped: &[MappedFile], weight: &Stored) -> Result<Vec<f32>, String> {
    let part = |bytes: &'_ Bytes| match bytes {
        Bytes::Mapped { file, range } => {
            let bytes = mapped.get(*file).map(MappedFile::bytes);
            let bytes = bytes.and_then(|bytes| bytes.get(range.clone()));
            bytes.unwrap_or(&[]).to_vec()
        }
        Bytes::Owned(words) => words.bytes().to_vec(),
        Bytes::Empty => Vec::new(),
    };
    let [values, scales, biases] = [&weight.values, &weight.scales, &weight.biases].map(part);
    let data = WeightData {
        values: &values,
        scales: &scales,
        biases: &biases,
    };
    dequantize(&weight.declaration, data)
}

/// The slopes of xIELU, which files keep for all layers in their metadata.
fn add_slopes(
    metadata: &Metadata<'_>,
    stored: &mut HashMap<String, Stored>,
) -> Result<(), LoadError> {
    for name in ["alpha_p", "alpha_n"] {
        let field = format!("xielu.{name}");
        let Some(value) = metadata.get(&field) else {
            continue;
        };
        let slopes = value
            .floats()
            .ok_or_else(|| metadata.error(&field, "must be a list of numbers"))?;
        for (layer, slope) in slopes.enumerate() {
            let name = format!("model.layers.{layer}.mlp.act_fn.{name}");
            stored.insert(name.clone(), dense(metadata, name, vec![1], &[slope]));
        }
    }
    Ok(())
}
