//! Attention in every form against a plain evaluation.

mod support;

use half::{bf16, f16};
use mlxcel_ir::{DType, Mask};
use mlxcel_kernels::{Attention, Pool, Sequence, attention, narrow};
use proptest::prelude::*;
use support::{Random, pools, relative_error};

const PLAIN: Attention<'static> = Attention {
    heads: 6,
    kv_heads: 2,
    dim: 32,
    scale: 0.3,
    mask: Mask::Causal,
    window: None,
    chunk: None,
    softcap: None,
    slopes: &[],
    sinks: &[],
};

/// One sequence in `f64`.
fn expect(layer: &Attention<'_>, sequence: &Sequence<'_>) -> Vec<f64> {
    let tokens = sequence.query.len() / (layer.heads * layer.dim);
    let mut out = Vec::new();
    for t in 0..tokens {
        let position = sequence.start + t;
        let end = match layer.mask {
            Mask::Causal => position + 1,
            Mask::Full => sequence.length,
        };
        let chunk = layer.chunk.map_or((0, end), |chunk| {
            let first = position / chunk * chunk;
            (first, first + chunk)
        });
        let first = layer.window.map_or(0, |w| (position + 1).saturating_sub(w));
        let (first, end) = (first.max(chunk.0), end.min(chunk.1));
        for head in 0..layer.heads {
            let query = &sequence.query[(t * layer.heads + head) * layer.dim..][..layer.dim];
            let kv = head / (layer.heads / layer.kv_heads) * sequence.head_stride;
            let row = |slice: &'_ [u8], s: usize| -> Vec<f64> {
                let first = s % sequence.rows * sequence.position_stride + kv;
                let numbers = first..first + layer.dim;
                let number = |at| number(sequence.dtype, slice, at);
                numbers.map(number).collect()
            };
            let scores = (first..end).map(|s| {
                let keys = row(sequence.keys, s);
                let dot: f64 = keys.iter().zip(query).map(|(k, q)| k * f64::from(*q)).sum();
                let score = dot * f64::from(layer.scale);
                layer.softcap.map_or(score, |cap| {
                    f64::from(cap) * (score / f64::from(cap)).tanh()
                }) + layer
                    .slopes
                    .get(head)
                    .map_or(0.0, |&slope| f64::from(slope) * s as f64)
            });
            let scores: Vec<f64> = scores.collect();
            let sink = layer
                .sinks
                .get(head)
                .map_or(f64::NEG_INFINITY, |&sink| sink.into());
            let largest = scores.iter().copied().fold(sink, f64::max);
            let total: f64 = scores.iter().map(|score| (score - largest).exp()).sum();
            let total = total + (sink - largest).exp();
            let mut sums = vec![0.0; layer.dim];
            for (s, score) in (first..end).zip(&scores) {
                let weight = (score - largest).exp() / total;
                for (sum, value) in sums.iter_mut().zip(row(sequence.values, s)) {
                    *sum += weight * value;
                }
            }
            out.extend(sums);
        }
    }
    out
}

/// Number `at` of a cache.
fn number(dtype: DType, bytes: &[u8], at: usize) -> f64 {
    let size = dtype.size();
    let bytes = &bytes[at * size..(at + 1) * size];
    let half = || u16::from_le_bytes([bytes[0], bytes[1]]);
    f64::from(match dtype {
        DType::F16 => f16::from_bits(half()).to_f32(),
        DType::BF16 => bf16::from_bits(half()).to_f32(),
        _ => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
    })
}

/// Sequences of `(start, tokens)` with both layouts of the cache, all element types, and, where a window
/// bounds what is seen, rows that are used again.
fn check(layer: &Attention<'_>, sequences: &[(usize, usize)], random: &mut Random) {
    let forms = [
        (DType::F32, true, false),
        (DType::F32, false, true),
        (DType::F16, true, true),
        (DType::BF16, false, false),
    ];
    for (dtype, by_position, again) in forms {
        let data: Vec<_> = sequences
            .iter()
            .map(|&(start, tokens)| {
                let length = start + tokens;
                let rows = match layer.window {
                    Some(window) if again => length.min(window + tokens - 1),
                    _ => length + 2,
                };
                let query = random.numbers(tokens * layer.heads * layer.dim);
                let query: Vec<f32> = query.iter().map(|value| 4.0 * value).collect();
                let mut cache = || {
                    let numbers = random.numbers(rows * layer.kv_heads * layer.dim);
                    let mut bytes = vec![0; numbers.len() * dtype.size()];
                    narrow(dtype, &numbers, &mut bytes).expect("as many bytes");
                    bytes
                };
                (start, length, rows, query, cache(), cache())
            })
            .collect();
        let sequences: Vec<_> = data
            .iter()
            .map(|(start, length, rows, query, keys, values)| Sequence {
                query,
                start: *start,
                length: *length,
                dtype,
                keys,
                values,
                rows: *rows,
                position_stride: if by_position {
                    layer.kv_heads * layer.dim
                } else {
                    layer.dim
                },
                head_stride: if by_position {
                    layer.dim
                } else {
                    rows * layer.dim
                },
            })
            .collect();
        for pool in &pools() {
            let mut outs: Vec<_> = sequences
                .iter()
                .map(|s| vec![f32::NAN; s.query.len()])
                .collect();
            let mut slices: Vec<_> = outs.iter_mut().map(Vec::as_mut_slice).collect();
            attention(pool, layer, &sequences, &mut slices).expect("fitting slices");
            for (sequence, out) in sequences.iter().zip(&outs) {
                let error = relative_error(out, &expect(layer, sequence));
                let threads = pool.threads();
                assert!(
                    error < 2e-6,
                    "{error:e} {} {threads} {dtype} {layer:?}",
                    pool.form()
                );
            }
        }
    }
}

#[test]
fn masks_windows_and_caps() {
    let mut random = Random(1);
    for mask in [Mask::Causal, Mask::Full] {
        for window in [None, Some(1), Some(5), Some(70), Some(1000)] {
            for softcap in [None, Some(2.0)] {
                let layer = Attention {
                    mask,
                    window,
                    softcap,
                    ..PLAIN
                };
                check(&layer, &[(0, 1), (0, 9), (130, 1), (60, 33)], &mut random);
            }
        }
    }
}

#[test]
fn chunks_slopes_and_sinks() {
    let mut random = Random(5);
    let slopes: &[f32] = &[0.5, 0.25, 0.125, 0.03, 0.0, -0.1];
    let sinks: &[f32] = &[0.5, 9.0, -3.0, 0.0, 20.0, 1.0];
    for chunk in [None, Some(1), Some(7), Some(64), Some(1000)] {
        for (slopes, sinks) in [(&[][..], sinks), (slopes, &[]), (slopes, sinks)] {
            for (window, softcap) in [(None, None), (Some(20), Some(2.0))] {
                let layer = Attention {
                    window,
                    chunk,
                    softcap,
                    slopes,
                    sinks,
                    ..PLAIN
                };
                check(&layer, &[(0, 1), (0, 9), (130, 1), (60, 33)], &mut random);
            }
        }
    }
    let layer = Attention { sinks, ..PLAIN };
    check(&layer, &[(3000, 1)], &mut random);
}

#[test]
fn long_caches_are_shared_among_threads() {
    let mut random = Random(2);
    for window in [None, Some(1500)] {
        let layer = Attention { window, ..PLAIN };
        check(&layer, &[(3000, 1)], &mut random);
        check(&layer, &[(2100, 2), (10, 1)], &mut random);
    }
}

#[test]
fn ill_shaped_arguments_are_errors() {
    let pool = Pool::new(1).expect("one thread");
    let numbers = vec![0.0; 10 * 64];
    let bytes = vec![0; 10 * 64 * 4];
    let good = Sequence {
        query: &numbers[..2 * 192],
        start: 3,
        length: 5,
        dtype: DType::F32,
        keys: &bytes,
        values: &bytes,
        rows: usize::MAX,
        position_stride: 64,
        head_stride: 32,
    };
    let run = |layer: &Attention<'_>, sequence: Sequence<'_>| {
        let mut out = vec![0.0; sequence.query.len()];
        attention(&pool, layer, &[sequence], &mut [&mut out])
    };
    assert!(run(&PLAIN, good).is_ok());
    for bad in [
        Sequence {
            query: &numbers[..191],
            ..good
        },
        Sequence { length: 4, ..good },
        Sequence { length: 11, ..good },
        Sequence {
            start: usize::MAX,
            ..good
        },
        Sequence {
            keys: &bytes[..(5 * 64 - 1) * 4],
            ..good
        },
        Sequence { rows: 4, ..good },
        Sequence { rows: 0, ..good },
        Sequence {
            dtype: DType::I32,
            ..good
        },
        Sequence {
            values: &[],
            ..good
        },
        Sequence {
            position_stride: usize::MAX,
            ..good
        },
        Sequence {
            head_stride: 1 << 40,
            ..good
        },
    ] {
        assert!(run(&PLAIN, bad).is_err(), "{bad:?}");
    }
    for bad in [
        Attention { heads: 5, ..PLAIN },
        Attention {
            kv_heads: 0,
            ..PLAIN
        },
        Attention { heads: 0, ..PLAIN },
        Attention { dim: 0, ..PLAIN },
        Attention {
            dim: usize::MAX,
            ..PLAIN
        },
        Attention {
            window: Some(0),
            ..PLAIN
        },
        Attention {
            softcap: Some(0.0),
            ..PLAIN
        },
    ] {
        assert!(run(&bad, good).is_err(), "{bad:?}");
    }
    assert!(attention(&pool, &PLAIN, &[good], &mut []).is_err());
    assert!(attention(&pool, &PLAIN, &[], &mut []).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]
    #[test]
    fn any_shape(
        seed: u64, kv_heads in 1usize..4, group in 1usize..20, dim in 1usize..90,
        start in 0usize..200, tokens in 1usize..30,
    ) {
        let layer = Attention { heads: kv_heads * group, kv_heads, dim, scale: 0.1, ..PLAIN };
        check(&layer, &[(start, tokens)], &mut Random(seed));
    }
}
