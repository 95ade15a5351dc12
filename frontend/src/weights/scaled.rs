//! Codes beside scales whose names and shapes say how they are stored: FP8 as vendors publish it, and
//! what compressed-tensors and ModelOpt write.

use super::assemble::{fail, float, part};
use super::repack::{self, Source};
use super::vendor::Module;
use super::{Bytes, Stored, Words};
use crate::checkpoint::Tensor;
use crate::convert;
use crate::{LoadError, safetensors::Entry};
use mlxcel_ir::weight::{FP8_BLOCK, e4m3, e8m0};
use mlxcel_ir::{DType, WeightFormat};

/// Element types of scales.
const FLOATS: &[&str] = &["F32", "BF16", "F16"];
/// Element types of scales that are powers of 2.
const EXPONENTS: &[&str] = &["U8", "F8_E8M0"];
/// What the names of codes end in where integers or small floats are packed.
const PACKED: &str = "_packed";

/// Scales of rows and groups: their element type and bytes.
struct Scales {
    dtype: DType,
    bytes: Bytes,
}

impl<'a> Module<'a> {
    /// The weight whose codes are beside scales, in one of the layouts here; `None` if it is in none.
    pub(super) fn scaled(
        &self,
        block: Option<[usize; 2]>,
        spelled: &impl Fn(&str) -> String,
    ) -> Result<Option<Stored>, LoadError> {
        let Entry { name, dtype, .. } = self.codes.entry;
        let base = name.strip_suffix(PACKED).unwrap_or(name);
        let scaled = |scales: Tensor<'a>, kinds: &[&str]| {
            kinds
                .contains(&scales.entry.dtype.as_str())
                .then_some(scales)
        };
        let Some(scales) = ["_scale_inv", "_scale"]
            .iter()
            .find_map(|end| self.checkpoint.get(&format!("{base}{end}")))
        else {
            return Ok(None);
        };
        if let Some(module) = base.strip_suffix(".weight")
            && let Some(found) = self
                .checkpoint
                .get(&format!("{module}.input_quantizer._pre_quant_scale"))
                .or_else(|| self.checkpoint.get(&format!("{module}.pre_quant_scale")))
        {
            let reason = "scales the inputs of a layer, which is not supported; use a checkpoint \
                          quantised without it, such as FP8 or NVFP4";
            return Err(fail(found, reason.into()));
        }
        let is_packed = base.len() < name.len();
        let (name, dtype) = (spelled(base), dtype.as_str());
        let exponents = scaled(scales, EXPONENTS);
        let made = match (dtype, is_packed) {
            ("F8_E4M3", false) => match exponents {
                Some(scales) if scales.entry.dtype == "U8" => {
                    self.exponents(name, scales, WeightFormat::MxFp8)
                }
                _ => self.floats(name, scales, block),
            },
            ("I8", false) => self.bytes_of_integers(base, name, scales),
            ("I32", true) => self.packed(base, name, scales),
            ("U8", _) => match exponents {
                Some(scales) => self.exponents(name, scales, WeightFormat::MxFp4),
                None => self.nvfp4(base, name, scales),
            },
            _ => return Ok(None),
        };
        made.map(Some)
    }

    /// The numbers of `scales`.
    fn numbers(&self, scales: Tensor<'a>) -> Result<Vec<f32>, LoadError> {
        let bytes = self.bytes(scales);
        match scales.entry.dtype.as_str() {
            "F8_E4M3" => Ok(bytes.iter().map(|&code| e4m3(code)).collect()),
            "F8_E8M0" => Ok(bytes.iter().map(|&code| e8m0(code)).collect()),
            other => {
                let numbers = convert::float(other).and_then(|dtype| convert::to_f32(dtype, bytes));
                numbers.ok_or_else(|| {
                    let reason = format!("scales of type {other} are not supported");
                    fail(scales, reason)
                })
            }
        }
    }

    /// A scale for every `group` of `shape`, from `scales` that are some of them.
    fn spread(
        &self,
        scales: Tensor<'a>,
        shape: &[usize],
        (rows, group): (usize, usize),
    ) -> Result<Scales, LoadError> {
        let [outer @ .., height, width] = shape else {
            return Err(self.flat());
        };
        let groups = width / group.max(1);
        let matrices: usize = outer.iter().product();
        let blocks = height.div_ceil(rows.max(1));
        let numbers = self.numbers(scales)?;
        let found = matrices
            .checked_mul(blocks)
            .and_then(|all| all.checked_mul(groups));
        if found != Some(numbers.len()) {
            return Err(self.misfit(scales));
        }
        // Some of those that fit the file's size may not fit memory once every row has its own.
        let all = matrices
            .checked_mul(*height)
            .and_then(|all| all.checked_mul(groups * 4));
        let mut words = Words::zeros(all.ok_or_else(|| self.misfit(scales))?);
        for (index, to) in words.bytes_mut().chunks_exact_mut(4).enumerate() {
            let (row, group) = (index / groups, index % groups);
            let block = row / height * blocks + row % height / rows;
            to.copy_from_slice(&numbers[block * groups + group].to_le_bytes());
        }
        Ok(Scales {
            dtype: DType::F32,
            bytes: Bytes::Owned(words),
        })
    }

    fn flat(&self) -> LoadError {
        fail(self.codes, "must have at least two dimensions".into())
    }

    fn misfit(&self, scales: Tensor<'a>) -> LoadError {
        let Entry { dtype, shape, .. } = scales.entry;
        let reason = format!(
            "{dtype} {shape:?} are not the scales of {} {:?} by matrix, row, group, or block of {} \
             rows and columns",
            self.codes.entry.dtype, self.codes.entry.shape, FP8_BLOCK
        );
        fail(scales, reason)
    }

    /// Codes E4M3 with scales of blocks, groups, rows or whole matrices.
    fn floats(
        &self,
        name: String,
        scales: Tensor<'a>,
        block: Option<[usize; 2]>,
    ) -> Result<Stored, LoadError> {
        let shape = self.codes.entry.shape.clone();
        let [outer @ .., height, width] = &shape[..] else {
            return Err(self.flat());
        };
        if shape.contains(&0) {
            return Err(self.flat());
        }
        let matrices: usize = outer.iter().product();
        let blocks = |rows: usize, columns: usize| {
            [outer, &[height.div_ceil(rows), width.div_ceil(columns)]].concat()
        };
        let (found, count) = (
            &scales.entry.shape,
            scales.entry.shape.iter().product::<usize>(),
        );
        let kept = float(scales.entry);
        let [rows, columns] = block.unwrap_or([FP8_BLOCK; 2]);
        let codes = || part(self.checkpoint, self.codes, 4);
        let stored = |group: usize, scales: Scales| {
            let format = WeightFormat::Float {
                bits: 8,
                group,
                scale: scales.dtype,
            };
            self.stored(
                name.clone(),
                shape.clone(),
                format,
                [codes(), scales.bytes, Bytes::Empty],
            )
        };
        let mapped = |dtype: DType| Scales {
            dtype,
            bytes: part(self.checkpoint, scales, dtype.size()),
        };
        if *found == blocks(rows, columns) && count > 1 {
            if [rows, columns] != [FP8_BLOCK; 2] {
                return stored(columns, self.spread(scales, &shape, (rows, columns))?);
            }
            let scales = match kept {
                Some(dtype) => mapped(dtype),
                None => Scales {
                    dtype: DType::F32,
                    bytes: Bytes::owned(bytemuck::cast_slice(&self.numbers(scales)?)),
                },
            };
            let format = WeightFormat::Fp8Block {
                scale: scales.dtype,
            };
            let parts = [
                part(self.checkpoint, self.codes, 1),
                scales.bytes,
                Bytes::Empty,
            ];
            return self.stored(name, shape.clone(), format, parts);
        }
        let groups = found.last().copied().unwrap_or(1);
        match kept {
            Some(dtype) if matrices.checked_mul(*height) == Some(count) => {
                stored(*width, mapped(dtype))
            }
            Some(dtype)
                if *found == [outer, &[*height, groups]].concat()
                    && width.is_multiple_of(groups.max(1)) =>
            {
                stored(width / groups.max(1), mapped(dtype))
            }
            _ if count == matrices => {
                stored(*width, self.spread(scales, &shape, (*height, *width))?)
            }
            _ => Err(self.misfit(scales)),
        }
    }

    /// Codes as they are, with scales that are powers of 2, as they are.
    fn exponents(
        &self,
        name: String,
        scales: Tensor<'a>,
        format: WeightFormat,
    ) -> Result<Stored, LoadError> {
        let mut shape = self.codes.entry.shape.clone();
        if let (Some(last), WeightFormat::MxFp4) = (shape.last_mut(), format) {
            *last = last.saturating_mul(2);
        }
        let wanted: Vec<Option<usize>> = match shape.split_last() {
            Some((width, outer)) => outer
                .iter()
                .chain([&(width / 32)])
                .copied()
                .map(Some)
                .collect(),
            None => return Err(self.flat()),
        };
        let scales = self.expect(scales, EXPONENTS, &wanted)?;
        let parts = [
            part(self.checkpoint, self.codes, 4),
            part(self.checkpoint, scales, 1),
            Bytes::Empty,
        ];
        self.stored(name, shape, format, parts)
    }

    /// Codes E2M1, two in a byte, with scales E4M3 of 16 and a scale of the whole matrix, by which
    /// compressed-tensors divides and ModelOpt multiplies.
    fn nvfp4(&self, base: &str, name: String, scales: Tensor<'a>) -> Result<Stored, LoadError> {
        let mut shape = self.codes.entry.shape.clone();
        let Some(last) = shape.last_mut() else {
            return Err(self.flat());
        };
        *last = last.saturating_mul(2);
        let (groups, outer) = (*last / 16, &shape[..shape.len() - 1]);
        let wanted = outer.iter().chain([&groups]).copied().map(Some);
        let wanted: Vec<Option<usize>> = wanted.collect();
        let scales = self.expect(scales, &["F8_E4M3"], &wanted)?;
        let codes = part(self.checkpoint, self.codes, 4);
        let whole = ["_scale_2", "_global_scale"];
        let whole = whole.map(|end| self.checkpoint.get(&format!("{base}{end}")));
        let (whole, divides) = match whole {
            [Some(factor), _] => (factor, false),
            [None, Some(divisor)] => (divisor, true),
            [None, None] => {
                let parts = [codes, part(self.checkpoint, scales, 1), Bytes::Empty];
                return self.stored(name, shape, WeightFormat::NvFp4, parts);
            }
        };
        let factors = self.numbers(self.expect_floats(whole)?)?;
        let matrices: usize = outer.iter().rev().skip(1).product();
        if factors.len() != 1 && factors.len() != matrices {
            return Err(self.misfit(whole));
        }
        let mut numbers = self.numbers(scales)?;
        let each = (numbers.len() / factors.len()).max(1);
        for (numbers, factor) in numbers.chunks_mut(each).zip(factors) {
            for number in numbers {
                *number = if divides {
                    *number / factor
                } else {
                    *number * factor
                };
            }
        }
        let format = WeightFormat::Float {
            bits: 4,
            group: 16,
            scale: DType::F32,
        };
        let scales = Bytes::owned(bytemuck::cast_slice(&numbers));
        self.stored(name, shape, format, [codes, scales, Bytes::Empty])
    }

    fn expect_floats(&self, tensor: Tensor<'a>) -> Result<Tensor<'a>, LoadError> {
        let any: Vec<Option<usize>> = tensor.entry.shape.iter().map(|_| None).collect();
        self.expect(tensor, FLOATS, &any)
    }

    /// Scales `[N, groups]`, `[N]` or one number, as `[N, groups]`.
    fn rows_of_scales(
        &self,
        scales: Tensor<'a>,
        [outputs, inputs]: [usize; 2],
    ) -> Result<(Vec<f32>, usize), LoadError> {
        let scales = self.expect_floats(scales)?;
        let mut numbers = self.numbers(scales)?;
        if numbers.len() == 1 {
            numbers = vec![numbers[0]; outputs];
        }
        let groups = numbers.len() / outputs.max(1);
        let fits = groups > 0 && numbers.len() == groups * outputs && inputs.is_multiple_of(groups);
        match fits {
            true => Ok((numbers, groups)),
            false => Err(self.misfit(scales)),
        }
    }

    /// Signed bytes, as codes of eight bits.
    fn bytes_of_integers(
        &self,
        base: &str,
        name: String,
        scales: Tensor<'a>,
    ) -> Result<Stored, LoadError> {
        let codes = self.expect(self.codes, &["I8"], &[None, None])?;
        let [outputs, inputs] = [codes.entry.shape[0], codes.entry.shape[1]];
        let (scales, groups) = self.rows_of_scales(scales, [outputs, inputs])?;
        let zeros = match self.checkpoint.get(&format!("{base}_zero_point")) {
            None => vec![0; 1],
            Some(zeros) => {
                let any: Vec<Option<usize>> = zeros.entry.shape.iter().map(|_| None).collect();
                let zeros = self.expect(zeros, &["I8"], &any)?;
                self.bytes(zeros).to_vec()
            }
        };
        if zeros.len() != 1 && zeros.len() != scales.len() {
            let reason = format!(
                "zero points and {} scales do not fit together",
                scales.len()
            );
            return Err(fail(self.codes, reason));
        }
        let bytes = self.bytes(codes);
        let source = Source {
            sizes: [outputs, inputs, inputs / groups],
            bits: 8,
            word: &|row, word| {
                let at = row * inputs + word * 4;
                let mut four = [0; 4];
                let from = bytes
                    .get(at..(at + 4).min((row + 1) * inputs))
                    .unwrap_or(&[]);
                four[..from.len()].copy_from_slice(from);
                u32::from_le_bytes(four) ^ 0x8080_8080
            },
            scale: &|group, row| scales[row * groups + group],
            zero: &|group, row| {
                let zero = zeros[(row * groups + group) % zeros.len()];
                f32::from(i16::from(zero as i8) + 128)
            },
        };
        self.made(name, [outputs, inputs], source.affine())
    }

    /// Integers in words: codes `[N, K * bits / 32]`, scales `[N, K / group]`, and zero points
    /// `[N * bits / 32, K / group]` where numbers are not as many on both sides of 0.
    fn packed(&self, base: &str, name: String, scales: Tensor<'a>) -> Result<Stored, LoadError> {
        let codes = self.expect(self.codes, &["I32"], &[None, None])?;
        let (outputs, words) = (codes.entry.shape[0], codes.entry.shape[1]);
        let shape = self.side(format!("{base}_shape"), &["I64", "I32"], &[Some(2)])?;
        let bytes = self.bytes(shape);
        let inputs = bytes.get(bytes.len() / 2..).map_or(0, |last| {
            let digits = last.iter().rev();
            digits.fold(0u64, |number, &byte| number << 8 | u64::from(byte))
        });
        let inputs = usize::try_from(inputs).unwrap_or(0);
        let known = [2, 3, 4, 5, 6, 8].into_iter();
        let mut bits = known
            .filter(|bits| inputs.checked_mul(*bits).map(|all| all.div_ceil(32)) == Some(words));
        let Some(bits) = bits.next().filter(|_| inputs > 0) else {
            let reason = format!(
                "{words} words do not hold {inputs} codes of 2, 3, 4, 5, 6 or 8 bits, which `{}` \
                 gives each row; packed codes of other sizes are not supported",
                shape.entry.name
            );
            return Err(fail(codes, reason));
        };
        let (scales, groups) = self.rows_of_scales(scales, [outputs, inputs])?;
        let zeros = match self.checkpoint.get(&format!("{base}_zero_point")) {
            None => None,
            Some(zeros) => {
                let packed = Some(outputs.saturating_mul(bits).div_ceil(32));
                let zeros = self.expect(zeros, &["I32"], &[packed, Some(groups)])?;
                Some(self.bytes(zeros))
            }
        };
        let half = f32::from(1u8 << (bits - 1));
        let bytes = self.bytes(codes);
        let source = Source {
            sizes: [outputs, inputs, inputs / groups],
            bits,
            word: &|row, word| repack::word(bytes, row * words + word),
            scale: &|group, row| scales[row * groups + group],
            zero: &|group, row| {
                zeros.map_or(half, |zeros| {
                    let word = |index: usize| repack::word(zeros, index * groups + group);
                    repack::code(word, row, bits).into()
                })
            },
        };
        let order = format!("{base}_g_idx");
        let made = match self.order(order, [inputs, groups])? {
            Some(order) => return self.unordered(name, &source, &order),
            None => source.affine(),
        };
        self.made(name, [outputs, inputs], made)
    }
}
