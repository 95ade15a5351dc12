//! The weights of a model in one safetensors file, laid out so that a runtime can use them where
//! the file is mapped.
//!
//! Every part starts at a multiple of [`ALIGNMENT`] bytes. The format knows no gaps, so where the
//! size of a part leaves one, a tensor named `padding.N` fills it.

use crate::CompileError;
use crate::panels;
use crate::parts::Parts;
use mlxcel_frontend::artifact::{WEIGHTS, compiled_bits, parameter_names, widen_codes};
use mlxcel_ir::weight::PartType;
use mlxcel_ir::weight::panel::PANEL;
use mlxcel_ir::{DType, WeightDecl, WeightFormat, WeightSource};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::io::{BufWriter, Write};

/// The alignment of each part in the file.
const ALIGNMENT: usize = 64;

/// One tensor of the file.
struct Part<'a> {
    name: String,
    dtype: &'static str,
    shape: Vec<usize>,
    bytes: &'a [u8],
    /// What is done to the bytes when they are written.
    change: Change<'a>,
}

/// How the bytes of a part change when they are written.
#[derive(Clone, Copy)]
enum Change<'a> {
    None,
    /// Codes of so many bits take more.
    Widen(usize, usize),
    /// Rows of part `1` of the weight become panels.
    Arrange(&'a WeightDecl, usize),
}

impl Part<'_> {
    /// Bytes in the file.
    fn len(&self) -> usize {
        match self.change {
            Change::Widen(bits, wide) => self.bytes.len() / bits * wide,
            _ => self.bytes.len(),
        }
    }

    /// Bytes that are changed and written together.
    fn chunk(&self) -> usize {
        match self.change {
            Change::None => 1 << 22,
            Change::Widen(bits, _) => bits << 19,
            Change::Arrange(weight, _) => {
                let rows = weight.shape.first().copied().unwrap_or(PANEL);
                (self.bytes.len() / (rows / PANEL).max(1)).max(1)
            }
        }
    }
}

/// Writes the weights `declared` as a part of an artifact. `progress` gets the bytes written and their
/// total, and says whether to go on.
pub(crate) fn write(
    artifact: &mut Parts,
    declared: &[WeightDecl],
    source: &dyn WeightSource,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<(), CompileError> {
    let parts = parts(declared, source)?;
    let header = header(&parts);
    let total: u64 = parts.iter().map(|part| part.len() as u64).sum();
    let head = (size_of::<u64>() + header.len()) as u64;
    artifact.write(WEIGHTS, head + total, |path, output| {
        let file = |source| CompileError::File {
            action: "write",
            path: path.to_path_buf(),
            source,
        };
        let mut output = BufWriter::with_capacity(1 << 20, output);
        let mut hash = Sha256::new();
        for bytes in [&(header.len() as u64).to_le_bytes(), header.as_bytes()] {
            hash.update(bytes);
            output.write_all(bytes).map_err(file)?;
        }
        let mut written = 0;
        for part in &parts {
            for chunk in part.bytes.chunks(part.chunk()) {
                let chunk = match part.change {
                    Change::None => Cow::Borrowed(chunk),
                    Change::Widen(bits, wide) => Cow::Owned(widen_codes(chunk, bits, wide)),
                    Change::Arrange(weight, index) => {
                        Cow::Owned(panels::part(weight, index, chunk))
                    }
                };
                hash.update(&chunk);
                output.write_all(&chunk).map_err(file)?;
                written += chunk.len() as u64;
                if !progress(written, total) {
                    return Err(CompileError::Cancelled);
                }
            }
        }
        output.flush().map_err(file)?;
        Ok(hex(&hash.finalize()))
    })
}

/// The tensors of the file.
fn parts<'a>(
    declared: &'a [WeightDecl],
    source: &'a dyn WeightSource,
) -> Result<Vec<Part<'a>>, CompileError> {
    let mut parts = Vec::new();
    for weight in declared {
        let data = source
            .get(&weight.name)
            .ok_or_else(|| CompileError::Weight {
                name: weight.name.clone(),
                reason: "the model does not have it".into(),
            })?;
        let slices = [data.values, data.scales, data.biases];
        if slices.map(<[u8]>::len) != weight.part_bytes() {
            return Err(CompileError::Weight {
                name: weight.name.clone(),
                reason: format!(
                    "it has {:?} bytes of values, scales and biases, and its graph needs {:?}",
                    slices.map(<[u8]>::len),
                    weight.part_bytes()
                ),
            });
        }
        let names = parameter_names(&weight.name);
        let code = weight.format.coded().map(|coded| coded.code);
        let sizes = code.map(|code| (code.bits(), compiled_bits(code)));
        let mut sizes = sizes.filter(|(bits, wide)| bits != wide);
        let parts_of = names.into_iter().zip(weight.parts()).zip(slices);
        for (index, ((name, mut part), bytes)) in parts_of.enumerate() {
            // Values come first.
            let change = match (sizes.take(), weight.format) {
                (Some((bits, wide)), _) => Change::Widen(bits, wide),
                (_, WeightFormat::Panels { .. }) => Change::Arrange(weight, index),
                _ => Change::None,
            };
            if let (Change::Widen(bits, wide), Some(words)) = (change, part.shape.last_mut()) {
                *words = *words * wide / bits;
            }
            if !bytes.is_empty() {
                parts.push(Part {
                    name,
                    dtype: type_name(part.element),
                    shape: part.shape,
                    bytes,
                    change,
                });
            }
        }
    }
    // Parts that end at the alignment first: they need no padding between them.
    parts.sort_by_key(|part| part.len() % ALIGNMENT != 0);
    Ok(padded(parts))
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn type_name(element: PartType) -> &'static str {
    match element {
        PartType::U8 => "U8",
        PartType::Element(dtype) => match dtype {
            DType::Bool => "BOOL",
            DType::I32 => "I32",
            DType::U32 => "U32",
            DType::F16 => "F16",
            DType::BF16 => "BF16",
            DType::F32 => "F32",
        },
    }
}

/// The parts with what fills the gaps between them.
fn padded(parts: Vec<Part<'_>>) -> Vec<Part<'_>> {
    const ZEROS: [u8; ALIGNMENT] = [0; ALIGNMENT];
    let count = parts.len();
    let mut filled = Vec::with_capacity(count);
    for (index, part) in parts.into_iter().enumerate() {
        let gap = part.len().next_multiple_of(ALIGNMENT) - part.len();
        filled.push(part);
        if gap > 0 && index + 1 < count {
            filled.push(Part {
                name: format!("padding.{index}"),
                dtype: "U8",
                shape: vec![gap],
                bytes: &ZEROS[..gap],
                change: Change::None,
            });
        }
    }
    filled
}

/// The header, with spaces at its end so that the data starts at the alignment.
fn header(parts: &[Part<'_>]) -> String {
    let mut entries = serde_json::Map::new();
    let mut offset = 0;
    for part in parts {
        let end = offset + part.len();
        entries.insert(
            part.name.clone(),
            serde_json::json!({
                "dtype": part.dtype,
                "shape": part.shape,
                "data_offsets": [offset, end],
            }),
        );
        offset = end;
    }
    let mut text = serde_json::Value::Object(entries).to_string();
    let start = size_of::<u64>() + text.len();
    let gap = start.next_multiple_of(ALIGNMENT) - start;
    text.extend(std::iter::repeat_n(' ', gap));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Form;
    use mlxcel_ir::WeightData;

    struct Source;

    impl WeightSource for Source {
        fn get(&self, name: &str) -> Option<WeightData<'_>> {
            static BYTES: [u8; 512] = [7; 512];
            let (values, sides) = match name {
                "odd" => (12, 0),
                "codes" => (256, 64),
                _ => return None,
            };
            Some(WeightData {
                values: &BYTES[..values],
                scales: &BYTES[..sides],
                biases: &BYTES[..sides],
            })
        }
    }

    fn dense(name: &str, size: usize) -> WeightDecl {
        WeightDecl {
            name: name.into(),
            shape: vec![size],
            format: WeightFormat::Dense(DType::F32),
        }
    }

    #[test]
    fn parts_are_aligned_and_the_file_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(WEIGHTS);
        let codes = WeightDecl {
            name: "codes".into(),
            shape: vec![8, 64],
            format: WeightFormat::Affine {
                bits: 4,
                group: 32,
                scale: DType::F32,
            },
        };
        let declared = [dense("odd", 3), codes];
        let mut parts = Parts::new(folder.path(), Form::Folder).unwrap();
        write(&mut parts, &declared, &Source, &mut |_, _| true).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len() as u64, parts.list()[WEIGHTS].bytes);
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
        let mut end = 0;
        for name in ["codes", "codes.scales", "codes.biases", "odd"] {
            let offsets = &header[name]["data_offsets"];
            let start = 8 + length + offsets[0].as_u64().unwrap() as usize;
            assert_eq!(start % ALIGNMENT, 0, "{name}");
            end = 8 + length + offsets[1].as_u64().unwrap() as usize;
        }
        assert_eq!(end, bytes.len());
        assert_eq!(header["codes"]["shape"], serde_json::json!([8, 8]));
    }

    #[test]
    fn unfit_weights_are_named() {
        let check = |weight: WeightDecl, expect: &str| {
            let folder = tempfile::tempdir().unwrap();
            let mut parts = Parts::new(folder.path(), Form::Folder).unwrap();
            let error = write(&mut parts, &[weight], &Source, &mut |_, _| true)
                .err()
                .unwrap();
            assert!(error.to_string().contains(expect), "{error}");
        };
        check(dense("absent", 3), "`absent`: the model does not have it");
        check(dense("odd", 4), "`odd`: it has [12, 0, 0] bytes");
    }
}
