//! An adapter's changes, put into a model's weights.

use super::{Adapter, Change, Changes, read};
use crate::LoadError;
use crate::convert;
use crate::weights::{Bytes, Stored, Weights, Words};
use mlxcel_ir::{DType, Graph, WeightDecl, WeightFormat};
use rayon::prelude::*;
use std::path::Path;

/// Puts the changes of `adapter` into `weights`: a dense weight is changed itself, unless `adapter`
/// is to be separate; beside any other one stand the matrices of the change.
///
/// # Errors
/// An adapter that cannot be read, or that has a layer that the model has not, or has in another
/// shape. All is checked before the first change.
pub(crate) fn apply(weights: &mut Weights, adapter: &Adapter) -> Result<(), LoadError> {
    if !adapter.scale.is_finite() {
        let reason = format!("cannot be scaled by {}", adapter.scale);
        return Err(LoadError::NotAnAdapter {
            path: adapter.path.clone(),
            reason,
        });
    }
    let Changes {
        config,
        file,
        changes,
    } = read(&adapter.path)?;
    let mut checked = Vec::with_capacity(changes.len());
    for (module, change) in changes {
        let mut module = weights.rules.module(&module);
        // One trained on the model without its head names no root.
        let rooted = weights.rules.rooted(&module);
        let has = |module: &str| weights.stored.contains_key(&format!("{module}.weight"));
        if !has(&module) && has(&rooted) {
            module = rooted;
        }
        check(weights, file.path(), &module, &change)?;
        checked.push((module, change));
    }
    if adapter.scale == 0.0 {
        return Ok(());
    }
    for (module, change) in checked {
        let scale = (change.scale * adapter.scale) as f32;
        let name = format!("{module}.weight");
        let is_turned = weights.is_transposed(&name);
        let Some(stored) = weights.stored.get(&name) else {
            continue;
        };
        match stored.declaration.format {
            WeightFormat::Dense(dtype) if !adapter.separate => {
                let old = weights.bytes(&stored.values);
                let values = match is_turned {
                    false => fused(dtype, old, &change, scale),
                    // `(B A)` transposed is `A` transposed times `B` transposed.
                    true => {
                        let (a, b) = (change.b.transposed(), change.a.transposed());
                        fused(dtype, old, &Change { a, b, ..change }, scale)
                    }
                };
                if let Some(stored) = weights.stored.get_mut(&name) {
                    stored.values = Bytes::Owned(values);
                }
            }
            _ => {
                let [a, b] = part_names(&module);
                let a = stored_part(
                    file.path(),
                    a,
                    [change.a.rows, change.a.columns],
                    change.a.scaled(1.0),
                );
                let b = stored_part(
                    file.path(),
                    b,
                    [change.b.rows, change.b.columns],
                    change.b.scaled(scale),
                );
                for part in [a, b] {
                    weights.stored.insert(part.declaration.name.clone(), part);
                }
                weights.adapted.insert(name);
            }
        }
    }
    weights.recipe.extend(config);
    weights.recipe.extend(adapter.scale.to_le_bytes());
    weights.ingredients.push(file);
    Ok(())
}

/// Names of the weights that stand for a change beside that of `module`: `A`, and `B` scaled.
pub(crate) fn part_names(module: &str) -> [String; 2] {
    ["a", "b"].map(|part| format!("{module}.lora_{part}.weight"))
}

fn stored_part(file: &Path, name: String, shape: [usize; 2], values: Words) -> Stored {
    Stored {
        file: file.to_path_buf(),
        declaration: WeightDecl {
            name,
            shape: shape.to_vec(),
            format: WeightFormat::Dense(DType::F32),
        },
        values: Bytes::Owned(values),
        scales: Bytes::Empty,
        biases: Bytes::Empty,
    }
}

/// Whether the model has the layer `module`, in the shape that `change` is for.
fn check(weights: &Weights, file: &Path, module: &str, change: &Change) -> Result<(), LoadError> {
    let fail = |reason: String| LoadError::Tensor {
        file: file.to_path_buf(),
        tensor: change.tensor.clone(),
        reason,
    };
    let name = format!("{module}.weight");
    let Some(stored) = weights.stored.get(&name) else {
        let model = weights.path.display();
        return Err(fail(format!(
            "is for `{name}`, which {model} does not have"
        )));
    };
    let mut shape = [change.b.rows, change.a.columns];
    if weights.is_transposed(&name) {
        shape.reverse();
    }
    let has = &stored.declaration.shape;
    if has[..] != shape {
        return Err(fail(format!(
            "is for `{name}` of shape {shape:?}, which has {has:?}"
        )));
    }
    // What changes the embedding alone cannot be told from what changes the head, if both are one.
    if change.tensor.contains("lora_embedding") && !weights.has_head() {
        return Err(fail(format!(
            "is for `{name}`, which is the head of this model too"
        )));
    }
    Ok(())
}

/// The dense weight `old` plus `scale B A`, rounded once.
fn fused(dtype: DType, old: &[u8], change: &Change, scale: f32) -> Words {
    let (columns, rank) = (change.a.columns, change.a.rows);
    let mut values = Words::zeros(old.len());
    let row = columns * dtype.size();
    if row == 0 {
        return values;
    }
    let rows = values.bytes_mut().par_chunks_mut(row);
    rows.zip(old.par_chunks(row))
        .enumerate()
        .for_each(|(index, (to, from))| {
            let mut delta = vec![0f32; columns];
            let factors = &change.b.values[index * rank..][..rank];
            for (factor, a) in factors.iter().zip(change.a.values.chunks_exact(columns)) {
                for (delta, a) in delta.iter_mut().zip(a) {
                    *delta += factor * a;
                }
            }
            let old = convert::to_f32(dtype, from).unwrap_or_default();
            let elements = to.chunks_exact_mut(dtype.size());
            for (to, (old, delta)) in elements.zip(old.iter().zip(delta)) {
                convert::write(dtype, old + scale * delta, to);
            }
        });
    values
}

/// Whether `graph` has all that `weights` keep of an adapter beside their own.
///
/// # Errors
/// A layer that an adapter changes is no linear layer in the graph: its change would be lost.
pub(crate) fn check_used(weights: &Weights, graph: &Graph) -> Result<(), LoadError> {
    for name in &weights.adapted {
        let module = name.strip_suffix(".weight").unwrap_or(name);
        let [a, _] = part_names(module);
        if !graph.weights.iter().any(|weight| weight.name == a) {
            return Err(LoadError::Tensor {
                file: weights.path.clone(),
                tensor: name.clone(),
                reason:
                    "is changed by the adapter, but is quantised and not a linear layer of this \
                         family's graph; use the model that is not quantised"
                        .into(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Checkpoint;
    use crate::config::Quantization;
    use crate::weights::names::Names;
    use mlxcel_ir::WeightSource;
    use mlxcel_test_support::{NewTensor, write_tensors};

    /// Weights of `tensors` with an adapter of rank 1 on the layer `m`, `A` and `B` given.
    fn weights(tensors: &[NewTensor], names: Names, a: &[f32], b: &[f32]) -> Weights {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path();
        write_tensors(&path.join("model.safetensors"), tensors);
        let halves = [
            NewTensor::f32("base_model.model.m.lora_A.weight", &[1, a.len()], a),
            NewTensor::f32("base_model.model.m.lora_B.weight", &[b.len(), 1], b),
        ];
        write_tensors(&path.join("adapter_model.safetensors"), &halves);
        std::fs::write(
            path.join("adapter_config.json"),
            r#"{"r": 1, "lora_alpha": 1}"#,
        )
        .expect("written");
        let quantization = Quantization::affine(4, 32);
        let checkpoint = Checkpoint::open(path);
        let mut weights = Weights::assemble(
            checkpoint.expect("a checkpoint"),
            Some(&quantization),
            names,
        )
        .expect("weights");
        apply(&mut weights, &Adapter::new(path)).unwrap_or_else(|error| panic!("{error}"));
        weights
    }

    #[test]
    fn a_transposed_weight_takes_a_transposed_change() {
        let names = Names {
            root: "t",
            transposed: &["m.weight"],
        };
        let stored = NewTensor::f32("t.m.weight", &[2, 3], &[0.0; 6]);
        let weights = weights(&[stored], names, &[1.0, 2.0], &[3.0, 5.0, 7.0]);
        let values = weights.get("t.m.weight^T").expect("its bytes").values;
        assert_eq!(
            bytemuck::cast_slice::<u8, f32>(values),
            [3.0, 6.0, 5.0, 10.0, 7.0, 14.0]
        );
    }

    #[test]
    fn rows_of_a_quantised_weight_take_rows_of_the_change() {
        let stored = [
            NewTensor::u32("model.m.weight", &[3, 4], &[0; 12]),
            NewTensor::f32("model.m.scales", &[3, 1], &[0.0; 3]),
            NewTensor::f32("model.m.biases", &[3, 1], &[0.0; 3]),
        ];
        let weights = weights(&stored, Names::MODEL, &[1.0; 32], &[3.0, 5.0, 7.0]);
        let check = |name: &str, expect: &[f32]| {
            let [_, b] = weights.low_rank(name).expect("no error").expect("a change");
            assert_eq!(b.shape, [expect.len(), 1]);
            let values = weights.get(&b.name).expect("its bytes").values;
            assert_eq!(bytemuck::cast_slice::<u8, f32>(values), expect, "{name}");
        };
        check("model.m.weight", &[3.0, 5.0, 7.0]);
        check("model.m.weight[1..3]", &[5.0, 7.0]);
        check("model.m.weight[0..3:2]", &[3.0, 7.0]);
        assert!(
            weights
                .low_rank("model.n.weight")
                .expect("no error")
                .is_none()
        );
        let error = weights
            .low_rank("model.m.weight(1,3,32)")
            .expect_err("no change follows");
        assert!(error.to_string().contains("model.m.weight"), "{error}");
    }
}
