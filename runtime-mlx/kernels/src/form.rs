//! The instruction sets that the kernels are compiled for.

use crate::Error;
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

/// One compiled form of every kernel. All forms compute the same values up to rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Form {
    /// Plain Rust, for every processor; vectorised by the compiler for its baseline.
    Portable,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ, VL and VNNI.
    Avx512,
}

impl Form {
    /// Every form, slowest first.
    pub const ALL: [Form; 3] = [Form::Portable, Form::Avx2, Form::Avx512];

    /// Whether this processor can run the form.
    pub fn is_available(self) -> bool {
        match self {
            Form::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Form::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Form::Avx512 => {
                Form::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vnni")
            }
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }

    /// The forms that this processor can run, slowest first.
    pub fn available() -> impl Iterator<Item = Form> {
        Form::ALL.into_iter().filter(|form| form.is_available())
    }

    /// The fastest form of this processor.
    pub fn best() -> Form {
        static BEST: OnceLock<Form> = OnceLock::new();
        *BEST.get_or_init(|| Form::available().last().unwrap_or(Form::Portable))
    }

    /// `Ok` if this processor can run the form.
    ///
    /// # Errors
    /// [`Error::Form`] if it cannot.
    pub fn checked(self) -> Result<Form, Error> {
        if self.is_available() {
            return Ok(self);
        }
        Err(unavailable(self.name()))
    }

    /// The name, as [`FromStr`] reads it.
    pub fn name(self) -> &'static str {
        match self {
            Form::Portable => "portable",
            Form::Avx2 => "avx2",
            Form::Avx512 => "avx512",
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Form {
    type Err = Error;

    fn from_str(text: &str) -> Result<Form, Error> {
        Form::ALL
            .into_iter()
            .find(|form| form.name() == text)
            .ok_or_else(|| unavailable(text))
    }
}

fn unavailable(found: &str) -> Error {
    let names: Vec<_> = Form::available().map(Form::name).collect();
    Error::Form {
        found: found.into(),
        available: names.join(", "),
    }
}
