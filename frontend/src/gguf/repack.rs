//! Blocks of quantised numbers, taken apart into a graph's formats. Nothing is requantised: both
//! forms give the same numbers.

use super::blocks::{Blocks, Kind};
use crate::weights::Words;
use half::f16;
use mlxcel_ir::weight::SUPER_BLOCK;
use mlxcel_ir::{DType, WeightFormat};
use rayon::prelude::*;

/// The parts of a repacked weight.
pub(super) struct Repacked {
    pub(super) format: WeightFormat,
    /// Values, scales, biases.
    pub(super) parts: [Words; 3],
}

/// The parts of one row.
type Row<'a> = [&'a mut [u8]; 3];

/// Repacks rows of `row` bytes each; row `r` of the result is row `source(r)` of `bytes`.
pub(super) fn repack(
    blocks: Blocks,
    bytes: &[u8],
    row: usize,
    source: impl Fn(usize) -> usize + Sync,
) -> Repacked {
    let rows = bytes.len().checked_div(row).unwrap_or(0);
    let columns = row / blocks.size() * blocks.numbers();
    let format = match blocks.kind() {
        Kind::MxFp4 => WeightFormat::MxFp4,
        Kind::Nested => WeightFormat::KQuant {
            bits: blocks.bits() as u8,
        },
        // A product of f16 and six bits is no f16.
        Kind::Scaled(zero) => WeightFormat::ZeroPoint {
            bits: blocks.bits() as u8,
            zero,
            group: 32,
            scale: DType::F32,
        },
        Kind::ZeroPoint(zero) => WeightFormat::ZeroPoint {
            bits: blocks.bits() as u8,
            zero,
            group: blocks.numbers(),
            scale: DType::F16,
        },
        Kind::Affine => WeightFormat::Affine {
            bits: blocks.bits() as u8,
            group: blocks.numbers(),
            scale: DType::F16,
        },
    };
    let parts = format.parts(&[rows, columns]);
    let mut parts = parts.map(|part| Words::zeros(part.bytes()));
    {
        let [values, scales, biases] = &mut parts;
        let mut all: Vec<Row<'_>> = split(values.bytes_mut(), rows)
            .zip(split(scales.bytes_mut(), rows))
            .zip(split(biases.bytes_mut(), rows))
            .take(rows)
            .map(|((values, scales), biases)| [values, scales, biases])
            .collect();
        all.par_iter_mut().enumerate().for_each(|(index, to)| {
            let from = &bytes[source(index) * row..][..row];
            one(blocks, from, to);
        });
    }
    Repacked { format, parts }
}

/// `rows` equal pieces of a part, which may be empty.
fn split(part: &mut [u8], rows: usize) -> impl Iterator<Item = &mut [u8]> {
    let size = part.len().checked_div(rows).unwrap_or(0);
    let mut rest = part;
    std::iter::from_fn(move || {
        let (piece, after) = std::mem::take(&mut rest).split_at_mut_checked(size)?;
        rest = after;
        Some(piece)
    })
}

fn one(blocks: Blocks, from: &[u8], [values, scales, biases]: &mut Row<'_>) {
    let (bits, numbers) = (blocks.bits(), blocks.numbers());
    let count = from.len() / blocks.size();
    let mut codes = [0u8; SUPER_BLOCK];
    for (index, block) in from.chunks_exact(blocks.size()).enumerate() {
        blocks.codes(block, &mut codes[..numbers]);
        pack(
            &codes[..numbers],
            bits,
            &mut values[index * numbers * bits / 8..],
        );
        match blocks.kind() {
            Kind::MxFp4 => scales[index] = block[0],
            Kind::Affine => {
                let at = index * 2..(index + 1) * 2;
                scales[at.clone()].copy_from_slice(&block[..2]);
                biases[at].copy_from_slice(&block[2..4]);
            }
            Kind::ZeroPoint(_) => {
                let scale = &block[blocks.scale()..][..2];
                scales[index * 2..(index + 1) * 2].copy_from_slice(scale);
            }
            Kind::Scaled(_) => {
                let d = half_at(block, 0).to_f32();
                for (group, factor) in blocks.factors(block).into_iter().enumerate() {
                    let scale = d * f32::from(factor);
                    let at = 4 * (index * 8 + group)..4 * (index * 8 + group + 1);
                    scales[at].copy_from_slice(&scale.to_le_bytes());
                }
            }
            Kind::Nested => {
                let groups = biases.len() / (count * blocks.sets());
                for (set, at) in blocks.outer().iter().enumerate() {
                    let to = 2 * (set * count + index);
                    scales[to..to + 2].copy_from_slice(&block[*at..at + 2]);
                }
                let mut sets = biases.chunks_mut(count * groups);
                let mut next = || {
                    let set = sets.next().unwrap_or_default();
                    set.get_mut(index * groups..(index + 1) * groups)
                        .unwrap_or_default()
                };
                blocks.inner(block, next(), next());
            }
        }
    }
}

/// Codes as a stream of bits, lowest first; eight of them fill `bits` bytes.
fn pack(codes: &[u8], bits: usize, to: &mut [u8]) {
    for (codes, to) in codes.chunks_exact(8).zip(to.chunks_exact_mut(bits)) {
        let codes = codes.iter().enumerate();
        let stream: u64 = codes
            .map(|(place, &code)| u64::from(code) << (bits * place))
            .sum();
        to.copy_from_slice(&stream.to_le_bytes()[..bits]);
    }
}

pub(super) fn half_at(block: &[u8], at: usize) -> f16 {
    f16::from_le_bytes([block[at], block[at + 1]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlxcel_ir::weight::dequantize;
    use mlxcel_ir::{WeightData, WeightDecl};

    /// Repacks two rows, in reverse, and dequantises them.
    fn numbers(blocks: Blocks, bytes: &[u8]) -> Vec<f64> {
        let row = bytes.len() / 2;
        let repacked = repack(blocks, bytes, row, |row| 1 - row);
        let declaration = WeightDecl {
            name: "w".into(),
            shape: vec![2, row / blocks.size() * blocks.numbers()],
            format: repacked.format,
        };
        let [values, scales, biases] = repacked.parts.each_ref().map(Words::bytes);
        let data = WeightData {
            values,
            scales,
            biases,
        };
        dequantize::<f64>(&declaration, data).expect("a weight")
    }

    /// Numbers as the package `gguf` 0.19 dequantises them, for random blocks.
    #[test]
    fn repacked_numbers_are_those_of_the_blocks() {
        let file: &[u8] = include_bytes!("../../tests/data/gguf_blocks.safetensors");
        let header = u64::from_le_bytes(file[..8].try_into().expect("a length")) as usize;
        let entries: serde_json::Value =
            serde_json::from_slice(&file[8..8 + header]).expect("a header");
        let part = |name: String| {
            let end = |end: usize| {
                let offset = entries[&name]["data_offsets"][end].as_u64();
                8 + header + offset.expect("an offset") as usize
            };
            &file[end(0)..end(1)]
        };
        for blocks in Blocks::ALL {
            let expect = part(format!("{}.numbers", blocks.name()));
            let found = numbers(blocks, part(format!("{}.blocks", blocks.name())));
            assert_eq!(found.len() * 4, expect.len());
            let half = found.len() / 2;
            for (index, expect) in expect.chunks_exact(4).enumerate() {
                let expect = f32::from_le_bytes(expect.try_into().expect("four bytes"));
                // The two rows are in reverse.
                let found = found[(index + half) % found.len()];
                assert_eq!(found as f32, expect, "{blocks:?} {index}");
            }
        }
    }
}
