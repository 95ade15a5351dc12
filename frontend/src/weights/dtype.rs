//! Matrices in another element type than the checkpoint's.

use super::{Bytes, Weights, Words};
use crate::{LoadError, convert};
use mlxcel_ir::{DType, WeightFormat};

/// Numbers that are converted together: what bounds the memory beside the weight.
const CHUNK: usize = 1 << 20;

impl Weights {
    /// Has each dense weight of two dimensions or more as `dtype`, rounded to the nearest, as if it were stored so,
    /// and tells how many that changed. Vectors, such as norms and biases, stay: they take no room, and rounding
    /// them costs the most.
    ///
    /// # Errors
    /// A number that `dtype` has no room for: it would become infinite.
    pub(crate) fn convert(&mut self, dtype: DType) -> Result<usize, LoadError> {
        let differs = |format| matches!(format, WeightFormat::Dense(stored) if stored != dtype);
        let mut names: Vec<String> = self
            .stored
            .iter()
            .filter(|(_, stored)| stored.declaration.shape.len() > 1)
            .filter(|(_, stored)| differs(stored.declaration.format))
            .map(|(name, _)| name.clone())
            .collect();
        // In order, so that of several faults the same one is always reported.
        names.sort_unstable();
        for name in &names {
            let values = self.converted(name, dtype)?;
            if let Some(stored) = self.stored.get_mut(name) {
                stored.values = Bytes::Owned(values);
                stored.declaration.format = WeightFormat::Dense(dtype);
            }
        }
        if !names.is_empty() {
            self.recipe.extend(b"dtype ");
            self.recipe.extend(dtype.name().as_bytes());
        }
        Ok(names.len())
    }

    /// The numbers of the dense weight `name` as `dtype`.
    fn converted(&self, name: &str, dtype: DType) -> Result<Words, LoadError> {
        let Some(stored) = self.stored.get(name) else {
            return Ok(Words::zeros(0));
        };
        let WeightFormat::Dense(from) = stored.declaration.format else {
            return Ok(Words::zeros(0));
        };
        let bytes = self.bytes(&stored.values);
        let mut words = Words::zeros(bytes.len() / from.size() * dtype.size());
        let chunks = bytes.chunks(CHUNK * from.size());
        let rounded = words.bytes_mut().chunks_mut(CHUNK * dtype.size());
        for (chunk, to) in chunks.zip(rounded) {
            let numbers = convert::to_f32(from, chunk).unwrap_or_default();
            convert::write_all(dtype, &numbers, to);
            let kept = convert::to_f32(dtype, to).unwrap_or_default();
            let mut pairs = numbers.iter().zip(&kept);
            if let Some((number, _)) = pairs.find(|(a, b)| a.is_finite() && !b.is_finite()) {
                return Err(LoadError::Tensor {
                    file: stored.file.clone(),
                    tensor: name.into(),
                    reason: format!(
                        "has the number {number}, which {} has no room for; load it as bf16, or as it is stored",
                        dtype.name()
                    ),
                });
            }
        }
        Ok(words)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Stored;
    use super::super::names::Names;
    use super::*;
    use mlxcel_ir::WeightDecl;
    use std::collections::HashMap;
    use std::path::Path;

    /// Weights of a matrix `m` and a vector `v`, both with these numbers as `dtype`.
    fn weights(dtype: DType, numbers: &[f32]) -> Weights {
        let stored = [("m", vec![1, numbers.len()]), ("v", vec![numbers.len()])];
        let stored = stored.map(|(name, shape)| {
            let mut values = Words::zeros(numbers.len() * dtype.size());
            convert::write_all(dtype, numbers, values.bytes_mut());
            let stored = Stored {
                file: "model.safetensors".into(),
                declaration: WeightDecl {
                    name: name.into(),
                    shape,
                    format: WeightFormat::Dense(dtype),
                },
                values: Bytes::Owned(values),
                scales: Bytes::Empty,
                biases: Bytes::Empty,
            };
            (name.to_owned(), stored)
        });
        let path = Path::new("model");
        Weights::new(path, Names::MODEL, stored.into(), HashMap::new())
    }

    #[test]
    fn matrices_are_rounded_and_vectors_stay() {
        let check = |from: DType, to: DType, numbers: &[f32], expect: Result<&[f32], &str>| {
            let mut weights = weights(from, numbers);
            let before = weights.recipe.clone();
            let changed = weights.convert(to);
            match (changed, expect) {
                (Ok(changed), Ok(expect)) => {
                    assert_eq!(changed, usize::from(from != to), "{from} to {to}");
                    let stored = &weights.stored["m"];
                    assert_eq!(stored.declaration.format, WeightFormat::Dense(to));
                    let found = convert::to_f32(to, weights.bytes(&stored.values));
                    assert_eq!(found.as_deref(), Some(expect), "{from} to {to}");
                    let vector = &weights.stored["v"];
                    assert_eq!(vector.declaration.format, WeightFormat::Dense(from));
                    // What is kept of a model with other numbers must not be taken for this one's.
                    assert_eq!(weights.recipe == before, from == to);
                }
                (Err(error), Err(expect)) => {
                    let error = error.to_string();
                    assert!(error.contains(expect) && error.contains("`m`"), "{error}");
                }
                (changed, _) => panic!("{from} to {to}: {changed:?}"),
            }
        };
        use DType::{BF16, F16, F32};
        // Halfway between two neighbours goes to the even one; the last fits either type.
        let numbers = [1.0, 1.001_953_1, -3.0e-3, f32::INFINITY];
        check(F32, F32, &numbers, Ok(&numbers));
        check(
            F32,
            BF16,
            &numbers,
            Ok(&[1.0, 1.0, -3.005_981_4e-3, f32::INFINITY]),
        );
        check(
            F32,
            F16,
            &numbers,
            Ok(&[1.0, 1.001_953_1, -3.000_259_4e-3, f32::INFINITY]),
        );
        check(BF16, F32, &[0.5, 3.0], Ok(&[0.5, 3.0]));
        check(F16, BF16, &[0.5, 1.000_976_6], Ok(&[0.5, 1.0]));
        check(BF16, F16, &[2.0, 1e30], Err("no room"));
        check(F32, BF16, &[2.0, f32::MAX], Err("no room"));
    }
}
