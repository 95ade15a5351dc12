//! How a checkpoint's weights are quantised.

use super::{Fields, vendor};
use crate::LoadError;
use std::collections::HashMap;

/// Quantisation of one module in groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grouping {
    /// Bits of a code: 2, 3, 4, 5, 6 or 8.
    pub bits: u8,
    /// Numbers that share a scale.
    pub group: usize,
    /// What codes and scales are.
    pub mode: Mode,
}

/// What codes and scales of MLX are: the values of `mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Integers with scales and biases; where there are no biases, the mode that bits and group
    /// stand for.
    #[default]
    Affine,
    /// [`mlxcel_ir::WeightFormat::MxFp4`].
    MxFp4,
    /// [`mlxcel_ir::WeightFormat::MxFp8`].
    MxFp8,
    /// [`mlxcel_ir::WeightFormat::NvFp4`].
    NvFp4,
}

/// Name, bits and group of each mode that has only one of these.
const MODES: &[(&str, Mode, u8, usize)] = &[
    ("mxfp4", Mode::MxFp4, 4, 32),
    ("mxfp8", Mode::MxFp8, 8, 32),
    ("nvfp4", Mode::NvFp4, 4, 16),
];

impl Mode {
    /// The mode with such codes that needs no biases.
    pub(crate) fn without_biases(bits: u8, group: usize) -> Option<Mode> {
        let mut modes = MODES.iter();
        let found = modes.find(|(_, _, of, by)| (*of, *by) == (bits, group));
        found.map(|(_, mode, ..)| *mode)
    }
}

/// Whose layout the tensors have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// MLX's.
    #[default]
    Mlx,
    /// AutoAWQ's, in the version `gemm`.
    Awq,
    /// GPTQ's.
    Gptq {
        /// What is added to a stored zero point.
        zero: u8,
    },
    /// Codes beside scales whose names and shapes say how they are stored: FP8, and the formats of
    /// compressed-tensors and ModelOpt.
    Scaled {
        /// Rows and columns of FP8 that share a scale, where the configuration says so.
        block: Option<[usize; 2]>,
    },
    /// Codes of BitNet, which are -1, 0 and 1.
    BitNet {
        /// Whether numbers are divided by the scale, not multiplied.
        divide: bool,
    },
    /// MXFP4 as in the checkpoints of gpt-oss.
    MxFp4,
}

/// The quantisation of a checkpoint: one setting for all modules, and exceptions.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantization {
    /// The field it was read from, for messages.
    pub field: &'static str,
    /// Whose layout the tensors have.
    pub method: Method,
    /// What holds for a module that is not named.
    pub all: Grouping,
    /// Exceptions, by module name as in the checkpoint; `None` means not quantised.
    pub modules: HashMap<String, Option<Grouping>>,
}

impl Quantization {
    /// MLX's affine quantisation of all modules.
    pub fn affine(bits: u8, group: usize) -> Self {
        Self {
            field: "quantization",
            method: Method::Mlx,
            all: Grouping {
                bits,
                group,
                mode: Mode::Affine,
            },
            modules: HashMap::new(),
        }
    }

    /// Reads `quantization` (MLX), or `quantization_config` with the same content.
    pub(super) fn parse(fields: &Fields<'_>) -> Result<Option<Self>, LoadError> {
        for field in ["quantization", "quantization_config"] {
            if let Some(inner) = fields.object(field)? {
                return Self::read(field, &inner).map(Some);
            }
        }
        Ok(None)
    }

    /// Reads the configuration `value` of `file`.
    #[cfg(test)]
    pub(crate) fn of_config(
        file: &std::path::Path,
        value: &serde_json::Value,
    ) -> Result<Option<Self>, LoadError> {
        Self::parse(&Fields::root(file, value)?)
    }

    /// What holds for the module that the checkpoint calls `module`, for instance
    /// `model.layers.0.mlp.up_proj`, or else for that of the same weight, `other`.
    pub fn of(&self, module: &str, other: &str) -> Option<Grouping> {
        let named = self.modules.get(module).or_else(|| {
            let other = other.strip_suffix(".weight").unwrap_or(other);
            self.modules.get(other)
        });
        named.copied().unwrap_or(Some(self.all))
    }

    /// The same, with each exception also under the name that `rename` gives its module.
    pub(crate) fn renamed(&self, rename: impl Fn(&str) -> String) -> Self {
        let mut modules = self.modules.clone();
        let mut names: Vec<&String> = self.modules.keys().collect();
        // In order, so that of two names for one module the same one always counts.
        names.sort_unstable();
        for name in names {
            modules.entry(rename(name)).or_insert(self.modules[name]);
        }
        Self {
            field: self.field,
            method: self.method,
            all: self.all,
            modules,
        }
    }

    fn read(field: &'static str, inner: &Fields<'_>) -> Result<Self, LoadError> {
        let mut modules = HashMap::new();
        let (method, all) = match inner.text("quant_method")? {
            Some(name) => vendor::read(inner, name)?,
            None => {
                for (name, value) in inner.entries() {
                    if value.is_object() {
                        if let Some(module) = inner.object(name)? {
                            modules.insert(name.to_string(), Some(grouping(&module)?));
                        }
                    } else if value == false {
                        modules.insert(name.to_string(), None);
                    }
                }
                (Method::Mlx, grouping(inner)?)
            }
        };
        Ok(Self {
            field,
            method,
            all,
            modules,
        })
    }
}

fn grouping(fields: &Fields<'_>) -> Result<Grouping, LoadError> {
    let name = fields.text("mode")?.unwrap_or("affine");
    let known = MODES.iter().find(|(known, ..)| *known == name);
    if let Some(&(_, mode, bits, group)) = known {
        for (field, only) in [("group_size", group), ("bits", bits.into())] {
            let found = fields.size(field, 0..=super::limit::WIDTH)?;
            if let Some(found) = found.filter(|&found| found != only) {
                let reason = format!("must be {only} with mode {name}, is {found}");
                return Err(fields.error(field, reason));
            }
        }
        return Ok(Grouping { bits, group, mode });
    }
    if name != "affine" {
        let reason = format!("`{name}` is not supported; use affine, mxfp4, mxfp8 or nvfp4");
        return Err(fields.error("mode", reason));
    }
    let group = fields.required("group_size", 1..=super::limit::WIDTH)?;
    let bits = fields.required("bits", 0..=64)?;
    match bits {
        2 | 3 | 4 | 5 | 6 | 8 => Ok(Grouping {
            bits: bits as u8,
            group,
            mode: Mode::Affine,
        }),
        _ => Err(fields.error("bits", format!("must be 2, 3, 4, 5, 6 or 8, is {bits}"))),
    }
}
