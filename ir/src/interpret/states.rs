//! The caches and memories of the interpreter.

use super::Float;
use super::tensor::{Elements, Tensor};
use crate::{DType, Graph, StateDecl, StateId, StatePart};
use std::sync::Arc;

/// The states of a batch of rows: caches as tensors `[B, S, heads, dim]` that grow when a larger S is
/// asked for, memories as they are declared. Rows past what was appended are zero; `start` says how
/// much counts, so cutting a sequence of caches short needs nothing here.
#[derive(Clone, Debug)]
pub struct States<F> {
    /// For each state its parts, in their order.
    buffers: Vec<Vec<Arc<Elements<F>>>>,
    rows: usize,
    capacity: usize,
}

impl<F: Float> States<F> {
    /// Empty states of `graph`.
    pub fn new(graph: &Graph) -> Self {
        let empty = |_: &StatePart| Arc::new(Elements::Float(Vec::new()));
        let parts = |state: &StateDecl| state.parts().iter().map(empty).collect();
        Self {
            buffers: graph.states.iter().map(parts).collect(),
            rows: 0,
            capacity: 0,
        }
    }

    /// Makes room for `rows` rows of `capacity` tokens, keeping what is there.
    pub(super) fn fit(&mut self, graph: &Graph, rows: usize, capacity: usize) {
        let capacity = capacity.max(self.capacity);
        if (rows, capacity) == (self.rows, self.capacity) {
            return;
        }
        for (buffers, state) in self.buffers.iter_mut().zip(&graph.states) {
            for (buffer, &part) in buffers.iter_mut().zip(state.parts()) {
                let (before, after) = (row(state, part, self.capacity), row(state, part, capacity));
                let mut grown = vec![F::default(); rows * after];
                if let Elements::Float(old) = &**buffer {
                    for index in 0..rows.min(self.rows) {
                        grown[index * after..][..before]
                            .copy_from_slice(&old[index * before..][..before]);
                    }
                }
                *buffer = Arc::new(Elements::Float(grown));
            }
        }
        (self.rows, self.capacity) = (rows, capacity);
    }

    /// Writes `rows[B, T, heads, dim]` at the positions `start` and returns the first `capacity`
    /// tokens of each row.
    pub(super) fn append(
        &mut self,
        state: StateId,
        part: StatePart,
        rows: &Tensor<F>,
        start: &[i64],
        capacity: usize,
        dtype: DType,
    ) -> Result<Tensor<F>, String> {
        let [batch, tokens, heads, width] = rows.shape[..] else {
            return Err("rows must have 4 dimensions".into());
        };
        let source = rows.floats()?;
        let buffers = self
            .buffers
            .get_mut(state.0 as usize)
            .ok_or("the states were made for another graph")?;
        let buffer = buffers
            .get_mut(part as usize)
            .ok_or("the states were made for another graph")?;
        let row = heads * width;
        if batch != self.rows {
            return Err(format!("the caches hold {} rows, not {batch}", self.rows));
        }
        let Elements::Float(elements) = Arc::make_mut(buffer) else {
            return Err("a cache must hold floats".into());
        };
        for (index, &start) in start.iter().enumerate() {
            let begin = usize::try_from(start).map_err(|_| format!("start {start} is negative"))?;
            if begin + tokens > capacity {
                return Err(format!(
                    "row {index}: {tokens} tokens at position {begin} do not fit a cache of {capacity}"
                ));
            }
            elements[(index * self.capacity + begin) * row..][..tokens * row]
                .copy_from_slice(&source[index * tokens * row..][..tokens * row]);
        }
        let shape = vec![batch, capacity, heads, width];
        if capacity == self.capacity {
            return Ok(Tensor {
                dtype,
                shape,
                elements: buffer.clone(),
            });
        }
        let visible = (0..batch)
            .flat_map(|index| &elements[index * self.capacity * row..][..capacity * row])
            .copied()
            .collect();
        Ok(Tensor::float(dtype, shape, visible))
    }

    /// The numbers of a memory, `[rows, heads, key, value]`.
    pub(super) fn memory(&mut self, state: StateId, rows: usize) -> Result<&mut [F], String> {
        if rows != self.rows {
            return Err(format!("the memories hold {} rows, not {rows}", self.rows));
        }
        let buffer = self.buffers.get_mut(state.0 as usize);
        let buffer = buffer.and_then(|buffers| buffers.first_mut());
        match buffer.map(Arc::make_mut) {
            Some(Elements::Float(numbers)) => Ok(numbers),
            _ => Err("the states were made for another graph".into()),
        }
    }
}

impl<F: Float + bytemuck::Pod> States<F> {
    /// The states as bytes, caches cut to `length` tokens a row.
    pub fn save(&self, graph: &Graph, length: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let length = length.min(self.capacity);
        for header in [self.rows, length] {
            bytes.extend((header as u64).to_le_bytes());
        }
        for (buffers, state) in self.buffers.iter().zip(&graph.states) {
            for (buffer, &part) in buffers.iter().zip(state.parts()) {
                let Elements::Float(elements) = &**buffer else {
                    continue;
                };
                let (stride, kept) = (row(state, part, self.capacity), row(state, part, length));
                for row in elements.chunks_exact(stride.max(1)) {
                    bytes.extend_from_slice(bytemuck::cast_slice(&row[..kept]));
                }
            }
        }
        bytes
    }

    /// The states that [`States::save`] wrote, for the same `graph`.
    ///
    /// # Errors
    /// If the bytes do not fit the graph's states.
    pub fn restore(graph: &Graph, bytes: &[u8]) -> Result<Self, String> {
        let header = |index: usize| {
            let part = bytes.get(index * 8..index * 8 + 8)?;
            usize::try_from(u64::from_le_bytes(part.try_into().ok()?)).ok()
        };
        let (Some(rows), Some(capacity)) = (header(0), header(1)) else {
            return Err("the saved states have no header".into());
        };
        // A length that no memory could hold would overflow below.
        let plausible = capacity <= bytes.len() && rows <= bytes.len();
        let numbers = plausible
            .then(|| graph.states.iter().map(|state| state.elements(capacity)))
            .and_then(|numbers| numbers.sum::<usize>().checked_mul(rows))
            .and_then(|numbers| numbers.checked_mul(size_of::<F>()));
        if numbers != Some(bytes.len() - 16) {
            return Err("the saved states are of another model".into());
        }
        let mut states = Self::new(graph);
        let mut rest = &bytes[16..];
        for (buffers, state) in states.buffers.iter_mut().zip(&graph.states) {
            for (buffer, &part) in buffers.iter_mut().zip(state.parts()) {
                let count = rows * row(state, part, capacity) * size_of::<F>();
                let (part, after) = rest.split_at(count);
                rest = after;
                *buffer = Arc::new(Elements::Float(bytemuck::allocation::pod_collect_to_vec(
                    part,
                )));
            }
        }
        (states.rows, states.capacity) = (rows, capacity);
        Ok(states)
    }
}

/// Numbers of one row in the buffer of `part`.
fn row(state: &StateDecl, part: StatePart, capacity: usize) -> usize {
    match part {
        StatePart::Key => capacity * state.heads * state.key_dim,
        StatePart::Value => capacity * state.heads * state.value_dim,
        StatePart::Whole => state.heads * state.key_dim * state.value_dim,
    }
}
