//! Weights as arrays of MLX: mapped where MLX can compute with the stored form, converted once
//! where it cannot.

use crate::Error;
use mlxcel_ir::weight::{dequantize, panel};
use mlxcel_ir::{DType, Graph, WeightData, WeightDecl, WeightFormat, WeightSource};
use mlxcel_mlx_sys::{Array, Binary, Dtype, Stream, eval, memory, ops};
use std::sync::Arc;

/// A weight that MLX can compute with.
#[derive(Clone, Debug)]
pub(crate) enum Weight {
    /// Its numbers, f32.
    Dense(Array),
    /// Codes u32, scales and biases f32, in a form that MLX's quantised product takes.
    Affine {
        /// Packed codes `[N, K * bits / 32]`, of experts `[E, N, ...]`.
        codes: Array,
        /// `[N, K / group]`, of experts `[E, N, ...]`.
        scales: Array,
        /// As the scales.
        biases: Array,
        /// Numbers that share a scale.
        group: i32,
        /// Bits of a code.
        bits: i32,
    },
}

/// MLX's name of an element type.
pub(crate) fn dtype(dtype: DType) -> Dtype {
    match dtype {
        DType::Bool => Dtype::Bool,
        DType::I32 => Dtype::I32,
        DType::U32 => Dtype::U32,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::F32 => Dtype::F32,
    }
}

/// A shape as MLX takes it.
pub(crate) fn dims(shape: &[usize]) -> Result<Vec<i32>, String> {
    shape
        .iter()
        .map(|&size| i32::try_from(size).map_err(|_| format!("a dimension of {size} is too large")))
        .collect()
}

/// The parts of one weight, in memory of its own.
struct Rows([Vec<u8>; 3]);

impl WeightSource for Rows {
    fn get(&self, _: &str) -> Option<WeightData<'_>> {
        let [values, scales, biases] = &self.0;
        Some(WeightData {
            values,
            scales,
            biases,
        })
    }
}

/// Makes arrays of the weights of one source.
pub(crate) struct Loader<'a> {
    pub(crate) source: &'a Arc<dyn WeightSource>,
    pub(crate) stream: &'a Stream,
}

impl Loader<'_> {
    /// The weight that `declaration` describes.
    pub(crate) fn load(&self, graph: &Graph, declaration: &WeightDecl) -> Result<Weight, Error> {
        self.make(declaration).map_err(|reason| Error::Weight {
            graph: graph.name.clone(),
            weight: declaration.name.clone(),
            reason,
        })
    }

    fn make(&self, declaration: &WeightDecl) -> Result<Weight, String> {
        let data = self
            .source
            .get(&declaration.name)
            .ok_or("the checkpoint has no such weight")?;
        let sizes = [data.values.len(), data.scales.len(), data.biases.len()];
        if sizes != declaration.part_bytes() {
            return Err(format!(
                "takes {:?} bytes (values, scales, biases), has {sizes:?}",
                declaration.part_bytes()
            ));
        }
        if let Some(format) = declaration.format.of_rows() {
            return self.make_rows(declaration, format, data);
        }
        match declaration.format {
            WeightFormat::Panels { .. } => self.dense(declaration),
            WeightFormat::Dense(stored) => {
                let array = self.array(data.values, &declaration.shape, stored)?;
                Ok(Weight::Dense(self.float(array, stored)?))
            }
            WeightFormat::MxFp4
            | WeightFormat::MxFp8
            | WeightFormat::NvFp4
            | WeightFormat::Float { .. }
            | WeightFormat::Fp8Block { .. }
            | WeightFormat::KQuant { .. } => self.dense(declaration),
            WeightFormat::Affine { bits, group, scale }
            | WeightFormat::ZeroPoint {
                bits, group, scale, ..
            } => {
                // The forms that MLX's own product is compiled for.
                let known = [32, 64, 128].contains(&group) && [2, 3, 4, 5, 6, 8].contains(&bits);
                let Some((&width, outer)) = declaration.shape.split_last() else {
                    return self.dense(declaration);
                };
                let matrix = (1..=2).contains(&outer.len());
                if !known || !matrix || !(width * usize::from(bits)).is_multiple_of(32) {
                    return self.dense(declaration);
                }
                let words = width * usize::from(bits) / 32;
                let shape = |last: usize| [outer, &[last]].concat();
                let side = |bytes| {
                    let array = self.array(bytes, &shape(width / group), scale)?;
                    self.float(array, scale)
                };
                let scales = side(data.scales)?;
                let biases = match declaration.format {
                    WeightFormat::ZeroPoint { zero, .. } => self.below_zero(&scales, zero)?,
                    _ => side(data.biases)?,
                };
                Ok(Weight::Affine {
                    codes: self.array(data.values, &shape(words), DType::U32)?,
                    scales,
                    biases,
                    group: group as i32,
                    bits: i32::from(bits),
                })
            }
        }
    }

    /// A weight of panels, from a copy of it in `format`, row after row.
    fn make_rows(
        &self,
        declaration: &WeightDecl,
        format: WeightFormat,
        data: WeightData<'_>,
    ) -> Result<Weight, String> {
        let rows = declaration.elements() / declaration.shape.last().map_or(1, |&last| last.max(1));
        let parts = [data.values, data.scales, data.biases];
        let sizes = declaration.parts().map(|part| part.element.size());
        let part = |index: usize| panel::part_to_rows(index, parts[index], sizes[index], rows);
        let source: Arc<dyn WeightSource> = Arc::new(Rows([part(0), part(1), part(2)]));
        let loader = Loader {
            source: &source,
            stream: self.stream,
        };
        loader.make(&WeightDecl {
            format,
            ..declaration.clone()
        })
    }

    /// The numbers themselves, for forms that MLX does not know.
    pub(crate) fn dense(&self, declaration: &WeightDecl) -> Result<Weight, String> {
        let data = self
            .source
            .get(&declaration.name)
            .ok_or("the checkpoint has no such weight")?;
        let numbers: Vec<f32> = dequantize(declaration, data)?;
        let shape = dims(&declaration.shape)?;
        Array::from_bytes(bytemuck::cast_slice(&numbers), &shape, Dtype::F32)
            .map(Weight::Dense)
            .map_err(|error| error.0)
    }

    fn array(&self, bytes: &[u8], shape: &[usize], stored: DType) -> Result<Array, String> {
        let shape = dims(shape)?;
        let aligned = bytes.as_ptr().addr().is_multiple_of(stored.size());
        let array = if aligned {
            // SAFETY: a source's bytes live, unchanged, as long as the source, which the array holds.
            unsafe { memory::borrowed(bytes, &shape, dtype(stored), self.source.clone()) }
        } else {
            Array::from_bytes(bytes, &shape, dtype(stored))
        };
        array.map_err(|error| error.0)
    }

    /// The biases that make the number of code `zero` 0.
    fn below_zero(&self, scales: &Array, zero: u8) -> Result<Array, String> {
        let below = (-f32::from(zero)).to_le_bytes();
        let biases = Array::from_bytes(&below, &[], Dtype::F32)
            .and_then(|below| ops::binary(Binary::Multiply, scales, &below, self.stream))
            .map_err(|error| error.0)?;
        eval([&biases]).map_err(|error| error.0)?;
        Ok(biases)
    }

    fn float(&self, array: Array, stored: DType) -> Result<Array, String> {
        if stored == DType::F32 {
            return Ok(array);
        }
        let array = ops::astype(&array, Dtype::F32, self.stream).map_err(|error| error.0)?;
        eval([&array]).map_err(|error| error.0)?;
        Ok(array)
    }
}

impl Loader<'_> {
    /// The weight's numbers, f32, whatever its form.
    pub(crate) fn numbers(&self, graph: &Graph, declaration: &WeightDecl) -> Result<Array, Error> {
        let fail = |reason| Error::Weight {
            graph: graph.name.clone(),
            weight: declaration.name.clone(),
            reason,
        };
        let weight = match declaration.format {
            WeightFormat::Dense(_) => self.make(declaration),
            _ => self.dense(declaration),
        };
        match weight.map_err(fail)? {
            Weight::Dense(array) => Ok(array),
            Weight::Affine { .. } => Err(fail("is not dense".into())),
        }
    }
}
