//! Quantised modules in layouts other than MLX's: as they are where a format has that layout, else
//! converted, exactly, when a checkpoint is opened.

use super::assemble::{fail, float, part};
use super::repack::{self, Packed, Source};
use super::spelling::transposed;
use super::{Bytes, Stored};
use crate::LoadError;
use crate::checkpoint::{Checkpoint, Tensor};
use crate::config::{Method, Quantization};
use crate::convert;
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
        (Some(base), "U8", Method::BitNet { divide }) => {
            module.bitnet(base, spelled(name), divide).map(Some)
        }
        (_, _, Method::Scaled { block }) => module.scaled(block, spelled),
        // Some libraries say how in a file of their own.
        _ if quantization.is_none() => module.scaled(None, spelled),
        _ => Ok(None),
    }
}

/// A quantised module of a checkpoint.
pub(super) struct Module<'a> {
    pub(super) checkpoint: &'a Checkpoint,
    pub(super) codes: Tensor<'a>,
}

impl<'a> Module<'a> {
    fn unsaid(&self, method: &str) -> LoadError {
        let reason = format!("is quantised, but `quant_method` in config.json is not {method}");
        fail(self.codes, reason)
    }

    /// The part `name`, which must have an element type of `dtypes` and, but for sizes of `None`,
    /// the shape `shape`.
    pub(super) fn side(
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

    pub(super) fn expect(
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

    pub(super) fn bytes(&self, tensor: Tensor<'a>) -> &'a [u8] {
        let file = &self.checkpoint.files()[tensor.index];
        file.bytes().get(tensor.entry.range.clone()).unwrap_or(&[])
    }

    pub(super) fn stored(
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
    pub(super) fn made(
        &self,
        name: String,
        [rows, columns]: [usize; 2],
        packed: Result<Packed, String>,
    ) -> Result<Stored, LoadError> {
        let packed = packed.map_err(|reason| fail(self.codes, reason))?;
        let parts = packed.parts.map(Bytes::Owned);
        self.stored(name, vec![rows, columns], packed.format, parts)
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
        let (bits, outputs) = (4, words.saturating_mul(8));
        let zeros = self.side(format!("{base}.qzeros"), &["I32"], &[None, Some(words)])?;
        let groups = zeros.entry.shape[0];
        let sizes = [outputs, inputs, self.group(inputs, groups)?];
        let scales = self.scales(base, [groups, outputs])?;
        let parts = [codes, zeros].map(|tensor| self.bytes(tensor));
        self.made(
            name,
            [outputs, inputs],
            repack::awq(sizes, bits, parts, &scales),
        )
    }

    /// Codes `[K * bits / 32, N]`, zero points `[K / group, N * bits / 32]`, scales
    /// `[K / group, N]`, and optionally the group of each input. Modules may differ in their bits,
    /// which the sizes tell.
    fn gptq(&self, base: &str, name: String, zero: u8) -> Result<Stored, LoadError> {
        let codes = self.expect(self.codes, &["I32"], &[None, None])?;
        let (words, outputs) = (codes.entry.shape[0], codes.entry.shape[1]);
        let zeros = self.side(format!("{base}.qzeros"), &["I32"], &[None, None])?;
        let (groups, packed) = (zeros.entry.shape[0], zeros.entry.shape[1]);
        let mut known = [2, 3, 4, 8].into_iter();
        let bits = known
            .find(|bits| outputs.checked_mul(*bits).map(|all| all.div_ceil(32)) == Some(packed));
        let inputs = bits.and_then(|bits| {
            let all = words.checked_mul(32)?;
            all.is_multiple_of(bits).then_some(all / bits)
        });
        let (Some(bits), Some(inputs)) = (bits, inputs) else {
            let reason = format!(
                "does not hold zero points of 2, 3, 4 or 8 bits for the {outputs} outputs of `{}`",
                codes.entry.name
            );
            return Err(fail(zeros, reason));
        };
        let scales = self.scales(base, [groups, outputs])?;
        let [codes, zeros] = [codes, zeros].map(|tensor| self.bytes(tensor));
        let mut source = Source {
            sizes: [outputs, inputs, 0],
            bits,
            word: &|row, word| repack::word(codes, word * outputs + row),
            scale: &|group, row| scales[group * outputs + row],
            zero: &|group, row| {
                let word = |index: usize| repack::word(zeros, group * packed + index);
                f32::from(u16::from(repack::code(word, row, bits)) + u16::from(zero))
            },
        };
        if let Some(order) = self.order(format!("{base}.g_idx"), [inputs, groups])? {
            return self.unordered(name, &source, &order);
        }
        source.sizes[2] = self.group(inputs, groups)?;
        self.made(name, [outputs, inputs], source.affine())
    }

    /// Numbers of each of `groups` groups of a row.
    fn group(&self, inputs: usize, groups: usize) -> Result<usize, LoadError> {
        match groups > 0 && inputs.is_multiple_of(groups) {
            true => Ok(inputs / groups),
            false => {
                let reason = format!("has {inputs} inputs, which {groups} groups do not divide");
                Err(fail(self.codes, reason))
            }
        }
    }

    fn scales(&self, base: &str, [groups, outputs]: [usize; 2]) -> Result<Vec<f32>, LoadError> {
        let floats = ["F16", "BF16", "F32"];
        let shape = [Some(groups), Some(outputs)];
        let scales = self.side(format!("{base}.scales"), &floats, &shape)?;
        let dtype = float(scales.entry).unwrap_or(mlxcel_ir::DType::F16);
        Ok(convert::to_f32(dtype, self.bytes(scales)).unwrap_or_default())
    }

    /// The group of each input, from the tensor `name`, where they are not in the order of inputs.
    pub(super) fn order(
        &self,
        name: String,
        [inputs, groups]: [usize; 2],
    ) -> Result<Option<Vec<usize>>, LoadError> {
        if self.checkpoint.get(&name).is_none() {
            return Ok(None);
        }
        let tensor = self.side(name, &["I32"], &[Some(inputs)])?;
        let (words, _) = self.bytes(tensor).as_chunks::<4>();
        let numbers = words.iter().map(|word| i32::from_le_bytes(*word));
        // What was packed without an order may say so.
        if numbers.clone().all(|number| number == -1) {
            return Ok(None);
        }
        let order: Option<Vec<usize>> = numbers
            .map(|number| {
                usize::try_from(number)
                    .ok()
                    .filter(|&number| number < groups)
            })
            .collect();
        let order = order.ok_or_else(|| {
            let reason = format!("names a group that is none of the {groups}");
            fail(tensor, reason)
        })?;
        let sorted = groups > 0
            && inputs.is_multiple_of(groups)
            && order
                .iter()
                .enumerate()
                .all(|(index, &of)| of == index / (inputs / groups));
        Ok((!sorted).then_some(order))
    }

    /// A weight whose groups are not in the order of inputs: no format has that, so its numbers are
    /// kept.
    pub(super) fn unordered(
        &self,
        name: String,
        source: &Source<'_>,
        order: &[usize],
    ) -> Result<Stored, LoadError> {
        let [outputs, inputs, _] = source.sizes;
        let values = source
            .numbers(order)
            .map_err(|reason| fail(self.codes, reason))?;
        let parts = [Bytes::Owned(values), Bytes::Empty, Bytes::Empty];
        let format = WeightFormat::Dense(mlxcel_ir::DType::F32);
        self.stored(name, vec![outputs, inputs], format, parts)
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
