use super::*;
use proptest::prelude::*;

fn draw(sampling: &Sampling, logits: &[f32], prior: &[u32], count: usize) -> Vec<u32> {
    let mut sampler = Sampler::new(sampling.clone()).expect("valid settings");
    let draw = |_| sampler.choose(logits, prior).expect("a distribution");
    (0..count).map(draw).collect()
}

/// The tokens that `sampling` can draw, found by drawing often at a high temperature.
fn support(sampling: Sampling, logits: &[f32]) -> Vec<u32> {
    let hot = Sampling {
        temperature: 1e6,
        ..sampling
    };
    let mut tokens = draw(&hot, logits, &[], 400);
    tokens.sort_unstable();
    tokens.dedup();
    tokens
}

#[test]
fn greedy_takes_the_first_of_equals() {
    let check = |logits: &[f32], expect| {
        assert_eq!(
            draw(&Sampling::default(), logits, &[], 1),
            [expect],
            "{logits:?}"
        );
    };
    check(&[1.0, 3.0, 3.0, 2.0], 1);
    check(&[-0.0, 0.0], 0);
    check(&[f32::NEG_INFINITY, -5.0], 1);
    check(&[f32::MIN, f32::MAX], 1);
}

#[test]
fn filters_keep_what_they_say() {
    // Probabilities 1/2, 1/4, 1/8, 1/16, 1/16.
    let logits = [0.5f32, 0.25, 0.125, 0.0625, 0.0625].map(f32::ln);
    let check = |sampling: Sampling, expect: &[u32]| assert_eq!(support(sampling, &logits), expect);
    let plain = Sampling::default();
    check(plain.clone(), &[0, 1, 2, 3, 4]);
    check(
        Sampling {
            top_k: 2,
            ..plain.clone()
        },
        &[0, 1],
    );
    check(
        Sampling {
            top_k: 4,
            ..plain.clone()
        },
        &[0, 1, 2, 3],
    );
    check(
        Sampling {
            top_p: 0.0,
            ..plain.clone()
        },
        &[0],
    );
    check(
        Sampling {
            top_p: 0.49,
            ..plain.clone()
        },
        &[0],
    );
    check(
        Sampling {
            top_p: 0.6,
            ..plain.clone()
        },
        &[0, 1],
    );
    check(
        Sampling {
            top_p: 0.8,
            ..plain.clone()
        },
        &[0, 1, 2],
    );
    check(
        Sampling {
            min_p: 0.2,
            ..plain.clone()
        },
        &[0, 1, 2],
    );
    check(
        Sampling {
            min_p: 1.0,
            ..plain.clone()
        },
        &[0],
    );
    // Top-p works on what top-k left: 2/3 and 1/3.
    check(
        Sampling {
            top_k: 2,
            top_p: 0.6,
            ..plain
        },
        &[0],
    );
}

#[test]
fn a_penalty_moves_recent_tokens_down() {
    let check = |prior: &[u32], window, expect| {
        let sampling = Sampling {
            repetition_penalty: 2.0,
            repetition_window: window,
            ..Sampling::default()
        };
        let logits = [4.0, 3.0, -1.0, -1.5];
        assert_eq!(draw(&sampling, &logits, prior, 1), [expect], "{prior:?}");
    };
    check(&[], 64, 0);
    check(&[0], 64, 1);
    check(&[0, 0, 0], 64, 1);
    check(&[0, 1], 64, 0);
    check(&[0, 3], 1, 0);
    check(&[0, 9], 64, 1);
}

#[test]
fn logits_without_a_distribution_are_errors() {
    let check = |logits: &[f32], expect: &str| {
        for temperature in [0.0, 1.0] {
            let sampling = Sampling {
                temperature,
                ..Sampling::default()
            };
            let mut sampler = Sampler::new(sampling).expect("valid settings");
            let error = sampler.choose(logits, &[]).expect_err("no distribution");
            assert!(error.to_string().contains(expect), "{error}");
        }
    };
    check(&[0.0, f32::NAN], "token 1 is NaN");
    check(&[f32::INFINITY, 0.0], "token 0 is inf");
    check(&[f32::NEG_INFINITY; 2], "no token");
    check(&[], "no token");
}

#[test]
fn settings_out_of_range_are_named() {
    let check = |sampling: Sampling, expect: &str| {
        let error = Sampler::new(sampling).expect_err("out of range");
        assert!(error.to_string().starts_with(expect), "{error}");
    };
    let plain = Sampling::default;
    check(
        Sampling {
            temperature: -1.0,
            ..plain()
        },
        "temperature is -1",
    );
    check(
        Sampling {
            temperature: f64::NAN,
            ..plain()
        },
        "temperature is NaN",
    );
    check(
        Sampling {
            temperature: f64::INFINITY,
            ..plain()
        },
        "temperature is inf",
    );
    check(
        Sampling {
            top_p: 1.5,
            ..plain()
        },
        "top-p is 1.5",
    );
    check(
        Sampling {
            min_p: -0.1,
            ..plain()
        },
        "min-p is -0.1",
    );
    check(
        Sampling {
            repetition_penalty: 0.0,
            ..plain()
        },
        "repetition penalty is 0",
    );
}

#[test]
fn a_seed_gives_the_same_tokens_everywhere() {
    let logits: Vec<f32> = (0..100).map(|i| ((i * 37) % 100) as f32 / 20.0).collect();
    let sampling = Sampling {
        temperature: 0.8,
        seed: 42,
        ..Sampling::default()
    };
    let expect = [13, 96, 43, 32, 62, 81, 62, 2, 48, 35, 24, 99];
    assert_eq!(draw(&sampling, &logits, &[], 12), expect);
}

#[test]
fn tokens_come_as_often_as_they_are_likely() {
    // Pearson's statistic of 4000 draws against the tempered distribution: with 7 degrees of
    // freedom, 24.3 is passed once in a thousand seeds. These seeds are fixed.
    let logits = [2.0f32, 1.0, 0.5, 0.0, -0.5, -1.0, 1.5, -2.0];
    let check = |temperature: f64, seed| {
        let sampling = Sampling {
            temperature,
            seed,
            ..Sampling::default()
        };
        let weights = logits.map(|logit| (f64::from(logit) / temperature).exp());
        let total: f64 = weights.iter().sum();
        let mut counts = [0u32; 8];
        for token in draw(&sampling, &logits, &[], 4000) {
            counts[token as usize] += 1;
        }
        let statistic: f64 = counts
            .iter()
            .zip(weights)
            .map(|(&count, weight)| {
                let expected = 4000.0 * weight / total;
                (f64::from(count) - expected).powi(2) / expected
            })
            .sum();
        assert!(
            statistic < 24.3,
            "temperature {temperature}: {statistic}, {counts:?}"
        );
    };
    check(0.7, 1);
    check(1.0, 2);
    check(1.8, 3);
}

fn logits() -> impl Strategy<Value = Vec<f32>> {
    prop::collection::vec(-20.0f32..20.0, 1..200)
}

fn samplings() -> impl Strategy<Value = Sampling> {
    (
        1e-6..3.0,
        0usize..50,
        0.0..=1.0,
        0.0..=1.0,
        0.5..2.0,
        any::<u64>(),
    )
        .prop_map(
            |(temperature, top_k, top_p, min_p, repetition_penalty, seed)| Sampling {
                temperature,
                top_k,
                top_p,
                min_p,
                repetition_penalty,
                repetition_window: 8,
                seed,
            },
        )
}

proptest! {
    #[test]
    fn greedy_is_the_first_maximum(logits in logits()) {
        let best = logits.iter().copied().fold(f32::MIN, f32::max);
        let first = logits.iter().position(|&x| x == best).map(|i| i as u32);
        prop_assert_eq!(draw(&Sampling::default(), &logits, &[], 1).first().copied(), first);
    }

    #[test]
    fn draws_repeat_with_their_seed(logits in logits(), sampling in samplings()) {
        let prior = [0, 1, 2, 1000];
        let first = draw(&sampling, &logits, &prior, 8);
        prop_assert_eq!(&first, &draw(&sampling, &logits, &prior, 8));
        prop_assert!(first.iter().all(|&token| (token as usize) < logits.len()));
    }

    #[test]
    fn top_p_keeps_the_smallest_set_that_reaches_its_mass(logits in logits(), top_p in 0.01..0.99) {
        let mut ranked = candidates(&logits).expect("finite");
        ranked.sort_unstable_by(rank);
        let best = ranked[0].logit;
        let total: f64 = ranked.iter().map(|c| (c.logit - best).exp()).sum();
        let mut kept = ranked.clone();
        truncate(&mut kept, &Sampling { top_p, ..Sampling::default() }, best);
        let mass = |n: usize| ranked[..n].iter().map(|c| (c.logit - best).exp()).sum::<f64>() / total;
        prop_assert!(mass(kept.len()) >= top_p - 1e-12);
        prop_assert!(mass(kept.len() - 1) < top_p + 1e-12);
    }

    #[test]
    fn a_small_temperature_is_greedy(logits in logits()) {
        let cold = Sampling { temperature: 1e-300, ..Sampling::default() };
        let token = draw(&cold, &logits, &[], 1)[0] as usize;
        let best = logits.iter().copied().fold(f32::MIN, f32::max);
        prop_assert_eq!(logits[token], best);
    }
}
