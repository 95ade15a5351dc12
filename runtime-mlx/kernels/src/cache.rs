//! The element types in which caches keep keys and values.

use crate::matrix::Element;
use crate::{Error, error};
use half::{bf16, f16};
use mlxcel_ir::DType;

/// The element type, if caches have it.
pub(crate) fn element(dtype: DType) -> Result<Element, Error> {
    Ok(match dtype {
        DType::F32 => Element::F32,
        DType::F16 => Element::F16,
        DType::BF16 => Element::BF16,
        DType::Bool | DType::I32 | DType::U32 => {
            return Err(Error::Parameter {
                what: "the element type of a cache",
                found: dtype.to_string(),
                expected: "f32, f16 or bf16",
            });
        }
    })
}

/// Writes numbers as the elements of a cache, rounded to the nearest.
///
/// # Errors
/// [`Error::Parameter`] for an element type that caches do not have, [`Error::Length`].
pub fn narrow(dtype: DType, numbers: &[f32], to: &mut [u8]) -> Result<(), Error> {
    fn each<const N: usize>(numbers: &[f32], to: &mut [u8], bytes: impl Fn(f32) -> [u8; N]) {
        for (&number, to) in numbers.iter().zip(to.chunks_exact_mut(N)) {
            to.copy_from_slice(&bytes(number));
        }
    }
    let element = element(dtype)?;
    error::length("the cache", to.len(), numbers.len() * dtype.size())?;
    match element {
        Element::F16 => each(numbers, to, |number| f16::from_f32(number).to_le_bytes()),
        Element::BF16 => each(numbers, to, |number| bf16::from_f32(number).to_le_bytes()),
        _ => each(numbers, to, f32::to_le_bytes),
    }
    Ok(())
}

/// The elements of a cache as numbers.
///
/// # Errors
/// As [`narrow`].
pub fn widen(dtype: DType, bytes: &[u8]) -> Result<Vec<f32>, Error> {
    fn each<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> f32) -> Vec<f32> {
        let elements = bytes.as_chunks::<N>().0;
        elements.iter().map(|&bytes| number(bytes)).collect()
    }
    Ok(match element(dtype)? {
        Element::F16 => each(bytes, |bytes| f16::from_le_bytes(bytes).to_f32()),
        Element::BF16 => each(bytes, |bytes| bf16::from_le_bytes(bytes).to_f32()),
        _ => each(bytes, f32::from_le_bytes),
    })
}
