use super::Weights;
use super::names::Names;
use crate::checkpoint::Checkpoint;
use crate::config::{Grouping, Method, Mode, Quantization};
use half::{bf16, f16};
use mlxcel_ir::weight::{dequantize, e2m1, e4m3, e8m0};
use mlxcel_ir::{WeightFormat, WeightSource};
use mlxcel_test_support::{NewTensor, write_tensors};
use serde_json::Value;
use std::collections::HashMap;

fn tensor(name: &str, dtype: &'static str, shape: &[usize], bytes: Vec<u8>) -> NewTensor {
    NewTensor {
        name: format!("model.{name}"),
        dtype,
        shape: shape.to_vec(),
        bytes,
    }
}

fn quantization(method: Method, bits: u8, group: usize) -> Quantization {
    Quantization {
        method,
        ..Quantization::affine(bits, group)
    }
}

fn assemble(tensors: &[NewTensor], quantization: &Quantization) -> Result<Weights, String> {
    let folder = tempfile::tempdir().expect("a folder");
    write_tensors(&folder.path().join("model.safetensors"), tensors);
    let checkpoint = Checkpoint::open(folder.path()).map_err(|error| error.to_string())?;
    Weights::assemble(checkpoint, Some(quantization), Names::MODEL)
        .map_err(|error| error.to_string())
}

/// The weight called `name` has the format, and the numbers that `expect` gives for the indices of
/// its shape.
fn check(
    tensors: &[NewTensor],
    quantization: &Quantization,
    (name, shape): (&str, &[usize]),
    format: &str,
    expect: impl Fn(usize, usize) -> f64,
) {
    let weights = assemble(tensors, quantization).expect("a checkpoint");
    let name = format!("model.{name}");
    let declaration = weights.declaration(&name, shape, "").expect("the shape");
    assert_eq!(declaration.format.to_string(), format);
    let data = weights.get(&declaration.name).expect("its bytes");
    let columns = shape.last().copied().expect("a dimension");
    let numbers = dequantize::<f64>(&declaration, data).expect("its numbers");
    for (index, found) in numbers.into_iter().enumerate() {
        let (row, column) = (index / columns, index % columns);
        assert_eq!(found, expect(row, column), "{format} [{row}, {column}]");
    }
}

fn bytes(words: impl IntoIterator<Item = u32>) -> Vec<u8> {
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

fn code(row: usize, column: usize, bits: usize) -> u32 {
    ((row * 7 + column * 5 + row * column / 3) % (1 << bits)) as u32
}

fn scale(row: usize, group: usize) -> f16 {
    f16::from_f32(0.0137 * (row + 3 * group + 1) as f32)
}

/// AutoAWQ's `WQLinear_GEMM`: eight outputs in a word, in the order 0 2 4 6 1 3 5 7.
#[test]
fn awq_is_converted_exactly() {
    const ORDER: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];
    let (inputs, outputs, group) = (64, 24, 32);
    let pack = |rows: usize, of: &dyn Fn(usize, usize) -> u32| {
        let words = (0..rows * outputs / 8).map(|index| {
            let (row, word) = (index / (outputs / 8), index % (outputs / 8));
            let places = ORDER.iter().enumerate();
            places
                .map(|(place, output)| of(row, word * 8 + output) << (4 * place))
                .sum()
        });
        bytes(words.collect::<Vec<u32>>())
    };
    let zero = |group: usize, output: usize| code(output, group, 4);
    let scales = (0..inputs / group * outputs).map(|i| scale(i % outputs, i / outputs));
    let tensors = [
        tensor(
            "a.qweight",
            "I32",
            &[inputs, outputs / 8],
            pack(inputs, &|k, n| code(n, k, 4)),
        ),
        tensor(
            "a.qzeros",
            "I32",
            &[inputs / group, outputs / 8],
            pack(inputs / group, &zero),
        ),
        tensor(
            "a.scales",
            "F16",
            &[inputs / group, outputs],
            scales.flat_map(|scale| scale.to_le_bytes()).collect(),
        ),
    ];
    let quantization = quantization(Method::Awq, 4, group);
    let format = "affine4(group = 32, scale = f32)";
    check(
        &tensors,
        &quantization,
        ("a.weight", &[outputs, inputs]),
        format,
        |n, k| {
            let zero = f64::from(zero(k / group, n));
            scale(n, k / group).to_f64() * (f64::from(code(n, k, 4)) - zero)
        },
    );
}

/// GPTQ: inputs follow each other in a word, zero points are stored less one.
#[test]
fn gptq_is_converted_exactly() {
    for bits in [2usize, 4, 8] {
        for (group, add) in [(32, 1u8), (0, 0)] {
            let (inputs, outputs) = (64, 32);
            let each = if group == 0 { inputs } else { group };
            let (per_word, groups) = (32 / bits, inputs / each);
            let word = |of: &dyn Fn(usize) -> u32| -> u32 {
                (0..per_word).map(|place| of(place) << (bits * place)).sum()
            };
            let codes = (0..inputs / per_word * outputs).map(|i| {
                let (row, n) = (i / outputs, i % outputs);
                word(&|place| code(n, row * per_word + place, bits))
            });
            let zeros = (0..groups * outputs / per_word).map(|i| {
                let words = outputs / per_word;
                let (row, first) = (i / words, i % words * per_word);
                word(&|place| code(first + place, row, bits))
            });
            let scales = (0..groups * outputs).map(|i| scale(i % outputs, i / outputs));
            let order = |turned: usize| bytes((0..inputs).map(|k| ((k / each) ^ turned) as u32));
            let mut tensors = vec![
                tensor(
                    "a.qweight",
                    "I32",
                    &[inputs / per_word, outputs],
                    bytes(codes),
                ),
                tensor(
                    "a.qzeros",
                    "I32",
                    &[groups, outputs / per_word],
                    bytes(zeros),
                ),
                tensor(
                    "a.scales",
                    "F16",
                    &[groups, outputs],
                    scales.flat_map(|scale| scale.to_le_bytes()).collect(),
                ),
                tensor("a.g_idx", "I32", &[inputs], order(0)),
            ];
            let quantization = quantization(Method::Gptq { zero: add }, bits as u8, group);
            // A group for each row is several of a size that runtimes have kernels for.
            let format = format!(
                "affine{bits}(group = {}, scale = f32)",
                if group == 0 { 64 } else { group }
            );
            check(
                &tensors,
                &quantization,
                ("a.weight", &[outputs, inputs]),
                &format,
                |n, k| {
                    let zero = f64::from(code(n, k / each, bits)) + f64::from(add);
                    scale(n, k / each).to_f64() * (f64::from(code(n, k, bits)) - zero)
                },
            );
            // Groups in another order: the numbers, and a note that says so.
            tensors.pop();
            tensors.push(tensor("a.g_idx", "I32", &[inputs], order(1)));
            if group == 0 {
                let error = assemble(&tensors, &quantization).expect_err("no such group");
                assert!(error.contains("a.g_idx"), "{error}");
                continue;
            }
            let weights = assemble(&tensors, &quantization).expect("another order");
            assert!(weights.notes[0].contains("desc_act"), "{:?}", weights.notes);
            check(
                &tensors,
                &quantization,
                ("a.weight", &[outputs, inputs]),
                "f32",
                |n, k| {
                    let of = (k / each) ^ 1;
                    let zero = f64::from(code(n, of, bits)) + f64::from(add);
                    scale(n, of).to_f64() * (f64::from(code(n, k, bits)) - zero)
                },
            );
        }
    }
}

#[test]
fn ternary_codes_are_converted_exactly() {
    let (inputs, outputs) = (96, 8);
    let digit = |n: usize, k: usize| (n * 5 + k * 7 + n * k) % 3;
    let packed = (0..outputs / 4 * inputs).map(|i| {
        let (row, k) = (i / inputs, i % inputs);
        let quarters = (0..4).map(|quarter| digit(quarter * outputs / 4 + row, k) << (2 * quarter));
        quarters.sum::<usize>() as u8
    });
    let scale = bf16::from_f32(1.22);
    let tensors = [
        tensor("a.weight", "U8", &[outputs / 4, inputs], packed.collect()),
        tensor("a.weight_scale", "BF16", &[1], scale.to_le_bytes().to_vec()),
    ];
    for (divide, factor) in [(false, scale.to_f32()), (true, 1.0 / scale.to_f32())] {
        let quantization = quantization(Method::BitNet { divide }, 2, 0);
        let format = "zeropoint2(zero = 1, group = 32, scale = f32)";
        check(
            &tensors,
            &quantization,
            ("a.weight", &[outputs, inputs]),
            format,
            |n, k| f64::from(factor) * (digit(n, k) as f64 - 1.0),
        );
    }
}

#[test]
fn small_floats_are_kept() {
    let (rows, columns) = (130, 160);
    let byte = |i: usize| (i * 37 % 126) as u8 | ((i % 2) << 7) as u8;
    let codes: Vec<u8> = (0..rows * columns).map(byte).collect();
    let scales = [0.5f32, 1.5, 3.0, -0.25];
    let tensors = [
        tensor("a.weight", "F8_E4M3", &[rows, columns], codes),
        NewTensor::f32("model.a.weight_scale_inv", &[2, 2], &scales),
    ];
    let fp8 = quantization(Method::Scaled { block: None }, 8, 128);
    check(
        &tensors,
        &fp8,
        ("a.weight", &[rows, columns]),
        "fp8block(scale = f32)",
        |n, k| f64::from(scales[n / 128 * 2 + k / 128]) * f64::from(e4m3(byte(n * columns + k))),
    );
    let error = assemble(&tensors, &quantization(Method::Mlx, 4, 32))
        .and_then(|weights| {
            let found = weights.declaration("model.a.weight", &[rows, columns], "");
            found.map_err(|error| error.to_string())
        })
        .expect_err("FP8 that the configuration does not name");
    assert!(error.contains("F8_E4M3"), "{error}");

    // Experts of gpt-oss, asked for transposed.
    let byte = |i: usize| (i * 73 % 256) as u8;
    let exponent = |group: usize| 120 + (group % 7) as u8;
    let (rows, groups) = (2 * 3, 2);
    let tensors = [
        tensor(
            "e.up_blocks",
            "U8",
            &[2, 3, groups, 16],
            (0..rows * groups * 16).map(byte).collect(),
        ),
        tensor(
            "e.up_scales",
            "U8",
            &[2, 3, groups],
            (0..rows * groups).map(exponent).collect(),
        ),
    ];
    let mxfp4 = quantization(Method::MxFp4, 4, 32);
    let number = |row: usize, k: usize| {
        let index = row * groups * 32 + k;
        let code = byte(index / 2) >> (4 * (index % 2));
        f64::from(e2m1(code)) * f64::from(e8m0(exponent(index / 32)))
    };
    check(&tensors, &mxfp4, ("e.up^T", &[2, 3, 64]), "mxfp4", number);
}

/// Modes of MLX: named, or known from the absence of biases; bits from the shapes where the
/// configuration names the module otherwise.
#[test]
fn modes_of_mlx() {
    let words = |count: usize| bytes((0..count).map(|i| (i as u32).wrapping_mul(0x9e37_79b1)));
    let grouping = |bits, group, mode| Grouping { bits, group, mode };
    let check = |all: Grouping, words_of: usize, biases: bool, expect: Result<&str, &str>| {
        let groups = 128 / all.group.max(1);
        let (dtype, size) = if biases { ("F16", 2) } else { ("U8", 1) };
        let side = |name| tensor(name, dtype, &[3, groups], vec![0x30; 3 * groups * size]);
        let mut tensors = vec![
            tensor("a.weight", "U32", &[3, words_of], words(3 * words_of)),
            side("a.scales"),
        ];
        if biases {
            tensors.push(side("a.biases"));
        }
        let quantization = Quantization {
            all,
            ..Quantization::affine(4, 64)
        };
        let found = assemble(&tensors, &quantization).and_then(|weights| {
            let found = weights.declaration("model.a.weight", &[3, 128], "");
            found.map_err(|error| error.to_string())
        });
        match expect {
            Ok(format) => {
                let declaration = found.expect("a weight");
                assert_eq!(declaration.format.to_string(), format);
                assert!(!matches!(declaration.format, WeightFormat::Dense(_)));
            }
            Err(part) => {
                let error = found.expect_err("no weight");
                assert!(error.contains(part), "{error}");
            }
        }
    };
    check(grouping(4, 32, Mode::MxFp4), 16, false, Ok("mxfp4"));
    check(grouping(8, 32, Mode::MxFp8), 32, false, Ok("mxfp8"));
    check(grouping(4, 16, Mode::NvFp4), 16, false, Ok("nvfp4"));
    check(grouping(4, 32, Mode::Affine), 16, false, Ok("mxfp4"));
    check(grouping(4, 16, Mode::Affine), 16, false, Ok("nvfp4"));
    check(grouping(4, 64, Mode::Affine), 16, false, Err("a.biases"));
    for (bits, words) in [(2, 8), (3, 12), (4, 16), (5, 20), (6, 24), (8, 32)] {
        let format = format!("affine{bits}(group = 64, scale = f16)");
        check(grouping(bits, 64, Mode::Affine), words, true, Ok(&format));
        check(grouping(4, 64, Mode::Affine), words, true, Ok(&format));
    }
    check(grouping(4, 64, Mode::Affine), 28, true, Err("28 words"));
    // The methods that have no groups, or one group for each row.
    check(
        grouping(4, 0, Mode::Affine),
        16,
        true,
        Err("size of groups"),
    );
    check(
        grouping(4, 0, Mode::Affine),
        0,
        false,
        Err("size of groups"),
    );
    check(grouping(4, 32, Mode::MxFp4), 32, false, Err("a.scales"));
}

/// A recorded tensor: its element type, shape and bytes.
struct Recorded<'a> {
    dtype: &'a str,
    shape: Vec<usize>,
    bytes: &'a [u8],
}

/// What the publishers' own libraries quantised, and the numbers that they read back: see
/// `tests/format_cases.py`. A number is as exact as sums and products in f32 can be.
#[test]
fn publishers_read_the_same_numbers() {
    let path = mlxcel_test_support::repository().join("frontend/tests/data/formats.safetensors");
    let file = std::fs::read(&path).expect("the recorded formats");
    let (length, rest) = file.split_at(8);
    let length = u64::from_le_bytes(length.try_into().expect("a length"));
    let (header, data) = rest.split_at(length as usize);
    let header: Value = serde_json::from_slice(header).expect("a header");
    let cases = header["__metadata__"]["cases"].as_str().expect("cases");
    let cases: serde_json::Map<String, Value> = serde_json::from_str(cases).expect("cases");
    assert!(cases.len() > 70, "{} cases", cases.len());
    for (case, config) in cases {
        let part = format!("{case}/");
        let mut recorded = HashMap::new();
        for (name, entry) in header.as_object().expect("an object") {
            let Some(name) = name.strip_prefix(&part) else {
                continue;
            };
            let sizes = |field: &str| -> Vec<usize> {
                let sizes = entry[field].as_array().expect("sizes").iter();
                sizes
                    .map(|size| size.as_u64().expect("a size") as usize)
                    .collect()
            };
            let offsets = sizes("data_offsets");
            let tensor = Recorded {
                dtype: entry["dtype"].as_str().expect("a type"),
                shape: sizes("shape"),
                bytes: &data[offsets[0]..offsets[1]],
            };
            recorded.insert(name, tensor);
        }
        let expected = recorded.remove("=").expect("numbers");
        let tensors: Vec<NewTensor> = recorded
            .iter()
            .map(|(name, tensor)| NewTensor {
                name: format!("model.a.{name}"),
                dtype: tensor.dtype.to_string().leak(),
                shape: tensor.shape.clone(),
                bytes: tensor.bytes.to_vec(),
            })
            .collect();
        let field = match config.get("quant_method") {
            Some(_) => "quantization_config",
            None => "quantization",
        };
        let config = serde_json::json!({ field: config });
        let quantization = Quantization::of_config(&path, &config).expect(&case);
        let weights = assemble(&tensors, &quantization.expect(&case)).expect(&case);
        let name = match case.as_str() {
            "gpt-oss" => "model.a.experts.up",
            _ => "model.a.weight",
        };
        let declaration = weights
            .stored
            .get(name)
            .or_else(|| weights.stored.get(&format!("{name}^T")));
        let declaration = &declaration
            .unwrap_or_else(|| panic!("{case}: no {name}"))
            .declaration;
        let data = weights.get(&declaration.name).expect("its bytes");
        let found = dequantize::<f64>(declaration, data).expect(&case);
        let expect = expected
            .bytes
            .chunks_exact(4)
            .map(|bytes| f64::from(f32::from_le_bytes(bytes.try_into().expect("four bytes"))));
        let mut expect: Vec<f64> = expect.collect();
        if case == "gpt-oss" {
            // Recorded as its linear layers are stored, `[inputs, outputs]`.
            let &[experts, inputs, outputs] = &expected.shape[..] else {
                panic!("three dimensions")
            };
            expect = (0..experts * inputs * outputs)
                .map(|i| {
                    let (expert, output, input) =
                        (i / (inputs * outputs), i / inputs % outputs, i % inputs);
                    expect[(expert * inputs + input) * outputs + output]
                })
                .collect();
        } else {
            assert_eq!(declaration.shape, expected.shape, "{case}");
        }
        assert_eq!(found.len(), expect.len(), "{case}");
        let most = expect
            .iter()
            .fold(0f64, |most, number| most.max(number.abs()));
        for (index, (found, expect)) in found.iter().zip(&expect).enumerate() {
            let off = (found - expect).abs();
            assert!(
                off <= most * f64::from(f32::EPSILON),
                "{case} as {}: number {index} is {found}, not {expect}",
                declaration.format
            );
        }
    }
}

#[test]
fn sizes_of_zero_are_no_codes() {
    /// Name, element type, and shape.
    type Part<'a> = (&'a str, &'a str, &'a [usize]);
    let scaled = Method::Scaled { block: None };
    // What converts codes divides by sizes, and cuts rows by them.
    let cases: [(&[Part<'_>], Method); 5] = [
        (
            &[
                ("a.weight", "F8_E4M3", &[0, 16]),
                ("a.weight_scale", "F32", &[1]),
            ],
            scaled,
        ),
        (
            &[
                ("a.weight_packed", "U8", &[0, 1 << 20, 8]),
                ("a.weight_scale", "F8_E4M3", &[0, 1 << 20, 1]),
                ("a.weight_global_scale", "F32", &[0]),
            ],
            scaled,
        ),
        (
            &[
                ("a.weight", "I8", &[1 << 50, 0]),
                ("a.weight_scale", "F32", &[1]),
            ],
            scaled,
        ),
        (
            &[
                ("a.qweight", "I32", &[0, 8]),
                ("a.qzeros", "I32", &[1, 1]),
                ("a.scales", "F16", &[1, 8]),
            ],
            Method::Gptq { zero: 1 },
        ),
        (
            &[
                ("a.qweight", "I32", &[16, 0]),
                ("a.qzeros", "I32", &[1, 0]),
                ("a.scales", "F16", &[1, 0]),
            ],
            Method::Awq,
        ),
    ];
    for (tensors, method) in cases {
        let size = |dtype: &str| match dtype {
            "I32" | "F32" => 4,
            "F16" => 2,
            _ => 1,
        };
        let tensors: Vec<NewTensor> = tensors
            .iter()
            .map(|&(name, dtype, shape)| {
                let bytes = vec![0; shape.iter().product::<usize>() * size(dtype)];
                NewTensor {
                    name: format!("model.{name}"),
                    dtype: dtype.to_string().leak(),
                    shape: shape.to_vec(),
                    bytes,
                }
            })
            .collect();
        let weights = assemble(&tensors, &quantization(method, 4, 32));
        assert!(weights.is_err(), "{method:?}");
    }
}
