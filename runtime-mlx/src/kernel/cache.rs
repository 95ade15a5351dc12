//! Key-value caches in memory of Rust, appended to where they stand.

use crate::fail::Fail;
use mlxcel_ir::{DType, StateDecl};
use mlxcel_kernels::{narrow, widen};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Tokens by which a cache grows at least.
const CHUNK: usize = 256;

/// Keys and values `[capacity, heads, width]` of one sequence for one state, as bytes. Only the stream's
/// thread locks it while work is outstanding.
#[derive(Debug)]
pub(crate) struct HostCache {
    row: usize,
    dtype: DType,
    parts: Mutex<[Vec<u8>; 2]>,
}

impl HostCache {
    /// An empty cache.
    pub(crate) fn new(state: &StateDecl) -> Self {
        Self {
            row: state.heads * state.key_dim,
            dtype: state.dtype,
            parts: Mutex::default(),
        }
    }

    /// A cache that holds the given tokens.
    pub(crate) fn with(state: &StateDecl, keys: &[f32], values: &[f32]) -> Result<Self, Fail> {
        let cache = Self::new(state);
        cache.append(&mut cache.lock(), 0, [keys, values])?;
        Ok(cache)
    }

    /// A cache of its own with the first `length` tokens.
    pub(crate) fn copy(&self, length: usize) -> Self {
        let kept = |part: &Vec<u8>| part[..part.len().min(length * self.row_bytes())].to_vec();
        Self {
            row: self.row,
            dtype: self.dtype,
            parts: Mutex::new(self.lock().each_ref().map(kept)),
        }
    }

    /// Keys and values as numbers.
    pub(crate) fn numbers(&self) -> Result<Vec<Vec<f32>>, Fail> {
        let parts = self.lock();
        let numbers = parts.iter().map(|part| widen(self.dtype, part));
        Ok(numbers.collect::<Result<_, _>>()?)
    }

    /// Keys and values, `[capacity, heads, width]`. Tokens past those appended are zero.
    pub(crate) fn lock(&self) -> MutexGuard<'_, [Vec<u8>; 2]> {
        // A panic while appending leaves whole rows, of which the sequence's length tells the valid.
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Elements of one token's keys or values.
    pub(crate) fn row(&self) -> usize {
        self.row
    }

    /// Their type.
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    fn row_bytes(&self) -> usize {
        self.row * self.dtype.size()
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        let parts = self.lock();
        parts.iter().map(Vec::capacity).sum()
    }

    /// Writes the rows of new tokens at position `start` of `parts`, which are those of this cache.
    pub(crate) fn append(
        &self,
        parts: &mut [Vec<u8>; 2],
        start: usize,
        rows: [&[f32]; 2],
    ) -> Result<(), Fail> {
        for (part, rows) in parts.iter_mut().zip(rows) {
            let begin = start.checked_mul(self.row_bytes());
            let begin = begin.ok_or("the cache is too long")?;
            let end = begin + rows.len() * self.dtype.size();
            if part.len() < end {
                if part.capacity() < end {
                    // Half as much again, so that a token is copied a bounded number of times.
                    let room = (end + end / 2).next_multiple_of(CHUNK * self.row_bytes().max(1));
                    let failed = part.try_reserve_exact(room - part.len());
                    failed.map_err(|_| format!("no memory for a cache of {room} bytes"))?;
                }
                part.resize(end, 0);
            }
            narrow(self.dtype, rows, &mut part[begin..end])?;
        }
        Ok(())
    }
}
