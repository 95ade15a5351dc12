//! The sequences of a runtime: their caches and memories in device memory.

use crate::buffer::DeviceTensor;
use crate::layout::BufferLayout;
use crate::pool::{Place, Pools};
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
    /// Positions that calls have written, those of padding too: no later one has been.
    written: usize,
    /// Where its buffers are.
    place: Place,
    /// The token that the last step chose.
    pub(crate) chosen: Option<Chosen>,
    /// Whether a failed step may have changed its memories, which then stand for no number of tokens.
    pub(crate) half_done: bool,
}

/// A chosen token, which may not have reached the host.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    /// The tokens that the rows of a call chose, `i32[B]`.
    pub(crate) tokens: DeviceTensor,
    /// Which of them.
    pub(crate) row: usize,
}

/// The rows of a call and their buffers.
pub(crate) struct Seats {
    /// One tensor per buffer of the artifact.
    pub(crate) tensors: Vec<DeviceTensor>,
    /// Who has each row, if anyone.
    pub(crate) rows: Vec<Option<SequenceId>>,
    place: Place,
}

/// All sequences of a runtime.
pub(crate) struct Sequences {
    alive: HashMap<SequenceId, Sequence>,
    next: u32,
    pools: Pools,
    context: usize,
    /// The most tokens that a call adds to a row.
    most: usize,
    fingerprint: Fingerprint,
}

impl Sequences {
    pub(crate) fn new(
        layouts: Vec<BufferLayout>,
        [context, most]: [usize; 2],
        fingerprint: Fingerprint,
    ) -> Self {
        Self {
            alive: HashMap::new(),
            next: 0,
            pools: Pools::new(layouts),
            context,
            most,
            fingerprint,
        }
    }

    /// Notes that a call of `tokens` tokens writes to the rows of `seats`.
    pub(crate) fn touch(&mut self, seats: &Seats, tokens: usize) {
        for id in seats.rows.iter().flatten() {
            if let Some(sequence) = self.alive.get_mut(id) {
                sequence.written = sequence.written.max(sequence.length + tokens);
            }
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
        let layouts = self.pools.layouts().iter();
        layouts.map(BufferLayout::bytes).sum()
    }

    /// Bytes of all caches that there are, free rows included.
    pub(crate) fn reserved_bytes(&self) -> usize {
        self.pools.bytes()
    }

    pub(crate) fn get(&self, id: SequenceId) -> Result<&Sequence, Error> {
        self.alive.get(&id).ok_or(Error::UnknownSequence(id.0))
    }

    pub(crate) fn get_mut(&mut self, id: SequenceId) -> Result<&mut Sequence, Error> {
        self.alive.get_mut(&id).ok_or(Error::UnknownSequence(id.0))
    }

    /// Whether sequences have memories.
    pub(crate) fn have_memories(&self) -> bool {
        self.pools.layouts().iter().any(BufferLayout::is_memory)
    }

    /// The sequence, whose memories must stand for its tokens.
    pub(crate) fn whole(&self, id: SequenceId) -> Result<&Sequence, Error> {
        let sequence = self.get(id)?;
        match sequence.half_done {
            true => Err(Error::HalfDone(id.0)),
            false => Ok(sequence),
        }
    }

    /// A sequence of `length` tokens with blank buffers.
    fn add(&mut self, device: &Device, length: usize) -> Result<SequenceId, Error> {
        let pool = self.pools.blank(device, 1)?;
        let id = SequenceId(self.next);
        let place = self.pools.seat(pool, id).ok_or_else(no_row)?;
        self.next += 1;
        self.alive.insert(
            id,
            Sequence {
                length,
                written: length,
                place,
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
        let Sequence { length, place, .. } = *self.whole(id)?;
        let fork = self.add(device, length)?;
        let to = self.get(fork)?.place;
        if let Err(error) = self.pools.copy(device, place, to, length) {
            self.release(fork)?;
            return Err(error);
        }
        let (chosen, written) = (self.get(id)?.chosen.clone(), self.get(id)?.written);
        let forked = self.get_mut(fork)?;
        (forked.chosen, forked.written) = (chosen, written);
        Ok(fork)
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
        if self.have_memories() {
            if to > 0 {
                return Err(Error::TruncateMemory {
                    sequence: id.0,
                    length,
                    to,
                });
            }
            self.pools.clear_memories(device, sequence.place)?;
        }
        let written = self.get(id)?.written;
        let mut layouts = self.pools.layouts().iter();
        if to > 0 && !layouts.all(|layout| layout.has_sight(to, written)) {
            return Err(Error::TruncateWindow {
                sequence: id.0,
                length,
                to,
            });
        }
        let sequence = self.get_mut(id)?;
        sequence.half_done = false;
        sequence.length = to;
        if to == 0 {
            sequence.written = 0;
        }
        sequence.chosen = None;
        Ok(())
    }

    pub(crate) fn release(&mut self, id: SequenceId) -> Result<(), Error> {
        let released = self.alive.remove(&id).ok_or(Error::UnknownSequence(id.0))?;
        self.pools.leave(released.place);
        Ok(())
    }

    /// Brings the sequences `ids` together for a call of a function for `rows` rows of `tokens` tokens.
    pub(crate) fn gather(
        &mut self,
        device: &Device,
        ids: &[SequenceId],
        rows: usize,
        tokens: usize,
    ) -> Result<Seats, Error> {
        if let (1, &[id]) = (rows, ids) {
            return self.alone(device, id);
        }
        let pool = match self.common_pool(ids, rows, tokens) {
            Some(pool) => pool,
            None => self.pools.blank(device, rows)?,
        };
        let mut place = None;
        for &id in ids {
            let at = self.get(id)?.place;
            let to = match at.is_in(pool) {
                true => at,
                false => self.move_to(device, id, pool)?,
            };
            place = Some(to);
        }
        let place = place.ok_or_else(no_row)?;
        Ok(Seats {
            tensors: self.pools.whole(place),
            rows: self.pools.rows(place).to_vec(),
            place,
        })
    }

    /// The sequence's own row, moved to a pool of its own if a call could not take it where it is.
    fn alone(&mut self, device: &Device, id: SequenceId) -> Result<Seats, Error> {
        let mut place = self.get(id)?.place;
        if self.pools.rows(place).len() > 1 && !self.pools.rows_are_aligned() {
            let pool = self.pools.blank(device, 1)?;
            place = self.move_to(device, id, pool)?;
        }
        Ok(Seats {
            tensors: self.pools.row(place)?,
            rows: vec![Some(id)],
            place,
        })
    }

    /// The pool of `rows` rows that has most of `ids` and room for the others. A call also computes the
    /// rows of other sequences in it, which must do no harm: it writes past what they hold.
    fn common_pool(&self, ids: &[SequenceId], rows: usize, tokens: usize) -> Option<u64> {
        let unharmed = |id: &SequenceId| {
            let room = |sequence: &Sequence| sequence.length + tokens <= self.context;
            !self.have_memories() && self.alive.get(id).is_some_and(room)
        };
        let fits = |(pool, rows): (u64, &[Option<SequenceId>])| {
            let (present, others): (Vec<_>, Vec<_>) =
                rows.iter().flatten().partition(|&id| ids.contains(id));
            let room = ids.len() + others.len() <= rows.len();
            let fits = room && !present.is_empty() && others.into_iter().all(unharmed);
            fits.then_some((present.len(), pool))
        };
        let (_, pool) = self.pools.of_size(rows).filter_map(fits).max()?;
        Some(pool)
    }

    /// Moves a sequence to a free row of a pool.
    fn move_to(&mut self, device: &Device, id: SequenceId, pool: u64) -> Result<Place, Error> {
        let Sequence { length, place, .. } = *self.get(id)?;
        let to = self.pools.seat(pool, id).ok_or_else(no_row)?;
        if let Err(error) = self.pools.copy(device, place, to, length) {
            self.pools.leave(to);
            return Err(error);
        }
        self.pools.leave(place);
        self.get_mut(id)?.place = to;
        Ok(to)
    }

    /// Takes back the buffers of a call. Says whether they are where they were.
    pub(crate) fn keep(&mut self, seats: &Seats, after: Vec<DeviceTensor>) -> Result<bool, Error> {
        match seats.rows[..] {
            [Some(id)] => {
                let before = &seats.tensors;
                let (in_place, place) = self.pools.keep_row(seats.place, id, before, after);
                self.get_mut(id)?.place = place;
                Ok(in_place)
            }
            _ => Ok(self.pools.keep_whole(seats.place, after)),
        }
    }

    pub(crate) fn save(&self, device: &Device, id: SequenceId) -> Result<Vec<u8>, Error> {
        let sequence = self.whole(id)?;
        let mut saved = Vec::with_capacity(self.saved_bytes(sequence.length));
        saved.extend_from_slice(MAGIC);
        saved.extend_from_slice(&self.fingerprint);
        saved.extend_from_slice(&(sequence.length as u64).to_le_bytes());
        let tensors = self.pools.at(sequence.place);
        for (layout, (tensor, begin)) in self.pools.layouts().iter().zip(tensors) {
            for (offset, length) in layout.pieces(sequence.length) {
                let start = saved.len();
                saved.resize(start + length, 0);
                device.read(tensor, begin + offset, &mut saved[start..])?;
            }
        }
        Ok(saved)
    }

    fn saved_bytes(&self, tokens: usize) -> usize {
        let layouts = self.pools.layouts().iter();
        let caches = layouts.map(|layout| layout.used_bytes(tokens));
        HEADER_BYTES + caches.sum::<usize>()
    }

    pub(crate) fn restore(&mut self, device: &Device, saved: &[u8]) -> Result<SequenceId, Error> {
        let (length, mut bytes) = self.read_header(saved).map_err(Error::Saved)?;
        let id = self.add(device, length)?;
        let place = self.get(id)?.place;
        let mut written = Ok(());
        for (layout, (tensor, begin)) in self.pools.layouts().iter().zip(self.pools.at(place)) {
            for (offset, length) in layout.pieces(length) {
                let (piece, rest) = bytes.split_at(length);
                written = written.and_then(|()| device.write(piece, tensor, begin + offset));
                bytes = rest;
            }
        }
        if let Err(error) = written {
            self.release(id)?;
            return Err(error);
        }
        // What the last call wrote past the sequence is not saved.
        self.get_mut(id)?.written = length + self.most;
        Ok(id)
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

fn no_row() -> Error {
    Error::Memory {
        operation: "placing a sequence".to_string(),
        message: "no row is free".to_string(),
    }
}

/// Bytes before the caches.
const HEADER_BYTES: usize = MAGIC.len() + size_of::<Fingerprint>() + size_of::<u64>();
