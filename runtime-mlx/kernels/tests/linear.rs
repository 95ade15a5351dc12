//! Linear layers in every form, over every format, against a plain evaluation.

mod support;

use mlxcel_ir::{Activation, DType, WeightFormat};
use mlxcel_kernels::{Linear, Matrix, Pool, gated_linear, linear, linear_group};
use proptest::prelude::*;
use support::{Random, Weight, error_against, formats, pools, relative_error};

/// One product in one pool: plain, and with bias and residual.
fn check(pool: &Pool, weight: &Weight, rows: usize, random: &mut Random) {
    let [width, columns] = weight.declaration.shape[..] else {
        panic!("a matrix")
    };
    let x = random.numbers(rows * columns);
    let bias = random.numbers(width);
    let residual = random.numbers(rows * width);
    let matrix = Matrix::new(&weight.declaration, weight.data()).expect("a valid weight");
    let mut expected = weight.product(&x);
    let sizes = weight.sizes(&x);
    let context = || format!("{} {:?} x {rows}", pool.form(), weight.declaration);

    let mut out = vec![f32::NAN; rows * width];
    let layer = Linear { matrix, bias: None };
    linear_group(pool, &x, &[layer], &mut [&mut out]).expect("fitting slices");
    let error = error_against(&out, &expected, &sizes);
    assert!(error < 2e-6, "{error:e} in {}", context());

    for (i, value) in expected.iter_mut().enumerate() {
        *value += f64::from(bias[i % width]) + f64::from(residual[i]);
    }
    out.fill(f32::NAN);
    let layer = Linear {
        matrix,
        bias: Some(&bias),
    };
    linear(pool, &x, layer, Some(&residual), &mut out).expect("fitting slices");
    let error = error_against(&out, &expected, &sizes);
    assert!(error < 2e-6, "{error:e} with bias in {}", context());
}

#[test]
fn every_format() {
    let mut random = Random(1);
    let pools = pools();
    for columns in [32, 48, 272, 384, 768] {
        for format in formats(columns) {
            let weight = Weight::random(29, columns, format, &mut random);
            for pool in &pools {
                for rows in [1, 2, 3, 4, 5, 11] {
                    check(pool, &weight, rows, &mut random);
                }
            }
        }
    }
}

/// Blocks of 128 rows, where rows do not fill the last one and matrices stand in a stack.
#[test]
fn blocks_of_rows() {
    let mut random = Random(6);
    let pools = pools();
    for format in [DType::F32, DType::BF16].map(|scale| WeightFormat::Fp8Block { scale }) {
        for shape in [vec![300, 144], vec![3, 130, 48]] {
            let weight = Weight::shaped(&shape, format, &mut random);
            let columns = shape[shape.len() - 1];
            let matrix = Matrix::new(&weight.declaration, weight.data()).expect("a valid weight");
            let width = matrix.rows();
            for pool in &pools {
                for rows in [1, 3, 9] {
                    let x = random.numbers(rows * columns);
                    let mut out = vec![f32::NAN; rows * width];
                    let layer = Linear { matrix, bias: None };
                    linear_group(pool, &x, &[layer], &mut [&mut out]).expect("fitting slices");
                    let error = error_against(&out, &weight.product(&x), &weight.sizes(&x));
                    assert!(
                        error < 2e-6,
                        "{error:e} in {} {shape:?} x {rows}",
                        pool.form()
                    );
                }
            }
        }
    }
}

#[test]
fn panels_of_rows() {
    let mut random = Random(7);
    let pools = pools();
    for (width, columns, group) in [(16, 32, 32), (48, 96, 32), (304, 384, 128), (32, 1088, 64)] {
        for scale in [DType::F32, DType::F16, DType::BF16] {
            for zero in [None, Some(0), Some(8)] {
                let format = WeightFormat::Panels { zero, group, scale };
                let weight = Weight::random(width, columns, format, &mut random);
                for pool in &pools {
                    for rows in [1, 2, 3, 4, 5, 11] {
                        check(pool, &weight, rows, &mut random);
                    }
                }
            }
        }
    }
}

/// Numbers of x that differ much in size, are none, or are not finite.
#[test]
fn digits_of_extreme_numbers() {
    let mut random = Random(8);
    let format = WeightFormat::Panels {
        zero: Some(8),
        group: 32,
        scale: DType::F32,
    };
    let weight = Weight::random(16, 64, format, &mut random);
    let matrix = Matrix::new(&weight.declaration, weight.data()).expect("a valid weight");
    let check = |x: &dyn Fn(usize) -> f32, within: f64| {
        let x: Vec<f32> = (0..64).map(x).collect();
        for pool in &pools() {
            let mut out = vec![0.0; 16];
            let layer = Linear { matrix, bias: None };
            linear_group(pool, &x, &[layer], &mut [&mut out]).expect("fitting slices");
            if within.is_nan() {
                assert!(out.iter().all(|number| number.is_nan()), "{out:?}");
                continue;
            }
            let error = error_against(&out, &weight.product(&x), &weight.sizes(&x));
            assert!(error <= within, "{error:e} in {}", pool.form());
        }
    };
    check(&|_| 0.0, 0.0);
    check(&|i| 2f32.powi(i as i32), 2e-6);
    check(&|i| if i % 2 == 0 { 3e35 } else { -1e30 }, 2e-6);
    check(&|i| (i as f32 - 31.5) * 1e-25, 2e-6);
    for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        check(&|i| if i == 40 { odd } else { 1.0 }, f64::NAN);
    }
}

#[test]
fn odd_dense_shapes() {
    let mut random = Random(2);
    for columns in [1, 2, 7, 15, 17, 33, 1025] {
        for rows in [1, 3, 4, 6, 9] {
            for dtype in [DType::F32, DType::F16, DType::BF16] {
                let format = WeightFormat::Dense(dtype);
                let weight = Weight::random(1 + columns % 5, columns, format, &mut random);
                for pool in &pools() {
                    check(pool, &weight, rows, &mut random);
                }
            }
        }
    }
}

#[test]
fn long_columns_take_several_panels() {
    let mut random = Random(3);
    for (columns, group) in [(2112, 64), (1536, 128), (2080, 32), (3072, 1536)] {
        let format = WeightFormat::Affine {
            bits: 4,
            group,
            scale: DType::F16,
        };
        let weight = Weight::random(50, columns, format, &mut random);
        for pool in &pools() {
            for rows in [1, 4, 7, 32] {
                check(pool, &weight, rows, &mut random);
            }
        }
    }
}

#[test]
fn groups_and_gates() {
    let mut random = Random(4);
    let affine = |bits| WeightFormat::Affine {
        bits,
        group: 32,
        scale: DType::F16,
    };
    let weights: Vec<_> = [(100, 4), (37, 8), (100, 6)]
        .map(|(rows, bits)| Weight::random(rows, 96, affine(bits), &mut random))
        .into();
    let layers: Vec<_> = weights
        .iter()
        .map(|weight| Linear {
            matrix: Matrix::new(&weight.declaration, weight.data()).expect("a valid weight"),
            bias: None,
        })
        .collect();
    for pool in &pools() {
        for rows in [1, 2, 5, 30] {
            let x = random.numbers(rows * 96);
            let mut outs: Vec<_> = [100, 37, 100].map(|n| vec![f32::NAN; rows * n]).into();
            let mut slices: Vec<_> = outs.iter_mut().map(Vec::as_mut_slice).collect();
            linear_group(pool, &x, &layers, &mut slices).expect("fitting slices");
            for (weight, out) in weights.iter().zip(&outs) {
                assert!(relative_error(out, &weight.product(&x)) < 1e-6);
            }
            let gate = weights[0].product(&x);
            let up = weights[2].product(&x);
            let silu = |g: f64| g / (1.0 + (-g).exp());
            let expected: Vec<_> = gate.iter().zip(&up).map(|(g, u)| silu(*g) * u).collect();
            let mut out = vec![f32::NAN; rows * 100];
            gated_linear(pool, &x, layers[0], layers[2], Activation::Silu, &mut out)
                .expect("fitting slices");
            assert!(relative_error(&out, &expected) < 1e-6);
        }
    }
}

#[test]
fn ill_shaped_arguments_are_errors() {
    let mut random = Random(5);
    let format = WeightFormat::Affine {
        bits: 4,
        group: 32,
        scale: DType::F16,
    };
    let weight = Weight::random(8, 64, format, &mut random);
    let pool = Pool::new(2).expect("two threads");
    let matrix = Matrix::new(&weight.declaration, weight.data()).expect("a valid weight");
    let layer = Linear { matrix, bias: None };
    let x = [0.0; 64];
    let mut out = [0.0; 8];
    assert!(linear(&pool, &x[..63], layer, None, &mut out).is_err());
    assert!(linear(&pool, &x, layer, None, &mut out[..7]).is_err());
    assert!(linear(&pool, &x, layer, Some(&x), &mut out).is_err());
    assert!(linear_group(&pool, &x, &[layer], &mut []).is_err());
    let bias = Some(&x[..7]);
    assert!(linear(&pool, &x, Linear { matrix, bias }, None, &mut out).is_err());
    assert!(linear(&pool, &[], layer, None, &mut []).is_ok());

    let refuse = |change: &dyn Fn(&mut mlxcel_ir::WeightDecl)| {
        let mut declaration = weight.declaration.clone();
        change(&mut declaration);
        let error = Matrix::new(&declaration, weight.data()).expect_err("a wrong declaration");
        assert!(error.to_string().contains("weight"), "{error}");
    };
    let affine = |bits, group, scale| WeightFormat::Affine { bits, group, scale };
    refuse(&|weight| weight.shape = vec![9, 64]);
    refuse(&|weight| weight.shape = vec![]);
    refuse(&|weight| weight.shape = vec![usize::MAX, 2, 64]);
    refuse(&|weight| weight.shape = vec![usize::MAX / 2, 64]);
    refuse(&|weight| weight.format = affine(7, 32, DType::F16));
    refuse(&|weight| weight.format = affine(4, 0, DType::F16));
    refuse(&|weight| weight.format = affine(4, 40, DType::F16));
    refuse(&|weight| weight.format = affine(4, 64, DType::F16));
    refuse(&|weight| weight.format = affine(4, 32, DType::U32));
    refuse(&|weight| weight.format = affine(8, 32, DType::F16));
    refuse(&|weight| weight.format = WeightFormat::Dense(DType::I32));
    refuse(&|weight| weight.format = WeightFormat::MxFp4);
    refuse(&|weight| weight.format = WeightFormat::KQuant { bits: 4 });
    refuse(&|weight| weight.format = WeightFormat::KQuant { bits: 8 });
    let scale = DType::F32;
    refuse(&|weight| weight.format = WeightFormat::Fp8Block { scale });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_shape(seed: u64, rows in 1usize..40, width in 1usize..70, steps in 1usize..20) {
        let mut random = Random(seed);
        let columns = 16 * steps;
        let formats = formats(columns);
        let format = formats[random.below(formats.len())];
        let weight = Weight::random(width, columns, format, &mut random);
        for pool in &pools() {
            check(pool, &weight, rows, &mut random);
        }
    }
}
