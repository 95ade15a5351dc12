//! The sequences that a runtime holds, and their caches.

use crate::Error;
use crate::cache::ArrayCache;
use crate::fail::Fail;
use crate::kernel::{HostCache, HostMemory};
use crate::machine::{Cache, to_host};
use crate::weight::dims;
use mlxcel_ir::step::SequenceId;
use mlxcel_ir::{StateDecl, StatePart};
use mlxcel_mlx_sys::{Array, Dtype, Stream};
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
    /// After a failed step the tokens that are certain, fewer than `length`.
    pub(crate) intact: Option<usize>,
}

impl Sequence {
    /// A sequence with these caches, which hold `length` tokens.
    pub(crate) fn new(caches: Vec<Cache>, length: usize) -> Self {
        Self {
            caches,
            length,
            chosen: None,
            intact: None,
        }
    }

    /// Notes that a step after the first `length` tokens failed.
    pub(crate) fn fail(&mut self, length: usize, has_memories: bool) {
        let certain = if has_memories { 0 } else { length };
        self.intact = Some(self.intact.map_or(certain, |intact| intact.min(certain)));
        self.chosen = None;
    }
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

    /// A sequence of which no step failed.
    pub(crate) fn sound(&self, id: SequenceId) -> Result<&Sequence, Error> {
        let sequence = self.get(id)?;
        match sequence.intact {
            Some(intact) => Err(Error::FailedSequence {
                sequence: id.0,
                intact,
            }),
            None => Ok(sequence),
        }
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
            Cache::Memory(memory) => memory.as_ref().map_or(0, Array::byte_size),
            Cache::HostMemory(memory) => memory.lock().len() * size_of::<f32>(),
        }
    }

    /// Whether it is a memory of MLX.
    pub(crate) fn is_memory(&self) -> bool {
        matches!(self, Cache::Memory(_))
    }

    /// One of its own with the first `length` tokens; of a memory with all.
    pub(crate) fn copy(&self, length: usize) -> Self {
        match self {
            // Arrays are values: whoever writes to one that is shared writes to a copy.
            Cache::Arrays(_) | Cache::Memory(_) => self.clone(),
            Cache::Host(cache) => Cache::Host(Arc::new(cache.copy(length))),
            Cache::HostMemory(memory) => {
                Cache::HostMemory(Arc::new(HostMemory::with(&memory.lock())))
            }
        }
    }

    /// Its parts, cut to the first `length` tokens: keys and values `[length, heads, width]`, or the
    /// whole `[heads, key, value]`.
    pub(crate) fn read(
        &self,
        state: &StateDecl,
        length: usize,
        stream: &Stream,
    ) -> Result<Vec<Vec<f32>>, Fail> {
        let numbers = |array: &Array| -> Result<(Vec<f32>, Vec<usize>), Fail> {
            let host = to_host(array, stream)?;
            Ok((bytemuck::pod_collect_to_vec(&host.bytes), host.shape))
        };
        let mut parts = match self {
            Cache::Host(cache) => cache.numbers()?,
            Cache::HostMemory(memory) => vec![memory.lock().clone()],
            Cache::Memory(memory) => match memory {
                Some(memory) => vec![numbers(memory)?.0],
                None => vec![Vec::new()],
            },
            Cache::Arrays(cache) => {
                let mut parts = Vec::new();
                for &part in state.parts() {
                    let Some(array) = cache.read(part, length, stream)? else {
                        parts.push(Vec::new());
                        continue;
                    };
                    let (numbers, shape) = numbers(&array)?;
                    let [held, width] = [2, 3].map(|dim| shape.get(dim).copied().unwrap_or(0));
                    parts.push(swap(&numbers, state.heads, held, width));
                }
                parts
            }
        };
        for (part, &kind) in parts.iter_mut().zip(state.parts()) {
            part.resize(part_size(state, kind, length), 0.0);
        }
        Ok(parts)
    }

    /// One with the given parts, of the same kind as `self`.
    pub(crate) fn filled(
        &self,
        state: &StateDecl,
        parts: &[Vec<f32>],
        length: usize,
    ) -> Result<Self, Fail> {
        match (self, parts) {
            (Cache::Host(_), [keys, values]) => {
                Ok(Cache::Host(Arc::new(HostCache::with(state, keys, values)?)))
            }
            (Cache::Arrays(_), _) if length == 0 => Ok(Cache::Arrays(ArrayCache::default())),
            (Cache::Arrays(_), [keys, values]) => {
                let keys = swap(keys, length, state.heads, state.key_dim);
                let values = swap(values, length, state.heads, state.value_dim);
                Ok(Cache::Arrays(ArrayCache::with(
                    state, &keys, &values, length,
                )?))
            }
            (Cache::HostMemory(_), [whole]) => {
                Ok(Cache::HostMemory(Arc::new(HostMemory::with(whole))))
            }
            (Cache::Memory(_), [whole]) => {
                let shape = dims(&[1, state.heads, state.key_dim, state.value_dim])?;
                let bytes = bytemuck::cast_slice(whole);
                Ok(Cache::Memory(Some(Array::from_bytes(
                    bytes,
                    &shape,
                    Dtype::F32,
                )?)))
            }
            (_, parts) => Err(format!("{} parts of `{}`", parts.len(), state.name).into()),
        }
    }
}

/// Numbers in the part of a state that holds `length` tokens.
pub(crate) fn part_size(state: &StateDecl, part: StatePart, length: usize) -> usize {
    match part {
        StatePart::Key => length * state.heads * state.key_dim,
        StatePart::Value => length * state.heads * state.value_dim,
        StatePart::Whole => state.heads * state.key_dim * state.value_dim,
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
