//! Embedding, norms, activations, softmax, argmax and rope in every form against plain evaluations.

mod support;

use mlxcel_ir::{Activation, Pairing};
use mlxcel_kernels::{
    Error, Matrix, Pool, Rope, activate, argmax, embedding_rows, gated, layer_norm, rms_norm, rope,
    softmax, take_along, top_k,
};
use proptest::prelude::*;
use support::{Random, Weight, formats, pools, relative_error};

/// The largest error of an element in units of the expected element's last place.
fn last_places(found: &[f32], expected: &[f64]) -> f64 {
    let off = |(found, expected): (&f32, &f64)| {
        let size = expected.abs().max(f64::from(f32::MIN_POSITIVE));
        (f64::from(*found) - expected).abs() / (size * f64::from(f32::EPSILON))
    };
    found.iter().zip(expected).map(off).fold(0.0, f64::max)
}

/// The activation in `f64`; the error function by its series or continued fraction.
fn plain(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Gelu => 0.5 * x * erfc(-x / std::f64::consts::SQRT_2),
        Activation::GeluTanh => {
            let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            x / (1.0 + (-2.0 * u).exp())
        }
        Activation::Relu => x.max(0.0),
        Activation::Relu2 => x.max(0.0).powi(2),
        Activation::QuickGelu => x / (1.0 + (-1.702 * x).exp()),
        Activation::Tanh => x.tanh(),
        Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Activation::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
    }
}

fn erfc(x: f64) -> f64 {
    if x < 0.0 {
        return 2.0 - erfc(-x);
    }
    let scale = std::f64::consts::PI.sqrt();
    if x < 2.5 {
        let (mut term, mut sum) = (x, x);
        for n in 1..80 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        return 1.0 - 2.0 / scale * sum;
    }
    let mut fraction = x;
    for n in (1..60).rev() {
        fraction = x + 0.5 * f64::from(n) / fraction;
    }
    (-x * x).exp() / (scale * fraction)
}

#[test]
fn embedding_of_every_format() {
    let mut random = Random(1);
    for columns in [32, 48, 384, 13] {
        for format in formats(columns) {
            let weight = Weight::random(7, columns, format, &mut random);
            let table = Matrix::new(&weight.declaration, weight.data()).expect("a valid weight");
            let tokens = [6, 0, 3, 3];
            let rows = tokens.map(|token| &weight.values[token as usize * columns..][..columns]);
            for pool in &pools() {
                let mut out = vec![f32::NAN; 4 * columns];
                embedding_rows(pool, &table, &tokens, &mut out).expect("fitting slices");
                assert!(relative_error(&out, &rows.concat()) < 1e-7, "{format:?}");
                for token in [7, -1] {
                    let error = embedding_rows(pool, &table, &[token], &mut out[..columns]);
                    assert!(matches!(error, Err(Error::Index { .. })));
                }
            }
        }
    }
}

#[test]
fn layer_norm_of_every_width() {
    let mut random = Random(9);
    for width in [1, 7, 16, 33, 100, 260] {
        let x: Vec<f32> = random.numbers(3 * width).iter().map(|x| x + 3.0).collect();
        let (weight, bias) = (random.numbers(width), random.numbers(width));
        let mut expected = Vec::new();
        for row in x.chunks(width) {
            let row: Vec<f64> = row.iter().map(|&x| x.into()).collect();
            let mean = row.iter().sum::<f64>() / width as f64;
            let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width as f64;
            let rows = row.iter().zip(&weight).zip(&bias);
            expected.extend(rows.map(|((x, &weight), &bias)| {
                (x - mean) / (variance + 1e-5).sqrt() * f64::from(weight) + f64::from(bias)
            }));
        }
        for pool in &pools() {
            let mut out = vec![f32::NAN; x.len()];
            layer_norm(pool, &x, &weight, &bias, 1e-5, &mut out).expect("fitting slices");
            let error = relative_error(&out, &expected);
            assert!(error < 2e-6, "{error:e} of {width} in {}", pool.form());
        }
    }
}

#[test]
fn top_k_puts_the_first_of_equals_first() {
    let pool = Pool::new(2).expect("two threads");
    let x = [1.0, f32::NAN, 2.0, 2.0, f32::NEG_INFINITY, -0.0, 0.0, 2.0];
    let mut places = vec![0; 8];
    for count in 1..=8 {
        places.resize(count, 0);
        top_k(&pool, &x, 8, count, &mut places).expect("fitting slices");
        assert_eq!(places, [2, 3, 7, 0, 5, 6, 4, 1][..count]);
    }
    let mut taken = [0.0; 2];
    take_along(&x, 8, &[7, 0], 2, &mut taken).expect("fitting slices");
    assert_eq!(taken, [2.0, 1.0]);
    for index in [-1, 8] {
        assert!(take_along(&x, 8, &[index, 0], 2, &mut taken).is_err());
    }
    for count in [0, 9] {
        assert!(top_k(&pool, &x, 8, count, &mut vec![0; count]).is_err());
    }
}

#[test]
fn activations_are_accurate_over_their_range() {
    let x: Vec<f32> = (-3000..=3000).map(|i| i as f32 / 100.0).collect();
    for pool in &pools() {
        for (activation, most, from) in [
            (Activation::Silu, 4.0, -30.0),
            // The tails of e^(-x²) multiply the rounding of x².
            (Activation::Gelu, 24.0, -5.0),
            (Activation::GeluTanh, 64.0, -5.0),
            (Activation::Relu, 0.0, -30.0),
        ] {
            let x: Vec<f32> = x.iter().copied().filter(|&x| x >= from).collect();
            let expected: Vec<_> = x.iter().map(|x| plain(activation, f64::from(*x))).collect();
            let mut out = vec![f32::NAN; x.len()];
            activate(pool, activation, &x, &mut out).expect("fitting slices");
            let places = last_places(&out, &expected);
            assert!(places <= most, "{} {activation:?}: {places}", pool.form());
            let doubled: Vec<_> = expected.iter().map(|value| 2.0 * value).collect();
            gated(pool, activation, &x, &vec![2.0; x.len()], &mut out).expect("fitting slices");
            assert!(last_places(&out, &doubled) <= most);
        }
        let mut out = [0.0; 4];
        let edges = [f32::NAN, 200.0, -200.0, 0.0];
        activate(pool, Activation::Silu, &edges, &mut out).expect("fitting slices");
        assert!(out[0].is_nan());
        assert_eq!(out[1..], [200.0, -0.0, 0.0]);
    }
}

#[test]
fn argmax_takes_the_first() {
    for pool in &pools() {
        let mut x = vec![-3.0f32; 2 * 5001];
        let mut out = [0; 2];
        for (at, value) in [
            (4999, 2.0),
            (2100, 2.0),
            (2101, 2.0),
            (0, -2.0),
            (77, f32::NAN),
        ] {
            x[at] = value;
        }
        argmax(pool, &x, 5001, &mut out).expect("fitting slices");
        assert_eq!(out, [2100, 0]);
        x[5001 + 5000] = -1.0;
        argmax(pool, &x, 5001, &mut out).expect("fitting slices");
        assert_eq!(out, [2100, 5000]);
    }
}

#[test]
fn ill_shaped_arguments_are_errors() {
    let pool = Pool::new(1).expect("one thread");
    let x = [0.0; 12];
    let mut out = [0.0; 12];
    assert!(rms_norm(&pool, &x, &x[..5], 1e-5, &mut out).is_err());
    assert!(rms_norm(&pool, &x, &[], 1e-5, &mut out).is_err());
    assert!(softmax(&pool, &x, 0, &mut out).is_err());
    assert!(softmax(&pool, &x, 5, &mut out).is_err());
    assert!(argmax(&pool, &x, 5, &mut [0; 2]).is_err());
    assert!(argmax(&pool, &x, 0, &mut [0; 2]).is_err());
    assert!(activate(&pool, Activation::Relu, &x, &mut out[..3]).is_err());
    assert!(gated(&pool, Activation::Relu, &x, &x[..3], &mut out).is_err());
    let good = Rope {
        heads: 2,
        dim: 3,
        dims: 2,
        pairing: Pairing::Half,
        frequencies: &[1.0],
        magnitude: 1.0,
    };
    assert!(rope(&pool, &good, &x, &[0, 5], &mut out).is_ok());
    for bad in [
        Rope { dims: 3, ..good },
        Rope { dims: 4, ..good },
        Rope { heads: 5, ..good },
        Rope { heads: 0, ..good },
        Rope {
            heads: usize::MAX,
            ..good
        },
        Rope {
            frequencies: &[],
            ..good
        },
    ] {
        assert!(rope(&pool, &bad, &x, &[0, 5], &mut out).is_err(), "{bad:?}");
    }
    assert!(rope(&pool, &good, &x, &[], &mut out).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn norms_and_softmax(seed: u64, width in 1usize..200, rows in 1usize..5) {
        let mut random = Random(seed);
        let x: Vec<f32> = random.numbers(rows * width).iter().map(|x| 8.0 * x).collect();
        let weight = random.numbers(width);
        let (mut normed, mut shares) = (Vec::new(), Vec::new());
        for row in x.chunks(width) {
            let row: Vec<_> = row.iter().map(|x| f64::from(*x)).collect();
            let mean = row.iter().map(|x| x * x).sum::<f64>() / width as f64;
            let scale = (mean + f64::from(1e-5f32)).sqrt();
            normed.extend(row.iter().zip(&weight).map(|(x, w)| x / scale * f64::from(*w)));
            let sum: f64 = row.iter().map(|x| x.exp()).sum();
            shares.extend(row.iter().map(|x| x.exp() / sum));
        }
        for pool in &pools() {
            let mut out = vec![f32::NAN; x.len()];
            rms_norm(pool, &x, &weight, 1e-5, &mut out).expect("fitting slices");
            prop_assert!(relative_error(&out, &normed) < 5e-7);
            softmax(pool, &x, width, &mut out).expect("fitting slices");
            prop_assert!(last_places(&out, &shares) < 16.0);
        }
    }

    #[test]
    fn turns(seed: u64, pairs in 0usize..9, rest in 0usize..5, heads in 1usize..4, tokens in 1usize..4) {
        let mut random = Random(seed);
        let dim = (2 * pairs + rest).max(1);
        let frequencies: Vec<_> = (0..pairs).map(|_| f64::from(random.number())).collect();
        let starts = [0, 1000];
        let x = random.numbers(2 * tokens * heads * dim);
        for pairing in [Pairing::Half, Pairing::Interleaved] {
            let mut expected: Vec<_> = x.iter().map(|x| f64::from(*x)).collect();
            for (i, head) in expected.chunks_mut(dim).enumerate() {
                let position = i / heads % tokens + starts[i / heads / tokens] as usize;
                for (pair, frequency) in frequencies.iter().enumerate() {
                    let (first, second) = match pairing {
                        Pairing::Half => (pair, pair + pairs),
                        Pairing::Interleaved => (2 * pair, 2 * pair + 1),
                    };
                    let (sine, cosine) = (position as f64 * frequency).sin_cos();
                    let (a, b) = (head[first], head[second]);
                    head[first] = a * cosine - b * sine;
                    head[second] = b * cosine + a * sine;
                }
            }
            let parameters = Rope { heads, dim, dims: 2 * pairs, pairing, frequencies: &frequencies, magnitude: 1.0 };
            for pool in &pools() {
                let mut out = vec![f32::NAN; x.len()];
                rope(pool, &parameters, &x, &starts, &mut out).expect("fitting slices");
                prop_assert!(relative_error(&out, &expected) < 2e-7);
            }
        }
    }
}
