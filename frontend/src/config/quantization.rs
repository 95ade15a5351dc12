//! How a checkpoint's weights are quantised.

use super::Fields;
use crate::LoadError;
use std::collections::HashMap;

/// Affine quantisation of one module: see [`mlxcel_ir::WeightFormat::Affine`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Affine {
    /// Bits of a code: 2, 3, 4, 5, 6 or 8.
    pub bits: u8,
    /// Numbers that share a scale and a bias.
    pub group: usize,
}

/// The quantisation of a checkpoint: one setting for all modules, and exceptions.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantization {
    /// The field it was read from, for messages.
    pub field: &'static str,
    /// What holds for a module that is not named.
    pub all: Affine,
    /// Exceptions, by module name as in the checkpoint; `None` means not quantised.
    pub modules: HashMap<String, Option<Affine>>,
}

impl Quantization {
    /// Reads `quantization` (MLX), or `quantization_config` with the same content.
    pub(super) fn parse(fields: &Fields<'_>) -> Result<Option<Self>, LoadError> {
        for field in ["quantization", "quantization_config"] {
            if let Some(inner) = fields.object(field)? {
                return Self::read(field, &inner).map(Some);
            }
        }
        Ok(None)
    }

    /// What holds for the module that the checkpoint calls `module`, for instance
    /// `model.layers.0.mlp.up_proj`, or else for that of the same weight, `other`.
    pub fn of(&self, module: &str, other: &str) -> Option<Affine> {
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
            all: self.all,
            modules,
        }
    }

    fn read(field: &'static str, inner: &Fields<'_>) -> Result<Self, LoadError> {
        if let Some(method) = inner.text("quant_method")? {
            let reason = format!(
                "`{method}` is not supported; supported is MLX's affine quantisation. \
                 Convert the unquantised checkpoint instead"
            );
            return Err(inner.error("quant_method", reason));
        }
        let all = affine(inner)?;
        let mut modules = HashMap::new();
        for (name, value) in inner.entries() {
            if value.is_object() {
                if let Some(module) = inner.object(name)? {
                    modules.insert(name.to_string(), Some(affine(&module)?));
                }
            } else if value == false {
                modules.insert(name.to_string(), None);
            }
        }
        Ok(Self {
            field,
            all,
            modules,
        })
    }
}

fn affine(fields: &Fields<'_>) -> Result<Affine, LoadError> {
    match fields.text("mode")? {
        None | Some("affine") => {}
        Some(other) => {
            let reason = format!("`{other}` is not supported; supported is affine");
            return Err(fields.error("mode", reason));
        }
    }
    let group = fields.required("group_size", 1..=super::limit::WIDTH)?;
    let bits = fields.required("bits", 0..=64)?;
    match bits {
        2 | 3 | 4 | 5 | 6 | 8 => Ok(Affine {
            bits: bits as u8,
            group,
        }),
        _ => Err(fields.error("bits", format!("must be 2, 3, 4, 5, 6 or 8, is {bits}"))),
    }
}
