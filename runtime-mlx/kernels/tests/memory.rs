//! Convolutions and recurrences over several steps, in every form, against plain evaluations over
//! all tokens.

mod support;

use mlxcel_kernels::{Convolution, Pool, Recurrence, causal_convolution, recurrence};
use support::{Random, pools, relative_error};

/// The tokens of each row in three steps, of which the first `LENGTHS` count.
const STEPS: [usize; 3] = [5, 1, 3];
const LENGTHS: [[i32; 2]; 3] = [[5, 2], [1, 1], [0, 3]];
const ROWS: usize = 2;

/// Runs `step` with its tokens, lengths and inputs of the given widths, and holds what it gives for
/// tokens that count against `expect`, which gets the numbers of all of a row's tokens.
fn check(
    widths: &[usize],
    result: usize,
    random: &mut Random,
    mut step: impl FnMut(&[&[f32]], &[i32], &mut [f32]),
    expect: impl Fn(&[Vec<f64>]) -> Vec<f64>,
) -> Result<(), f64> {
    let mut seen: Vec<Vec<Vec<f64>>> = vec![vec![Vec::new(); widths.len()]; ROWS];
    let mut got: Vec<Vec<f32>> = vec![Vec::new(); ROWS];
    for (tokens, lengths) in STEPS.into_iter().zip(&LENGTHS) {
        let inputs: Vec<Vec<f32>> = widths
            .iter()
            .map(|width| random.numbers(ROWS * tokens * width))
            .collect();
        let slices: Vec<&[f32]> = inputs.iter().map(Vec::as_slice).collect();
        let mut out = vec![f32::NAN; ROWS * tokens * result];
        step(&slices, lengths, &mut out);
        for row in 0..ROWS {
            let length = lengths[row] as usize;
            for ((input, width), seen) in inputs.iter().zip(widths).zip(&mut seen[row]) {
                let real = &input[row * tokens * width..][..length * width];
                seen.extend(real.iter().map(|&number| f64::from(number)));
            }
            got[row].extend(&out[row * tokens * result..][..length * result]);
        }
    }
    for (got, seen) in got.iter().zip(&seen) {
        let error = relative_error(got, &expect(seen));
        if error.is_nan() || error > 2e-6 {
            return Err(error);
        }
    }
    Ok(())
}

#[test]
fn convolutions_continue() {
    let mut random = Random(1);
    for (channels, steps) in [(1, 2), (7, 3), (50, 4), (16, 9), (5000, 4)] {
        let weight = random.numbers(channels * steps);
        let bias = random.numbers(channels);
        let rule = Convolution::new(steps, &weight, Some(bias.clone())).expect("fitting slices");
        for pool in &pools() {
            let mut memories = vec![vec![0.0; rule.memory()]; ROWS];
            let outcome = check(
                &[channels],
                channels,
                &mut random,
                |inputs, lengths, out| {
                    let mut memories: Vec<&mut [f32]> =
                        memories.iter_mut().map(Vec::as_mut_slice).collect();
                    causal_convolution(pool, &rule, inputs[0], lengths, &mut memories, out)
                        .expect("fitting slices");
                },
                |seen| {
                    let tokens = seen[0].len() / channels;
                    let places = (0..tokens).flat_map(|t| (0..channels).map(move |c| (t, c)));
                    let sums = places.map(|(t, c)| {
                        let products = (0..steps).filter(|j| t + j + 1 >= steps).map(|j| {
                            let x = seen[0][(t + j + 1 - steps) * channels + c];
                            x * f64::from(weight[c * steps + j])
                        });
                        products.sum::<f64>() + f64::from(bias[c])
                    });
                    sums.collect()
                },
            );
            assert_eq!(outcome, Ok(()), "{channels} x {steps} in {}", pool.form());
        }
    }
}

/// All tokens of one row from an empty memory.
fn plain(rule: &Recurrence, inputs: &[Vec<f64>]) -> Vec<f64> {
    let Recurrence {
        heads,
        keys,
        width,
        decay,
        ref groups,
    } = *rule;
    let tokens = inputs[2].len() / (heads * width);
    let mut memory = vec![0.0; heads * keys * width];
    let mut out = Vec::new();
    for t in 0..tokens {
        for head in 0..heads {
            let part = |which: usize, groups: usize, size: usize| {
                &inputs[which][(t * groups + head * groups / heads) * size..][..size]
            };
            let (query, key) = (part(0, groups[0], keys), part(1, groups[1], keys));
            let (value, decays) = (part(2, heads, width), part(3, heads, decay));
            let memory = &mut memory[head * keys * width..][..keys * width];
            for v in 0..width {
                let decayed: Vec<f64> = (0..keys)
                    .map(|k| decays[k.min(decay - 1)] * memory[k * width + v])
                    .collect();
                let mut result = 0.0;
                for k in 0..keys {
                    let mut now = decayed[k] + key[k] * value[v];
                    if groups.len() == 4 {
                        let (erase, write) = (part(4, groups[2], keys), part(5, groups[3], keys));
                        let erased = erase.iter().zip(&decayed).map(|(e, n)| e * n);
                        now -= write[k] * erased.sum::<f64>();
                    }
                    memory[k * width + v] = now;
                    result += query[k] * now;
                }
                out.push(result);
            }
        }
    }
    out
}

#[test]
fn recurrences_continue() {
    let mut random = Random(2);
    for (heads, keys, width, decay, groups) in [
        (4, 16, 80, 1, vec![2, 4]),
        (2, 24, 33, 24, vec![1, 2]),
        (48, 16, 1, 16, vec![1, 1]),
        (3, 5, 1, 1, vec![1, 3]),
        (1, 128, 200, 1, vec![1, 1]),
        (4, 16, 80, 1, vec![2, 4, 1, 4]),
        (2, 24, 33, 24, vec![1, 2, 2, 1]),
        (3, 16, 1, 1, vec![3, 3, 1, 1]),
    ] {
        let rule = Recurrence {
            heads,
            keys,
            width,
            decay,
            groups,
        };
        let mut widths = vec![
            rule.groups[0] * keys,
            rule.groups[1] * keys,
            heads * width,
            heads * decay,
        ];
        widths.extend(rule.groups[2..].iter().map(|groups| groups * keys));
        for pool in &pools() {
            let mut memories = vec![vec![0.0; heads * keys * width]; ROWS];
            let outcome = check(
                &widths,
                heads * width,
                &mut random,
                |inputs, lengths, out| {
                    let mut memories: Vec<&mut [f32]> =
                        memories.iter_mut().map(Vec::as_mut_slice).collect();
                    recurrence(pool, &rule, inputs, lengths, &mut memories, out)
                        .expect("fitting slices");
                },
                |seen| plain(&rule, seen),
            );
            assert_eq!(outcome, Ok(()), "{rule:?} in {}", pool.form());
        }
    }
}

#[test]
fn ill_shaped_arguments_are_errors() {
    let pool = Pool::new(1).expect("one thread");
    assert!(Convolution::new(1, &[1.0], None).is_err());
    assert!(Convolution::new(2, &[1.0; 3], None).is_err());
    assert!(Convolution::new(2, &[1.0; 4], Some(vec![0.0])).is_err());
    let rule = Convolution::new(2, &[1.0; 4], None).expect("fitting slices");
    for (length, memory, x) in [(1, 1, 4), (3, 2, 4), (-1, 2, 4), (1, 2, 3)] {
        let mut memory = vec![0.0; memory];
        let mut out = vec![0.0; 4];
        let outcome = causal_convolution(
            &pool,
            &rule,
            &vec![0.0; x],
            &[length],
            &mut [&mut memory],
            &mut out,
        );
        assert!(outcome.is_err(), "{length} {x}");
    }
    let good = Recurrence {
        heads: 4,
        keys: 2,
        width: 3,
        decay: 1,
        groups: vec![1, 2],
    };
    let run = |rule: &Recurrence, lengths: &[i32]| {
        let inputs: [&[f32]; 4] = [&[0.0; 2], &[0.0; 4], &[0.0; 12], &[0.0; 4]];
        let (mut memory, mut out) = (vec![0.0; 24], vec![0.0; 12]);
        recurrence(&pool, rule, &inputs, lengths, &mut [&mut memory], &mut out)
    };
    assert_eq!(run(&good, &[1]), Ok(()));
    assert!(run(&good, &[2]).is_err());
    assert!(run(&good, &[]).is_err());
    for bad in [
        Recurrence {
            heads: 0,
            ..good.clone()
        },
        Recurrence {
            keys: 3,
            ..good.clone()
        },
        Recurrence {
            width: 2,
            ..good.clone()
        },
        Recurrence {
            decay: 2,
            ..good.clone()
        },
        Recurrence {
            groups: vec![1, 3],
            ..good.clone()
        },
        Recurrence {
            groups: vec![1],
            ..good.clone()
        },
        Recurrence {
            groups: vec![1, 2, 1, 1],
            ..good.clone()
        },
    ] {
        assert!(run(&bad, &[1]).is_err(), "{bad:?}");
    }
}
