//! The safetensors format: an 8-byte little-endian header length, a JSON header, then the data.
//!
//! The crate `safetensors` checks much the same, but its errors do not name the tensor at fault, so
//! the header is checked here: every length, shape and offset, before any of it is used.

use crate::LoadError;
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::error::Category;
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::path::Path;

/// The longest header that is read, as in the reference implementation.
const HEADER: u64 = 100_000_000;

/// Element types that a file may have, with the bits of an element.
const TYPES: &[(&str, usize)] = &[
    ("BOOL", 8),
    ("U8", 8),
    ("I8", 8),
    ("F8_E5M2", 8),
    ("F8_E4M3", 8),
    ("F8_E8M0", 8),
    ("I16", 16),
    ("U16", 16),
    ("F16", 16),
    ("BF16", 16),
    ("I32", 32),
    ("U32", 32),
    ("F32", 32),
    ("C64", 64),
    ("F64", 64),
    ("I64", 64),
    ("U64", 64),
    ("F4", 4),
    ("F6_E2M3", 6),
    ("F6_E3M2", 6),
];

/// A tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Its name.
    pub(crate) name: String,
    /// Its element type as the format names it (`F32`, `BF16`).
    pub(crate) dtype: String,
    /// Its dimensions.
    pub(crate) shape: Vec<usize>,
    /// Where its bytes stand in the file.
    pub(crate) range: Range<usize>,
}

/// Reads and checks the header of a file with the content `bytes`.
///
/// The tensors must fill the data exactly: no byte of it belongs to two tensors or to none.
///
/// # Errors
/// What breaks the format, with the tensor's name where there is one.
pub(crate) fn parse(file: &Path, bytes: &[u8]) -> Result<Vec<Entry>, LoadError> {
    let format = |reason: String| LoadError::format(file, reason);
    let Some((length, rest)) = bytes.split_first_chunk::<8>() else {
        return Err(format(format!(
            "has {} bytes, too few for a safetensors header; the file is truncated",
            bytes.len()
        )));
    };
    let length = u64::from_le_bytes(*length);
    if length > HEADER || length > rest.len() as u64 {
        return Err(format(format!(
            "the header says it is {length} bytes long, but only {} bytes follow (and at most \
             {HEADER} are allowed); the file is truncated or is not safetensors",
            rest.len()
        )));
    }
    let (header, data) = rest.split_at(length as usize);
    let mut entries = Vec::new();
    for (name, description) in members(file, header)? {
        entries.push(entry(
            file,
            name,
            description,
            8 + length as usize,
            data.len(),
        )?);
    }
    check_layout(file, &mut entries, 8 + length as usize, bytes.len())?;
    Ok(entries)
}

/// A tensor as the header describes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (usize, usize),
}

/// One tensor's description, checked against the `size` bytes of data at `start`.
fn entry(
    file: &Path,
    name: String,
    description: Description,
    start: usize,
    size: usize,
) -> Result<Entry, LoadError> {
    let fail = |reason: String| LoadError::Tensor {
        file: file.to_path_buf(),
        tensor: name.clone(),
        reason,
    };
    let Description {
        dtype,
        shape,
        data_offsets: (from, to),
    } = description;
    let &(_, bits) = TYPES
        .iter()
        .find(|(known, _)| *known == dtype)
        .ok_or_else(|| fail(format!("dtype `{dtype}` is not known")))?;
    if from > to {
        return Err(fail(format!("data_offsets [{from}, {to}] are reversed")));
    }
    if to > size {
        return Err(fail(format!(
            "data_offsets [{from}, {to}] end outside of the file, which has {size} bytes of data; \
             the file is truncated"
        )));
    }
    let needed = shape
        .iter()
        .try_fold(bits, |product, &dim| product.checked_mul(dim))
        .ok_or_else(|| fail(format!("shape {shape:?} is too large")))?;
    if !needed.is_multiple_of(8) || needed / 8 != to - from {
        return Err(fail(format!(
            "shape {shape:?} of {dtype} takes {} bytes, but data_offsets [{from}, {to}] give {}",
            needed.div_ceil(8),
            to - from
        )));
    }
    Ok(Entry {
        name,
        dtype,
        shape,
        range: start + from..start + to,
    })
}

/// Sorts the entries by position and checks that they fill `start..end` without gap or overlap.
fn check_layout(
    file: &Path,
    entries: &mut [Entry],
    start: usize,
    end: usize,
) -> Result<(), LoadError> {
    entries.sort_by_key(|entry| (entry.range.start, entry.range.end));
    let mut filled = start;
    for (index, entry) in entries.iter().enumerate() {
        let fail = |reason: String| LoadError::Tensor {
            file: file.to_path_buf(),
            tensor: entry.name.clone(),
            reason,
        };
        let before = index.checked_sub(1).map(|index| &entries[index].name);
        if entry.range.start < filled {
            let other = before.map_or("the header", String::as_str);
            return Err(fail(format!("data_offsets overlap those of `{other}`")));
        }
        if entry.range.start > filled {
            let gap = entry.range.start - filled;
            return Err(fail(format!(
                "data_offsets leave {gap} bytes before it that belong to no tensor"
            )));
        }
        filled = entry.range.end;
    }
    if filled != end {
        return Err(LoadError::format(
            file,
            format!("has {} bytes after its last tensor", end - filled),
        ));
    }
    Ok(())
}

/// The tensors' descriptions in order. They are read as such and not as JSON values, which would take
/// many times the memory of the header.
fn members(file: &Path, header: &[u8]) -> Result<Vec<(String, Description)>, LoadError> {
    let mut reading = None;
    let mut json = serde_json::Deserializer::from_slice(header);
    let members = json
        .deserialize_map(Members(&mut reading))
        .and_then(|members| json.end().map(|()| members));
    members.map_err(|error| match (error.classify(), reading) {
        (Category::Data, Some(tensor)) => LoadError::Tensor {
            file: file.to_path_buf(),
            tensor,
            reason: format!("its description is wrong: {error}"),
        },
        _ => LoadError::format(file, format!("the header is not valid JSON: {error}")),
    })
}

/// Reads the header's members, keeping the name of the tensor whose description is being read. A repeated
/// name is an error.
struct Members<'a>(&'a mut Option<String>);

impl<'de> Visitor<'de> for Members<'_> {
    type Value = Vec<(String, Description)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensor descriptions")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut seen = HashSet::new();
        let mut members = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if !seen.insert(name.clone()) {
                return Err(A::Error::custom(format!(
                    "tensor `{name}` is described twice"
                )));
            }
            if name == "__metadata__" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            *self.0 = Some(name.clone());
            members.push((name, map.next_value()?));
            *self.0 = None;
        }
        Ok(members)
    }
}
