//! Numbers between their stored forms and f32.

use half::{bf16, f16};
use mlxcel_ir::DType;
use rayon::prelude::*;

/// The element type of numbers that safetensors calls `name`, if it is one of those that weights
/// are computed with.
pub(crate) fn float(name: &str) -> Option<DType> {
    match name {
        "F32" => Some(DType::F32),
        "F16" => Some(DType::F16),
        "BF16" => Some(DType::BF16),
        _ => None,
    }
}

/// The numbers of `bytes`, or `None` if `dtype` is not one of [`float`]'s.
pub(crate) fn to_f32(dtype: DType, bytes: &[u8]) -> Option<Vec<f32>> {
    fn each<const N: usize>(bytes: &[u8], read: impl Fn([u8; N]) -> f32 + Sync) -> Vec<f32> {
        let (elements, _) = bytes.as_chunks::<N>();
        elements
            .par_iter()
            .with_min_len(4096)
            .map(|element| read(*element))
            .collect()
    }
    match dtype {
        DType::F32 => Some(each(bytes, f32::from_le_bytes)),
        DType::F16 => Some(each(bytes, |bytes| f16::from_le_bytes(bytes).to_f32())),
        DType::BF16 => Some(each(bytes, |bytes| bf16::from_le_bytes(bytes).to_f32())),
        DType::Bool | DType::I32 | DType::U32 => None,
    }
}

/// Writes `numbers` as `dtype`, one of [`float`]'s, to `to`, which has room for just these.
pub(crate) fn write_all(dtype: DType, numbers: &[f32], to: &mut [u8]) {
    let elements = to.par_chunks_mut(dtype.size()).with_min_len(4096);
    elements
        .zip(numbers)
        .for_each(|(to, number)| write(dtype, *number, to));
}

/// Writes `value` as `dtype`, one of [`float`]'s, to `to`, rounded to the nearest.
pub(crate) fn write(dtype: DType, value: f32, to: &mut [u8]) {
    match dtype {
        DType::F16 => to.copy_from_slice(&f16::from_f32(value).to_le_bytes()),
        DType::BF16 => to.copy_from_slice(&bf16::from_f32(value).to_le_bytes()),
        _ => to.copy_from_slice(&value.to_le_bytes()),
    }
}
