//! The sequences that a runtime holds, and their caches.

use crate::Error;
use crate::cache::ArrayCache;
use crate::fail::Fail;
use crate::kernel::HostCache;
use crate::machine::{Cache, to_host};
use mlxcel_ir::step::SequenceId;
use mlxcel_ir::{StateDecl, StatePart};
use mlxcel_mlx_sys::{Array, Stream};
use std::collections::HashMap;
use std::sync::Arc;

/// The token that a row of a step chose, wherever it is.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    /// Tokens of the batch's rows, i32.
    pub(crate) tokens: Array,
    /// Equal, by address, for rows of one batch.
    pub(crate) batch: Arc<()>,
    /// Which of them.
    pub(crate) row: usize,
}

/// A sequence of tokens.
#[derive(Debug)]
pub(crate) struct Sequence {
    /// By state id.
    pub(crate) caches: Vec<Cache>,
    /// Tokens that the caches hold.
    pub(crate) length: usize,
    pub(crate) chosen: Option<Chosen>,
}

/// All sequences.
#[derive(Debug, Default)]
pub(crate) struct Sequences {
    alive: HashMap<u32, Sequence>,
    next: u32,
}

impl Sequences {
    pub(crate) fn add(&mut self, sequence: Sequence) -> SequenceId {
        // Skips numbers in use, should the counter ever wrap around.
        while self.alive.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.alive.insert(id, sequence);
        SequenceId(id)
    }

    pub(crate) fn get(&self, id: SequenceId) -> Result<&Sequence, Error> {
        self.alive.get(&id.0).ok_or(Error::UnknownSequence(id.0))
    }

    pub(crate) fn get_mut(&mut self, id: SequenceId) -> Result<&mut Sequence, Error> {
        self.alive
            .get_mut(&id.0)
            .ok_or(Error::UnknownSequence(id.0))
    }

    pub(crate) fn remove(&mut self, id: SequenceId) -> Result<(), Error> {
        self.alive
            .remove(&id.0)
            .map(|_| ())
            .ok_or(Error::UnknownSequence(id.0))
    }

    /// Takes sequences out, to be put back with [`Sequences::put_back`].
    pub(crate) fn take(&mut self, id: SequenceId) -> Result<Sequence, Error> {
        self.alive.remove(&id.0).ok_or(Error::UnknownSequence(id.0))
    }

    pub(crate) fn put_back(&mut self, id: SequenceId, sequence: Sequence) {
        self.alive.insert(id.0, sequence);
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Sequence> {
        self.alive.values()
    }

    pub(crate) fn count(&self) -> usize {
        self.alive.len()
    }
}

impl Cache {
    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Cache::Arrays(cache) => cache.arrays().map(Array::byte_size).sum(),
            Cache::Host(cache) => cache.bytes(),
        }
    }

    /// A cache of its own with the first `length` tokens.
    pub(crate) fn copy(&self, state: &StateDecl, length: usize) -> Self {
        match self {
            // Arrays are values: whoever writes to one that is shared writes to a copy.
            Cache::Arrays(cache) => Cache::Arrays(cache.clone()),
            Cache::Host(cache) => {
                let parts = cache.lock();
                let kept = |part: &Vec<f32>| part.len().min(length * cache.row());
                let [keys, values] = &*parts;
                let copy = HostCache::with(state, &keys[..kept(keys)], &values[..kept(values)]);
                Cache::Host(Arc::new(copy))
            }
        }
    }

    /// Keys and values of the first `length` tokens, `[length, heads, width]`.
    pub(crate) fn read(
        &self,
        state: &StateDecl,
        length: usize,
        stream: &Stream,
    ) -> Result<[Vec<f32>; 2], Fail> {
        let widths = [state.key_dim, state.value_dim];
        let mut parts = match self {
            Cache::Host(cache) => cache.lock().clone(),
            Cache::Arrays(cache) => {
                let mut parts = [Vec::new(), Vec::new()];
                for (index, part) in [StatePart::Key, StatePart::Value].into_iter().enumerate() {
                    if let Some(array) = cache.read(part, length, stream)? {
                        let host = to_host(&array, stream)?;
                        let numbers: Vec<f32> = bytemuck::pod_collect_to_vec(&host.bytes);
                        let held = host.shape.get(2).copied().unwrap_or(0);
                        parts[index] = swap(&numbers, state.heads, held, widths[index]);
                    }
                }
                parts
            }
        };
        for (part, width) in parts.iter_mut().zip(widths) {
            part.resize(length * state.heads * width, 0.0);
        }
        Ok(parts)
    }

    /// The cache with the given tokens, of the same kind as `self`.
    pub(crate) fn filled(
        &self,
        state: &StateDecl,
        [keys, values]: [&[f32]; 2],
        length: usize,
    ) -> Result<Self, Fail> {
        match self {
            Cache::Host(_) => Ok(Cache::Host(Arc::new(HostCache::with(state, keys, values)))),
            Cache::Arrays(_) if length == 0 => Ok(Cache::Arrays(ArrayCache::default())),
            Cache::Arrays(_) => {
                let keys = swap(keys, length, state.heads, state.key_dim);
                let values = swap(values, length, state.heads, state.value_dim);
                Ok(Cache::Arrays(ArrayCache::with(
                    state, &keys, &values, length,
                )?))
            }
        }
    }
}

/// `[a, b, width]` as `[b, a, width]`.
fn swap(numbers: &[f32], a: usize, b: usize, width: usize) -> Vec<f32> {
    (0..b)
        .flat_map(|j| (0..a).map(move |i| (i * b + j) * width))
        .flat_map(|at| numbers.get(at..at + width).unwrap_or_default())
        .copied()
        .collect()
}
