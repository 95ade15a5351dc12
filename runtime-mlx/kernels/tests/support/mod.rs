//! Weights in every format, and plain `f64` evaluations to hold kernels against.
#![allow(dead_code, reason = "each test uses its part")]

use half::{bf16, f16};
use mlxcel_ir::weight::{PartType, dequantize};
use mlxcel_ir::{DType, WeightData, WeightDecl, WeightFormat};
use mlxcel_kernels::{Form, Pool};

/// A small deterministic generator.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// The next 31 bits.
    pub(crate) fn bits(&mut self) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let mixed = (self.0 >> 33) as u32;
        mixed ^ (mixed >> 15)
    }

    /// Below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.bits() as usize % limit
    }

    /// In `-1.0..1.0`.
    pub(crate) fn number(&mut self) -> f32 {
        self.bits() as f32 / (1u32 << 30) as f32 - 1.0
    }

    /// `count` numbers in `-1.0..1.0`.
    pub(crate) fn numbers(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.number()).collect()
    }
}

/// Pools of every available form, with one, two and three threads.
pub(crate) fn pools() -> Vec<Pool> {
    let mut pools = Vec::new();
    for form in Form::available() {
        for threads in [1, 2, 3] {
            pools.push(Pool::with_form(threads, form).expect("the form is available"));
        }
    }
    pools
}

/// A weight with its stored bytes, which start one byte off any alignment, and its values.
pub(crate) struct Weight {
    pub(crate) declaration: WeightDecl,
    parts: [Vec<u8>; 3],
    /// `[N, K]`.
    pub(crate) values: Vec<f64>,
}

impl Weight {
    /// A random weight.
    pub(crate) fn random(
        rows: usize,
        columns: usize,
        format: WeightFormat,
        random: &mut Random,
    ) -> Self {
        Self::shaped(&[rows, columns], format, random)
    }

    /// A random weight of any shape.
    pub(crate) fn shaped(shape: &[usize], format: WeightFormat, random: &mut Random) -> Self {
        let declaration = WeightDecl {
            name: "weight".into(),
            shape: shape.to_vec(),
            format,
        };
        let mut parts = [vec![0], vec![0], vec![0]];
        let declared = declaration.parts();
        for (part, declared) in parts.iter_mut().zip(&declared) {
            let count = declared.bytes() / declared.element.size();
            for _ in 0..count {
                match declared.element {
                    PartType::Element(DType::U32) => {
                        let word = random.bits() ^ (random.bits() << 8);
                        part.extend(word.to_le_bytes());
                    }
                    // Codes, small scales of them (a little below 2^-3 as exponents, up to 2^-4 as
                    // numbers), or bytes of K-quants.
                    PartType::U8 => part.push(match format {
                        WeightFormat::Fp8Block { .. } => finite(random.bits() as u8),
                        WeightFormat::MxFp4 | WeightFormat::MxFp8 => 121 + random.below(4) as u8,
                        WeightFormat::NvFp4 => random.below(0x18) as u8,
                        _ => random.bits() as u8,
                    }),
                    PartType::Element(dtype) => push(part, dtype, random.number()),
                }
            }
        }
        if matches!(
            format,
            WeightFormat::MxFp8 | WeightFormat::Float { bits: 8, .. }
        ) {
            parts[0].iter_mut().for_each(|code| *code = finite(*code));
        }
        if let WeightFormat::Affine { bits, scale, .. } = format {
            // Numbers on both sides of 0, as trained weights are.
            let top = ((1u32 << bits) - 1) as f32;
            let [_, scales, biases] = &mut parts;
            let count = scales[1..].len() / scale.size();
            scales.truncate(1);
            biases.truncate(1);
            for _ in 0..count {
                let size = (random.number() + 1.5) / top;
                push(scales, scale, size);
                push(biases, scale, -0.5 * size * top);
            }
        }
        let data = WeightData {
            values: &parts[0][1..],
            scales: &parts[1][1..],
            biases: &parts[2][1..],
        };
        let values = dequantize(&declaration, data).expect("a valid weight");
        Weight {
            declaration,
            parts,
            values,
        }
    }

    /// The stored bytes.
    pub(crate) fn data(&self) -> WeightData<'_> {
        WeightData {
            values: &self.parts[0][1..],
            scales: &self.parts[1][1..],
            biases: &self.parts[2][1..],
        }
    }

    fn columns(&self) -> usize {
        self.declaration.shape.last().copied().unwrap_or(1)
    }

    /// What an error of a product with `x` is held against: for each element the root of the sum
    /// of squared terms, which cancellation does not shrink.
    pub(crate) fn sizes(&self, x: &[f32]) -> Vec<f64> {
        let square = |value: f64| value * value;
        let columns = self.columns();
        let mut out = Vec::new();
        for x in x.chunks(columns) {
            for row in self.values.chunks(columns) {
                let terms = row.iter().zip(x).map(|(w, x)| square(w * f64::from(*x)));
                out.push(terms.sum::<f64>().sqrt());
            }
        }
        out
    }

    /// `x[M, K] · weightᵀ`.
    pub(crate) fn product(&self, x: &[f32]) -> Vec<f64> {
        let columns = self.columns();
        let mut out = Vec::new();
        for x in x.chunks(columns) {
            for row in self.values.chunks(columns) {
                out.push(row.iter().zip(x).map(|(w, x)| w * f64::from(*x)).sum());
            }
        }
        out
    }
}

fn push(bytes: &mut Vec<u8>, dtype: DType, value: f32) {
    match dtype {
        DType::F16 => bytes.extend(f16::from_f32(value).to_le_bytes()),
        DType::BF16 => bytes.extend(bf16::from_f32(value).to_le_bytes()),
        _ => bytes.extend(value.to_le_bytes()),
    }
}

/// A byte that is not one of the two NaNs.
fn finite(code: u8) -> u8 {
    match code & 0x7f {
        0x7f => code ^ 1,
        _ => code,
    }
}

/// Root mean square of the difference over that of the expected values.
pub(crate) fn relative_error(found: &[f32], expected: &[f64]) -> f64 {
    error_against(found, expected, expected)
}

/// Root mean square of the difference over that of `sizes`.
pub(crate) fn error_against(found: &[f32], expected: &[f64], sizes: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let off: f64 = found
        .iter()
        .zip(expected)
        .map(|(f, e)| (f64::from(*f) - e).powi(2))
        .sum();
    let size: f64 = sizes.iter().map(|size| size * size).sum();
    if off == 0.0 { 0.0 } else { (off / size).sqrt() }
}

/// Every weight format that kernels read, with groups that fit `columns`.
pub(crate) fn formats(columns: usize) -> Vec<WeightFormat> {
    let floats = [DType::F32, DType::F16, DType::BF16];
    let mut formats: Vec<_> = floats.into_iter().map(WeightFormat::Dense).collect();
    for bits in [2, 3, 4, 5, 6, 8] {
        for group in [16, 32, 48, 64, 128] {
            formats.extend(floats.map(|scale| WeightFormat::Affine { bits, group, scale }));
            formats.extend(floats.map(|scale| WeightFormat::ZeroPoint {
                bits,
                zero: 1 << (bits - 1),
                group,
                scale,
            }));
        }
    }
    if columns.is_multiple_of(16) {
        formats.extend(floats.map(|scale| WeightFormat::Fp8Block { scale }));
        for (bits, group) in [(4, 16), (4, 32), (8, 16), (8, 64)] {
            let scaled = floats.map(|scale| WeightFormat::Float { bits, group, scale });
            formats.extend(scaled);
        }
    }
    formats.extend([
        WeightFormat::MxFp4,
        WeightFormat::MxFp8,
        WeightFormat::NvFp4,
    ]);
    formats.extend([2, 3, 4, 5, 6].map(|bits| WeightFormat::KQuant { bits }));
    formats.retain(|format| format.check(&[1, columns]).is_ok());
    formats
}
