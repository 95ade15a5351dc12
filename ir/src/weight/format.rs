//! The formats that a weight may be stored in, and the parts that each has.
//!
//! A format other than dense stores each number as a code of few bits. Numbers that stand together
//! in a row share a scale and, in some formats, a bias: a number is `scale * code + bias`. What
//! differs is declared in one place, [`WeightFormat::coded`]; sizes of parts, the numbers
//! ([`super::dequantize`]) and what runtimes do follow from it.

use super::panel::PANEL;
use crate::DType;
use std::fmt;

/// Numbers of a row that share the outer scale of a K-quant.
pub const SUPER_BLOCK: usize = 256;
/// Rows and columns of a block of [`WeightFormat::Fp8Block`].
pub const FP8_BLOCK: usize = 128;

/// How the numbers of a weight are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightFormat {
    /// One element per number, row-major.
    Dense(DType),
    /// Affine quantisation as MLX stores it: along the last dimension, each group of `group`
    /// numbers shares a scale and a bias, and a number is `scale * q + bias` with `q` an unsigned
    /// integer of `bits` bits. Codes are packed little-endian into `u32` words, lowest bits first;
    /// a code of 3, 5 or 6 bits may lie in two words.
    Affine {
        /// Bits of a code: 2, 3, 4, 5, 6 or 8.
        bits: u8,
        /// Numbers that share a scale and a bias.
        group: usize,
        /// Element type of scales and biases.
        scale: DType,
    },
    /// Codes as those of [`WeightFormat::Affine`], and one scale for each group of a row; a number is
    /// `scale * (q - zero)`.
    ZeroPoint {
        /// Bits of a code: 2, 3, 4, 5, 6 or 8.
        bits: u8,
        /// The code that stands for 0.
        zero: u8,
        /// Numbers that share a scale.
        group: usize,
        /// Element type of the scales.
        scale: DType,
    },
    /// Codes of four bits as those of [`WeightFormat::Affine`], or with a zero point as those of
    /// [`WeightFormat::ZeroPoint`], with sixteen rows together as [`super::panel`] says: what
    /// processors multiply fastest. Rows are a multiple of 16, groups of 32.
    Panels {
        /// The code that stands for 0; without one, groups have biases.
        zero: Option<u8>,
        /// Numbers that share a scale.
        group: usize,
        /// Element type of scales and biases.
        scale: DType,
    },
    /// OCP MXFP4: codes [`super::e2m1`], packed as those of four bits of [`WeightFormat::Affine`],
    /// and one scale [`super::e8m0`] for 32 numbers.
    MxFp4,
    /// OCP MXFP8: codes [`super::e4m3`], and one scale [`super::e8m0`] for 32 numbers.
    MxFp8,
    /// NVFP4 with no global scale: codes [`super::e2m1`], and one scale [`super::e4m3`] for 16
    /// numbers.
    NvFp4,
    /// Floating-point codes with a scale of a wider type: [`super::e2m1`] with 4 bits, [`super::e4m3`]
    /// with 8, packed as those of [`WeightFormat::Affine`], and one scale for each group of a row.
    /// Formats with a further scale for a whole matrix become this one, and those with one scale for a
    /// row.
    Float {
        /// Bits of a code: 4 or 8.
        bits: u8,
        /// Numbers that share a scale.
        group: usize,
        /// Element type of the scales.
        scale: DType,
    },
    /// Codes [`super::e4m3`], and one scale for each block of 128 rows and 128 columns; blocks at
    /// the edges may be smaller.
    Fp8Block {
        /// Element type of the scales.
        scale: DType,
    },
    /// A K-quant of GGUF (Q2_K to Q6_K), its parts taken apart: codes as those of
    /// [`WeightFormat::Affine`], and scales of groups that are themselves quantised, for 256
    /// numbers together.
    ///
    /// With 2, 4 and 5 bits a row's scales are a `d` for each 256 numbers, then a `dmin` for each;
    /// its biases are a byte `s` for each group, then a byte `m` for each; a number is
    /// `d * s * q - dmin * m`. With 3 and 6 bits there are `d` and a signed byte `s`, and a number
    /// is `d * s * (q - zero)` with `zero` half of the codes' range.
    KQuant {
        /// Bits of a code: 2, 3, 4, 5 or 6. Groups have 16 numbers, with 4 and 5 bits 32.
        bits: u8,
    },
}

/// What a code is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// An unsigned integer of so many bits.
    Unsigned(u8),
    /// [`super::e2m1`].
    E2M1,
    /// [`super::e4m3`].
    E4M3,
}

impl Code {
    /// Bits that it takes.
    pub fn bits(self) -> usize {
        match self {
            Code::Unsigned(bits) => bits.into(),
            Code::E2M1 => 4,
            Code::E4M3 => 8,
        }
    }
}

/// The element type of a stored part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartType {
    /// An element type of tensors.
    Element(DType),
    /// Bytes.
    U8,
}

impl PartType {
    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            PartType::Element(dtype) => dtype.size(),
            PartType::U8 => 1,
        }
    }
}

/// How codes become numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sides {
    /// A scale and a bias of this type for each group.
    Pairs(DType),
    /// A scale of this type for each group; the code whose number is 0.
    ZeroPoint(DType, u8),
    /// A scale [`super::e8m0`] for each group.
    E8M0,
    /// A scale [`super::e4m3`] for each group.
    E4M3,
    /// A scale of this type for each group.
    Scales(DType),
    /// A scale of this type for each group and [`FP8_BLOCK`] rows.
    Blocks(DType),
    /// Scales and biases as [`WeightFormat::KQuant`] has them.
    Nested {
        /// The code whose number is 0, or `None` where groups have a minimum of their own.
        zero: Option<u8>,
    },
}

/// A format of codes, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coded {
    /// What a code is.
    pub code: Code,
    /// Element type of the part with the codes.
    pub stored: PartType,
    /// Numbers of a row that share a scale. The last group of a row may be smaller only if scales
    /// are [`Sides::Blocks`].
    pub group: usize,
    /// Where scales and biases come from.
    pub sides: Sides,
    /// Whether sixteen rows stand together ([`super::panel`]).
    pub panels: bool,
}

/// A stored part of a weight: its element type and shape. An absent part has no elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Element type.
    pub element: PartType,
    /// Dimensions.
    pub shape: Vec<usize>,
}

impl Part {
    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.shape
            .iter()
            .try_fold(self.element.size(), |bytes, &size| bytes.checked_mul(size))
            .unwrap_or(usize::MAX)
    }
}

impl WeightFormat {
    /// What the format's codes are; `None` if it is dense.
    pub fn coded(self) -> Option<Coded> {
        let words = PartType::Element(DType::U32);
        let (code, stored, group, sides) = match self {
            WeightFormat::Dense(_) => return None,
            WeightFormat::Affine { bits, group, scale } => {
                (Code::Unsigned(bits), words, group, Sides::Pairs(scale))
            }
            WeightFormat::ZeroPoint {
                bits,
                zero,
                group,
                scale,
            } => {
                let sides = Sides::ZeroPoint(scale, zero);
                (Code::Unsigned(bits), words, group, sides)
            }
            WeightFormat::Panels { zero, group, scale } => {
                let sides = match zero {
                    Some(zero) => Sides::ZeroPoint(scale, zero),
                    None => Sides::Pairs(scale),
                };
                (Code::Unsigned(4), words, group, sides)
            }
            WeightFormat::MxFp4 => (Code::E2M1, words, 32, Sides::E8M0),
            WeightFormat::MxFp8 => (Code::E4M3, words, 32, Sides::E8M0),
            WeightFormat::NvFp4 => (Code::E2M1, words, 16, Sides::E4M3),
            WeightFormat::Float { bits, group, scale } => {
                let code = if bits == 4 { Code::E2M1 } else { Code::E4M3 };
                (code, words, group, Sides::Scales(scale))
            }
            WeightFormat::Fp8Block { scale } => {
                (Code::E4M3, PartType::U8, FP8_BLOCK, Sides::Blocks(scale))
            }
            WeightFormat::KQuant { bits } => {
                let (group, zero) = match bits {
                    2 => (16, None),
                    3 => (16, Some(4)),
                    6 => (16, Some(32)),
                    _ => (32, None),
                };
                (Code::Unsigned(bits), words, group, Sides::Nested { zero })
            }
        };
        Some(Coded {
            code,
            stored,
            group,
            sides,
            panels: matches!(self, WeightFormat::Panels { .. }),
        })
    }

    /// The format with the same codes and sides, sixteen rows together, if there is one for a weight of
    /// `shape`.
    pub fn in_panels(self, shape: &[usize]) -> Option<WeightFormat> {
        let panels = match self {
            WeightFormat::Affine {
                bits: 4,
                group,
                scale,
            } => WeightFormat::Panels {
                zero: None,
                group,
                scale,
            },
            WeightFormat::ZeroPoint {
                bits: 4,
                zero,
                group,
                scale,
            } => WeightFormat::Panels {
                zero: Some(zero),
                group,
                scale,
            },
            _ => return None,
        };
        panels.check(shape).is_ok().then_some(panels)
    }

    /// The format with the same codes and sides row after row, where rows stand together.
    pub fn of_rows(self) -> Option<WeightFormat> {
        let WeightFormat::Panels { zero, group, scale } = self else {
            return None;
        };
        Some(match zero {
            Some(zero) => WeightFormat::ZeroPoint {
                bits: 4,
                zero,
                group,
                scale,
            },
            None => WeightFormat::Affine {
                bits: 4,
                group,
                scale,
            },
        })
    }

    /// The parts of a weight of this format with the logical shape `shape`: values, scales, biases.
    pub fn parts(self, shape: &[usize]) -> [Part; 3] {
        let (&width, outer) = shape.split_last().unwrap_or((&1, &[]));
        let part = |element, last: usize| Part {
            element,
            shape: [outer, &[last]].concat(),
        };
        let none = || part(PartType::U8, 0);
        let float = PartType::Element;
        let Some(coded) = self.coded() else {
            let WeightFormat::Dense(dtype) = self else {
                return [none(), none(), none()];
            };
            let shape = shape.to_vec();
            let element = float(dtype);
            return [Part { element, shape }, none(), none()];
        };
        let bits = width.saturating_mul(coded.code.bits());
        let values = part(coded.stored, bits / (8 * coded.stored.size()));
        let groups = width.checked_div(coded.group).unwrap_or(0);
        let [scales, biases] = match coded.sides {
            Sides::Pairs(dtype) => [part(float(dtype), groups), part(float(dtype), groups)],
            Sides::Scales(dtype) | Sides::ZeroPoint(dtype, _) => {
                [part(float(dtype), groups), none()]
            }
            Sides::E8M0 | Sides::E4M3 => [part(PartType::U8, groups), none()],
            Sides::Blocks(dtype) => {
                let mut scales = part(float(dtype), width.div_ceil(FP8_BLOCK));
                if let Some(rows) = scales.shape.iter_mut().rev().nth(1) {
                    *rows = rows.div_ceil(FP8_BLOCK);
                }
                [scales, none()]
            }
            Sides::Nested { zero } => {
                let sets = if zero.is_some() { 1 } else { 2 };
                [
                    part(float(DType::F16), width / SUPER_BLOCK * sets),
                    part(PartType::U8, groups.saturating_mul(sets)),
                ]
            }
        };
        [values, scales, biases]
    }

    /// Whether a weight of the logical shape `shape` can be stored in this format.
    ///
    /// # Errors
    /// What does not fit: bits that no code has, an element type that is no float, groups that do
    /// not divide the last dimension, or codes that do not fill whole words.
    pub fn check(self, shape: &[usize]) -> Result<(), String> {
        let require = |holds: bool, reason: String| if holds { Ok(()) } else { Err(reason) };
        let scale = match self {
            WeightFormat::Dense(dtype) => {
                let reason = "the element type must be a floating-point type, is";
                return require(dtype.is_float(), format!("{reason} {dtype}"));
            }
            WeightFormat::Affine { bits, scale, .. }
            | WeightFormat::ZeroPoint { bits, scale, .. } => {
                require(
                    matches!(bits, 2 | 3 | 4 | 5 | 6 | 8),
                    format!("bits must be 2, 3, 4, 5, 6 or 8, are {bits}"),
                )?;
                scale
            }
            WeightFormat::Panels { group, scale, .. } => {
                let rows = shape.iter().rev().nth(1).copied().unwrap_or(0);
                require(
                    rows > 0 && rows.is_multiple_of(PANEL) && group.is_multiple_of(32),
                    format!(
                        "rows must be a multiple of {PANEL} and groups of 32, are {rows} and {group}"
                    ),
                )?;
                scale
            }
            WeightFormat::Float { bits, scale, .. } => {
                let reason = format!("bits must be 4 or 8, are {bits}");
                require(matches!(bits, 4 | 8), reason)?;
                scale
            }
            WeightFormat::KQuant { bits } => {
                require(
                    (2..=6).contains(&bits),
                    format!("bits must be 2, 3, 4, 5 or 6, are {bits}"),
                )?;
                DType::F16
            }
            WeightFormat::Fp8Block { scale } => {
                require(
                    shape.len() >= 2 && !shape.contains(&0),
                    format!("must have at least two dimensions, none of them 0, has {shape:?}"),
                )?;
                scale
            }
            WeightFormat::MxFp4 | WeightFormat::MxFp8 | WeightFormat::NvFp4 => DType::F32,
        };
        require(
            scale.is_float(),
            format!("the scale must be of a floating-point type, is {scale}"),
        )?;
        let zero = match self {
            WeightFormat::ZeroPoint { bits, zero, .. } => Some((bits, zero)),
            WeightFormat::Panels { zero, .. } => zero.map(|zero| (4, zero)),
            _ => None,
        };
        if let Some((bits, zero)) = zero {
            require(
                u32::from(zero) < 1 << bits,
                format!("the zero point must be a code of {bits} bits, is {zero}"),
            )?;
        }
        let Some(coded) = self.coded() else {
            return Ok(());
        };
        let (group, bits) = match coded.sides {
            Sides::Blocks(_) => return Ok(()),
            Sides::Nested { .. } => (SUPER_BLOCK, coded.code.bits()),
            _ => (coded.group, coded.code.bits()),
        };
        let last = shape.last().copied().unwrap_or(0);
        require(
            group > 0 && last > 0 && last.is_multiple_of(group),
            format!("groups of {group} must divide the last dimension, which is {last}"),
        )?;
        require(
            last.checked_mul(bits)
                .is_some_and(|bits| bits.is_multiple_of(32)),
            format!("{last} codes of {bits} bits must fill whole 32-bit words"),
        )
    }
}

impl fmt::Display for WeightFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WeightFormat::Dense(dtype) => write!(f, "{dtype}"),
            WeightFormat::Affine { bits, group, scale } => {
                write!(f, "affine{bits}(group = {group}, scale = {scale})")
            }
            WeightFormat::ZeroPoint {
                bits,
                zero,
                group,
                scale,
            } => write!(
                f,
                "zeropoint{bits}(zero = {zero}, group = {group}, scale = {scale})"
            ),
            WeightFormat::Float { bits, group, scale } => {
                write!(f, "float{bits}(group = {group}, scale = {scale})")
            }
            WeightFormat::Panels { zero, group, scale } => {
                f.write_str("panels4(")?;
                if let Some(zero) = zero {
                    write!(f, "zero = {zero}, ")?;
                }
                write!(f, "group = {group}, scale = {scale})")
            }
            WeightFormat::MxFp4 => f.write_str("mxfp4"),
            WeightFormat::MxFp8 => f.write_str("mxfp8"),
            WeightFormat::NvFp4 => f.write_str("nvfp4"),
            WeightFormat::Fp8Block { scale } => write!(f, "fp8block(scale = {scale})"),
            WeightFormat::KQuant { bits } => write!(f, "kquant{bits}"),
        }
    }
}
