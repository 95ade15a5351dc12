//! Codes in other layouts as MLX's affine codes, `[N, K]` with groups along K.
//!
//! Nothing is quantised anew. `scale * (q - zero)` is `scale * q + bias` with `bias = -scale * zero`;
//! with scales of f16 or bf16 and zero points of at most 8 bits, both that product and the sum are exact
//! in f32, in which scales and biases are kept.

use super::Words;
use mlxcel_ir::{DType, WeightFormat};
use rayon::prelude::*;

/// A repacked weight: its format and parts.
#[derive(Debug)]
pub(super) struct Packed {
    pub(super) format: WeightFormat,
    pub(super) parts: [Words; 3],
}

/// Columns of words that a thread takes together, so that each line of the source that it reads
/// gives more than one.
const TILE: usize = 16;

/// AWQ (`gemm`): codes `[K, N / 8]`, zero points `[K / group, N / 8]`, scales `[K / group, N]`;
/// `sizes` are N, K and the group, which the parts must fit.
///
/// # Errors
/// A group that does not divide K or fill whole words.
pub(super) fn awq(
    [outputs, inputs, group]: [usize; 3],
    bits: usize,
    [codes, zeros]: [&[u8]; 2],
    scales: &[f32],
) -> Result<Packed, String> {
    /// Where in a word the code of each of eight outputs is.
    const PLACES: [usize; 8] = [0, 4, 1, 5, 2, 6, 3, 7];
    let words = outputs / 8;
    let mut packed = empty([outputs, inputs, group], bits)?;
    let row = inputs / 2;
    let values = packed.parts[0].bytes_mut();
    values
        .par_chunks_mut(row * 8 * TILE)
        .enumerate()
        .for_each(|(tile, rows)| {
            for k in 0..inputs {
                for (column, rows) in rows.chunks_mut(row * 8).enumerate() {
                    let word = word(codes, k * words + tile * TILE + column);
                    for (row, place) in rows.chunks_mut(row).zip(PLACES) {
                        let code = (word >> (4 * place) & 15) as u8;
                        row[k / 2] |= code << (4 * (k % 2));
                    }
                }
            }
        });
    let zero = |group: usize, output: usize| {
        let word = word(zeros, group * words + output / 8);
        (word >> (4 * PLACES[output % 8]) & 15) as f32
    };
    let scale = |group: usize, output: usize| scales[group * outputs + output];
    sides(&mut packed, inputs / group, scale, zero);
    Ok(packed)
}

/// Codes of rows in words, lowest bits first, wherever the words are, with scales and zero points by
/// group and row.
pub(super) struct Source<'a> {
    /// N, K and the group.
    pub(super) sizes: [usize; 3],
    /// Bits of a code.
    pub(super) bits: usize,
    /// A word of a row.
    pub(super) word: &'a (dyn Fn(usize, usize) -> u32 + Sync),
    /// The scale of a group of a row;
    pub(super) scale: &'a (dyn Fn(usize, usize) -> f32 + Sync),
    /// and the code that stands for 0.
    pub(super) zero: &'a (dyn Fn(usize, usize) -> f32 + Sync),
}

impl Source<'_> {
    /// The same as a format of codes.
    ///
    /// # Errors
    /// As [`awq`].
    pub(super) fn affine(&self) -> Result<Packed, String> {
        let [outputs, inputs, whole] = self.sizes;
        // One group for a row is several with the same scale, of a size that runtimes have kernels for.
        let sizes = [128, 64, 32];
        let group = match whole == inputs {
            true => sizes
                .into_iter()
                .find(|group| inputs.is_multiple_of(*group)),
            false => None,
        };
        let group = group.unwrap_or(whole);
        let mut packed = empty([outputs, inputs, group], self.bits)?;
        let row = inputs * self.bits / 8;
        // Words of neighbouring rows may be neighbours.
        let values = packed.parts[0].bytes_mut();
        values
            .par_chunks_mut(row * TILE)
            .enumerate()
            .for_each(|(tile, rows)| {
                for place in 0..row / 4 {
                    for (index, row) in rows.chunks_mut(row).enumerate() {
                        let word = (self.word)(tile * TILE + index, place);
                        row[place * 4..][..4].copy_from_slice(&word.to_le_bytes());
                    }
                }
            });
        let of = |part: usize| part * group / whole;
        sides(
            &mut packed,
            inputs / group,
            |part, row| (self.scale)(of(part), row),
            |part, row| (self.zero)(of(part), row),
        );
        Ok(packed)
    }

    /// The numbers in f32, with `order` the group of each input.
    ///
    /// # Errors
    /// They do not fit memory.
    pub(super) fn numbers(&self, order: &[usize]) -> Result<Words, String> {
        let [outputs, inputs, _] = self.sizes;
        let bytes = outputs
            .checked_mul(inputs)
            .and_then(|all| all.checked_mul(4));
        let mut words = Words::zeros(bytes.ok_or("does not fit memory")?);
        let rows = words.bytes_mut().par_chunks_mut((inputs * 4).max(1));
        rows.enumerate().for_each(|(row, numbers)| {
            let word = |index: usize| (self.word)(row, index);
            for (input, (to, &group)) in numbers.chunks_exact_mut(4).zip(order).enumerate() {
                let code: f32 = code(word, input, self.bits).into();
                let number = (self.scale)(group, row) * (code - (self.zero)(group, row));
                to.copy_from_slice(&number.to_le_bytes());
            }
        });
        Ok(words)
    }
}

/// Code `index` of `bits` bits in words, lowest bits first; it may lie in two of them.
pub(super) fn code(word: impl Fn(usize) -> u32, index: usize, bits: usize) -> u8 {
    let (at, shift) = (index * bits / 32, index * bits % 32);
    let mut found = u64::from(word(at)) >> shift;
    if shift + bits > 32 {
        found |= u64::from(word(at + 1)) << (32 - shift);
    }
    (found & ((1 << bits) - 1)) as u8
}

/// BitNet: codes `[N / 4, K]`, two bits of a byte for each quarter of the outputs, of the numbers -1,
/// 0 and 1 times `scale`.
///
/// # Errors
/// As [`awq`], for the largest group of up to 128 numbers that divides K.
pub(super) fn ternary(
    [outputs, inputs]: [usize; 2],
    codes: &[u8],
    scale: f32,
) -> Result<Packed, String> {
    let group = 1usize << inputs.trailing_zeros().min(7);
    let format = WeightFormat::ZeroPoint {
        bits: 2,
        zero: 1,
        group,
        scale: DType::F32,
    };
    let mut packed = zeros(format, [outputs, inputs])?;
    let (row, quarter) = (inputs / 4, outputs / 4);
    let [values, scales, _] = &mut packed.parts;
    values
        .bytes_mut()
        .par_chunks_mut(row)
        .enumerate()
        .for_each(|(output, row)| {
            let from = &codes[output % quarter * inputs..][..inputs];
            let shift = 2 * (output / quarter);
            for (to, from) in row.iter_mut().zip(from.chunks_exact(4)) {
                let code = |place: usize| (from[place] >> shift & 3) << (2 * place);
                *to = code(0) | code(1) | code(2) | code(3);
            }
        });
    for to in scales.bytes_mut().chunks_exact_mut(4) {
        to.copy_from_slice(&scale.to_le_bytes());
    }
    Ok(packed)
}

/// Parts of zeros, for affine codes.
fn empty([outputs, inputs, group]: [usize; 3], bits: usize) -> Result<Packed, String> {
    let format = WeightFormat::Affine {
        bits: bits as u8,
        group,
        scale: DType::F32,
    };
    zeros(format, [outputs, inputs])
}

/// Parts of zeros.
fn zeros(format: WeightFormat, shape: [usize; 2]) -> Result<Packed, String> {
    format.check(&shape)?;
    Ok(Packed {
        format,
        parts: format.parts(&shape).map(|part| Words::zeros(part.bytes())),
    })
}

/// Fills in scales and biases from scales and zero points by group and row.
fn sides(
    packed: &mut Packed,
    groups: usize,
    scale: impl Fn(usize, usize) -> f32 + Sync,
    zero: impl Fn(usize, usize) -> f32 + Sync,
) {
    let [_, to_scales, to_biases] = &mut packed.parts;
    to_scales
        .bytes_mut()
        .par_chunks_mut(groups * 4)
        .zip(to_biases.bytes_mut().par_chunks_mut(groups * 4))
        .enumerate()
        .for_each(|(output, (to_scales, to_biases))| {
            let to = to_scales.chunks_exact_mut(4);
            for (group, (to, bias)) in to.zip(to_biases.chunks_exact_mut(4)).enumerate() {
                let scale = scale(group, output);
                to.copy_from_slice(&scale.to_le_bytes());
                bias.copy_from_slice(&(-(scale * zero(group, output))).to_le_bytes());
            }
        });
}

/// Word `index` of little-endian words.
pub(super) fn word(bytes: &[u8], index: usize) -> u32 {
    let at = index * 4;
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
