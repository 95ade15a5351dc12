//! The numbers of a case in a file beside it: `input/NAME` for each input, and for each weight
//! `weight/NAME` with `values`, `scales` and `biases` as the bytes of its format.

use crate::case::{Case, CaseError};
use mlxcel_ir::random::{Data, Weights};
use mlxcel_ir::{DType, Graph, HostTensor, WeightSource};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::path::Path;
use std::sync::Arc;

/// The parts of a weight.
const PARTS: [&str; 3] = ["values", "scales", "biases"];

fn stored(dtype: DType) -> Dtype {
    match dtype {
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::I32 => Dtype::I32,
        DType::U32 => Dtype::U32,
        DType::Bool => Dtype::BOOL,
    }
}

/// Writes the numbers of a case.
///
/// # Errors
/// [`CaseError::File`].
pub(crate) fn write(path: &Path, data: &Data, graph: &Graph) -> Result<(), CaseError> {
    let wrong = |error| CaseError::file(path, error);
    let mut views: Vec<(String, TensorView<'_>)> = vec![];
    for (name, tensor) in &data.inputs {
        let view = TensorView::new(stored(tensor.dtype), tensor.shape.clone(), &tensor.bytes);
        views.push((format!("input/{name}"), view.map_err(wrong)?));
    }
    for weight in &graph.weights {
        let Some(parts) = data.weights.get(&weight.name) else {
            continue;
        };
        let parts = [parts.values, parts.scales, parts.biases];
        for (part, bytes) in PARTS.into_iter().zip(parts) {
            let view = TensorView::new(Dtype::U8, vec![bytes.len()], bytes).map_err(wrong)?;
            views.push((format!("weight/{}/{part}", weight.name), view));
        }
    }
    safetensors::serialize_to_file(views, None, path).map_err(wrong)
}

/// Reads the numbers of a case.
///
/// # Errors
/// [`CaseError::File`] where a tensor that the case needs is missing, of another type or of another size.
pub(crate) fn read(path: &Path, case: &Case) -> Result<Data, CaseError> {
    let bytes = std::fs::read(path).map_err(|error| CaseError::file(path, error))?;
    let tensors = SafeTensors::deserialize(&bytes).map_err(|error| CaseError::file(path, error))?;
    let find = |name: &str| {
        let found = tensors.tensor(name);
        found.map_err(|_| CaseError::file(path, format!("there is no tensor {name:?}")))
    };
    let mut inputs = vec![];
    for input in &case.graph.inputs {
        let name = format!("input/{}", input.name);
        let tensor = find(&name)?;
        let shape = input.ty.sizes(&case.bindings).ok();
        if tensor.dtype() != stored(input.ty.dtype) || shape.as_deref() != Some(tensor.shape()) {
            let expected = &input.ty;
            let found = format!("{:?}{:?}", tensor.dtype(), tensor.shape());
            let reason = format!("{name:?} is {found} and not {expected}");
            return Err(CaseError::file(path, reason));
        }
        inputs.push((
            input.name.clone(),
            HostTensor {
                dtype: input.ty.dtype,
                shape: tensor.shape().to_vec(),
                bytes: tensor.data().to_vec(),
            },
        ));
    }
    let mut weights = Weights::default();
    for weight in &case.graph.weights {
        let mut parts = [const { Vec::new() }; 3];
        for (part, kept) in PARTS.into_iter().zip(&mut parts) {
            *kept = find(&format!("weight/{}/{part}", weight.name))?
                .data()
                .to_vec();
        }
        weights.insert(&*weight.name, parts);
    }
    Ok(Data {
        inputs,
        weights: Arc::new(weights),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "// case seed = 4, B = 2, T = 3\nfunc @f(%x: f32[B, T, 32], %i: i32[T])\n  \
                        weight @w: affine4(group = 32, scale = bf16)[8, 32]\n{\n  \
                        %2 = gather(%x, %i) : f32[T, T, 32]\n  \
                        %3 = linear(%2) @w : f32[T, T, 8]\n  return y = %3\n}\n";

    #[test]
    fn a_case_with_its_numbers_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fault.mxg");
        let mut case = Case::parse(TEXT).unwrap();
        let data = case.data();
        case.given = Some(data.clone());
        case.write(&path).unwrap();
        let read = Case::read(&path).unwrap();
        assert_eq!((&read.graph, read.bindings), (&case.graph, case.bindings));
        let given = read.given.unwrap();
        assert_eq!(given.inputs, data.inputs);
        let parts = |data: &Data| {
            let weight = data.weights.get("w").unwrap();
            [weight.values, weight.scales, weight.biases].map(<[u8]>::to_vec)
        };
        assert_eq!(parts(&given), parts(&data));
        // Without its file the text is no case.
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            matches!(Case::parse(&text), Err(CaseError::Apart(name)) if name == "fault.safetensors")
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fault.mxg");
        let mut case = Case::parse(TEXT).unwrap();
        case.given = Some(case.data());
        case.write(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let check = |from: &str, to: &str, expect: &str| {
            std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
            let error = Case::read(&path).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        };
        check(
            "fault.safetensors",
            "../fault.safetensors",
            "is no name of a file",
        );
        check(
            "fault.safetensors",
            "other.safetensors",
            "other.safetensors",
        );
        check(
            "B = 2",
            "B = 3",
            "\"input/x\" is F32[2, 3, 32] and not f32[B, T, 32]",
        );
    }
}
