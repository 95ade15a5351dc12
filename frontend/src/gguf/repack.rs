//! Blocks of quantised numbers, taken apart into MLX's affine form. Nothing is requantised: both
//! forms give the same numbers.

use half::f16;
use mlxcel_ir::{DType, WeightFormat};
use rayon::prelude::*;

/// Numbers in a block, of every format here.
pub(super) const BLOCK: usize = 32;

/// A format of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocks {
    /// A scale `d` and 32 codes of 4 bits: `d * (q - 8)`.
    Q4_0,
    /// A scale `d`, a minimum `m` and 32 codes of 4 bits: `d * q + m`.
    Q4_1,
    /// A scale `d` and 32 signed codes of 8 bits: `d * q`.
    Q8_0,
}

impl Blocks {
    /// Bytes of a block.
    pub(super) fn size(self) -> usize {
        match self {
            Blocks::Q4_0 => 2 + BLOCK / 2,
            Blocks::Q4_1 => 4 + BLOCK / 2,
            Blocks::Q8_0 => 2 + BLOCK,
        }
    }

    fn bits(self) -> usize {
        match self {
            Blocks::Q4_0 | Blocks::Q4_1 => 4,
            Blocks::Q8_0 => 8,
        }
    }

    /// The bias of a block with the scale `d`, as a multiple of it; `None` if the block stores one.
    fn bias(self) -> Option<f32> {
        match self {
            Blocks::Q4_0 => Some(-8.0),
            Blocks::Q4_1 => None,
            Blocks::Q8_0 => Some(-128.0),
        }
    }
}

/// The parts of a repacked weight.
pub(super) struct Repacked {
    pub(super) format: WeightFormat,
    pub(super) values: Vec<u64>,
    pub(super) scales: Vec<u64>,
    pub(super) biases: Vec<u64>,
    /// Bytes of values, and of scales and of biases.
    pub(super) lengths: [usize; 2],
}

/// Repacks rows of `row` bytes each; row `r` of the result is row `source(r)` of `bytes`.
///
/// Scales and biases stay f16, in which a multiple of `d` by a power of two is exact, unless it
/// overflows: then those of the whole weight become f32.
pub(super) fn repack(
    blocks: Blocks,
    bytes: &[u8],
    row: usize,
    source: impl Fn(usize) -> usize + Sync,
) -> Repacked {
    let per_row = row / blocks.size();
    let count = bytes.len() / blocks.size();
    let half_fits = blocks.bias().is_none_or(|factor| {
        bytes
            .par_chunks_exact(blocks.size())
            .with_min_len(4096)
            .all(|block| {
                let scale = half_at(block, 0);
                !scale.is_finite() || f16::from_f32(scale.to_f32() * factor).is_finite()
            })
    });
    let scale = if half_fits { DType::F16 } else { DType::F32 };
    let codes = BLOCK * blocks.bits() / 8;
    let lengths = [count * codes, count * scale.size()];
    let mut values = vec![0u64; lengths[0].div_ceil(8)];
    let mut scales = vec![0u64; lengths[1].div_ceil(8)];
    let mut biases = vec![0u64; lengths[1].div_ceil(8)];
    if per_row > 0 {
        let side = per_row * scale.size();
        let values: &mut [u8] = bytemuck::cast_slice_mut(&mut values);
        let scales: &mut [u8] = bytemuck::cast_slice_mut(&mut scales);
        let biases: &mut [u8] = bytemuck::cast_slice_mut(&mut biases);
        values[..lengths[0]]
            .par_chunks_exact_mut(per_row * codes)
            .zip(scales[..lengths[1]].par_chunks_exact_mut(side))
            .zip(biases[..lengths[1]].par_chunks_exact_mut(side))
            .enumerate()
            .for_each(|(index, ((values, scales), biases))| {
                let from = &bytes[source(index) * row..][..row];
                for (block, from) in from.chunks_exact(blocks.size()).enumerate() {
                    unpack(blocks, from, &mut values[block * codes..][..codes]);
                    let d = half_at(from, 0);
                    let bias = match blocks.bias() {
                        Some(factor) => d.to_f32() * factor,
                        None => half_at(from, 2).to_f32(),
                    };
                    let at = block * scale.size()..(block + 1) * scale.size();
                    put(&mut scales[at.clone()], d.to_f32());
                    put(&mut biases[at], bias);
                }
            });
    }
    Repacked {
        format: WeightFormat::Affine {
            bits: blocks.bits() as u8,
            group: BLOCK,
            scale,
        },
        values,
        scales,
        biases,
        lengths,
    }
}

/// Writes a number as f16 or f32, by the room there is.
fn put(to: &mut [u8], number: f32) {
    match to.len() {
        2 => to.copy_from_slice(&f16::from_f32(number).to_le_bytes()),
        _ => to.copy_from_slice(&number.to_le_bytes()),
    }
}

fn half_at(block: &[u8], at: usize) -> f16 {
    f16::from_le_bytes([block[at], block[at + 1]])
}

/// The codes of a block as a stream of unsigned codes, lowest bits first.
///
/// A block of 4-bit codes holds number `i` in the low half of byte `i` and number `16 + i` in the
/// high half; the stream holds numbers `2 i` and `2 i + 1` in byte `i`.
fn unpack(blocks: Blocks, block: &[u8], to: &mut [u8]) {
    match blocks {
        Blocks::Q8_0 => {
            for (to, &from) in to.iter_mut().zip(&block[2..]) {
                // From -128..=127 to 0..=255.
                *to = from ^ 0x80;
            }
        }
        Blocks::Q4_0 | Blocks::Q4_1 => {
            let from = &block[blocks.size() - BLOCK / 2..];
            let (low, high) = to.split_at_mut(BLOCK / 4);
            for ((low, high), pair) in low.iter_mut().zip(high).zip(from.chunks_exact(2)) {
                *low = pair[0] & 0x0f | pair[1] << 4;
                *high = pair[0] >> 4 | pair[1] & 0xf0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlxcel_ir::weight::dequantize;
    use mlxcel_ir::{WeightData, WeightDecl};

    /// Repacks two rows of one block each, in reverse, and dequantises them.
    fn check(blocks: Blocks, bytes: &[u8], scale: DType, expect: impl Fn(&[u8], usize) -> f64) {
        let size = blocks.size();
        let repacked = repack(blocks, bytes, size, |row| 1 - row);
        let WeightFormat::Affine { scale: found, .. } = repacked.format else {
            panic!("not affine");
        };
        assert_eq!(found, scale, "{blocks:?}");
        let declaration = WeightDecl {
            name: "w".into(),
            shape: vec![2, BLOCK],
            format: repacked.format,
        };
        let data = WeightData {
            values: &bytemuck::cast_slice(&repacked.values)[..repacked.lengths[0]],
            scales: &bytemuck::cast_slice(&repacked.scales)[..repacked.lengths[1]],
            biases: &bytemuck::cast_slice(&repacked.biases)[..repacked.lengths[1]],
        };
        let numbers = dequantize::<f64>(&declaration, data).expect("a weight");
        for (index, number) in numbers.into_iter().enumerate() {
            let block = &bytes[(1 - index / BLOCK) * size..][..size];
            assert_eq!(number, expect(block, index % BLOCK), "{blocks:?} {index}");
        }
    }

    #[test]
    fn repacked_numbers_are_those_of_the_blocks() {
        let nibble = |codes: &[u8], i: usize| f64::from(codes[i % 16] >> (4 * (i / 16)) & 15);
        let block = |head: &[f32], codes: usize| -> Vec<u8> {
            let halves = head.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes());
            let codes = (0..codes).map(|i| (i * 37 + 11) as u8 ^ head[0].to_bits() as u8);
            halves.chain(codes).collect()
        };
        let two = |a: &[f32], b: &[f32], codes| [block(a, codes), block(b, codes)].concat();
        for (large, scale) in [(0.37, DType::F16), (60000.0, DType::F32)] {
            let bytes = two(&[1.5], &[large], 16);
            check(Blocks::Q4_0, &bytes, scale, |block, i| {
                half_at(block, 0).to_f64() * (nibble(&block[2..], i) - 8.0)
            });
            let bytes = two(&[-0.01], &[large], 32);
            check(Blocks::Q8_0, &bytes, scale, |block, i| {
                half_at(block, 0).to_f64() * f64::from(block[2 + i] as i8)
            });
        }
        let bytes = two(&[0.02, -0.3], &[60000.0, 1.0], 16);
        check(Blocks::Q4_1, &bytes, DType::F16, |block, i| {
            half_at(block, 0).to_f64() * nibble(&block[4..], i) + half_at(block, 2).to_f64()
        });
    }
}
