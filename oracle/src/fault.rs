//! Deliberate faults, for testing that the oracle finds them.

use mlxcel_ir::{WeightData, WeightDecl, WeightFormat, WeightSource};
use std::sync::Arc;

/// Weights of which one differs from its source: what an execution sees that loaded, transposed or
/// scaled a weight wrongly.
pub struct PerturbedWeight {
    source: Arc<dyn WeightSource>,
    name: String,
    values: Vec<u8>,
    scales: Vec<u8>,
}

impl PerturbedWeight {
    /// The weights of `source` with the first half of `declaration`'s numbers scaled by about two:
    /// the exponent of each dense number, or of each scale of a quantised weight, goes up by one.
    ///
    /// Returns `None` if `source` has no such weight.
    pub fn new(source: Arc<dyn WeightSource>, declaration: &WeightDecl) -> Option<Self> {
        let data = source.get(&declaration.name)?;
        let (mut values, mut scales) = (data.values.to_vec(), data.scales.to_vec());
        let (numbers, dtype) = match declaration.format {
            WeightFormat::Dense(dtype) => (&mut values, dtype),
            WeightFormat::Affine { scale, .. } => (&mut scales, scale),
        };
        let half = numbers.len() / 2;
        for bytes in numbers[..half].chunks_exact_mut(dtype.size()) {
            double(bytes, dtype);
        }
        Some(Self {
            source,
            name: declaration.name.clone(),
            values,
            scales,
        })
    }
}

/// Doubles a little-endian floating-point number by raising its exponent; zeros and the largest
/// numbers stay.
fn double(bytes: &mut [u8], dtype: mlxcel_ir::DType) {
    let (high, low) = match bytes {
        [.., low, high] => (high, low),
        _ => return,
    };
    let top = u16::from_le_bytes([*low, *high]);
    // The exponent's lowest bit within the top 16 bits, and its mask.
    let (one, mask) = match dtype {
        mlxcel_ir::DType::F16 => (1u16 << 10, 0x7c00),
        _ => (1u16 << 7, 0x7f80),
    };
    let exponent = top & mask;
    if exponent != 0 && exponent < mask - one {
        [*low, *high] = (top + one).to_le_bytes();
    }
}

impl WeightSource for PerturbedWeight {
    fn get(&self, name: &str) -> Option<WeightData<'_>> {
        let data = self.source.get(name)?;
        Some(match name == self.name {
            true => WeightData {
                values: &self.values,
                scales: &self.scales,
                biases: data.biases,
            },
            false => data,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlxcel_ir::DType;

    #[test]
    fn doubles_each_type() {
        let check = |dtype: DType, bytes: &[u8], expect: &[u8]| {
            let mut bytes = bytes.to_vec();
            double(&mut bytes, dtype);
            assert_eq!(bytes, expect, "{dtype}");
        };
        check(DType::F32, &1.5f32.to_le_bytes(), &3f32.to_le_bytes());
        check(
            DType::F32,
            &(-0.25f32).to_le_bytes(),
            &(-0.5f32).to_le_bytes(),
        );
        check(DType::F32, &0f32.to_le_bytes(), &0f32.to_le_bytes());
        check(DType::BF16, &[0x80, 0x3f], &[0x00, 0x40]);
        check(DType::F16, &[0x00, 0x3c], &[0x00, 0x40]);
    }
}
