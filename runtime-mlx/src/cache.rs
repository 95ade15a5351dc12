//! Key-value caches kept as arrays of MLX.

use crate::fail::Fail;
use crate::weight::{dims, dtype};
use mlxcel_ir::{StateDecl, StatePart};
use mlxcel_mlx_sys::{Array, Dtype, Stream, ops};

/// Tokens by which a cache grows.
const CHUNK: usize = 256;

/// The cache of one sequence for one state: `[1, heads, capacity, width]` for keys and values, which
/// is the layout that MLX attends over, in the state's element type. Rows that were not written are zero.
#[derive(Clone, Debug, Default)]
pub(crate) struct ArrayCache {
    parts: [Option<Array>; 2],
}

impl ArrayCache {
    /// Writes `rows[1, T, heads, width]` at position `start` and returns the first `length` tokens
    /// as `[1, heads, length, width]` in f32.
    pub(crate) fn append(
        &mut self,
        state: &StateDecl,
        part: StatePart,
        rows: &Array,
        start: usize,
        length: usize,
        stream: &Stream,
    ) -> Result<Array, Fail> {
        let width = match part {
            StatePart::Key => state.key_dim,
            StatePart::Value | StatePart::Whole => state.value_dim,
        };
        let tokens = rows.shape().get(1).map_or(0, |&tokens| tokens as usize);
        let capacity = length.max(start + tokens);
        let slot = &mut self.parts[part as usize];
        let dtype = dtype(state.dtype);
        let buffer = fit(slot.take(), [state.heads, width, capacity], dtype, stream)?;
        let rows = ops::astype(rows, dtype, stream)?;
        let rows = ops::transpose(&rows, &[0, 2, 1, 3], stream)?;
        let begin = dims(&[0, 0, start, 0])?;
        let end = dims(&[1, state.heads, start + tokens, width])?;
        // The slot is empty meanwhile, so MLX may write in place.
        let buffer = ops::slice_update(&buffer, &rows, &begin, &end, stream)?;
        let end = dims(&[1, state.heads, length, width])?;
        let view = ops::slice(&buffer, &[0; 4], &end, &[1; 4], stream)?;
        *slot = Some(buffer);
        Ok(ops::astype(&view, Dtype::F32, stream)?)
    }

    /// The arrays, where something was written.
    pub(crate) fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.parts.iter().flatten()
    }

    /// The first `length` tokens of a part, `[1, heads, length, width]` in f32.
    pub(crate) fn read(
        &self,
        part: StatePart,
        length: usize,
        stream: &Stream,
    ) -> Result<Option<Array>, Fail> {
        let Some(buffer) = &self.parts[part as usize] else {
            return Ok(None);
        };
        let mut end = buffer.shape().to_vec();
        if let Some(size) = end.get_mut(2) {
            *size = (*size).min(i32::try_from(length).unwrap_or(i32::MAX));
        }
        let view = ops::slice(buffer, &[0; 4], &end, &[1; 4], stream)?;
        let view = ops::astype(&view, Dtype::F32, stream)?;
        Ok(Some(ops::contiguous(&view, stream)?))
    }
}

/// The buffer with room for `capacity` tokens; what it held stays.
fn fit(
    buffer: Option<Array>,
    [heads, width, capacity]: [usize; 3],
    dtype: Dtype,
    stream: &Stream,
) -> Result<Array, Fail> {
    let held = buffer
        .as_ref()
        .and_then(|buffer| buffer.shape().get(2).copied())
        .unwrap_or(0) as usize;
    if let Some(buffer) = buffer.as_ref().filter(|_| held >= capacity) {
        return Ok(buffer.clone());
    }
    let target = capacity.next_multiple_of(CHUNK);
    let shape = dims(&[1, heads, target - held, width])?;
    let fresh = ops::full(0.0, &shape, dtype, stream)?;
    Ok(match buffer {
        Some(buffer) => ops::concatenate([&buffer, &fresh], 2, stream)?,
        // `full` repeats one element; a buffer to write to must have its own.
        None => ops::contiguous(&fresh, stream)?,
    })
}

impl ArrayCache {
    /// A cache that holds `length` tokens, keys and values `[heads, length, width]`.
    pub(crate) fn with(
        state: &StateDecl,
        keys: &[f32],
        values: &[f32],
        length: usize,
    ) -> Result<Self, Fail> {
        let array = |numbers: &[f32], width: usize| -> Result<Array, Fail> {
            let shape = dims(&[1, state.heads, length, width])?;
            let mut bytes = vec![0; numbers.len() * state.dtype.size()];
            mlxcel_kernels::narrow(state.dtype, numbers, &mut bytes)?;
            Ok(Array::from_bytes(&bytes, &shape, dtype(state.dtype))?)
        };
        Ok(Self {
            parts: [
                Some(array(keys, state.key_dim)?),
                Some(array(values, state.value_dim)?),
            ],
        })
    }
}
