//! Deliberate faults, for testing that the oracle finds them.

use mlxcel_ir::weight::Sides;
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
    /// Scales of K-quants are those of 256 numbers.
    ///
    /// Returns `None` if `source` has no such weight.
    pub fn new(source: Arc<dyn WeightSource>, declaration: &WeightDecl) -> Option<Self> {
        let data = source.get(&declaration.name)?;
        let (mut values, mut scales) = (data.values.to_vec(), data.scales.to_vec());
        let half = |numbers: &[u8]| numbers.len() / 2;
        match (declaration.format, declaration.format.coded()) {
            (WeightFormat::Dense(dtype), _) => {
                let half = half(&values);
                double_all(&mut values[..half], dtype);
            }
            (_, Some(coded)) => {
                let half = half(&scales);
                let scales = &mut scales[..half];
                match coded.sides {
                    Sides::Pairs(dtype)
                    | Sides::Scales(dtype)
                    | Sides::ZeroPoint(dtype, _)
                    | Sides::Blocks(dtype) => double_all(scales, dtype),
                    Sides::Nested { .. } => double_all(scales, mlxcel_ir::DType::F16),
                    // The exponent starts at bit 0 or 3.
                    Sides::E8M0 => scales.iter_mut().for_each(|scale| raise(scale, 1, 0xff)),
                    Sides::E4M3 => scales.iter_mut().for_each(|scale| raise(scale, 8, 0x78)),
                }
            }
            _ => {}
        }
        Some(Self {
            source,
            name: declaration.name.clone(),
            values,
            scales,
        })
    }
}

fn double_all(numbers: &mut [u8], dtype: mlxcel_ir::DType) {
    for bytes in numbers.chunks_exact_mut(dtype.size()) {
        double(bytes, dtype);
    }
}

/// Adds `one` to the exponent in the bits `mask`, if it stays below the largest.
fn raise(scale: &mut u8, one: u8, mask: u8) {
    if *scale & mask < mask - one {
        *scale += one;
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
