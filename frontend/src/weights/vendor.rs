//! Quantised modules in layouts other than MLX's: as they are where a format has that layout, else
//! converted, exactly, when a checkpoint is opened.

use super::assemble::{fail, float, part};
use super::repack::{self, Packed};
use super::spelling::transposed;
use super::{Bytes, Stored};
use crate::LoadError;
use crate::checkpoint::{Checkpoint, Tensor};
use crate::config::{Method, Quantization};
use crate::convert;
use mlxcel_ir::weight::FP8_BLOCK;
use mlxcel_ir::{WeightDecl, WeightFormat};

/// The weight of which `tensor` holds the codes; `None` if it holds none that are known.
///
/// # Errors
/// Parts that are missing or do not fit together.
pub(super) fn vendor(
    checkpoint: &Checkpoint,
    tensor: Tensor<'_>,
    quantization: Option<&Quantization>,
    spelled: &impl Fn(&str) -> String,
) -> Result<Option<Stored>, LoadError> {
    let name = tensor.entry.name.as_str();
    let method = quantization.map(|all| all.method).unwrap_or_default();
    let module = Module {
        checkpoint,
        codes: tensor,
        quantization,
    };
    let dtype = tensor.entry.dtype.as_str();
    if let Some(base) = name.strip_suffix(".qweight") {
        let name = spelled(&format!("{base}.weight"));
        return match method {
            Method::Awq => module.awq(base, name).map(Some),
            Method::Gptq { zero } => module.gptq(base, name, zero).map(Some),
            _ => Err(module.unsaid("awq or gptq")),
        };
    }
    if let (Some(base), "U8") = (name.strip_suffix("_blocks"), dtype) {
        return module.mxfp4(base, transposed(&spelled(base))).map(Some);
    }
    match (name.strip_suffix(".weight"), dtype, method) {
        (Some(base), "F8_E4M3", Method::Fp8) => module.fp8(base, spelled(name)).map(Some),
        (Some(base), "U8", Method::BitNet { divide }) => {
            module.bitnet(base, spelled(name), divide).map(Some)
        }
        _ => Ok(None),
    }
}

/// A quantised module of a checkpoint.
struct Module<'a> {
    checkpoint: &'a Checkpoint,
    codes: Tensor<'a>,
    quantization: Option<&'a Quantization>,
}

impl<'a> Module<'a> {
    fn unsaid(&self, method: &str) -> LoadError {
        let reason = format!("is quantised, but `quant_method` in config.json is not {method}");
        fail(self.codes, reason)
    }

    /// The part `name`, which must have an element type of `dtypes` and, but for sizes of `None`,
    /// the shape `shape`.
    fn side(
        &self,
        name: String,
        dtypes: &[&str],
        shape: &[Option<usize>],
    ) -> Result<Tensor<'a>, LoadError> {
        let codes = &self.codes.entry;
        let tensor = self
            .checkpoint
            .get(&name)
            .ok_or_else(|| LoadError::MissingTensor {
                path: self.checkpoint.folder().to_path_buf(),
                tensor: name.clone(),
                reason: format!("`{}` needs it", codes.name),
            })?;
        self.expect(tensor, dtypes, shape)
    }

    fn expect(
        &self,
        tensor: Tensor<'a>,
        dtypes: &[&str],
        shape: &[Option<usize>],
    ) -> Result<Tensor<'a>, LoadError> {
        let found = &tensor.entry.shape;
        let fits = found.len() == shape.len()
            && found
                .iter()
                .zip(shape)
                .all(|(&found, wanted)| found > 0 && wanted.is_none_or(|wanted| wanted == found));
        if fits && dtypes.contains(&tensor.entry.dtype.as_str()) {
            return Ok(tensor);
        }
        let wanted: Vec<String> = shape
            .iter()
            .map(|size| size.map_or("_".into(), |size| size.to_string()))
            .collect();
        let reason = format!(
            "must be {} [{}], is {} {found:?}",
            dtypes.join(" or "),
            wanted.join(", "),
            tensor.entry.dtype
        );
        Err(fail(tensor, reason))
    }

    fn bytes(&self, tensor: Tensor<'a>) -> &'a [u8] {
        let file = &self.checkpoint.files()[tensor.index];
        file.bytes().get(tensor.entry.range.clone()).unwrap_or(&[])
    }

    fn grouping(&self) -> (usize, usize) {
        let all = self.quantization.map(|all| all.all);
        all.map_or((4, 0), |all| (usize::from(all.bits), all.group))
    }

    fn stored(
        &self,
        name: String,
        shape: Vec<usize>,
        format: WeightFormat,
        parts: [Bytes; 3],
    ) -> Result<Stored, LoadError> {
        format
            .check(&shape)
            .map_err(|reason| fail(self.codes, reason))?;
        let [values, scales, biases] = parts;
        Ok(Stored {
            file: self.codes.file.to_path_buf(),
            declaration: WeightDecl {
                name,
                shape,
                format,
            },
            values,
            scales,
            biases,
        })
    }

    /// Parts that were made, of the shape `[rows, columns]`.
    fn made(
        &self,
        name: String,
        [rows, columns]: [usize; 2],
        packed: Result<Packed, String>,
    ) -> Result<Stored, LoadError> {
        let packed = packed.map_err(|reason| fail(self.codes, reason))?;
        let parts = packed.parts.map(Bytes::Owned);
        self.stored(name, vec![rows, columns], packed.format, parts)
    }

    /// Blocks of FP8, as they are.
    fn fp8(&self, base: &str, name: String) -> Result<Stored, LoadError> {
        let shape = &self.codes.entry.shape;
        let Some((&columns, outer)) = shape.split_last().filter(|(_, outer)| !outer.is_empty())
        else {
            return Err(fail(self.codes, "must have at least two dimensions".into()));
        };
        let mut blocks: Vec<Option<usize>> = outer.iter().copied().map(Some).collect();
        if let Some(Some(rows)) = blocks.last_mut() {
            *rows = rows.div_ceil(FP8_BLOCK);
        }
        blocks.push(Some(columns.div_ceil(FP8_BLOCK)));
        let floats = ["F32", "BF16", "F16"];
        let scales = self.side(format!("{base}.weight_scale_inv"), &floats, &blocks)?;
        let scale = float(scales.entry).unwrap_or(mlxcel_ir::DType::F32);
        let parts = [
            part(self.checkpoint, self.codes, 1),
            part(self.checkpoint, scales, scale.size()),
            Bytes::Empty,
        ];
        self.stored(name, shape.clone(), WeightFormat::Fp8Block { scale }, parts)
    }

    /// Blocks `[.., K / 32, 16]` and scales `[.., K / 32]`, as they are.
    fn mxfp4(&self, base: &str, name: String) -> Result<Stored, LoadError> {
        let shape = &self.codes.entry.shape;
        let [outer @ .., groups, 16] = &shape[..] else {
            let reason = format!("must be U8 [.., groups, 16], is U8 {shape:?}");
            return Err(fail(self.codes, reason));
        };
        let wanted = &shape[..shape.len() - 1];
        let wanted: Vec<Option<usize>> = wanted.iter().copied().map(Some).collect();
        let scales = self.side(format!("{base}_scales"), &["U8"], &wanted)?;
        let parts = [
            part(self.checkpoint, self.codes, 4),
            part(self.checkpoint, scales, 1),
            Bytes::Empty,
        ];
        let shape = [outer, &[groups.saturating_mul(32)]].concat();
        self.stored(name, shape, WeightFormat::MxFp4, parts)
    }

    /// Codes `[K, N / 8]`, zero points `[K / group, N / 8]`, scales `[K / group, N]`.
    fn awq(&self, base: &str, name: String) -> Result<Stored, LoadError> {
        let codes = self.expect(self.codes, &["I32"], &[None, None])?;
        let (inputs, words) = (codes.entry.shape[0], codes.entry.shape[1]);
        let (bits, group) = self.grouping();
        let outputs = words * 8;
        let group = if group == 0 { inputs } else { group };
        let groups = Some(inputs / group);
        let zeros = self.side(format!("{base}.qzeros"), &["I32"], &[groups, Some(words)])?;
        let scales = self.side(format!("{base}.scales"), &["F16"], &[groups, Some(outputs)])?;
        let packed = repack::awq(
            [outputs, inputs, group],
            bits,
            [codes, zeros, scales].map(|tensor| self.bytes(tensor)),
        );
        self.made(name, [outputs, inputs], packed)
    }

    /// Codes `[K * bits / 32, N]`, zero points `[K / group, N * bits / 32]`, scales
    /// `[K / group, N]`, and optionally the group of each input.
    fn gptq(&self, base: &str, name: String, zero: u8) -> Result<Stored, LoadError> {
        let codes = self.expect(self.codes, &["I32"], &[None, None])?;
        let (words, outputs) = (codes.entry.shape[0], codes.entry.shape[1]);
        let (bits, group) = self.grouping();
        let inputs = words * (32 / bits);
        let group = if group == 0 { inputs } else { group };
        let groups = Some(inputs / group);
        let packed_zeros = Some(outputs * bits / 32);
        let zeros = self.side(format!("{base}.qzeros"), &["I32"], &[groups, packed_zeros])?;
        let scales = self.side(format!("{base}.scales"), &["F16"], &[groups, Some(outputs)])?;
        let order = format!("{base}.g_idx");
        if self.checkpoint.get(&order).is_some() {
            let order = self.side(order, &["I32"], &[Some(inputs)])?;
            let mut of = self.bytes(order).chunks_exact(4).enumerate();
            let in_order = of.all(|(index, of)| {
                let of = of.try_into().map(i32::from_le_bytes).unwrap_or(-1);
                usize::try_from(of) == Ok(index / group)
            });
            if !in_order {
                let reason = "groups are not in the order of inputs (GPTQ with `desc_act`), which \
                              is not supported; use a checkpoint made without it";
                return Err(fail(order, reason.into()));
            }
        }
        let packed = repack::gptq(
            [outputs, inputs, group],
            (bits, zero),
            [codes, zeros, scales].map(|tensor| self.bytes(tensor)),
        );
        self.made(name, [outputs, inputs], packed)
    }

    /// Codes `[N / 4, K]` and one scale.
    fn bitnet(&self, base: &str, name: String, divide: bool) -> Result<Stored, LoadError> {
        let codes = self.expect(self.codes, &["U8"], &[None, None])?;
        let (packed, inputs) = (codes.entry.shape[0], codes.entry.shape[1]);
        let floats = ["F32", "BF16", "F16"];
        let scale = self.side(format!("{base}.weight_scale"), &floats, &[Some(1)])?;
        let dtype = float(scale.entry).unwrap_or(mlxcel_ir::DType::F32);
        let numbers = convert::to_f32(dtype, self.bytes(scale)).unwrap_or_default();
        let scale = numbers.first().copied().unwrap_or(f32::NAN);
        let scale = if divide { 1.0 / scale } else { scale };
        let outputs = packed * 4;
        let made = repack::ternary([outputs, inputs], self.bytes(codes), scale);
        self.made(name, [outputs, inputs], made)
    }
}
