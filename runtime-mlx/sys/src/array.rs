//! Arrays: handles to tensors that are computed, or will be.

use crate::bridge::ffi;
use crate::{Dtype, Error};
use cxx::UniquePtr;
use std::fmt;

/// A handle to a tensor. Cloning makes another handle to the same tensor.
pub struct Array(UniquePtr<ffi::Array>);

// SAFETY: a handle is a pointer with an atomic count; the tensor behind it is changed only by MLX,
// which does so under its own locks or on the stream's thread before the tensor is available.
unsafe impl Send for Array {}

impl Clone for Array {
    fn clone(&self) -> Self {
        Self(ffi::copy(&self.0))
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Array({:?})", self.shape())
    }
}

/// Bytes of one element.
pub(crate) fn element_size(dtype: Dtype) -> usize {
    match dtype {
        Dtype::Bool => 1,
        Dtype::F16 | Dtype::BF16 => 2,
        _ => 4,
    }
}

pub(crate) fn check_bytes(bytes: usize, shape: &[i32], dtype: Dtype) -> Result<(), Error> {
    let wanted = shape
        .iter()
        .try_fold(element_size(dtype), |product, &size| {
            product.checked_mul(usize::try_from(size).ok()?)
        });
    if wanted == Some(bytes) {
        return Ok(());
    }
    Err(Error(format!(
        "{bytes} bytes do not fill the shape {shape:?}"
    )))
}

impl Array {
    pub(crate) fn new(array: UniquePtr<ffi::Array>) -> Self {
        Self(array)
    }

    pub(crate) fn raw(&self) -> &ffi::Array {
        &self.0
    }

    /// An array of the given row-major, little-endian elements, which are copied.
    ///
    /// # Errors
    /// `bytes` does not fill `shape`.
    pub fn from_bytes(bytes: &[u8], shape: &[i32], dtype: Dtype) -> Result<Self, Error> {
        check_bytes(bytes.len(), shape, dtype)?;
        Ok(Self(ffi::from_bytes(bytes, shape, dtype)?))
    }

    /// The dimensions.
    pub fn shape(&self) -> &[i32] {
        ffi::shape(&self.0)
    }

    /// The element type.
    ///
    /// # Errors
    /// It is one that [`Dtype`] does not have.
    pub fn dtype(&self) -> Result<Dtype, Error> {
        Ok(ffi::dtype(&self.0)?)
    }

    /// Bytes of all elements.
    pub fn byte_size(&self) -> usize {
        ffi::byte_size(&self.0)
    }

    /// Waits until the tensor is there, computing it first if that was not asked for.
    ///
    /// # Errors
    /// What computing it failed with.
    pub fn wait(&self) -> Result<(), Error> {
        Ok(ffi::wait(&self.0)?)
    }

    /// Whether the tensor is there with its elements in row-major order without gaps.
    pub fn is_contiguous(&self) -> bool {
        ffi::is_contiguous(&self.0)
    }

    /// The elements.
    ///
    /// # Errors
    /// The tensor is not there yet (see [`Array::wait`]), or not row-major (see
    /// [`crate::ops::contiguous`]).
    pub fn bytes(&self) -> Result<&[u8], Error> {
        let length = self.byte_size();
        if length == 0 {
            return Ok(&[]);
        }
        let data = ffi::data(&self.0)?;
        // SAFETY: the tensor is available and contiguous, so `data` points at `length` bytes, which
        // MLX does not change while a handle to them exists.
        Ok(unsafe { std::slice::from_raw_parts(data, length) })
    }
}

pub(crate) fn list<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> UniquePtr<ffi::Arrays> {
    let mut list = ffi::new_arrays();
    for array in arrays {
        ffi::push(list.pin_mut(), array.raw());
    }
    list
}

/// Computes the tensors and waits for them.
///
/// # Errors
/// What computing them failed with.
pub fn eval<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> Result<(), Error> {
    Ok(ffi::eval(&list(arrays))?)
}

/// Starts computing the tensors.
///
/// # Errors
/// What starting failed with. What computing fails with, [`Array::wait`] says.
pub fn async_eval<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> Result<(), Error> {
    Ok(ffi::async_eval(&list(arrays))?)
}
