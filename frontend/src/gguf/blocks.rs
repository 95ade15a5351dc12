//! The formats of blocks: where codes, scales and minimums are in one.
//!
//! Layouts are those of llama.cpp's `ggml-common.h`; the numbers are checked against the package
//! `gguf`.

/// A format of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types, reason = "the names that files have")]
pub(super) enum Blocks {
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    IQ4_NL,
    IQ4_XS,
    TQ1_0,
    TQ2_0,
    MXFP4,
}

/// What a block of the format becomes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// A group of affine codes. Its scale stands first, its bias second.
    Affine,
    /// A group of codes with this zero point. Its scale stands first.
    ZeroPoint(u8),
    /// Groups of 32 codes with this zero point, whose scales are the block's times a whole number.
    Scaled(u8),
    /// 256 numbers of a K-quant.
    Nested,
    /// A group of MXFP4. Its scale stands first.
    MxFp4,
}

impl Blocks {
    pub(super) const ALL: [Blocks; 15] = [
        Blocks::Q4_0,
        Blocks::Q4_1,
        Blocks::Q5_0,
        Blocks::Q5_1,
        Blocks::Q8_0,
        Blocks::Q2_K,
        Blocks::Q3_K,
        Blocks::Q4_K,
        Blocks::Q5_K,
        Blocks::Q6_K,
        Blocks::IQ4_NL,
        Blocks::IQ4_XS,
        Blocks::TQ1_0,
        Blocks::TQ2_0,
        Blocks::MXFP4,
    ];

    /// Number in a file, name, bits of a code, numbers and bytes of a block, what it becomes.
    fn row(self) -> (u32, &'static str, usize, usize, usize, Kind) {
        use Kind::{Affine, Scaled, ZeroPoint};
        match self {
            Blocks::Q4_0 => (2, "Q4_0", 4, 32, 18, ZeroPoint(8)),
            Blocks::Q4_1 => (3, "Q4_1", 4, 32, 20, Affine),
            Blocks::Q5_0 => (6, "Q5_0", 5, 32, 22, ZeroPoint(16)),
            Blocks::Q5_1 => (7, "Q5_1", 5, 32, 24, Affine),
            Blocks::Q8_0 => (8, "Q8_0", 8, 32, 34, ZeroPoint(128)),
            Blocks::Q2_K => (10, "Q2_K", 2, 256, 84, Kind::Nested),
            Blocks::Q3_K => (11, "Q3_K", 3, 256, 110, Kind::Nested),
            Blocks::Q4_K => (12, "Q4_K", 4, 256, 144, Kind::Nested),
            Blocks::Q5_K => (13, "Q5_K", 5, 256, 176, Kind::Nested),
            Blocks::Q6_K => (14, "Q6_K", 6, 256, 210, Kind::Nested),
            // Their codes are places in a table of signed bytes, which are codes here.
            Blocks::IQ4_NL => (20, "IQ4_NL", 8, 32, 18, ZeroPoint(128)),
            Blocks::IQ4_XS => (23, "IQ4_XS", 8, 256, 136, Scaled(128)),
            Blocks::TQ1_0 => (34, "TQ1_0", 2, 256, 54, ZeroPoint(1)),
            Blocks::TQ2_0 => (35, "TQ2_0", 2, 256, 66, ZeroPoint(1)),
            Blocks::MXFP4 => (39, "MXFP4", 4, 32, 17, Kind::MxFp4),
        }
    }

    /// The format that files call `kind`.
    pub(super) fn of(kind: u32) -> Option<Blocks> {
        Self::ALL.into_iter().find(|blocks| blocks.row().0 == kind)
    }

    pub(super) fn name(self) -> &'static str {
        self.row().1
    }

    /// Bits of a code.
    pub(super) fn bits(self) -> usize {
        self.row().2
    }

    /// Numbers in a block.
    pub(super) fn numbers(self) -> usize {
        self.row().3
    }

    /// Bytes of a block.
    pub(super) fn size(self) -> usize {
        self.row().4
    }

    pub(super) fn kind(self) -> Kind {
        self.row().5
    }

    /// Where the f16 scale of a block of affine codes is.
    pub(super) fn scale(self) -> usize {
        match self {
            Blocks::TQ1_0 | Blocks::TQ2_0 => self.size() - 2,
            _ => 0,
        }
    }

    /// By what the scale of a block is multiplied for each of its groups of 32.
    pub(super) fn factors(self, block: &[u8]) -> [i8; 8] {
        // Of six bits each, less 32: the upper two are together, then the lower four.
        std::array::from_fn(|group| {
            let high = block[2 + group / 4] >> (2 * (group % 4)) & 3;
            let low = block[4 + group / 2] >> (4 * (group % 2)) & 15;
            (low | high << 4) as i8 - 32
        })
    }

    /// Where the f16 scale of 256 numbers is, and that of their minimums, if there are any.
    pub(super) fn outer(self) -> &'static [usize] {
        match self {
            Blocks::Q2_K => &[80, 82],
            Blocks::Q3_K => &[108],
            Blocks::Q4_K | Blocks::Q5_K => &[0, 2],
            Blocks::Q6_K => &[208],
            _ => &[],
        }
    }

    /// Sets of scales: of numbers, and of minimums if there are any.
    pub(super) fn sets(self) -> usize {
        self.outer().len().max(1)
    }

    /// The scales of groups, signed if there are no minimums, and the minimums.
    pub(super) fn inner(self, block: &[u8], scales: &mut [u8], minimums: &mut [u8]) {
        match self {
            Blocks::Q2_K => {
                for (group, &byte) in block[..16].iter().enumerate() {
                    (scales[group], minimums[group]) = (byte & 15, byte >> 4);
                }
            }
            Blocks::Q3_K => {
                // Of six bits each: the lower four, then the upper two, less 32.
                let (low, high) = block[96..108].split_at(8);
                for (group, scale) in scales.iter_mut().enumerate() {
                    let low = low[group % 8] >> (4 * (group / 8)) & 15;
                    let high = high[group % 4] >> (2 * (group / 4)) & 3;
                    *scale = (low | high << 4).wrapping_sub(32);
                }
            }
            Blocks::Q4_K | Blocks::Q5_K => {
                // Scales and minimums of the first four groups have six bits in bytes of their own,
                // whose upper two bits are those of the last four.
                let bytes = &block[4..16];
                for group in 0..4 {
                    let (scale, minimum, rest) = (bytes[group], bytes[group + 4], bytes[group + 8]);
                    scales[group] = scale & 63;
                    minimums[group] = minimum & 63;
                    scales[group + 4] = rest & 15 | scale >> 2 & 48;
                    minimums[group + 4] = rest >> 4 | minimum >> 2 & 48;
                }
            }
            Blocks::Q6_K => scales.copy_from_slice(&block[192..208]),
            _ => {}
        }
    }

    /// The codes of a block, one in a byte.
    pub(super) fn codes(self, block: &[u8], to: &mut [u8]) {
        match self {
            Blocks::Q4_0 => planes(&block[2..], 16, 4, to),
            Blocks::Q4_1 => planes(&block[4..], 16, 4, to),
            Blocks::IQ4_NL | Blocks::IQ4_XS => {
                planes(&block[self.size() - to.len() / 2..], 16, 4, to);
                for to in to {
                    *to = (UNEVEN[usize::from(*to & 15)] as u8) ^ 0x80;
                }
            }
            Blocks::TQ1_0 => {
                // Five digits to the base 3 in a byte, or four in the last bytes.
                let (mut at, mut first) = (0, 0);
                for (width, digits) in [(32, 5), (16, 5), (4, 4)] {
                    for (digit, to) in to[first..first + width * digits]
                        .chunks_mut(width)
                        .enumerate()
                    {
                        for (to, &byte) in to.iter_mut().zip(&block[at..at + width]) {
                            let rest = byte.wrapping_mul(3u8.pow(digit as u32));
                            *to = ((u16::from(rest) * 3) >> 8) as u8;
                        }
                    }
                    (at, first) = (at + width, first + width * digits);
                }
            }
            Blocks::TQ2_0 => planes(&block[..64], 32, 2, to),
            Blocks::MXFP4 => planes(&block[1..], 16, 4, to),
            Blocks::Q8_0 => {
                for (to, &from) in to.iter_mut().zip(&block[2..]) {
                    // From -128..=127 to 0..=255.
                    *to = from ^ 0x80;
                }
            }
            Blocks::Q5_0 | Blocks::Q5_1 => {
                let high = &block[self.size() - 20..];
                planes(&high[4..], 16, 4, to);
                for (index, to) in to.iter_mut().enumerate() {
                    *to |= (high[index / 8] >> (index % 8) & 1) << 4;
                }
            }
            Blocks::Q2_K => planes(&block[16..], 32, 2, to),
            Blocks::Q3_K => {
                planes(&block[32..], 32, 2, to);
                for (index, to) in to.iter_mut().enumerate() {
                    *to |= (block[index % 32] >> (index / 32) & 1) << 2;
                }
            }
            Blocks::Q4_K => planes(&block[16..], 32, 4, to),
            Blocks::Q5_K => {
                planes(&block[48..], 32, 4, to);
                for (index, to) in to.iter_mut().enumerate() {
                    *to |= (block[16 + index % 32] >> (index / 32) & 1) << 4;
                }
            }
            Blocks::Q6_K => {
                planes(block, 64, 4, to);
                let mut high = [0; 256];
                planes(&block[128..], 32, 2, &mut high);
                for (to, high) in to.iter_mut().zip(high) {
                    *to |= high << 4;
                }
            }
        }
    }
}

/// What the codes of IQ4_NL and IQ4_XS stand for, before they are scaled.
const UNEVEN: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

/// Codes that lie in planes: of each `width` bytes the lowest `bits` bits are the first `width`
/// codes, the next bits those after them.
fn planes(from: &[u8], width: usize, bits: usize, to: &mut [u8]) {
    let per_byte = 8 / bits;
    let mask = u8::MAX >> (8 - bits);
    for (from, to) in from.chunks(width).zip(to.chunks_mut(width * per_byte)) {
        for (plane, to) in to.chunks_mut(width).enumerate() {
            for (to, &byte) in to.iter_mut().zip(from) {
                *to = byte >> (bits * plane) & mask;
            }
        }
    }
}
