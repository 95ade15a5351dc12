//! Where the tokens of a sequence lie in its buffers.

use mlxcel_frontend::artifact::{Buffer, Manifest};
use mlxcel_ir::DType;

/// A buffer of a sequence: which bytes belong to which tokens. All of a memory belongs to any number
/// of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BufferLayout {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    /// Runs of tokens: the product of the dimensions before the one that counts tokens.
    runs: usize,
    /// Bytes of one token in a run.
    token_bytes: usize,
    /// Tokens of a run; of a memory, 1.
    capacity: usize,
    /// Whether the buffer is a memory.
    memory: bool,
}

impl BufferLayout {
    /// The layout of a buffer whose cache holds `context` tokens, or what is wrong with it.
    pub(crate) fn new(buffer: &Buffer, context: usize) -> Result<Self, String> {
        let name = &buffer.name;
        let dtype: DType = buffer
            .dtype
            .parse()
            .map_err(|()| format!("buffers: `{name}`: dtype `{}` is unknown", buffer.dtype))?;
        let memory = buffer.tokens_dim.is_none();
        let outside = || format!("buffers: `{name}`: tokens_dim is outside the shape");
        let (before, capacity, after) = match buffer.tokens_dim {
            None => (&[][..], 1, buffer.shape.as_slice()),
            Some(dim) => {
                let (before, rest) = buffer.shape.split_at_checked(dim).ok_or_else(outside)?;
                let (&capacity, after) = rest.split_first().ok_or_else(outside)?;
                (before, capacity, after)
            }
        };
        if !memory && capacity != context {
            return Err(format!(
                "buffers: `{name}` holds {capacity} tokens, but the context is {context}"
            ));
        }
        let product = |start: usize, dims: &[usize]| {
            dims.iter()
                .try_fold(start, |product, &dim| product.checked_mul(dim))
        };
        let sizes = product(1, before)
            .zip(product(dtype.size(), after))
            .filter(|&(runs, token_bytes)| product(runs, &[token_bytes, capacity]).is_some());
        let (runs, token_bytes) =
            sizes.ok_or_else(|| format!("buffers: `{name}`: the shape is too large"))?;
        Ok(Self {
            dtype,
            shape: buffer.shape.clone(),
            runs,
            token_bytes,
            capacity,
            memory,
        })
    }

    /// The layouts of an artifact's buffers.
    pub(crate) fn all(manifest: &Manifest) -> Result<Vec<Self>, String> {
        manifest
            .buffers
            .iter()
            .map(|buffer| Self::new(buffer, manifest.context))
            .collect()
    }

    /// The shape of the buffers of `rows` rows.
    pub(crate) fn shape_of(&self, rows: usize) -> Vec<usize> {
        let mut shape = self.shape.clone();
        if let Some(batch) = shape.first_mut() {
            *batch = rows;
        }
        shape
    }

    /// Bytes of the buffer of one row.
    pub(crate) fn bytes(&self) -> usize {
        self.runs * self.capacity * self.token_bytes
    }

    /// Whether the buffer is a memory, which holds the whole past and no part of it.
    pub(crate) fn is_memory(&self) -> bool {
        self.memory
    }

    /// Bytes of a run that the first `tokens` tokens take.
    fn run_bytes(&self, tokens: usize) -> usize {
        let counted = if self.memory { self.capacity } else { tokens };
        counted.min(self.capacity) * self.token_bytes
    }

    /// Bytes that the first `tokens` tokens take.
    pub(crate) fn used_bytes(&self, tokens: usize) -> usize {
        self.runs * self.run_bytes(tokens)
    }

    /// The offset and length of each piece that the first `tokens` tokens take.
    pub(crate) fn pieces(&self, tokens: usize) -> impl Iterator<Item = (usize, usize)> {
        let length = self.run_bytes(tokens);
        let stride = self.capacity * self.token_bytes;
        (0..self.runs)
            .map(move |run| (run * stride, length))
            .filter(|&(_, length)| length > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(dtype: &str, shape: &[usize], tokens_dim: Option<usize>) -> Buffer {
        Buffer {
            name: "cache.0".into(),
            dtype: dtype.into(),
            shape: shape.to_vec(),
            tokens_dim,
        }
    }

    #[test]
    fn finds_the_bytes_of_the_first_tokens() {
        let layout = BufferLayout::new(&buffer("f32", &[1, 2, 16, 3], Some(2)), 16).unwrap();
        assert_eq!(layout.bytes(), 2 * 16 * 3 * 4);
        assert_eq!(layout.used_bytes(5), 2 * 5 * 12);
        let pieces: Vec<_> = layout.pieces(5).collect();
        assert_eq!(pieces, [(0, 60), (192, 60)]);
        assert_eq!(layout.pieces(0).count(), 0);
    }

    #[test]
    fn all_of_a_memory_is_used_at_any_length() {
        let layout = BufferLayout::new(&buffer("f32", &[1, 2, 5, 3], None), 16).unwrap();
        assert!(layout.is_memory());
        for tokens in [0, 1, 100] {
            assert_eq!(layout.used_bytes(tokens), layout.bytes());
            let pieces: Vec<_> = layout.pieces(tokens).collect();
            assert_eq!(pieces, [(0, 2 * 5 * 3 * 4)]);
        }
    }

    #[test]
    fn refuses_impossible_buffers() {
        let check = |dtype, shape: &[usize], tokens_dim, expect: &str| {
            let error = BufferLayout::new(&buffer(dtype, shape, tokens_dim), 16).unwrap_err();
            assert!(error.contains(expect), "{error}");
        };
        check("f64", &[1, 16], Some(1), "dtype `f64` is unknown");
        check("f32", &[1, 16], Some(2), "tokens_dim is outside");
        check("f32", &[1, 16], Some(9), "tokens_dim is outside");
        check("f32", &[1, 8], Some(1), "holds 8 tokens");
        check("f32", &[usize::MAX, 16, 2], Some(1), "too large");
        check("f32", &[usize::MAX, 2], None, "too large");
    }
}
