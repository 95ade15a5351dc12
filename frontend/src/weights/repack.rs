//! Codes in other layouts as MLX's affine codes, `[N, K]` with groups along K.
//!
//! Nothing is quantised anew. `scale * (q - zero)` is `scale * q + bias` with `bias = -scale * zero`;
//! with scales of f16 and zero points of at most 8 bits, both that product and the sum are exact in
//! f32, in which scales and biases are kept.

use super::Words;
use half::f16;
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

/// AWQ (`gemm`): codes `[K, N / 8]`, zero points `[K / group, N / 8]`, scales f16 `[K / group, N]`;
/// `sizes` are N, K and the group, which the parts must fit.
///
/// # Errors
/// A group that does not divide K or fill whole words.
pub(super) fn awq(
    [outputs, inputs, group]: [usize; 3],
    bits: usize,
    [codes, zeros, scales]: [&[u8]; 3],
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
        (word >> (4 * PLACES[output % 8]) & 15) as u8
    };
    sides(&mut packed, [outputs, inputs / group], scales, zero);
    Ok(packed)
}

/// GPTQ: codes `[K * bits / 32, N]`, zero points `[K / group, N * bits / 32]` less `add`, scales f16
/// `[K / group, N]`; `sizes` are N, K and the group, which the parts must fit.
///
/// # Errors
/// As [`awq`].
pub(super) fn gptq(
    [outputs, inputs, group]: [usize; 3],
    (bits, add): (usize, u8),
    [codes, zeros, scales]: [&[u8]; 3],
) -> Result<Packed, String> {
    if !outputs.is_multiple_of(32 / bits) {
        return Err(format!(
            "the zero points of {outputs} outputs do not fill whole words"
        ));
    }
    let mut packed = empty([outputs, inputs, group], bits)?;
    let row = inputs * bits / 8;
    // Both have the code of the first input in the lowest bits of a word.
    let values = packed.parts[0].bytes_mut();
    values
        .par_chunks_mut(row * TILE)
        .enumerate()
        .for_each(|(tile, rows)| {
            for place in 0..row / 4 {
                for (column, row) in rows.chunks_mut(row).enumerate() {
                    let at = place * outputs + tile * TILE + column;
                    row[place * 4..][..4].copy_from_slice(&codes[at * 4..][..4]);
                }
            }
        });
    let per_word = 32 / bits;
    let words = outputs / per_word;
    let mask = u32::MAX >> (32 - bits);
    let zero = |group: usize, output: usize| {
        let word = word(zeros, group * words + output / per_word);
        let stored = word >> (bits * (output % per_word)) & mask;
        stored as u16 + u16::from(add)
    };
    sides(&mut packed, [outputs, inputs / group], scales, zero);
    Ok(packed)
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
    let mut packed = empty([outputs, inputs, group], 2)?;
    let (row, quarter) = (inputs / 4, outputs / 4);
    let [values, scales, biases] = &mut packed.parts;
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
    for (part, number) in [(scales, scale), (biases, -scale)] {
        for to in part.bytes_mut().chunks_exact_mut(4) {
            to.copy_from_slice(&number.to_le_bytes());
        }
    }
    Ok(packed)
}

/// Parts of zeros.
fn empty([outputs, inputs, group]: [usize; 3], bits: usize) -> Result<Packed, String> {
    let format = WeightFormat::Affine {
        bits: bits as u8,
        group,
        scale: DType::F32,
    };
    let shape = [outputs, inputs];
    format.check(&shape)?;
    Ok(Packed {
        format,
        parts: format.parts(&shape).map(|part| Words::zeros(part.bytes())),
    })
}

/// Fills in scales and biases from scales f16 `[groups, N]` and zero points.
fn sides<Z: Into<f32>>(
    packed: &mut Packed,
    [outputs, groups]: [usize; 2],
    scales: &[u8],
    zero: impl Fn(usize, usize) -> Z + Sync,
) {
    let [_, to_scales, to_biases] = &mut packed.parts;
    to_scales
        .bytes_mut()
        .par_chunks_mut(groups * 4)
        .zip(to_biases.bytes_mut().par_chunks_mut(groups * 4))
        .enumerate()
        .for_each(|(output, (to_scales, to_biases))| {
            let to = to_scales.chunks_exact_mut(4);
            for (group, (scale, bias)) in to.zip(to_biases.chunks_exact_mut(4)).enumerate() {
                let at = 2 * (group * outputs + output);
                let found = f16::from_le_bytes([scales[at], scales[at + 1]]).to_f32();
                scale.copy_from_slice(&found.to_le_bytes());
                let number: f32 = zero(group, output).into();
                bias.copy_from_slice(&(-(found * number)).to_le_bytes());
            }
        });
}

/// Word `index` of little-endian words.
fn word(bytes: &[u8], index: usize) -> u32 {
    let at = index * 4;
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
