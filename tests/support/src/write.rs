//! Writing the small checkpoints that tests make up.

use std::fs;
use std::path::Path;

use serde_json::{Map, json};

/// A tensor for [`write_tensors`].
#[derive(Debug, Clone, PartialEq)]
pub struct NewTensor {
    /// Its name.
    pub name: String,
    /// Its element type as safetensors names it: `F32`, `BF16`, `U32`.
    pub dtype: &'static str,
    /// Its dimensions.
    pub shape: Vec<usize>,
    /// Its elements, little-endian, row-major.
    pub bytes: Vec<u8>,
}

impl NewTensor {
    /// A tensor of f32.
    pub fn f32(name: &str, shape: &[usize], values: &[f32]) -> Self {
        Self {
            name: name.into(),
            dtype: "F32",
            shape: shape.to_vec(),
            bytes: values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect(),
        }
    }

    /// A tensor of u32.
    pub fn u32(name: &str, shape: &[usize], values: &[u32]) -> Self {
        Self {
            name: name.into(),
            dtype: "U32",
            shape: shape.to_vec(),
            bytes: values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect(),
        }
    }
}

/// Writes the safetensors file `path`, its data in the order of `tensors`.
///
/// # Panics
/// If the file cannot be written.
pub fn write_tensors(path: &Path, tensors: &[NewTensor]) {
    let (mut header, mut data) = (Map::new(), Vec::new());
    for tensor in tensors {
        let start = data.len();
        data.extend_from_slice(&tensor.bytes);
        let offsets = [start, data.len()];
        let description =
            json!({"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": offsets});
        header.insert(tensor.name.clone(), description);
    }
    let mut header = json!(header).to_string();
    // Padded as published files are, so that the data is aligned.
    while !header.len().is_multiple_of(8) {
        header.push(' ');
    }
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(&data);
    fs::write(path, file).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
