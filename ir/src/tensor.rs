//! Tensors in host memory: what goes into an execution of a graph and what comes out.

use crate::DType;

/// A tensor in host memory, row-major, little-endian.
#[derive(Clone, Debug, PartialEq)]
pub struct HostTensor {
    /// The element type.
    pub dtype: DType,
    /// The dimensions, outermost first.
    pub shape: Vec<usize>,
    /// The elements.
    pub bytes: Vec<u8>,
}

impl HostTensor {
    /// A tensor of the given numbers, each rounded to `dtype`.
    pub fn from_f64(dtype: DType, shape: Vec<usize>, numbers: &[f64]) -> Self {
        Self {
            dtype,
            shape,
            bytes: Self::bytes_of(dtype, numbers),
        }
    }

    /// Numbers as the bytes of elements of type `dtype`.
    pub fn bytes_of(dtype: DType, numbers: &[f64]) -> Vec<u8> {
        let numbers = numbers.iter().copied();
        match dtype {
            DType::Bool => numbers.map(|x| u8::from(x != 0.0)).collect(),
            DType::I32 => numbers.flat_map(|x| (x as i32).to_le_bytes()).collect(),
            DType::U32 => numbers.flat_map(|x| (x as u32).to_le_bytes()).collect(),
            DType::F16 => numbers
                .flat_map(|x| half::f16::from_f64(x).to_le_bytes())
                .collect(),
            DType::BF16 => numbers
                .flat_map(|x| half::bf16::from_f64(x).to_le_bytes())
                .collect(),
            DType::F32 => numbers.flat_map(|x| (x as f32).to_le_bytes()).collect(),
        }
    }

    /// A tensor of i32.
    ///
    /// # Panics
    /// If `values` does not fill `shape`.
    pub fn i32(shape: impl Into<Vec<usize>>, values: &[i32]) -> Self {
        Self::of(DType::I32, shape.into(), bytemuck::cast_slice(values))
    }

    /// A tensor of f32.
    ///
    /// # Panics
    /// If `values` does not fill `shape`.
    pub fn f32(shape: impl Into<Vec<usize>>, values: &[f32]) -> Self {
        Self::of(DType::F32, shape.into(), bytemuck::cast_slice(values))
    }

    fn of(dtype: DType, shape: Vec<usize>, bytes: &[u8]) -> Self {
        let elements: usize = shape.iter().product();
        assert_eq!(elements * dtype.size(), bytes.len(), "shape {shape:?}");
        Self {
            dtype,
            shape,
            bytes: bytes.to_vec(),
        }
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// The elements as f64, whatever their type (truth values are 0 and 1).
    pub fn to_f64(&self) -> Vec<f64> {
        fn read<const N: usize>(bytes: &[u8], f: impl Fn([u8; N]) -> f64) -> Vec<f64> {
            bytes
                .chunks_exact(N)
                .map(|chunk| f(chunk.try_into().unwrap_or([0; N])))
                .collect()
        }
        match self.dtype {
            DType::Bool => read(&self.bytes, |[byte]: [u8; 1]| f64::from(byte != 0)),
            DType::I32 => read(&self.bytes, |b| f64::from(i32::from_le_bytes(b))),
            DType::U32 => read(&self.bytes, |b| f64::from(u32::from_le_bytes(b))),
            DType::F16 => read(&self.bytes, |b| half::f16::from_le_bytes(b).to_f64()),
            DType::BF16 => read(&self.bytes, |b| half::bf16::from_le_bytes(b).to_f64()),
            DType::F32 => read(&self.bytes, |b| f64::from(f32::from_le_bytes(b))),
        }
    }
}
