//! Sequences as bytes.
//!
//! Little-endian: the magic, the fingerprint of the runtime's graph and weights, the length in
//! tokens, then the parts of each state: keys and values `f32[length, heads, width]` of a cache, the
//! whole `f32[heads, key, value]` of a memory.

use crate::Error;
use crate::sequence::part_size;
use mlxcel_ir::{Graph, StateDecl, WeightSource};
use std::hash::Hasher;

const MAGIC: [u8; 8] = *b"mlxcelK1";
const HEADER: usize = 24;
/// Bytes of each weight that the fingerprint covers.
const SAMPLE: usize = 256;

/// FNV-1a, which is the same in every process.
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// A number that differs between models: of their graphs and of the beginning of each weight.
pub(crate) fn fingerprint(graph: &Graph, source: &dyn WeightSource) -> u64 {
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    for state in &graph.states {
        hasher.write(format!("{state:?}").as_bytes());
    }
    for weight in &graph.weights {
        hasher.write(format!("{weight:?}").as_bytes());
        if let Some(data) = source.get(&weight.name) {
            hasher.write(data.values.get(..SAMPLE).unwrap_or(data.values));
        }
    }
    hasher.finish()
}

/// The bytes of a sequence of `length` tokens.
pub(crate) fn write(fingerprint: u64, length: usize, parts: &[Vec<Vec<f32>>]) -> Vec<u8> {
    let numbers: usize = parts.iter().flatten().map(Vec::len).sum();
    let mut bytes = Vec::with_capacity(HEADER + 4 * numbers);
    bytes.extend(MAGIC);
    bytes.extend(fingerprint.to_le_bytes());
    bytes.extend((length as u64).to_le_bytes());
    for part in parts.iter().flatten() {
        bytes.extend(part.iter().flat_map(|number| number.to_le_bytes()));
    }
    bytes
}

/// A sequence read back: its length, and the parts of each state.
pub(crate) type Saved = (usize, Vec<Vec<Vec<f32>>>);

/// Reads the bytes of [`write`].
pub(crate) fn read(
    bytes: &[u8],
    fingerprint: u64,
    context: usize,
    states: &[StateDecl],
) -> Result<Saved, Error> {
    let fail = |reason: &str| Error::Saved(reason.into());
    let field = |at: usize| -> Option<[u8; 8]> { bytes.get(at..at + 8)?.try_into().ok() };
    let (Some(magic), Some(print), Some(length)) = (field(0), field(8), field(16)) else {
        return Err(fail("it is too short"));
    };
    if magic != MAGIC {
        return Err(fail("it was not saved by this program"));
    }
    if u64::from_le_bytes(print) != fingerprint {
        return Err(fail("it was saved from another model"));
    }
    let length = usize::try_from(u64::from_le_bytes(length)).unwrap_or(usize::MAX);
    if length > context {
        return Err(Error::Saved(format!(
            "it holds {length} tokens, more than the context of {context}"
        )));
    }
    let total: usize = states.iter().map(|state| state.elements(length)).sum();
    let body = &bytes[HEADER..];
    if body.len() != 4 * total {
        return Err(Error::Saved(format!(
            "{length} tokens take {} bytes, it has {}",
            4 * total,
            body.len()
        )));
    }
    let mut rest = body;
    let mut take = |size: usize| {
        let (part, after) = rest.split_at(4 * size);
        rest = after;
        bytemuck::pod_collect_to_vec(part)
    };
    let parts = states.iter().map(|state| {
        let parts = state.parts().iter();
        parts
            .map(|&part| take(part_size(state, part, length)))
            .collect()
    });
    let parts = parts.collect();
    Ok((length, parts))
}
