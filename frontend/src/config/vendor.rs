//! What `quantization_config` says of checkpoints that other libraries quantised.
//!
//! How a module's codes are laid out follows from the method, from the names of its tensors and from
//! their shapes; exceptions for single modules need not be read.

use super::quantization::{Grouping, Method, Mode};
use super::{Fields, limit};
use crate::LoadError;
use serde_json::Value;

/// Methods that are known and cannot be read, and what a user can do instead.
const REFUSED: &[(&str, &str)] = &[
    (
        "bitsandbytes",
        "its codes are those of its own kernels; use the checkpoint that is not quantised, or \
         one in AWQ, GPTQ, compressed-tensors, MLX or GGUF",
    ),
    (
        "aqlm",
        "its codes are places in codebooks; use the checkpoint that is not quantised",
    ),
    (
        "torchao",
        "its tensors are serialised objects; use the checkpoint that is not quantised",
    ),
];

/// Formats of compressed-tensors whose tensors are read.
const COMPRESSED: &[&str] = &[
    "dense",
    "pack-quantized",
    "int-quantized",
    "float-quantized",
    "naive-quantized",
    "nvfp4-pack-quantized",
    "mxfp4-pack-quantized",
    "mxfp8-quantized",
    "mixed-precision",
];

/// What `quant_method` says, as the libraries of Hugging Face write it.
pub(super) fn read(fields: &Fields<'_>, name: &str) -> Result<(Method, Grouping), LoadError> {
    let bits = |known: &[usize]| {
        let name = fields.any(&["w_bit", "bits"]);
        let bits = fields.required(name, 0..=64)?;
        match known.contains(&bits) {
            true => Ok(bits as u8),
            false => Err(fields.error(name, format!("must be one of {known:?}, is {bits}"))),
        }
    };
    let must = |field: &str, known: &str| match fields.text(field)? {
        Some(found) if !found.eq_ignore_ascii_case(known) => {
            let reason = format!("`{found}` is not supported with {name}; supported is {known}");
            Err(fields.error(field, reason))
        }
        _ => Ok(()),
    };
    let grouping = |bits, group| Grouping {
        bits,
        group,
        mode: Mode::Affine,
    };
    let scaled = || {
        let block = block(fields)?;
        Ok((Method::Scaled { block }, grouping(8, 0)))
    };
    match name {
        "awq" => {
            must("version", "gemm")?;
            Ok((Method::Awq, grouping(bits(&[4])?, group(fields)?)))
        }
        "gptq" => {
            let zero = match fields.text("checkpoint_format")? {
                None | Some("gptq") => 1,
                Some("gptq_v2") => 0,
                Some(other) => {
                    let reason = format!("`{other}` is not supported; supported are gptq, gptq_v2");
                    return Err(fields.error("checkpoint_format", reason));
                }
            };
            let bits = bits(&[2, 3, 4, 8])?;
            Ok((Method::Gptq { zero }, grouping(bits, group(fields)?)))
        }
        "auto-round" => match fields.text("packing_format")? {
            Some("auto_round:auto_gptq") => {
                let bits = bits(&[2, 3, 4, 8])?;
                Ok((Method::Gptq { zero: 1 }, grouping(bits, group(fields)?)))
            }
            Some("auto_round:auto_awq") => Ok((Method::Awq, grouping(bits(&[4])?, group(fields)?))),
            found => {
                let found = found.unwrap_or("none");
                let reason = format!(
                    "`{found}` is not supported; supported are auto_round:auto_gptq and \
                     auto_round:auto_awq"
                );
                Err(fields.error("packing_format", reason))
            }
        },
        "fp8" => {
            must("fmt", "e4m3")?;
            scaled()
        }
        "fbgemm_fp8" => scaled(),
        "modelopt" | "modelopt_fp4" => {
            let field = "quant_algo";
            if let Some(found) = fields.text(field)?.filter(|found| found.contains("AWQ")) {
                let reason = format!(
                    "`{found}` scales the inputs of layers, which is not supported; use FP8, NVFP4 \
                     or a checkpoint in AWQ's own format"
                );
                return Err(fields.error(field, reason));
            }
            scaled()
        }
        "compressed-tensors" | "compressed_tensors" => {
            compressed(fields)?;
            scaled()
        }
        "bitnet" => {
            // Layers of the class `autobitlinear` multiply by what those of `bitlinear` divide by.
            let divide = fields.text("linear_class")? != Some("autobitlinear");
            must("quantization_mode", "offline")?;
            Ok((Method::BitNet { divide }, grouping(2, 0)))
        }
        "mxfp4" => Ok((Method::MxFp4, grouping(4, 32))),
        _ => {
            let known = REFUSED.iter().find(|(known, _)| *known == name);
            let advice = known.map_or("use the checkpoint that is not quantised", |(_, advice)| {
                *advice
            });
            let reason = format!(
                "`{name}` is not supported: {advice}. Supported are awq, gptq, auto-round, fp8, \
                 fbgemm_fp8, compressed-tensors, modelopt, bitnet, mxfp4 and MLX's own formats"
            );
            Err(fields.error("quant_method", reason))
        }
    }
}

/// Numbers of a group; 0 stands for -1, a group for each whole row.
fn group(fields: &Fields<'_>) -> Result<usize, LoadError> {
    let name = fields.any(&["group_size", "q_group_size"]);
    match fields.get(name).and_then(Value::as_i64) {
        Some(-1) => Ok(0),
        _ => fields.required(name, 1..=limit::WIDTH),
    }
}

/// Rows and columns that share a scale, where they are said.
fn block(fields: &Fields<'_>) -> Result<Option<[usize; 2]>, LoadError> {
    let name = "weight_block_size";
    let Some(found) = fields.get(name) else {
        return Ok(None);
    };
    let sizes: Option<Vec<usize>> = found.as_array().map(|sizes| {
        let sizes = sizes.iter().filter_map(Value::as_u64);
        sizes
            .filter_map(|size| usize::try_from(size).ok())
            .collect()
    });
    match sizes.as_deref() {
        Some(&[rows @ 1..=limit::WIDTH, columns @ 1..=limit::WIDTH]) => Ok(Some([rows, columns])),
        _ => Err(fields.expected(name, "two whole numbers above zero", found)),
    }
}

/// Refuses what compressed-tensors may do to a checkpoint beside giving its codes scales.
fn compressed(fields: &Fields<'_>) -> Result<(), LoadError> {
    let known = |fields: &Fields<'_>| match fields.text("format")? {
        Some(found) if !COMPRESSED.contains(&found) => {
            let reason = format!(
                "`{found}` is not supported; supported are {}",
                COMPRESSED.join(", ")
            );
            Err(fields.error("format", reason))
        }
        _ => Ok(()),
    };
    known(fields)?;
    if let Some(sparsity) = fields.object("sparsity_config")? {
        known(&sparsity)?;
    }
    let transforms = fields.object("transform_config")?;
    let transforms = transforms.and_then(|inner| inner.object("config_groups").transpose());
    if let Some(groups) = transforms.transpose()?
        && groups.entries().next().is_some()
    {
        let reason = "rotates the inputs of layers, which is not supported; use a checkpoint made \
                      without transforms";
        return Err(fields.error("transform_config", reason));
    }
    Ok(())
}
