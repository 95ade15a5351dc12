//! Weights: typed parameters of a graph, in the format their checkpoint stores them in.

use crate::DType;
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
