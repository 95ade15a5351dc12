use super::names::Names;
use super::{Weights, spelling};
use crate::checkpoint::Checkpoint;
use crate::config::Quantization;
use mlxcel_ir::WeightSource;
use mlxcel_test_support::{NewTensor, write_tensors};
use proptest::prelude::*;

/// The weights of a checkpoint of `tensors`, its quantised modules of 4 bits in groups of 32.
fn weights(tensors: &[NewTensor], names: Names) -> Result<Weights, String> {
    let folder = tempfile::tempdir().expect("a folder");
    write_tensors(&folder.path().join("model.safetensors"), tensors);
    let quantization = Quantization::affine(4, 32);
    let checkpoint = Checkpoint::open(folder.path()).map_err(|error| error.to_string())?;
    Weights::assemble(checkpoint, Some(&quantization), names).map_err(|error| error.to_string())
}

/// A tensor whose elements count from `from`.
fn counted(name: &str, shape: &[usize], from: usize) -> NewTensor {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (from..from + count).map(|value| value as f32).collect();
    NewTensor::f32(name, shape, &values)
}

fn values(weights: &Weights, name: &str) -> Vec<f32> {
    let data = weights.get(name).unwrap_or_else(|| panic!("{name}"));
    bytemuck::cast_slice(data.values).to_vec()
}

/// Whether the bytes of `name` are those of a file.
fn is_mapped(weights: &Weights, name: &str) -> bool {
    let bytes = weights.get(name).unwrap_or_else(|| panic!("{name}")).values;
    let inside =
        |file: &crate::map::MappedFile| file.bytes().as_ptr_range().contains(&bytes.as_ptr());
    weights.files.iter().any(inside)
}

#[test]
fn steps_make_what_they_say() {
    let tensors = [
        counted("model.m", &[4, 3], 0),
        counted("model.e", &[2, 2, 3], 0),
        counted("model.b", &[4], 0),
    ];
    let weights = weights(&tensors, Names::MODEL).expect("a checkpoint");
    let check = |name: &str, shape: &[usize], mapped: bool, expect: &[u8]| {
        weights
            .declaration(name, shape, "")
            .unwrap_or_else(|error| panic!("{error}"));
        let expect: Vec<f32> = expect.iter().map(|&value| f32::from(value)).collect();
        assert_eq!(values(&weights, name), expect, "{name}");
        assert_eq!(is_mapped(&weights, name), mapped, "{name}");
        // The second time gives the same bytes.
        assert_eq!(
            weights.get(name).map(|data| data.values.as_ptr()),
            weights.get(name).map(|data| data.values.as_ptr()),
            "{name}"
        );
    };
    check(
        "model.m^T",
        &[3, 4],
        false,
        &[0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11],
    );
    check(
        "model.e^T",
        &[2, 3, 2],
        false,
        &[0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11],
    );
    check("model.m[1..3]", &[2, 3], true, &[3, 4, 5, 6, 7, 8]);
    check("model.m[1..4:2]", &[2, 3], false, &[3, 4, 5, 9, 10, 11]);
    check(
        "model.m[0..4:3:2]",
        &[3, 3],
        false,
        &[0, 1, 2, 3, 4, 5, 9, 10, 11],
    );
    check(
        "model.m[:,1..3]",
        &[4, 2],
        false,
        &[1, 2, 4, 5, 7, 8, 10, 11],
    );
    check("model.e[:,1..2]", &[2, 1, 3], false, &[3, 4, 5, 9, 10, 11]);
    check("model.b[2..4]", &[2], true, &[2, 3]);
    check(
        "model.m(2,2,3)",
        &[2, 2, 3],
        true,
        &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
    );
    check(
        "model.m(2,2,3)^T[1..2]",
        &[1, 3, 2],
        false,
        &[6, 9, 7, 10, 8, 11],
    );
    check("model.m[2..4][0..1]", &[1, 3], true, &[6, 7, 8]);
}

#[test]
fn what_cannot_be_made_is_named() {
    let tensors = [
        counted("model.m", &[4, 3], 0),
        counted("model.b", &[4], 0),
        counted("model.x.experts.0.a", &[2, 3], 0),
        counted("model.x.experts.1.a", &[3, 2], 0),
        NewTensor::u32("model.q.weight", &[2, 4], &[0; 8]),
        counted("model.q.scales", &[2, 1], 0),
        counted("model.q.biases", &[2, 1], 0),
        NewTensor::u32("model.u", &[2], &[0; 2]),
    ];
    let weights = weights(&tensors, Names::MODEL).expect("a checkpoint");
    let check = |name: &str, expect: &[&str]| {
        let error = weights
            .declaration(name, &[1], "")
            .expect_err(name)
            .to_string();
        for part in expect.iter().chain(&[name]) {
            assert!(error.contains(part), "{name}: {error}");
        }
        assert!(weights.get(name).is_none(), "{name}");
    };
    check("model.b^T", &["cannot be transposed"]);
    check("model.q.weight^T", &["cannot be transposed", "affine4"]);
    check(
        "model.q.weight[:,0..1]",
        &["cannot be cut along dimension 1"],
    );
    check("model.m[2..5]", &["has no [2..5]"]);
    check("model.m[:,:,0..1]", &["cannot be cut along dimension 2"]);
    check("model.m(5,3)", &["cannot take shape [5, 3]"]);
    check("model.q.weight(4,16)", &["cannot take shape [4, 16]"]);
    check(
        "model.m(4294967295,4294967295,4294967295)",
        &["cannot take shape"],
    );
    check("model.n^T", &[]);
    check("model.x.experts.b", &[]);
    check("model.u", &["U32"]);
    let error = weights
        .declaration("model.x.experts.a", &[1], "")
        .expect_err("differ")
        .to_string();
    assert!(
        error.contains("experts.1.a") && error.contains("like `model.x.experts.0.a`"),
        "{error}"
    );
}

#[test]
fn experts_are_stacked() {
    let mut tensors = Vec::new();
    // Those of `a` stand one after the other, those of `b` do not.
    for expert in 0..3 {
        tensors.push(counted(
            &format!("model.x.experts.{expert}.a"),
            &[2, 2],
            expert * 4,
        ));
    }
    for expert in 0..3 {
        tensors.push(counted(
            &format!("model.x.experts.{expert}.b"),
            &[2],
            expert * 2,
        ));
        tensors.push(counted(
            &format!("model.x.experts.{expert}.w3.bias"),
            &[1],
            expert,
        ));
    }
    let weights = weights(&tensors, Names::MODEL).expect("a checkpoint");
    let check = |name: &str, shape: &[usize], mapped: bool| {
        weights
            .declaration(name, shape, "")
            .unwrap_or_else(|error| panic!("{error}"));
        let count = shape.iter().product::<usize>();
        let expect: Vec<f32> = (0..count).map(|value| value as f32).collect();
        assert_eq!(values(&weights, name), expect, "{name}");
        assert_eq!(is_mapped(&weights, name), mapped, "{name}");
    };
    check("model.x.experts.a", &[3, 2, 2], true);
    check("model.x.experts.b", &[3, 2], false);
    check("model.x.experts.up_proj.bias", &[3, 1], false);
    check("model.x.experts.w3.bias", &[3, 1], false);
    check("model.x.experts.a[0..2]", &[2, 2, 2], true);
    assert!(weights.has("model.x.experts.a") && !weights.has("model.x.experts.c"));
}

#[test]
fn quantised_experts_are_one_weight_in_either_spelling() {
    let codes: Vec<u32> = (0..24).collect();
    let sides: Vec<f32> = (0..6).map(|value| value as f32).collect();
    let stacked = |module: &str| {
        vec![
            NewTensor::u32(&format!("{module}.weight"), &[3, 2, 4], &codes),
            NewTensor::f32(&format!("{module}.scales"), &[3, 2, 1], &sides),
            NewTensor::f32(&format!("{module}.biases"), &[3, 2, 1], &sides),
        ]
    };
    let single = |expert: usize| {
        let module = format!("model.x.experts.{expert}.up_proj");
        let sides = &sides[expert * 2..][..2];
        [
            NewTensor::u32(
                &format!("{module}.weight"),
                &[2, 4],
                &codes[expert * 8..][..8],
            ),
            NewTensor::f32(&format!("{module}.scales"), &[2, 1], sides),
            NewTensor::f32(&format!("{module}.biases"), &[2, 1], sides),
        ]
    };
    let singles: Vec<NewTensor> = (0..3).flat_map(single).collect();
    let name = "model.x.experts.up_proj.weight";
    for tensors in [
        stacked("model.x.experts.up_proj"),
        stacked("language_model.model.x.switch_mlp.w3"),
        singles,
    ] {
        let from = tensors[0].name.clone();
        let weights =
            weights(&tensors, Names::MODEL).unwrap_or_else(|error| panic!("{from}: {error}"));
        let declared = weights
            .declaration(name, &[3, 2, 32], "")
            .unwrap_or_else(|error| panic!("{error}"));
        let data = weights.get(name).expect("its bytes");
        assert_eq!(
            [data.values, data.scales, data.biases].map(<[u8]>::len),
            declared.part_bytes()
        );
        assert_eq!(
            bytemuck::cast_slice::<u8, u32>(data.values),
            codes,
            "{from}"
        );
        assert_eq!(
            bytemuck::cast_slice::<u8, f32>(data.scales),
            sides,
            "{from}"
        );
        let row = spelling::part(name, 1, 1..2);
        let data = weights.get(&row).expect("rows of experts");
        assert_eq!(
            bytemuck::cast_slice::<u8, f32>(data.biases),
            [1.0, 3.0, 5.0],
            "{from}"
        );
    }
}

#[test]
fn families_have_tensors_transposed() {
    let names = Names {
        root: "transformer",
        transposed: &["c_attn.weight"],
    };
    let tensors = [counted("h.0.c_attn.weight", &[2, 3], 0)];
    let weights = weights(&tensors, names).expect("a checkpoint");
    let name = "transformer.h.0.c_attn.weight";
    let declared = weights
        .declaration(name, &[3, 2], "")
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(declared.name, "transformer.h.0.c_attn.weight^T");
    assert_eq!(
        values(&weights, &declared.name),
        [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]
    );
    let rows = weights
        .declaration(&format!("{name}[1..3]"), &[2, 2], "")
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(rows.name, "transformer.h.0.c_attn.weight^T[1..3]");
    assert_eq!(values(&weights, &rows.name), [1.0, 4.0, 2.0, 5.0]);
    let error = weights
        .declaration(name, &[2, 3], "")
        .expect_err("is transposed")
        .to_string();
    assert!(error.contains("c_attn.weight^T"), "{error}");
}

#[test]
fn two_tensors_for_one_name_are_refused() {
    let twice = [
        counted("model.language_model.a", &[1], 0),
        counted("language_model.a", &[1], 0),
    ];
    let error = weights(&twice, Names::MODEL).expect_err("twice");
    assert!(error.contains("both stand for `model.a`"), "{error}");
}

proptest! {
    /// A step moves elements as its definition by indices says.
    #[test]
    fn steps_agree_with_indices(
        shape in prop::collection::vec(1..40usize, 2..4),
        axis in 0..3usize, start in 0..40usize, length in 1..40usize,
        block in 1..4usize, gap in 0..4usize,
    ) {
        let axis = axis % shape.len();
        let start = start % shape[axis];
        let end = shape[axis].min(start + length);
        let tensors = [counted("model.m", &shape, 0)];
        let weights = weights(&tensors, Names::MODEL).expect("a checkpoint");

        let sliced = spelling::blocks("model.m", axis, start..end, [block + gap, block]);
        let inner: usize = shape[axis + 1..].iter().product();
        let expect: Vec<f32> = (0..shape.iter().product::<usize>())
            .filter(|flat| {
                let index = flat / inner % shape[axis];
                (start..end).contains(&index) && (index - start) % (block + gap) < block
            })
            .map(|flat| flat as f32)
            .collect();
        prop_assert_eq!(values(&weights, &sliced), expect);

        let [rows, columns] = [shape[shape.len() - 2], shape[shape.len() - 1]];
        let turned = values(&weights, &spelling::transposed("model.m"));
        for (flat, &value) in turned.iter().enumerate() {
            let (matrix, within) = (flat / (rows * columns), flat % (rows * columns));
            let (column, row) = (within / rows, within % rows);
            prop_assert_eq!(value, (matrix * rows * columns + row * columns + column) as f32);
        }
    }

    /// Any name is looked up without a panic.
    #[test]
    fn any_name_may_be_asked_for(name in "(model\\.m)?[\\^T\\[\\]():,.0-9x]{0,20}") {
        let weights = weights(&[counted("model.m", &[3, 5], 0)], Names::MODEL).expect("a checkpoint");
        let _ = weights.get(&name);
        let _ = weights.declaration(&name, &[1], "");
    }
}
