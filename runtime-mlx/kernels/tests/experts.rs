//! Layers of experts in every form, over every format, against the product of each expert.

mod support;

use mlxcel_kernels::{Error, Experts, Matrix, Pool, expert_linear};
use support::{Random, Weight, error_against, formats, pools};

const COUNT: usize = 5;
const WIDTH: usize = 29;

/// The layers of `choices` experts of each of `tokens` tokens, over one input a token or one each.
fn check(weight: &Weight, tokens: usize, choices: usize, shared: bool, random: &mut Random) {
    let columns = weight.declaration.shape[2];
    let rows = if shared { tokens } else { tokens * choices };
    let x = random.numbers(rows * columns);
    let bias = random.numbers(COUNT * WIDTH);
    let chosen: Vec<i32> = (0..tokens * choices)
        .map(|_| random.below(COUNT) as i32)
        .collect();
    // All experts' products with each row of x, of which the chosen ones are picked.
    let (products, sizes) = (weight.product(&x), weight.sizes(&x));
    let mut expected = Vec::new();
    let mut expected_sizes = Vec::new();
    for (place, &expert) in chosen.iter().enumerate() {
        let row = if shared { place / choices } else { place };
        let first = expert as usize * WIDTH;
        for n in first..first + WIDTH {
            expected.push(products[row * COUNT * WIDTH + n] + f64::from(bias[n]));
            expected_sizes.push(sizes[row * COUNT * WIDTH + n]);
        }
    }
    let layer = Experts {
        matrix: Matrix::new(&weight.declaration, weight.data()).expect("a valid weight"),
        bias: Some(&bias),
        count: COUNT,
    };
    for pool in &pools() {
        let mut out = vec![f32::NAN; chosen.len() * WIDTH];
        expert_linear(pool, &x, &chosen, choices, layer, &mut out).expect("fitting slices");
        let error = error_against(&out, &expected, &expected_sizes);
        let declaration = &weight.declaration;
        assert!(
            error < 2e-6,
            "{error:e} in {} {declaration:?} x {tokens} x {choices}",
            pool.form()
        );
    }
}

#[test]
fn every_format() {
    let mut random = Random(11);
    for columns in [48, 384] {
        for format in formats(columns) {
            let weight = Weight::shaped(&[COUNT, WIDTH, columns], format, &mut random);
            for (tokens, choices) in [(1, 1), (1, 3), (2, 2), (9, 4)] {
                for shared in [true, false] {
                    check(&weight, tokens, choices, shared, &mut random);
                }
            }
        }
    }
}

#[test]
fn ill_shaped_arguments_are_errors() {
    let mut random = Random(12);
    let pool = Pool::new(1).expect("one thread");
    let format = formats(48)[0];
    let weight = Weight::shaped(&[COUNT, WIDTH, 48], format, &mut random);
    let matrix = Matrix::new(&weight.declaration, weight.data()).expect("a valid weight");
    let layer = Experts {
        matrix,
        bias: None,
        count: COUNT,
    };
    let x = random.numbers(2 * 48);
    let mut out = vec![0.0; 4 * WIDTH];
    let mut run = |x: &[f32], chosen: &[i32], choices, count| {
        let layer = Experts { count, ..layer };
        expert_linear(&pool, x, chosen, choices, layer, &mut out)
    };
    assert!(run(&x, &[0, 4, 1, 1], 2, COUNT).is_ok());
    for expert in [-1, 5] {
        let error = run(&x, &[0, 4, 1, expert], 2, COUNT);
        assert!(matches!(error, Err(Error::Index { .. })), "{error:?}");
    }
    assert!(run(&x[1..], &[0, 4, 1, 1], 2, COUNT).is_err());
    assert!(run(&x, &[0, 4, 1], 2, COUNT).is_err());
    assert!(run(&x, &[0, 4, 1, 1], 0, COUNT).is_err());
    assert!(run(&x, &[0, 4, 1, 1], 2, 0).is_err());
    assert!(run(&x, &[0, 4, 1, 1], 2, 4).is_err());
}
