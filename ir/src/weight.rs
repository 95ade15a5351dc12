//! Weights: typed parameters of a graph, in the format their checkpoint stores them in.

use crate::DType;
use crate::interpret::Float;
use rayon::prelude::*;
use std::fmt;

/// How the numbers of a weight are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightFormat {
    /// One element per number, row-major.
    Dense(DType),
    /// Affine quantisation as MLX stores it: along the last dimension, each group of `group`
    /// numbers shares a scale and a bias, and a number is `scale * q + bias` with `q` an unsigned
    /// integer of `bits` bits. Codes are packed little-endian into `u32` words, lowest bits first.
    Affine {
        /// Bits of a code.
        bits: u8,
        /// Numbers that share a scale and a bias.
        group: usize,
        /// Element type of scales and biases.
        scale: DType,
    },
}

impl fmt::Display for WeightFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WeightFormat::Dense(dtype) => write!(f, "{dtype}"),
            WeightFormat::Affine { bits, group, scale } => {
                write!(f, "affine{bits}(group = {group}, scale = {scale})")
            }
        }
    }
}

/// The declaration of a weight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WeightDecl {
    /// The name by which the checkpoint knows it (for instance `model.norm.weight`).
    pub name: String,
    /// The logical shape, as if dense: `[N, K]` for a linear layer with K inputs and N outputs.
    pub shape: Vec<usize>,
    /// How it is stored.
    pub format: WeightFormat,
}

impl WeightDecl {
    /// Numbers in the weight.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Bytes that the stored parts take: `[values, scales, biases]`.
    pub fn part_bytes(&self) -> [usize; 3] {
        let elements = self.elements();
        match self.format {
            WeightFormat::Dense(dtype) => [elements * dtype.size(), 0, 0],
            WeightFormat::Affine { bits, group, scale } => {
                let side = elements.checked_div(group).unwrap_or(0) * scale.size();
                [elements * bits as usize / 8, side, side]
            }
        }
    }

    /// Bytes of all stored parts.
    pub fn bytes(&self) -> usize {
        self.part_bytes().iter().sum()
    }
}

/// The stored bytes of a weight, little-endian, laid out as [`WeightFormat`] says.
#[derive(Clone, Copy, Debug)]
pub struct WeightData<'a> {
    /// Dense elements or packed codes.
    pub values: &'a [u8],
    /// Scales, one per group; empty for a dense weight.
    pub scales: &'a [u8],
    /// Biases, one per group; empty for a dense weight.
    pub biases: &'a [u8],
}

/// Where the bytes of a graph's weights come from.
///
/// A source returns the bytes of the whole weight in the declared format; the slices live as long
/// as the source, so that a runtime may map them instead of copying.
pub trait WeightSource: Send + Sync {
    /// The stored parts of the weight called `name`, or `None` if the source has no such weight.
    fn get(&self, name: &str) -> Option<WeightData<'_>>;
}

/// The numbers of a weight, row-major, in `F`.
///
/// # Errors
/// What does not fit: a part whose length disagrees with the declaration, or a group that does not
/// divide the last dimension.
pub fn dequantize<F: Float>(
    declaration: &WeightDecl,
    data: WeightData<'_>,
) -> Result<Vec<F>, String> {
    let expected = declaration.part_bytes();
    for ((part, name), bytes) in [data.values, data.scales, data.biases]
        .into_iter()
        .zip(["values", "scales", "biases"])
        .zip(expected)
    {
        if part.len() != bytes {
            return Err(format!(
                "weight `{}`: {name} take {bytes} bytes, got {}",
                declaration.name,
                part.len()
            ));
        }
    }
    match declaration.format {
        WeightFormat::Dense(dtype) => read(dtype, data.values),
        WeightFormat::Affine { bits, group, scale } => {
            let width = declaration.shape.last().copied().unwrap_or(0);
            if !(1..=8).contains(&bits) || group == 0 || !width.is_multiple_of(group) {
                return Err(format!(
                    "weight `{}`: groups of {group} numbers of {bits} bits do not divide rows of {width}",
                    declaration.name
                ));
            }
            let scales: Vec<F> = read(scale, data.scales)?;
            let biases: Vec<F> = read(scale, data.biases)?;
            let mut numbers = vec![F::from_f64(0.0); declaration.elements()];
            numbers
                .par_chunks_mut(group)
                .zip(scales.par_iter().zip(&biases))
                .enumerate()
                .for_each(|(index, (numbers, (&scale, &bias)))| {
                    for (offset, number) in numbers.iter_mut().enumerate() {
                        let code = code(data.values, index * group + offset, bits);
                        *number = scale * F::from_f64(f64::from(code)) + bias;
                    }
                });
            Ok(numbers)
        }
    }
}

/// Code number `index` of a little-endian stream of codes of `bits` bits.
fn code(stream: &[u8], index: usize, bits: u8) -> u16 {
    let bit = index * bits as usize;
    let low = u16::from(stream[bit / 8]);
    let high = u16::from(stream.get(bit / 8 + 1).copied().unwrap_or(0));
    ((high << 8 | low) >> (bit % 8)) & ((1 << bits) - 1)
}

fn read<F: Float>(dtype: DType, bytes: &[u8]) -> Result<Vec<F>, String> {
    fn each<F: Send, const N: usize>(
        bytes: &[u8],
        f: impl Fn([u8; N]) -> F + Sync,
    ) -> Result<Vec<F>, String> {
        Ok(bytes
            .par_chunks_exact(N)
            .map(|chunk| {
                let mut element = [0; N];
                element.copy_from_slice(chunk);
                f(element)
            })
            .collect())
    }
    match dtype {
        DType::F32 => each(bytes, |b| F::from_f64(f64::from(f32::from_le_bytes(b)))),
        DType::F16 => each(bytes, |b| F::from_f64(half::f16::from_le_bytes(b).to_f64())),
        DType::BF16 => each(bytes, |b| {
            F::from_f64(half::bf16::from_le_bytes(b).to_f64())
        }),
        DType::Bool | DType::I32 | DType::U32 => {
            Err(format!("a weight cannot have elements of type {dtype}"))
        }
    }
}
