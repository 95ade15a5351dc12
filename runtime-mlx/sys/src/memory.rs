//! Memory: counters of MLX's allocator, and arrays over memory that Rust owns.

use crate::bridge::ffi;
use crate::{Array, Dtype, Error};
use std::any::Any;

/// Keeps memory alive that an array points at.
pub struct Owner(#[allow(dead_code)] Box<dyn Any + Send + Sync>);

/// Bytes that live arrays take.
pub fn active() -> usize {
    ffi::active_memory()
}

/// The most bytes that arrays took since the process started.
pub fn peak() -> usize {
    ffi::peak_memory()
}

/// Bytes that MLX keeps to give out again.
pub fn cached() -> usize {
    ffi::cache_memory()
}

/// Limits the bytes that MLX keeps to give out again; returns the former limit.
pub fn set_cache_limit(bytes: usize) -> usize {
    ffi::set_cache_limit(bytes)
}

/// Returns what MLX keeps to the system.
pub fn clear_cache() {
    ffi::clear_cache();
}

/// An array over `bytes`, which `owner` keeps alive. On the CPU nothing is copied.
///
/// # Safety
/// `bytes` must stay valid and unchanged for as long as `owner` lives.
///
/// # Errors
/// `bytes` does not fill `shape`, or is not aligned to its elements.
pub unsafe fn borrowed(
    bytes: &[u8],
    shape: &[i32],
    dtype: Dtype,
    owner: impl Any + Send + Sync,
) -> Result<Array, Error> {
    let size = crate::array::element_size(dtype);
    crate::array::check_bytes(bytes.len(), shape, dtype)?;
    if !bytes.as_ptr().addr().is_multiple_of(size) {
        return Err(Error(format!("memory is not aligned to {size} bytes")));
    }
    let owner = Box::new(Owner(Box::new(owner)));
    // SAFETY: the length was checked against the shape; the caller promises validity while the
    // owner lives, and the array holds the owner.
    let array = unsafe { ffi::from_memory(bytes.as_ptr(), shape, dtype, owner) }?;
    Ok(Array::new(array))
}
