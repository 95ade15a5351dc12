//! The numbers that codes stand for, as arithmetic that the compiler fuses into what reads them.

use super::element::{Element, Tensor};
use super::operations::{Emitted, Operations};
use mlxcel_ir::weight::{Code, Coded, FP8_BLOCK, SUPER_BLOCK, Sides};

/// Codes `[N, groups, group]`, where N is the product of all dimensions but the last, and the parts
/// that their scales and biases come from, as rows.
pub(crate) struct Codes<'c, 'a> {
    /// What a code is and where scales come from.
    pub(crate) coded: Coded,
    /// Unsigned integers.
    pub(crate) codes: Tensor<'c, 'a>,
    /// The stored scales, `[N, ..]`, or for blocks of rows `[matrices, blocks, ..]`.
    pub(crate) scales: Tensor<'c, 'a>,
    /// The stored biases, `[N, ..]`.
    pub(crate) biases: Option<Tensor<'c, 'a>>,
}

impl<'c, 'a> Operations<'c, 'a> {
    /// The numbers of codes in f32, `[N, groups, group]`.
    pub(crate) fn dequantise(&self, codes: &Codes<'c, 'a>) -> Emitted<Tensor<'c, 'a>> {
        let numbers = match codes.coded.code {
            Code::Unsigned(_) => self.convert(&codes.codes, Element::F32)?,
            Code::E2M1 => self.four_bits(&codes.codes)?,
            Code::E4M3 => self.eight_bits(&codes.codes)?,
        };
        let spread = |sides: &Tensor<'c, 'a>| self.broadcast(sides, numbers.shape(), &[0, 1]);
        let (scales, biases) = self.sides(codes)?;
        let scaled = self.map("multiply", &[&numbers, &spread(&scales)?])?;
        match biases {
            Some(biases) => self.map("add", &[&scaled, &spread(&biases)?]),
            None => Ok(scaled),
        }
    }

    /// Scales and biases of groups in f32, `[N, groups]`.
    fn sides(&self, codes: &Codes<'c, 'a>) -> Emitted<(Tensor<'c, 'a>, Option<Tensor<'c, 'a>>)> {
        let &[rows, groups, group] = codes.codes.shape() else {
            return Err("codes have three dimensions".into());
        };
        let scales = &codes.scales;
        let unsigned = |bytes: &Tensor<'c, 'a>| self.bitcast(bytes, Element::U8);
        let float = |x: &Tensor<'c, 'a>| self.convert(x, Element::F32);
        Ok(match codes.coded.sides {
            Sides::Pairs(_) => {
                let biases = codes.biases.as_ref().map(float).transpose()?;
                (float(scales)?, biases)
            }
            Sides::Scales(_) => (float(scales)?, None),
            Sides::ZeroPoint(_, zero) => self.below_zero(float(scales)?, zero)?,
            Sides::E8M0 => (self.exponent(&unsigned(scales)?)?, None),
            Sides::E4M3 => (self.eight_bits(&unsigned(scales)?)?, None),
            Sides::Blocks(_) => {
                let scales = float(scales)?;
                let scales = match *scales.shape() {
                    [matrices, blocks, columns] => {
                        let shape = [matrices, blocks, FP8_BLOCK, columns];
                        let spread = self.broadcast(&scales, &shape, &[0, 1, 3])?;
                        let shape = [matrices, blocks * FP8_BLOCK, columns];
                        let spread = self.reshape(&spread, &shape)?;
                        let spread = self.slice(&spread, 1, [0, rows / matrices.max(1), 1])?;
                        self.reshape(&spread, &[rows, columns])?
                    }
                    _ => scales,
                };
                (self.repeat(&scales, FP8_BLOCK / group, groups)?, None)
            }
            Sides::Nested { zero } => {
                let inner = codes.biases.as_ref().ok_or("K-quants have inner scales")?;
                let (outer, blocks) = (float(scales)?, groups * group / SUPER_BLOCK);
                let set = |index: usize| {
                    let part = self.slice(&outer, 1, [index * blocks, (index + 1) * blocks, 1])?;
                    self.repeat(&part, SUPER_BLOCK / group, groups)
                };
                match zero {
                    Some(zero) => {
                        // Bytes with a sign.
                        let scales = self.map("multiply", &[&set(0)?, &float(inner)?])?;
                        self.below_zero(scales, zero)?
                    }
                    None => {
                        let inner = float(&unsigned(inner)?)?;
                        let part = |index: usize| {
                            self.slice(&inner, 1, [index * groups, (index + 1) * groups, 1])
                        };
                        let scales = self.map("multiply", &[&set(0)?, &part(0)?])?;
                        let least = self.map("multiply", &[&set(1)?, &part(1)?])?;
                        (scales, Some(self.map("negate", &[&least])?))
                    }
                }
            }
        })
    }

    /// Scales, and the biases that make the number of code `zero` 0.
    fn below_zero(
        &self,
        scales: Tensor<'c, 'a>,
        zero: u8,
    ) -> Emitted<(Tensor<'c, 'a>, Option<Tensor<'c, 'a>>)> {
        let zero = self.splat(-f64::from(zero), scales.kind.clone())?;
        let biases = self.map("multiply", &[&scales, &zero])?;
        Ok((scales, Some(biases)))
    }

    /// Each column of `x[N, ..]` `times` times, of which the first `count` columns are kept.
    fn repeat(&self, x: &Tensor<'c, 'a>, times: usize, count: usize) -> Emitted<Tensor<'c, 'a>> {
        let &[rows, columns] = x.shape() else {
            return Err("sides have two dimensions".into());
        };
        let spread = self.broadcast(x, &[rows, columns, times], &[0, 1])?;
        let spread = self.reshape(&spread, &[rows, columns * times])?;
        match columns * times == count {
            true => Ok(spread),
            false => self.slice(&spread, 1, [0, count, 1]),
        }
    }

    /// The numbers of codes E2M1. A size is half of its code up to 4, and from there on grows by 1,
    /// from 6 on by 2.
    fn four_bits(&self, codes: &Tensor<'c, 'a>) -> Emitted<Tensor<'c, 'a>> {
        let codes = self.convert(codes, Element::F32)?;
        let number = |value: f64| self.splat(value, codes.kind.clone());
        let zero = number(0.0)?;
        let above = |x: &Tensor<'c, 'a>, least: f64| {
            let above = self.map("subtract", &[x, &number(least)?])?;
            self.map("maximum", &[&above, &zero])
        };
        let scaled = |x: &Tensor<'c, 'a>, by: f64| self.map("multiply", &[x, &number(by)?]);
        let sign = self.map("minimum", &[&above(&codes, 7.0)?, &number(1.0)?])?;
        let size = self.map("subtract", &[&codes, &scaled(&sign, 8.0)?])?;
        let halves = self.map("add", &[&size, &above(&size, 4.0)?])?;
        let sum = self.map("add", &[&scaled(&halves, 0.5)?, &above(&size, 6.0)?])?;
        let factor = self.map("subtract", &[&number(1.0)?, &scaled(&sign, 2.0)?])?;
        self.map("multiply", &[&sum, &factor])
    }

    /// The numbers of codes E4M3. Nothing subnormal is computed: some targets flush it.
    fn eight_bits(&self, codes: &Tensor<'c, 'a>) -> Emitted<Tensor<'c, 'a>> {
        let codes = self.convert(codes, Element::U32)?;
        let kind = codes.kind.clone();
        let whole = |value: u32| self.splat(f64::from(value), kind.clone());
        let size = self.map("and", &[&codes, &whole(0x7f)?])?;
        // Exponents are 120 smaller than those of f32.
        let bits = self.map("shift_left", &[&size, &whole(20)?])?;
        let bits = self.map("add", &[&bits, &whole(120 << 23)?])?;
        let normal = self.bitcast(&bits, Element::F32)?;
        let steps = self.convert(&size, Element::F32)?;
        let step = self.splat(0.001_953_125, steps.kind.clone())?;
        let small = self.map("multiply", &[&steps, &step])?;
        let is_small = self.compare("LT", &size, &whole(8)?)?;
        let number = self.map("select", &[&is_small, &small, &normal])?;
        let none = self.bitcast(&whole(0x7fc0_0000)?, Element::F32)?;
        let is_none = self.compare("EQ", &size, &whole(0x7f)?)?;
        let number = self.map("select", &[&is_none, &none, &number])?;
        let negative = self.map("negate", &[&number])?;
        let is_positive = self.compare("LT", &codes, &whole(0x80)?)?;
        self.map("select", &[&is_positive, &number, &negative])
    }

    /// Two to the power of each byte less 127; NaN for 255.
    fn exponent(&self, bytes: &Tensor<'c, 'a>) -> Emitted<Tensor<'c, 'a>> {
        let bytes = self.convert(bytes, Element::U32)?;
        let kind = bytes.kind.clone();
        let whole = |value: u32| self.splat(f64::from(value), kind.clone());
        let bits = self.map("shift_left", &[&bytes, &whole(23)?])?;
        // The least is subnormal; the largest would be infinite.
        let bits = self.map("maximum", &[&bits, &whole(1 << 22)?])?;
        let next = self.map("add", &[&bytes, &whole(1)?])?;
        let is_none = self.map("shift_right_logical", &[&next, &whole(8)?])?;
        let none = self.map("shift_left", &[&is_none, &whole(22)?])?;
        let bits = self.map("add", &[&bits, &none])?;
        self.bitcast(&bits, Element::F32)
    }
}
