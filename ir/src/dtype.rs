//! Element types of tensors.

use std::fmt;
use std::str::FromStr;

/// The element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// Truth value, one byte.
    Bool,
    /// Signed 32-bit integer: token ids, positions, lengths.
    I32,
    /// Unsigned 32-bit integer: packed weights.
    U32,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    BF16,
    /// IEEE 754 binary32.
    F32,
}

impl DType {
    /// Every element type, in declaration order.
    pub const ALL: [DType; 6] = [
        DType::Bool,
        DType::I32,
        DType::U32,
        DType::F16,
        DType::BF16,
        DType::F32,
    ];

    /// The name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            DType::Bool => "bool",
            DType::I32 => "i32",
            DType::U32 => "u32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F32 => "f32",
        }
    }

    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            DType::Bool => 1,
            DType::F16 | DType::BF16 => 2,
            DType::I32 | DType::U32 | DType::F32 => 4,
        }
    }

    /// Whether this is a floating-point type.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::BF16 | DType::F32)
    }

    /// Whether this is an integer type.
    pub fn is_integer(self) -> bool {
        matches!(self, DType::I32 | DType::U32)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        DType::ALL
            .into_iter()
            .find(|dtype| dtype.name() == text)
            .ok_or(())
    }
}
