//! The tensors of a safetensors file, as tests compare them.

use std::fs;
use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors};

/// A safetensors file, read whole. Its functions panic, naming file and tensor: it is for tests.
#[derive(Debug)]
pub struct Tensors {
    path: PathBuf,
    bytes: Vec<u8>,
}

/// A tensor of f32 and its shape.
#[derive(Debug, Clone, PartialEq)]
pub struct F32Tensor {
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Elements, row-major.
    pub values: Vec<f32>,
}

impl Tensors {
    /// Reads the file at `path`.
    pub fn read(path: &Path) -> Self {
        let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self {
            path: path.to_owned(),
            bytes,
        }
    }

    /// The names of all tensors, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.parsed().names().into_iter().map(Into::into).collect();
        names.sort();
        names
    }

    /// The f32 tensor called `name`.
    pub fn f32(&self, name: &str) -> F32Tensor {
        let (shape, bytes) = self.tensor(name, Dtype::F32);
        let elements = bytes.as_chunks::<4>().0.iter();
        F32Tensor {
            shape,
            values: elements.map(|bytes| f32::from_le_bytes(*bytes)).collect(),
        }
    }

    /// The elements of the i32 tensor called `name` as token ids.
    pub fn tokens(&self, name: &str) -> Vec<u32> {
        let (_, bytes) = self.tensor(name, Dtype::I32);
        let elements = bytes.as_chunks::<4>().0.iter();
        elements.map(|bytes| u32::from_le_bytes(*bytes)).collect()
    }

    /// The dimensions of the tensor called `name`, whatever its elements.
    pub fn shape(&self, name: &str) -> Vec<usize> {
        let parsed = self.parsed();
        let tensor = parsed
            .tensor(name)
            .unwrap_or_else(|error| panic!("{}: {name}: {error}", self.path.display()));
        tensor.shape().to_vec()
    }

    fn parsed(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.bytes)
            .unwrap_or_else(|error| panic!("{}: {error}", self.path.display()))
    }

    fn tensor(&self, name: &str, dtype: Dtype) -> (Vec<usize>, Vec<u8>) {
        let parsed = self.parsed();
        let place = self.path.display();
        let tensor = parsed
            .tensor(name)
            .unwrap_or_else(|error| panic!("{place}: {name}: {error}"));
        assert_eq!(tensor.dtype(), dtype, "{place}: {name}");
        (tensor.shape().to_vec(), tensor.data().to_vec())
    }
}

/// How far `values` are from `expect`: the root of the summed squared differences, relative to that of `expect`.
/// Infinite if a value is no number.
///
/// # Panics
/// If the lengths differ.
pub fn relative_error(values: &[f32], expect: &[f32]) -> f64 {
    assert_eq!(values.len(), expect.len(), "as many values as expected");
    let square = |value: f64| value * value;
    let pairs = values.iter().zip(expect);
    let error: f64 = pairs
        .map(|(&value, &expect)| square(f64::from(value) - f64::from(expect)))
        .sum();
    let size: f64 = expect.iter().map(|&value| square(f64::from(value))).sum();
    match (error / size).sqrt() {
        ratio if ratio.is_nan() => f64::INFINITY,
        ratio => ratio,
    }
}
