//! The rules for types, weights and states.

use super::{HIGHEST_RANK, require};
use crate::{StateDecl, TensorType, WeightDecl, WeightFormat};

/// Whether the elements can be addressed, taking each symbol as 1.
pub(super) fn sizes(ty: &TensorType) -> Result<(), String> {
    let dims = ty.shape.iter().map(|dim| dim.fixed().unwrap_or(1));
    bytes(ty.dtype.size(), dims).map_err(|reason| format!("{ty} {reason}"))
}

fn bytes(width: usize, dims: impl ExactSizeIterator<Item = usize>) -> Result<(), String> {
    require(dims.len() <= HIGHEST_RANK, || {
        format!("has more than {HIGHEST_RANK} dimensions")
    })?;
    // An empty dimension does not excuse the others.
    let mut dims = dims.map(|size| size.max(1));
    let bytes = dims.try_fold(width, |product, size| product.checked_mul(size));
    require(
        bytes.is_some_and(|bytes| isize::try_from(bytes).is_ok()),
        || "has more bytes than can be addressed".into(),
    )
}

/// Whether a weight is stored in whole words.
pub(super) fn weight(declaration: &WeightDecl) -> Result<(), String> {
    let dims = declaration.shape.iter().copied();
    let widest = match declaration.format {
        WeightFormat::Dense(dtype) => dtype.size(),
        // A code takes at most one byte, its share of a scale and a bias four each.
        _ => 9,
    };
    bytes(widest, dims)?;
    declaration.format.check(&declaration.shape)
}

/// Whether a state holds something.
pub(super) fn state(declaration: &StateDecl) -> Result<(), String> {
    require(declaration.dtype.is_float(), || {
        format!(
            "the element type must be a floating-point type, is {}",
            declaration.dtype
        )
    })?;
    let (heads, key, value) = (
        declaration.heads,
        declaration.key_dim,
        declaration.value_dim,
    );
    require(heads > 0 && key > 0 && value > 0, || {
        format!("heads {heads}, key {key} and value {value} must all be above 0")
    })?;
    for &part in declaration.parts() {
        sizes(&declaration.buffer(part))?;
    }
    Ok(())
}
