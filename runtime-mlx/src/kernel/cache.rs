//! Key-value caches in memory of Rust, appended to where they stand.

use crate::fail::Fail;
use mlxcel_ir::StateDecl;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Tokens by which a cache grows at least.
const CHUNK: usize = 256;

/// Keys and values `[capacity, heads, width]` of one sequence for one state. Only the stream's
/// thread locks it while work is outstanding.
#[derive(Debug)]
pub(crate) struct HostCache {
    row: usize,
    parts: Mutex<[Vec<f32>; 2]>,
}

impl HostCache {
    /// An empty cache.
    pub(crate) fn new(state: &StateDecl) -> Self {
        Self {
            row: state.heads * state.key_dim,
            parts: Mutex::default(),
        }
    }

    /// A cache that holds the given tokens.
    pub(crate) fn with(state: &StateDecl, keys: &[f32], values: &[f32]) -> Self {
        let cache = Self::new(state);
        *cache.lock() = [keys.to_vec(), values.to_vec()];
        cache
    }

    /// Keys and values, `[capacity, heads, width]`. Tokens past those appended are zero.
    pub(crate) fn lock(&self) -> MutexGuard<'_, [Vec<f32>; 2]> {
        // A panic while appending leaves whole rows, of which the sequence's length tells the valid.
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Elements of one token's keys or values.
    pub(crate) fn row(&self) -> usize {
        self.row
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        let parts = self.lock();
        parts.iter().map(|part| part.capacity() * 4).sum()
    }

    /// Writes the rows of new tokens at position `start`.
    pub(crate) fn append(
        parts: &mut [Vec<f32>; 2],
        row: usize,
        start: usize,
        rows: [&[f32]; 2],
    ) -> Result<(), Fail> {
        for (part, rows) in parts.iter_mut().zip(rows) {
            let begin = start.checked_mul(row).ok_or("the cache is too long")?;
            let end = begin + rows.len();
            if part.len() < end {
                if part.capacity() < end {
                    // Half as much again, so that a token is copied a bounded number of times.
                    let room = (end + end / 2).next_multiple_of(CHUNK * row.max(1));
                    let failed = part.try_reserve_exact(room - part.len());
                    failed.map_err(|_| format!("no memory for a cache of {room} numbers"))?;
                }
                part.resize(end, 0.0);
            }
            part[begin..end].copy_from_slice(rows);
        }
        Ok(())
    }
}
