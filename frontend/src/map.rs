//! Files as memory: mapped for weights, read whole for small text.

use crate::LoadError;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// A file mapped into memory, read-only.
#[derive(Debug)]
pub(crate) struct MappedFile {
    path: PathBuf,
    /// `None` for an empty file, which cannot be mapped.
    map: Option<memmap2::Mmap>,
}

impl MappedFile {
    /// Maps the file at `path`.
    pub(crate) fn open(path: &Path) -> Result<Self, LoadError> {
        let fail = || LoadError::read(path);
        let file = File::open(path).map_err(fail())?;
        let metadata = file.metadata().map_err(fail())?;
        if !metadata.is_file() {
            return Err(LoadError::format(path, "is not a file"));
        }
        let map = match metadata.len() {
            0 => None,
            // SAFETY: the map is read-only and private to this value. Nothing in this process writes
            // the file; as with every mapping of weights, another process that truncates it while
            // it is used takes the pages away, which no check here could prevent.
            _ => Some(unsafe { memmap2::Mmap::map(&file) }.map_err(fail())?),
        };
        Ok(Self {
            path: path.to_path_buf(),
            map,
        })
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file's bytes; the first one lies at a page boundary.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or(&[])
    }
}

/// The largest configuration that is read. As JSON it takes up to a hundred times its length.
pub(crate) const CONFIG: u64 = 8 << 20;
/// The largest index or template that is read.
pub(crate) const SMALL: u64 = 64 << 20;
/// The largest tokenizer that is read.
pub(crate) const TOKENIZER: u64 = 512 << 20;

/// Reads a file of at most `limit` bytes.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Vec<u8>, LoadError> {
    let file = File::open(path).map_err(LoadError::read(path))?;
    let mut bytes = Vec::new();
    file.take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(LoadError::read(path))?;
    if bytes.len() as u64 > limit {
        return Err(LoadError::format(
            path,
            format!("is longer than the {limit} bytes that such a file may have"),
        ));
    }
    Ok(bytes)
}

/// Reads a JSON file of at most `limit` bytes.
pub(crate) fn read_json(path: &Path, limit: u64) -> Result<serde_json::Value, LoadError> {
    parse_json(path, &read(path, limit)?)
}

/// Parses the JSON that `path` holds; serde_json bounds its depth. Numbers that JSON does not have,
/// which Python writes as `Infinity` and `NaN`, become strings.
pub(crate) fn parse_json(path: &Path, bytes: &[u8]) -> Result<serde_json::Value, LoadError> {
    serde_json::from_slice(bytes).or_else(|error| {
        quoted(bytes)
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .ok_or_else(|| LoadError::format(path, format!("is not valid JSON: {error}")))
    })
}

/// `bytes` with the numbers that JSON does not have in quotes; nothing where there are none.
fn quoted(bytes: &[u8]) -> Option<Vec<u8>> {
    const WORDS: [&[u8]; 3] = [b"-Infinity", b"Infinity", b"NaN"];
    let mut result = Vec::with_capacity(bytes.len() + 16);
    let (mut at, mut within, mut found) = (0, false, false);
    while let Some(&byte) = bytes.get(at) {
        let rest = bytes.get(at..).unwrap_or_default();
        let word = WORDS.into_iter().find(|word| rest.starts_with(word));
        let length = match word.filter(|_| !within) {
            Some(word) => {
                found = true;
                result.extend([b"\"", word, b"\""].concat());
                word.len()
            }
            None => {
                // An escaped quote does not end a string.
                let length = if within && byte == b'\\' { 2 } else { 1 };
                within ^= byte == b'"';
                result.extend(rest.iter().take(length));
                length
            }
        };
        at += length;
    }
    found.then_some(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn numbers_that_json_lacks_are_strings() {
        let check = |text: &str, expect: Option<Value>| {
            let found = parse_json(Path::new("config.json"), text.as_bytes()).ok();
            assert_eq!(found, expect, "{text}");
        };
        check(
            r#"{"a": [0.0, Infinity]}"#,
            Some(json!({"a": [0.0, "Infinity"]})),
        );
        check(r#"[-Infinity,NaN]"#, Some(json!(["-Infinity", "NaN"])));
        check(
            r#"{"NaN": "\"Infinity", "b": Infinity}"#,
            Some(json!({"NaN": "\"Infinity", "b": "Infinity"})),
        );
        check(r#"{"a": infinity}"#, None);
        check(r#"{"a": Infinityy}"#, None);
        check(r#"{"a": Infinity"#, None);
        check(r#"["\"#, None);
    }
}
