//! The sequences of a runtime: their caches and memories in device memory.

use crate::buffer::DeviceTensor;
use crate::layout::BufferLayout;
use crate::{Device, Error};
use mlxcel_ir::step::SequenceId;
use std::collections::HashMap;

/// A digest of what a saved sequence depends on.
pub(crate) type Fingerprint = [u8; 32];

/// What a saved sequence starts with; the last byte is the version of the form. After it come the
/// fingerprint, the number of tokens as u64, and of each buffer the bytes of those tokens.
const MAGIC: &[u8; 8] = b"mlxcels\x01";

/// A sequence: its tokens' keys and values, and what it remembers of them.
pub(crate) struct Sequence {
    /// Tokens whose cache rows are valid.
    pub(crate) length: usize,
    /// One tensor per buffer of the artifact.
    pub(crate) cache: Vec<DeviceTensor>,
    /// The token that the last step chose, `i32[1]`.
    pub(crate) chosen: Option<DeviceTensor>,
    /// Whether a failed step may have changed its memories, which then stand for no number of tokens.
    pub(crate) half_done: bool,
}

/// All sequences of a runtime.
pub(crate) struct Sequences {
    alive: HashMap<SequenceId, Sequence>,
    next: u32,
    layouts: Vec<BufferLayout>,
    context: usize,
    fingerprint: Fingerprint,
}

impl Sequences {
    pub(crate) fn new(
        layouts: Vec<BufferLayout>,
        context: usize,
        fingerprint: Fingerprint,
    ) -> Self {
        Self {
            alive: HashMap::new(),
            next: 0,
            layouts,
            context,
            fingerprint,
        }
    }

    pub(crate) fn context(&self) -> usize {
        self.context
    }

    pub(crate) fn count(&self) -> usize {
        self.alive.len()
    }

    /// Bytes of the cache of one sequence.
    pub(crate) fn cache_bytes(&self) -> usize {
        self.layouts.iter().map(BufferLayout::bytes).sum()
    }

    pub(crate) fn get(&self, id: SequenceId) -> Result<&Sequence, Error> {
        self.alive.get(&id).ok_or(Error::UnknownSequence(id.0))
    }

    pub(crate) fn get_mut(&mut self, id: SequenceId) -> Result<&mut Sequence, Error> {
        self.alive.get_mut(&id).ok_or(Error::UnknownSequence(id.0))
    }

    /// Whether sequences have memories.
    pub(crate) fn have_memories(&self) -> bool {
        self.layouts.iter().any(BufferLayout::is_memory)
    }

    /// The sequence, whose memories must stand for its tokens.
    pub(crate) fn whole(&self, id: SequenceId) -> Result<&Sequence, Error> {
        let sequence = self.get(id)?;
        match sequence.half_done {
            true => Err(Error::HalfDone(id.0)),
            false => Ok(sequence),
        }
    }

    /// Buffers of zeros. A memory begins with them, and a cache because attention multiplies the rows
    /// that it masks by zero, which only finite numbers survive.
    fn blank(&self, device: &Device) -> Result<Vec<DeviceTensor>, Error> {
        let largest = self.layouts.iter().map(BufferLayout::bytes).max();
        let zeros = zeros(largest.unwrap_or(0))?;
        self.layouts
            .iter()
            .map(|layout| device.upload(layout.dtype, &layout.shape, &zeros[..layout.bytes()]))
            .collect()
    }

    /// A sequence of `length` tokens with blank buffers.
    fn add(&mut self, device: &Device, length: usize) -> Result<SequenceId, Error> {
        let cache = self.blank(device)?;
        let id = SequenceId(self.next);
        self.next += 1;
        self.alive.insert(
            id,
            Sequence {
                length,
                cache,
                chosen: None,
                half_done: false,
            },
        );
        Ok(id)
    }

    pub(crate) fn create(&mut self, device: &Device) -> Result<SequenceId, Error> {
        self.add(device, 0)
    }

    pub(crate) fn fork(&mut self, device: &Device, id: SequenceId) -> Result<SequenceId, Error> {
        let length = self.whole(id)?.length;
        let fork = self.add(device, length)?;
        let copied = self.copy(device, id, fork);
        if copied.is_err() {
            self.alive.remove(&fork);
        }
        copied.map(|()| fork)
    }

    fn copy(&mut self, device: &Device, from: SequenceId, to: SequenceId) -> Result<(), Error> {
        let source = self.get(from)?;
        let target = self.get(to)?;
        let pairs = source.cache.iter().zip(&target.cache);
        for (layout, (source_tensor, target_tensor)) in self.layouts.iter().zip(pairs) {
            for (offset, length) in layout.pieces(source.length) {
                device.copy(source_tensor, target_tensor, offset, length)?;
            }
        }
        let chosen = source.chosen.clone();
        self.get_mut(to)?.chosen = chosen;
        Ok(())
    }

    pub(crate) fn truncate(
        &mut self,
        device: &Device,
        id: SequenceId,
        to: usize,
    ) -> Result<(), Error> {
        let sequence = self.get(id)?;
        let (length, half_done) = (sequence.length, sequence.half_done);
        if to > length {
            return Err(Error::Truncate {
                sequence: id.0,
                length,
                to,
            });
        }
        if to == length && !half_done {
            return Ok(());
        }
        let mut blank = None;
        if self.have_memories() {
            if to > 0 {
                return Err(Error::TruncateMemory {
                    sequence: id.0,
                    length,
                    to,
                });
            }
            blank = Some(self.blank(device)?);
        }
        let sequence = self.get_mut(id)?;
        if let Some(blank) = blank {
            (sequence.cache, sequence.half_done) = (blank, false);
        }
        sequence.length = to;
        sequence.chosen = None;
        Ok(())
    }

    pub(crate) fn release(&mut self, id: SequenceId) -> Result<(), Error> {
        let released = self.alive.remove(&id);
        released.map(drop).ok_or(Error::UnknownSequence(id.0))
    }

    pub(crate) fn save(&self, device: &Device, id: SequenceId) -> Result<Vec<u8>, Error> {
        let sequence = self.whole(id)?;
        let mut saved = Vec::with_capacity(self.saved_bytes(sequence.length));
        saved.extend_from_slice(MAGIC);
        saved.extend_from_slice(&self.fingerprint);
        saved.extend_from_slice(&(sequence.length as u64).to_le_bytes());
        for (layout, tensor) in self.layouts.iter().zip(&sequence.cache) {
            for (offset, length) in layout.pieces(sequence.length) {
                let start = saved.len();
                saved.resize(start + length, 0);
                device.read(tensor, offset, &mut saved[start..])?;
            }
        }
        Ok(saved)
    }

    fn saved_bytes(&self, tokens: usize) -> usize {
        let caches = self.layouts.iter().map(|layout| layout.used_bytes(tokens));
        HEADER_BYTES + caches.sum::<usize>()
    }

    pub(crate) fn restore(&mut self, device: &Device, saved: &[u8]) -> Result<SequenceId, Error> {
        let (length, mut bytes) = self.read_header(saved).map_err(Error::Saved)?;
        let id = self.add(device, length)?;
        let sequence = self.get(id)?;
        let mut written = Ok(());
        for (layout, tensor) in self.layouts.iter().zip(&sequence.cache) {
            for (offset, length) in layout.pieces(length) {
                let (piece, rest) = bytes.split_at(length);
                written = written.and_then(|()| device.write(piece, tensor, offset));
                bytes = rest;
            }
        }
        if written.is_err() {
            self.alive.remove(&id);
        }
        written.map(|()| id)
    }

    /// The number of tokens and the bytes of the caches, whose number is then right.
    fn read_header<'b>(&self, saved: &'b [u8]) -> Result<(usize, &'b [u8]), String> {
        let (header, caches) = saved
            .split_at_checked(HEADER_BYTES)
            .ok_or("it is too short")?;
        let (magic, rest) = header.split_at(MAGIC.len());
        let (fingerprint, tokens) = rest.split_at(self.fingerprint.len());
        if magic != MAGIC {
            return Err("it is not in this form".to_string());
        }
        if fingerprint != self.fingerprint {
            return Err("it is from another artifact".to_string());
        }
        let tokens = u64::from_le_bytes(tokens.try_into().unwrap_or_default());
        let length = usize::try_from(tokens)
            .ok()
            .filter(|&length| length <= self.context)
            .ok_or_else(|| format!("its {tokens} tokens exceed the context of {}", self.context))?;
        let expected = self.saved_bytes(length);
        if saved.len() != expected {
            return Err(format!(
                "it has {} bytes, and {length} tokens take {expected}",
                saved.len()
            ));
        }
        Ok((length, caches))
    }
}

/// Zeros in host memory, or an error where there is no room for them.
fn zeros(length: usize) -> Result<Vec<u8>, Error> {
    let mut zeros = Vec::new();
    zeros
        .try_reserve_exact(length)
        .map_err(|error| Error::Memory {
            operation: "making the cache of a sequence".to_string(),
            message: error.to_string(),
        })?;
    zeros.resize(length, 0);
    Ok(zeros)
}

/// Bytes before the caches.
const HEADER_BYTES: usize = MAGIC.len() + size_of::<Fingerprint>() + size_of::<u64>();
