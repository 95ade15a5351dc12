//! The key-value caches of the interpreter.

use super::Float;
use super::tensor::{Elements, Tensor};
use crate::{DType, Graph, StateId, StatePart};
use std::sync::Arc;

/// The caches of a batch of rows, as tensors `[B, S, heads, dim]` that grow when a larger S is
/// asked for. Rows past what was appended are zero; `start` says how much counts, so cutting a
/// sequence short needs nothing here.
#[derive(Clone, Debug)]
pub struct States<F> {
    buffers: Vec<[Arc<Elements<F>>; 2]>,
    rows: usize,
    capacity: usize,
}

impl<F: Float> States<F> {
    /// Empty caches for the states of `graph`.
    pub fn new(graph: &Graph) -> Self {
        let empty = || Arc::new(Elements::Float(Vec::new()));
        Self {
            buffers: graph.states.iter().map(|_| [empty(), empty()]).collect(),
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
            for (buffer, width) in buffers.iter_mut().zip([state.key_dim, state.value_dim]) {
                let row = state.heads * width;
                let mut grown = vec![F::default(); rows * capacity * row];
                if let Elements::Float(old) = &**buffer {
                    let kept = self.capacity * row;
                    for index in 0..rows.min(self.rows) {
                        grown[index * capacity * row..][..kept]
                            .copy_from_slice(&old[index * kept..][..kept]);
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
        let buffer = &mut buffers[part as usize];
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

    /// The caches as bytes, cut to `length` tokens a row.
    pub fn save(&self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let length = length.min(self.capacity);
        for header in [self.rows, length] {
            bytes.extend((header as u64).to_le_bytes());
        }
        for buffer in self.buffers.iter().flatten() {
            let Elements::Float(elements) = &**buffer else {
                continue;
            };
            let stride = elements.len() / (self.rows * self.capacity).max(1);
            for row in 0..self.rows {
                let row = &elements[row * self.capacity * stride..][..length * stride];
                bytes.extend_from_slice(bytemuck::cast_slice(row));
            }
        }
        bytes
    }

    /// The caches that [`States::save`] wrote, for the same `graph`.
    ///
    /// # Errors
    /// If the bytes do not fit the graph's states.
    pub fn restore(graph: &Graph, bytes: &[u8]) -> Result<Self, String> {
        let header = |index: usize| {
            let part = bytes.get(index * 8..index * 8 + 8)?;
            usize::try_from(u64::from_le_bytes(part.try_into().ok()?)).ok()
        };
        let (Some(rows), Some(capacity)) = (header(0), header(1)) else {
            return Err("the saved caches have no header".into());
        };
        let width = |state: &crate::StateDecl| (state.key_dim + state.value_dim) * state.heads;
        let numbers = graph
            .states
            .iter()
            .map(width)
            .sum::<usize>()
            .checked_mul(rows)
            .and_then(|n| n.checked_mul(capacity))
            .and_then(|n| n.checked_mul(size_of::<F>()));
        if numbers != Some(bytes.len() - 16) {
            return Err("the saved caches are of another model".into());
        }
        let mut states = Self::new(graph);
        let mut rest = &bytes[16..];
        for (buffers, state) in states.buffers.iter_mut().zip(&graph.states) {
            for (buffer, width) in buffers.iter_mut().zip([state.key_dim, state.value_dim]) {
                let count = rows * capacity * state.heads * width * size_of::<F>();
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
