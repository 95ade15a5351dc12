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
    /// In a cache that rotates, how many tokens back a token reads.
    window: Option<usize>,
}

impl BufferLayout {
    /// The layout of a buffer, for a context of so many tokens and functions that add at most `most`, or what
    /// is wrong with it.
    pub(crate) fn new(buffer: &Buffer, context: usize, most: usize) -> Result<Self, String> {
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
        match buffer.window {
            None if !memory && capacity != context => {
                return Err(format!(
                    "buffers: `{name}` holds {capacity} tokens, but the context is {context}"
                ));
            }
            Some(window)
                if memory
                    || window == 0
                    || capacity >= context
                    || capacity < window.saturating_add(most) =>
            {
                return Err(format!(
                    "buffers: `{name}` holds {capacity} tokens: expected less than the context of {context}, \
                     and no less than its window of {window} and the {most} that a function adds"
                ));
            }
            _ => {}
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
            window: buffer.window,
        })
    }

    /// The layouts of an artifact's buffers.
    pub(crate) fn all(manifest: &Manifest) -> Result<Vec<Self>, String> {
        let most = most_tokens(manifest);
        manifest
            .buffers
            .iter()
            .map(|buffer| Self::new(buffer, manifest.context, most))
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

    /// Whether the buffer, in which positions before `written` were written, has all that a token at `position`
    /// reads: it does unless what was written later took the place of it.
    pub(crate) fn has_sight(&self, position: usize, written: usize) -> bool {
        self.window.is_none_or(|window| {
            let first = (position + 1).saturating_sub(window);
            written <= first + self.capacity
        })
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

/// The most tokens that a call of any function adds to a row.
pub(crate) fn most_tokens(manifest: &Manifest) -> usize {
    let tokens = manifest.functions.iter().map(|function| function.tokens);
    tokens.max().unwrap_or(1)
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
            window: None,
        }
    }

    #[test]
    fn caches_that_rotate_keep_a_window() {
        let rotating = |rows, window| {
            let buffer = Buffer {
                window: Some(window),
                ..buffer("bf16", &[1, rows, 3], Some(1))
            };
            BufferLayout::new(&buffer, 100, 8)
        };
        let layout = rotating(18, 10).unwrap();
        assert_eq!(layout.bytes(), 18 * 3 * 2);
        assert_eq!(layout.used_bytes(17), 17 * 3 * 2);
        assert_eq!(layout.used_bytes(90), layout.bytes());
        // A token at 50 reads from 41 on, whose row 59 takes.
        assert!(layout.has_sight(50, 59));
        assert!(!layout.has_sight(50, 60));
        assert!(layout.has_sight(3, 18));
        assert!(!layout.has_sight(3, 19));
        for (rows, window) in [(17, 10), (18, 11), (100, 10), (18, 0), (18, usize::MAX)] {
            let error = rotating(rows, window).unwrap_err();
            assert!(error.contains("and no less than its window"), "{error}");
        }
    }

    #[test]
    fn finds_the_bytes_of_the_first_tokens() {
        let layout = BufferLayout::new(&buffer("f32", &[1, 2, 16, 3], Some(2)), 16, 1).unwrap();
        assert_eq!(layout.bytes(), 2 * 16 * 3 * 4);
        assert_eq!(layout.used_bytes(5), 2 * 5 * 12);
        let pieces: Vec<_> = layout.pieces(5).collect();
        assert_eq!(pieces, [(0, 60), (192, 60)]);
        assert_eq!(layout.pieces(0).count(), 0);
    }

    #[test]
    fn all_of_a_memory_is_used_at_any_length() {
        let layout = BufferLayout::new(&buffer("f32", &[1, 2, 5, 3], None), 16, 1).unwrap();
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
            let error = BufferLayout::new(&buffer(dtype, shape, tokens_dim), 16, 1).unwrap_err();
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
