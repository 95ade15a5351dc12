//! Where sequences keep their buffers: pools of rows, so that a function for several rows finds them one
//! after the other.
//!
//! A sequence begins in a pool of one row. A step of several sequences brings them together in a pool of as
//! many rows as the function has, where they stay; a step of one of them uses its row where it is.

use crate::buffer::DeviceTensor;
use crate::layout::BufferLayout;
use crate::{Device, Error};
use mlxcel_ir::step::SequenceId;
use std::collections::BTreeMap;

/// Where a row may begin: what devices and compiled code ask of the address of a buffer at most.
const ALIGNMENT: usize = 256;

/// The place of a sequence's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pool: u64,
    row: usize,
}

impl Place {
    /// Whether it is a row of `pool`.
    pub(crate) fn is_in(self, pool: u64) -> bool {
        self.pool == pool
    }
}

/// Buffers of several rows.
struct Pool {
    /// One tensor per layout; its first dimension is the rows.
    tensors: Vec<DeviceTensor>,
    /// Who has each row.
    rows: Vec<Option<SequenceId>>,
}

/// All pools of a runtime.
pub(crate) struct Pools {
    layouts: Vec<BufferLayout>,
    pools: BTreeMap<u64, Pool>,
    next: u64,
}

impl Pools {
    pub(crate) fn new(layouts: Vec<BufferLayout>) -> Self {
        Self {
            layouts,
            pools: BTreeMap::new(),
            next: 0,
        }
    }

    pub(crate) fn layouts(&self) -> &[BufferLayout] {
        &self.layouts
    }

    /// Bytes of the buffers of all pools.
    pub(crate) fn bytes(&self) -> usize {
        let row: usize = self.layouts.iter().map(BufferLayout::bytes).sum();
        let rows = self.pools.values().map(|pool| pool.rows.len());
        row * rows.sum::<usize>()
    }

    /// A pool of zeros. A memory begins with them, and a cache because attention multiplies the rows
    /// that it masks by zero, which only finite numbers survive.
    pub(crate) fn blank(&mut self, device: &Device, rows: usize) -> Result<u64, Error> {
        let bytes = |layout: &BufferLayout| layout.bytes().checked_mul(rows);
        let largest = self.layouts.iter().map(bytes).max().unwrap_or(Some(0));
        let zeros = zeros(largest)?;
        let tensors = self
            .layouts
            .iter()
            .map(|layout| {
                let zeros = &zeros[..layout.bytes() * rows];
                device.upload(layout.dtype, &layout.shape_of(rows), zeros)
            })
            .collect::<Result<_, _>>()?;
        Ok(self.add(tensors, rows))
    }

    fn add(&mut self, tensors: Vec<DeviceTensor>, rows: usize) -> u64 {
        let id = self.next;
        self.next += 1;
        let rows = vec![None; rows];
        self.pools.insert(id, Pool { tensors, rows });
        id
    }

    /// Gives the first free row of a pool to a sequence. `None` if there is none.
    pub(crate) fn seat(&mut self, pool: u64, sequence: SequenceId) -> Option<Place> {
        let rows = &mut self.pools.get_mut(&pool)?.rows;
        let row = rows.iter().position(Option::is_none)?;
        rows[row] = Some(sequence);
        Some(Place { pool, row })
    }

    /// Frees a row, and its pool when no row is left in it.
    pub(crate) fn leave(&mut self, place: Place) {
        if let Some(pool) = self.pools.get_mut(&place.pool) {
            pool.rows[place.row] = None;
            if pool.rows.iter().all(Option::is_none) {
                self.pools.remove(&place.pool);
            }
        }
    }

    /// Who has the rows of the pool of `place`.
    pub(crate) fn rows(&self, place: Place) -> &[Option<SequenceId>] {
        self.pools
            .get(&place.pool)
            .map_or(&[], |pool| pool.rows.as_slice())
    }

    /// The pools of `rows` rows, each with who has them.
    pub(crate) fn of_size(
        &self,
        rows: usize,
    ) -> impl Iterator<Item = (u64, &[Option<SequenceId>])> {
        let pools = self.pools.iter();
        let pools = pools.filter(move |(_, pool)| pool.rows.len() == rows);
        pools.map(|(&id, pool)| (id, pool.rows.as_slice()))
    }

    /// The tensors that have the row of `place`, each with the byte where it begins.
    pub(crate) fn at(&self, place: Place) -> impl Iterator<Item = (&DeviceTensor, usize)> {
        let tensors = self.pools.get(&place.pool).map(|pool| &pool.tensors[..]);
        let begins = move |layout: &BufferLayout| layout.bytes() * place.row;
        tensors
            .unwrap_or_default()
            .iter()
            .zip(self.layouts.iter().map(begins))
    }

    /// Copies what `tokens` tokens take from one row to another.
    pub(crate) fn copy(
        &self,
        device: &Device,
        from: Place,
        to: Place,
        tokens: usize,
    ) -> Result<(), Error> {
        let pairs = self.at(from).zip(self.at(to));
        for (layout, ((source, from), (target, to))) in self.layouts.iter().zip(pairs) {
            for (offset, length) in layout.pieces(tokens) {
                device.copy((source, from + offset), (target, to + offset), length)?;
            }
        }
        Ok(())
    }

    /// Fills the memories of a row with zeros.
    pub(crate) fn clear_memories(&self, device: &Device, place: Place) -> Result<(), Error> {
        for (layout, (tensor, begin)) in self.layouts.iter().zip(self.at(place)) {
            if layout.is_memory() {
                device.write(&zeros(Some(layout.bytes()))?, tensor, begin)?;
            }
        }
        Ok(())
    }

    /// Whether a call can take each row by itself, wherever it is.
    pub(crate) fn rows_are_aligned(&self) -> bool {
        let aligned = |layout: &BufferLayout| layout.bytes().is_multiple_of(ALIGNMENT);
        self.layouts.iter().all(aligned)
    }

    /// The buffers of all rows.
    pub(crate) fn whole(&self, place: Place) -> Vec<DeviceTensor> {
        let pool = self.pools.get(&place.pool);
        pool.map(|pool| pool.tensors.clone()).unwrap_or_default()
    }

    /// The buffers of one row, where they are.
    pub(crate) fn row(&self, place: Place) -> Result<Vec<DeviceTensor>, Error> {
        if self.rows(place).len() == 1 {
            return Ok(self.whole(place));
        }
        self.layouts
            .iter()
            .zip(self.at(place))
            .map(|(layout, (tensor, begin))| {
                tensor.part(begin, layout.bytes(), &layout.shape_of(1))
            })
            .collect()
    }

    /// Takes back the buffers of all rows after a call. Says whether they are where they were.
    pub(crate) fn keep_whole(&mut self, place: Place, after: Vec<DeviceTensor>) -> bool {
        let Some(pool) = self.pools.get_mut(&place.pool) else {
            return false;
        };
        let in_place = same(&pool.tensors, &after);
        pool.tensors = after;
        in_place
    }

    /// Takes back the buffers of one row after a call that was given `before`. Says whether they are
    /// where they were; if not, the row is a pool of its own from now on, at the place returned.
    pub(crate) fn keep_row(
        &mut self,
        place: Place,
        sequence: SequenceId,
        before: &[DeviceTensor],
        after: Vec<DeviceTensor>,
    ) -> (bool, Place) {
        let in_place = same(before, &after);
        if self.rows(place).len() == 1 {
            return (self.keep_whole(place, after), place);
        }
        if in_place {
            return (true, place);
        }
        self.leave(place);
        let pool = self.add(after, 1);
        (false, self.seat(pool, sequence).unwrap_or(place))
    }
}

fn same(before: &[DeviceTensor], after: &[DeviceTensor]) -> bool {
    let mut pairs = before.iter().zip(after);
    pairs.all(|(before, after)| before.same_memory(after))
}

/// Zeros in host memory, or an error where there is no room for them.
fn zeros(length: Option<usize>) -> Result<Vec<u8>, Error> {
    let memory = |message: String| Error::Memory {
        operation: "making the cache of a sequence".to_string(),
        message,
    };
    let length = length.ok_or_else(|| memory("it is too large".to_string()))?;
    let mut zeros = Vec::new();
    zeros
        .try_reserve_exact(length)
        .map_err(|error| memory(error.to_string()))?;
    zeros.resize(length, 0);
    Ok(zeros)
}
