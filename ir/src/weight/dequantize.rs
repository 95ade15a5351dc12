//! The numbers that stored codes stand for.

use super::format::{FP8_BLOCK, SUPER_BLOCK};
use super::panel;
use super::{Code, Coded, Sides, WeightData, WeightDecl, WeightFormat, e2m1, e4m3, e8m0};
use crate::DType;
use crate::interpret::Float;
use rayon::prelude::*;

/// The numbers of a weight, row-major, in `F`.
///
/// # Errors
/// What does not fit: a shape that the format cannot have, or a part whose length disagrees with
/// the declaration.
pub fn dequantize<F: Float>(
    declaration: &WeightDecl,
    data: WeightData<'_>,
) -> Result<Vec<F>, String> {
    let WeightDecl {
        name,
        shape,
        format,
    } = declaration;
    format
        .check(shape)
        .map_err(|reason| format!("weight `{name}`: {reason}"))?;
    let parts = [data.values, data.scales, data.biases];
    let names = ["values", "scales", "biases"];
    for ((part, what), bytes) in parts.into_iter().zip(names).zip(declaration.part_bytes()) {
        if part.len() != bytes {
            let found = part.len();
            return Err(format!(
                "weight `{name}`: {what} take {bytes} bytes, got {found}"
            ));
        }
    }
    let coded = match (format, format.coded()) {
        (WeightFormat::Dense(dtype), _) => return read(*dtype, data.values),
        (_, Some(coded)) => coded,
        (_, None) => return Err(format!("weight `{name}`: has no codes")),
    };
    let (&width, outer) = shape.split_last().unwrap_or((&1, &[]));
    let rows = outer.last().copied().unwrap_or(1);
    let mut numbers = vec![F::from_f64(0.0); declaration.elements()];
    numbers
        .par_chunks_mut(width.max(1))
        .enumerate()
        .try_for_each(|(row, numbers)| {
            let (scales, biases) = sides::<F>(&coded, data, row, rows, width)?;
            for (column, number) in numbers.iter_mut().enumerate() {
                let group = column / coded.group;
                let code = match coded.panels {
                    true => {
                        let (byte, shift) = panel::place(row, column, width);
                        f64::from(data.values[byte] >> shift & 15)
                    }
                    false => code(coded.code, data.values, row * width + column),
                };
                let code = F::from_f64(code);
                *number = scales[group] * code + biases[group];
            }
            Ok::<(), String>(())
        })?;
    Ok(numbers)
}

/// The number that code `index` of a stream stands for.
fn code(code: Code, stream: &[u8], index: usize) -> f64 {
    let bits = code.bits();
    let bit = index * bits;
    let low = u16::from(stream[bit / 8]);
    let high = u16::from(stream.get(bit / 8 + 1).copied().unwrap_or(0));
    let found = (((high << 8 | low) >> (bit % 8)) & ((1 << bits) - 1)) as u8;
    match code {
        Code::Unsigned(_) => found.into(),
        Code::E2M1 => e2m1(found).into(),
        Code::E4M3 => e4m3(found).into(),
    }
}

/// The scales and biases of the groups of row `row`, in a weight of matrices of `rows` rows.
fn sides<F: Float>(
    coded: &Coded,
    data: WeightData<'_>,
    row: usize,
    rows: usize,
    width: usize,
) -> Result<(Vec<F>, Vec<F>), String> {
    let groups = width.div_ceil(coded.group);
    let zeros = || vec![F::from_f64(0.0); groups];
    let floats = |part: &[u8], row: usize, count: usize, dtype: DType| {
        if coded.panels {
            let sides = (0..count).map(|group| {
                let at = panel::side(row, group, count) * dtype.size();
                &part[at..at + dtype.size()]
            });
            return read::<F>(dtype, &sides.collect::<Vec<_>>().concat());
        }
        let size = count * dtype.size();
        read::<F>(dtype, &part[row * size..][..size])
    };
    let bytes = |number: fn(u8) -> f32| {
        let part = &data.scales[row * groups..][..groups];
        part.iter()
            .map(|&byte| F::from_f64(number(byte).into()))
            .collect()
    };
    Ok(match coded.sides {
        Sides::Pairs(dtype) => (
            floats(data.scales, row, groups, dtype)?,
            floats(data.biases, row, groups, dtype)?,
        ),
        Sides::Scales(dtype) => (floats(data.scales, row, groups, dtype)?, zeros()),
        Sides::ZeroPoint(dtype, zero) => below_zero(floats(data.scales, row, groups, dtype)?, zero),
        Sides::E8M0 => (bytes(e8m0), zeros()),
        Sides::E4M3 => (bytes(e4m3), zeros()),
        Sides::Blocks(dtype) => {
            let row = row / rows * rows.div_ceil(FP8_BLOCK) + row % rows / FP8_BLOCK;
            (floats(data.scales, row, groups, dtype)?, zeros())
        }
        Sides::Nested { zero } => {
            let (sets, blocks) = (if zero.is_some() { 1 } else { 2 }, width / SUPER_BLOCK);
            let outer = floats(data.scales, row, blocks * sets, DType::F16)?;
            let inner = &data.biases[row * groups * sets..][..groups * sets];
            let block = |group: usize| group * coded.group / SUPER_BLOCK;
            let whole = |byte: u8| F::from_f64(byte.into());
            match zero {
                Some(zero) => {
                    let signed = |byte: u8| F::from_f64(f64::from(byte as i8));
                    let scales = (0..groups).map(|g| outer[block(g)] * signed(inner[g]));
                    below_zero(scales.collect(), zero)
                }
                None => (
                    (0..groups)
                        .map(|g| outer[block(g)] * whole(inner[g]))
                        .collect(),
                    (0..groups)
                        .map(|g| -(outer[blocks + block(g)] * whole(inner[groups + g])))
                        .collect(),
                ),
            }
        }
    })
}

/// Scales, and the biases that make the number of code `zero` 0.
fn below_zero<F: Float>(scales: Vec<F>, zero: u8) -> (Vec<F>, Vec<F>) {
    let zero = F::from_f64(zero.into());
    let biases = scales.iter().map(|&scale| -(scale * zero)).collect();
    (scales, biases)
}

fn read<F: Float>(dtype: DType, bytes: &[u8]) -> Result<Vec<F>, String> {
    fn each<F: Send, const N: usize>(
        bytes: &[u8],
        f: impl Fn([u8; N]) -> F + Sync,
    ) -> Result<Vec<F>, String> {
        Ok(bytes
            .par_chunks_exact(N)
            .with_min_len(1 << 12)
            .map(|chunk| {
                let mut element = [0; N];
                element.copy_from_slice(chunk);
                f(element)
            })
            .collect())
    }
    match dtype {
        DType::F32 => each(bytes, |b| F::from_f64(f64::from(f32::from_le_bytes(b)))),
        DType::F16 => each(bytes, |b| F::from_f64(half::f16::from_le_bytes(b).to_f64())),
        DType::BF16 => each(bytes, |b| {
            F::from_f64(half::bf16::from_le_bytes(b).to_f64())
        }),
        DType::Bool | DType::I32 | DType::U32 => {
            Err(format!("a weight cannot have elements of type {dtype}"))
        }
    }
}
