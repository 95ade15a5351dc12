//! The container format: metadata and tensor descriptions, every count and length of which is
//! checked against the bytes that are left before it is used.

use crate::LoadError;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

/// A scalar kind of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    U64,
    I64,
    F64,
}

impl Scalar {
    fn of(code: u32) -> Option<Self> {
        Some(match code {
            0 => Scalar::U8,
            1 => Scalar::I8,
            2 => Scalar::U16,
            3 => Scalar::I16,
            4 => Scalar::U32,
            5 => Scalar::I32,
            6 => Scalar::F32,
            7 => Scalar::Bool,
            10 => Scalar::U64,
            11 => Scalar::I64,
            12 => Scalar::F64,
            _ => return None,
        })
    }

    fn size(self) -> usize {
        match self {
            Scalar::U8 | Scalar::I8 | Scalar::Bool => 1,
            Scalar::U16 | Scalar::I16 => 2,
            Scalar::U32 | Scalar::I32 | Scalar::F32 => 4,
            Scalar::U64 | Scalar::I64 | Scalar::F64 => 8,
        }
    }

    /// The number in `bytes`, sign-extended; floats and what does not fit are `None`.
    fn integer(self, bytes: &[u8]) -> Option<i64> {
        let mut wide = [0u8; 8];
        wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let raw = u64::from_le_bytes(wide);
        match self {
            Scalar::U8 | Scalar::U16 | Scalar::U32 | Scalar::U64 => i64::try_from(raw).ok(),
            Scalar::I8 => Some(i64::from(raw as i8)),
            Scalar::I16 => Some(i64::from(raw as i16)),
            Scalar::I32 => Some(i64::from(raw as i32)),
            Scalar::I64 => Some(raw as i64),
            Scalar::Bool | Scalar::F32 | Scalar::F64 => None,
        }
    }
}

/// A value of metadata; text and arrays stay in the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Scalar(Scalar, &'a [u8]),
    Text(&'a str),
    Scalars(Scalar, &'a [u8]),
    Texts(Vec<&'a str>),
}

impl<'a> Value<'a> {
    pub(super) fn integer(&self) -> Option<i64> {
        match self {
            Value::Scalar(kind, bytes) => kind.integer(bytes),
            _ => None,
        }
    }

    /// A number. One stored in 32 bits becomes the shortest decimal that rounds to it, so that
    /// 0.00001 means what the original configuration says.
    pub(super) fn number(&self) -> Option<f64> {
        match *self {
            Value::Scalar(Scalar::F32, bytes) => {
                let number = f32::from_le_bytes(bytes.try_into().ok()?);
                number.to_string().parse().ok()
            }
            Value::Scalar(Scalar::F64, bytes) => Some(f64::from_le_bytes(bytes.try_into().ok()?)),
            _ => self.integer().map(|number| number as f64),
        }
    }

    pub(super) fn flag(&self) -> Option<bool> {
        match *self {
            Value::Scalar(Scalar::Bool, &[byte]) => Some(byte != 0),
            _ => None,
        }
    }

    /// The truth values of an array of them.
    pub(super) fn flags(&self) -> Option<impl Iterator<Item = bool> + use<'a>> {
        match *self {
            Value::Scalars(Scalar::Bool, bytes) => Some(bytes.iter().map(|&byte| byte != 0)),
            _ => None,
        }
    }

    pub(super) fn integers(&self) -> Option<impl Iterator<Item = i64> + use<'a>> {
        match *self {
            Value::Scalars(kind, bytes) if kind.integer(&[]).is_some() => Some(
                bytes
                    .chunks_exact(kind.size())
                    .map(move |bytes| kind.integer(bytes).unwrap_or(-1)),
            ),
            _ => None,
        }
    }

    /// The floats of an array of them.
    pub(super) fn floats(&self) -> Option<impl Iterator<Item = f32> + use<'a>> {
        match *self {
            Value::Scalars(Scalar::F32, bytes) => Some(
                bytes
                    .chunks_exact(4)
                    .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap_or([0; 4]))),
            ),
            _ => None,
        }
    }
}

/// A tensor's description as it stands in the file.
#[derive(Clone, Debug)]
pub(super) struct Described<'a> {
    pub(super) name: &'a str,
    /// Dimensions, the fastest first.
    pub(super) dims: Vec<u64>,
    /// Code of the element type.
    pub(super) kind: u32,
    /// From the start of the data.
    pub(super) offset: u64,
}

/// What precedes the data of a file.
#[derive(Debug)]
pub(super) struct Head<'a> {
    pub(super) file: &'a Path,
    pub(super) metadata: HashMap<&'a str, Value<'a>>,
    pub(super) tensors: Vec<Described<'a>>,
    /// The whole file.
    pub(super) bytes: &'a [u8],
    /// Where the data stands in the file.
    pub(super) data: Range<usize>,
}

/// Reads what precedes the data.
pub(super) fn head<'a>(file: &'a Path, bytes: &'a [u8]) -> Result<Head<'a>, LoadError> {
    let mut reader = Reader { file, bytes, at: 0 };
    if reader.take(4, "the magic")? != b"GGUF" {
        return Err(reader.error("does not start with `GGUF`; it is not a GGUF file"));
    }
    let version = reader.u32("the version")?;
    if !(2..=3).contains(&version) {
        return Err(reader.error(format!(
            "is GGUF version {version}; versions 2 and 3, little-endian, are supported"
        )));
    }
    let tensor_count = reader.u64("the tensor count")?;
    let entry_count = reader.u64("the metadata count")?;
    // An entry takes at least a key's length, a kind and a byte; a tensor a name's length, a number
    // of dimensions, a kind and an offset.
    reader.expect(entry_count, 13, "metadata entries")?;
    reader.expect(tensor_count, 24, "tensors")?;
    let mut metadata = HashMap::new();
    for _ in 0..entry_count {
        let key = reader.text("a metadata key")?;
        let value = reader.value(key)?;
        if metadata.insert(key, value).is_some() {
            return Err(reader.error(format!("metadata `{key}` stands in it twice")));
        }
    }
    let mut tensors = Vec::new();
    for _ in 0..tensor_count {
        let name = reader.text("a tensor name")?;
        let rank = reader.u32(name)?;
        if rank > 8 {
            return Err(reader.error(format!("tensor `{name}` has {rank} dimensions")));
        }
        let mut dims = Vec::new();
        for _ in 0..rank {
            dims.push(reader.u64(name)?);
        }
        tensors.push(Described {
            name,
            dims,
            kind: reader.u32(name)?,
            offset: reader.u64(name)?,
        });
    }
    let field = "general.alignment";
    let alignment = match metadata.get(field) {
        None => 32,
        Some(value) => value
            .integer()
            .filter(|&size| size.count_ones() == 1 && (8..=1 << 20).contains(&size))
            .ok_or_else(|| LoadError::Field {
                file: file.to_path_buf(),
                field: field.into(),
                reason: "must be a power of two from 8 to 1048576".into(),
            })? as usize,
    };
    let start = reader.at.next_multiple_of(alignment).min(bytes.len());
    Ok(Head {
        file,
        metadata,
        tensors,
        bytes,
        data: start..bytes.len(),
    })
}

struct Reader<'a, 'f> {
    file: &'f Path,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a, '_> {
    fn error(&self, reason: impl Into<String>) -> LoadError {
        LoadError::format(self.file, reason)
    }

    /// Checks that `count` items of at least `size` bytes may still follow.
    fn expect(&self, count: u64, size: u64, what: &str) -> Result<(), LoadError> {
        let left = (self.bytes.len() - self.at) as u64;
        match count.checked_mul(size) {
            Some(needed) if needed <= left => Ok(()),
            _ => Err(self.error(format!(
                "says that {count} {what} follow byte {}, but has only {left} bytes left; the file \
                 is truncated or damaged",
                self.at
            ))),
        }
    }

    fn take(&mut self, size: u64, what: &str) -> Result<&'a [u8], LoadError> {
        self.expect(size, 1, &format!("bytes of {what}"))?;
        let taken = &self.bytes[self.at..self.at + size as usize];
        self.at += size as usize;
        Ok(taken)
    }

    fn u32(&mut self, what: &str) -> Result<u32, LoadError> {
        let bytes = self.take(4, what)?.try_into().unwrap_or([0; 4]);
        Ok(u32::from_le_bytes(bytes))
    }

    fn u64(&mut self, what: &str) -> Result<u64, LoadError> {
        let bytes = self.take(8, what)?.try_into().unwrap_or([0; 8]);
        Ok(u64::from_le_bytes(bytes))
    }

    fn text(&mut self, what: &str) -> Result<&'a str, LoadError> {
        let length = self.u64(what)?;
        let bytes = self.take(length, what)?;
        std::str::from_utf8(bytes)
            .map_err(|error| self.error(format!("{what} before byte {}: {error}", self.at)))
    }

    fn value(&mut self, key: &str) -> Result<Value<'a>, LoadError> {
        const TEXT: u32 = 8;
        const ARRAY: u32 = 9;
        let unknown = |reader: &Self, code: u32| {
            reader.error(format!("metadata `{key}` has the unknown kind {code}"))
        };
        match self.u32(key)? {
            TEXT => Ok(Value::Text(self.text(key)?)),
            ARRAY => {
                let code = self.u32(key)?;
                let count = self.u64(key)?;
                if code == TEXT {
                    self.expect(count, 8, key)?;
                    let texts = (0..count).map(|_| self.text(key));
                    return Ok(Value::Texts(texts.collect::<Result<_, _>>()?));
                }
                let kind = Scalar::of(code).ok_or_else(|| unknown(self, code))?;
                self.expect(count, kind.size() as u64, key)?;
                let bytes = self.take(count * kind.size() as u64, key)?;
                Ok(Value::Scalars(kind, bytes))
            }
            code => {
                let kind = Scalar::of(code).ok_or_else(|| unknown(self, code))?;
                Ok(Value::Scalar(kind, self.take(kind.size() as u64, key)?))
            }
        }
    }
}
