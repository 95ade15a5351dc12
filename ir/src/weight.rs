//! Weights: typed parameters of a graph, in the format their checkpoint stores them in.

mod dequantize;
mod format;
pub mod panel;
mod small_float;

pub use dequantize::dequantize;
pub use format::{Code, Coded, FP8_BLOCK, Part, PartType, SUPER_BLOCK, Sides, WeightFormat};
pub use small_float::{e2m1, e4m3, e8m0};

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

    /// The stored parts: values, scales, biases.
    pub fn parts(&self) -> [Part; 3] {
        self.format.parts(&self.shape)
    }

    /// Bytes that the stored parts take: `[values, scales, biases]`.
    pub fn part_bytes(&self) -> [usize; 3] {
        self.parts().map(|part| part.bytes())
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
    /// Scales; empty for a dense weight.
    pub scales: &'a [u8],
    /// Biases; empty where the format has none.
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
