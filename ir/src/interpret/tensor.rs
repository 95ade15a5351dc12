//! Tensors of the interpreter.

use super::Float;
use crate::{DType, HostTensor};
use std::sync::Arc;

/// The elements of a tensor. Floats of every width are held in `F`, integers of both kinds in i64.
#[derive(Clone, Debug, PartialEq)]
pub enum Elements<F> {
    /// Floating-point numbers.
    Float(Vec<F>),
    /// Integers.
    Integer(Vec<i64>),
    /// Truth values.
    Bool(Vec<bool>),
}

/// A tensor, row-major. Copies share their elements.
#[derive(Clone, Debug)]
pub struct Tensor<F> {
    /// The element type.
    pub dtype: DType,
    /// The dimensions.
    pub shape: Vec<usize>,
    /// The elements.
    pub elements: Arc<Elements<F>>,
}

impl<F: Float> Tensor<F> {
    pub(crate) fn new(dtype: DType, shape: Vec<usize>, elements: Elements<F>) -> Self {
        Self {
            dtype,
            shape,
            elements: Arc::new(elements),
        }
    }

    /// A tensor of floats, rounded to `dtype`.
    pub(crate) fn float(dtype: DType, shape: Vec<usize>, mut elements: Vec<F>) -> Self {
        if dtype != DType::F32 {
            for element in &mut elements {
                *element = element.rounded(dtype);
            }
        }
        Self::new(dtype, shape, Elements::Float(elements))
    }

    pub(crate) fn from_host(host: &HostTensor) -> Self {
        let numbers = host.to_f64();
        let elements = match host.dtype {
            DType::Bool => Elements::Bool(numbers.iter().map(|&x| x != 0.0).collect()),
            DType::I32 | DType::U32 => {
                Elements::Integer(numbers.iter().map(|&x| x as i64).collect())
            }
            DType::F16 | DType::BF16 | DType::F32 => {
                Elements::Float(numbers.iter().map(|&x| F::from_f64(x)).collect())
            }
        };
        Self::new(host.dtype, host.shape.clone(), elements)
    }

    pub(crate) fn floats(&self) -> Result<&[F], String> {
        match &*self.elements {
            Elements::Float(elements) => Ok(elements),
            _ => Err(format!("expected floats, got {}", self.dtype)),
        }
    }

    pub(crate) fn integers(&self) -> Result<&[i64], String> {
        match &*self.elements {
            Elements::Integer(elements) => Ok(elements),
            _ => Err(format!("expected integers, got {}", self.dtype)),
        }
    }

    pub(crate) fn bools(&self) -> Result<&[bool], String> {
        match &*self.elements {
            Elements::Bool(elements) => Ok(elements),
            _ => Err(format!("expected truth values, got {}", self.dtype)),
        }
    }

    /// The elements as f64 (truth values are 0 and 1).
    pub fn to_f64(&self) -> Vec<f64> {
        match &*self.elements {
            Elements::Float(elements) => elements.iter().map(|x| x.to_f64()).collect(),
            Elements::Integer(elements) => elements.iter().map(|&x| x as f64).collect(),
            Elements::Bool(elements) => elements.iter().map(|&x| f64::from(x)).collect(),
        }
    }

    /// The elements as f32 (truth values are 0 and 1).
    pub fn to_f32(&self) -> Vec<f32> {
        self.to_f64().into_iter().map(|x| x as f32).collect()
    }

    /// The tensor in its own element type.
    pub fn to_host(&self) -> HostTensor {
        let numbers = self.to_f64();
        let bytes = match self.dtype {
            DType::Bool => numbers.iter().map(|&x| u8::from(x != 0.0)).collect(),
            DType::I32 => numbers
                .iter()
                .flat_map(|&x| (x as i32).to_le_bytes())
                .collect(),
            DType::U32 => numbers
                .iter()
                .flat_map(|&x| (x as u32).to_le_bytes())
                .collect(),
            DType::F16 => numbers
                .iter()
                .flat_map(|&x| half::f16::from_f64(x).to_le_bytes())
                .collect(),
            DType::BF16 => numbers
                .iter()
                .flat_map(|&x| half::bf16::from_f64(x).to_le_bytes())
                .collect(),
            DType::F32 => numbers
                .iter()
                .flat_map(|&x| (x as f32).to_le_bytes())
                .collect(),
        };
        HostTensor {
            dtype: self.dtype,
            shape: self.shape.clone(),
            bytes,
        }
    }
}

/// How many elements lie between neighbours along each dimension of a row-major tensor.
pub(crate) fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for dim in (1..shape.len()).rev() {
        strides[dim - 1] = strides[dim] * shape[dim];
    }
    strides
}

/// Element `offset + Σ index[dim] * strides[dim]` for every index of `shape`, row-major.
pub(crate) fn strided<T: Copy>(
    from: &[T],
    shape: &[usize],
    strides: &[usize],
    offset: usize,
) -> Vec<T> {
    let count: usize = shape.iter().product();
    let mut elements = Vec::with_capacity(count);
    let Some((&width, outer)) = shape.split_last() else {
        return from.get(offset).copied().into_iter().collect();
    };
    if count == 0 {
        return elements;
    }
    let step = strides[outer.len()];
    let mut index = vec![0; outer.len()];
    let mut position = offset;
    loop {
        elements.extend((0..width).map(|i| from[position + i * step]));
        let mut dim = outer.len();
        loop {
            if dim == 0 {
                return elements;
            }
            dim -= 1;
            index[dim] += 1;
            position += strides[dim];
            if index[dim] < outer[dim] {
                break;
            }
            position -= strides[dim] * outer[dim];
            index[dim] = 0;
        }
    }
}
