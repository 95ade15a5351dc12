//! A graph under construction with random inputs and weights.

use mlxcel_ir::weight::PartType;
use mlxcel_ir::{
    Bindings, Builder, DType, Dim, Graph, HostTensor, StateDecl, StateId, StateKind, TensorType,
    ValueId, WeightData, WeightDecl, WeightFormat, WeightId, WeightSource,
};
use std::collections::HashMap;

/// Weights in memory.
#[derive(Default)]
pub(crate) struct Weights(HashMap<String, [Vec<u8>; 3]>);

impl WeightSource for Weights {
    fn get(&self, name: &str) -> Option<WeightData<'_>> {
        self.0.get(name).map(|[values, scales, biases]| WeightData {
            values,
            scales,
            biases,
        })
    }
}

/// A builder and what the graph will be run with.
pub(crate) struct Setting {
    pub(crate) builder: Builder,
    pub(crate) weights: Weights,
    inputs: Vec<(String, HostTensor)>,
    seed: u64,
}

pub(crate) const B: Dim = Dim::Symbol(mlxcel_ir::Symbol::B);
pub(crate) const T: Dim = Dim::Symbol(mlxcel_ir::Symbol::T);
pub(crate) const S: Dim = Dim::Symbol(mlxcel_ir::Symbol::S);

pub(crate) fn n(size: usize) -> Dim {
    Dim::Fixed(size)
}

fn sizes(bindings: &Bindings, shape: &[Dim]) -> Vec<usize> {
    TensorType::new(DType::F32, shape.iter().copied())
        .sizes(bindings)
        .unwrap()
}

impl Setting {
    pub(crate) fn new(name: &str) -> Self {
        let seed = name.bytes().fold(7u64, |seed, byte| {
            seed.wrapping_mul(31).wrapping_add(u64::from(byte))
        });
        Self {
            builder: Builder::new(name),
            weights: Weights::default(),
            inputs: Vec::new(),
            seed,
        }
    }

    pub(crate) fn finish(self) -> (Graph, Weights, Vec<(String, HostTensor)>) {
        (self.builder.finish(), self.weights, self.inputs)
    }

    fn random(&mut self) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        self.seed >> 33
    }

    /// A number in `low..high`.
    fn number(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.random() as f64 / (1u64 << 31) as f64
    }

    fn bytes(&mut self, dtype: DType, count: usize, low: f64, high: f64) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..count {
            let x = self.number(low, high);
            match dtype {
                DType::Bool => bytes.push(u8::from(x > 0.0)),
                DType::I32 => bytes.extend((x.floor() as i32).to_le_bytes()),
                DType::U32 => bytes.extend((x.floor() as u32).to_le_bytes()),
                DType::F16 => bytes.extend(half::f16::from_f64(x).to_le_bytes()),
                DType::BF16 => bytes.extend(half::bf16::from_f64(x).to_le_bytes()),
                DType::F32 => bytes.extend((x as f32).to_le_bytes()),
            }
        }
        bytes
    }

    /// An input with numbers in `low..high`.
    pub(crate) fn input(&mut self, dtype: DType, shape: &[Dim], low: f64, high: f64) -> ValueId {
        let sizes = sizes(&crate::bindings(), shape);
        let bytes = self.bytes(dtype, sizes.iter().product(), low, high);
        self.given(
            shape,
            HostTensor {
                dtype,
                shape: sizes,
                bytes,
            },
        )
    }

    /// An input of floats around zero.
    pub(crate) fn f32(&mut self, shape: &[Dim]) -> ValueId {
        self.input(DType::F32, shape, -3.0, 3.0)
    }

    /// An input of the given numbers.
    pub(crate) fn i32(&mut self, shape: &[Dim], values: &[i32]) -> ValueId {
        let sizes = sizes(&crate::bindings(), shape);
        self.given(shape, HostTensor::i32(sizes, values))
    }

    /// An input of the given numbers.
    pub(crate) fn floats(&mut self, values: &[f32]) -> ValueId {
        self.given(&[n(values.len())], HostTensor::f32([values.len()], values))
    }

    fn given(&mut self, shape: &[Dim], tensor: HostTensor) -> ValueId {
        let name = format!("x{}", self.inputs.len());
        let ty = TensorType::new(tensor.dtype, shape.iter().copied());
        self.inputs.push((name.clone(), tensor));
        self.builder.input(name, ty)
    }

    /// A weight with random numbers.
    pub(crate) fn weight(&mut self, shape: &[usize], format: WeightFormat) -> WeightId {
        let declaration = WeightDecl {
            name: format!("w{}", self.weights.0.len()),
            shape: shape.to_vec(),
            format,
        };
        let parts = match format {
            WeightFormat::Dense(dtype) => {
                let values = self.bytes(dtype, declaration.elements(), -1.0, 1.0);
                [values, Vec::new(), Vec::new()]
            }
            WeightFormat::Affine { scale, .. } => {
                let [values, sides, _] = declaration.part_bytes();
                let codes = (0..values).map(|_| self.random() as u8).collect();
                let count = sides / scale.size();
                let scales = self.bytes(scale, count, 0.01, 0.1);
                let biases = self.bytes(scale, count, -0.8, 0.0);
                [codes, scales, biases]
            }
            _ => {
                let parts = declaration.parts();
                let mut place = 0;
                parts.map(|part| {
                    place += 1;
                    let count = part.bytes() / part.element.size();
                    match part.element {
                        PartType::Element(dtype) if dtype.is_float() => {
                            self.bytes(dtype, count, 0.01, 0.1)
                        }
                        _ => (0..part.bytes())
                            .map(|_| match (place, format) {
                                // Exponents from 2^-7 on, or numbers below 1.
                                (2, WeightFormat::NvFp4) => self.random() as u8 % 0x38,
                                (2, _) => 120 + self.random() as u8 % 5,
                                // No NaN.
                                (1, _) => self.random() as u8 & 0xfb,
                                _ => self.random() as u8 & 0x3f,
                            })
                            .collect(),
                    }
                })
            }
        };
        self.weights.0.insert(declaration.name.clone(), parts);
        self.builder.weight(declaration)
    }

    /// A dense f32 weight.
    pub(crate) fn dense(&mut self, shape: &[usize]) -> WeightId {
        self.weight(shape, WeightFormat::Dense(DType::F32))
    }

    /// A key-value cache.
    pub(crate) fn state(&mut self, heads: usize, width: usize) -> StateId {
        self.builder.state(StateDecl {
            name: "cache".into(),
            heads,
            kind: StateKind::Cache,
            key_dim: width,
            value_dim: width,
            dtype: DType::F32,
        })
    }

    /// A memory.
    pub(crate) fn memory(&mut self, heads: usize, key_dim: usize, value_dim: usize) -> StateId {
        self.builder.state(StateDecl {
            name: format!("memory.{}", self.builder.graph().states.len()),
            kind: StateKind::Memory,
            heads,
            key_dim,
            value_dim,
            dtype: DType::F32,
        })
    }
}
