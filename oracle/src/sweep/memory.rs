//! Cases of the ops that make numbers, put them elsewhere, choose among them or remember them.

use super::{Built, Cases, FLOATS, SIZES, weight};
use mlxcel_ir::{
    Builder, DType, Dim, Mask, StateDecl, StateId, StateKind, StatePart, ValueId, WeightFormat,
};

fn fixed(shape: &[usize]) -> Vec<Dim> {
    shape.iter().copied().map(Dim::Fixed).collect()
}

fn state(
    b: &mut Builder,
    kind: StateKind,
    [heads, keys, values]: [usize; 3],
    dtype: DType,
) -> StateId {
    b.state(StateDecl {
        name: "state".into(),
        kind,
        heads,
        key_dim: keys,
        value_dim: values,
        dtype,
    })
}

/// Numbers from nothing, the same numbers in another shape, and places of numbers.
pub(super) fn places(cases: &mut Cases) {
    for size in SIZES {
        for dtype in DType::ALL {
            cases.add(&[("x", dtype, &[3, size])], |b, x| {
                b.reshape(x[0], fixed(&[size, 3]))
            });
            cases.add(&[("x", dtype, &[1, size])], |b, x| {
                b.broadcast(x[0], fixed(&[4, 1, size]), vec![1, 2])
            });
            cases.add(&[("x", dtype, &[size])], |b, x| {
                b.broadcast(x[0], fixed(&[size, 3]), vec![0])
            });
            cases.add(
                &[("x", dtype, &[3, 9, size]), ("i", DType::I32, &[3])],
                |b, x| b.take_row(x[0], x[1]),
            );
            cases.add(&[], |b, _| b.iota(1, dtype, fixed(&[2, size])));
            cases.add(&[], |b, _| b.constant(1.0, dtype, fixed(&[size])));
            cases.add(&[], |b, _| {
                b.table((0..size).map(|i| i as f64 / 3.0).collect(), dtype)
            });
        }
        for dtype in FLOATS {
            cases.add(&[("x", dtype, &[3, size])], |b, x| b.argmax(x[0]));
            for count in [1, size.min(8)] {
                cases.add(&[("x", dtype, &[3, size])], |b, x| b.top_k(x[0], count));
            }
        }
    }
}

/// Caches and memories.
pub(super) fn states(cases: &mut Cases) {
    for width in [1, 2, 31, 32, 33, 128] {
        for dtype in FLOATS {
            for tokens in [1, 4, 33] {
                cases.add(
                    &[
                        ("x", dtype, &[1, tokens, 2, width]),
                        ("start", DType::I32, &[1]),
                    ],
                    |b, x| {
                        let state = state(b, StateKind::Cache, [2, width, width], dtype);
                        b.cache_append(x[0], x[1], state, StatePart::Key)
                    },
                );
                for (groups, heads) in [(1, 1), (1, 4), (2, 4)] {
                    for whole in [false, true] {
                        for delta in [false, true] {
                            let keys = [1, tokens, groups, width];
                            cases.add(
                                &[
                                    ("query", dtype, &keys),
                                    ("key", dtype, &keys),
                                    ("value", dtype, &[1, tokens, heads, 5]),
                                    (
                                        "decay",
                                        dtype,
                                        &[1, tokens, heads, if whole { 1 } else { width }],
                                    ),
                                    ("length", DType::I32, &[1]),
                                ],
                                |b, x| recurrence(b, x, [heads, width, 5], dtype, delta),
                            );
                        }
                    }
                }
            }
        }
    }
}

/// Decays and writes stay below one, so that no memory grows without bound.
fn recurrence(
    b: &mut Builder,
    x: &[ValueId],
    shape: [usize; 3],
    dtype: DType,
    delta: bool,
) -> Built {
    let [query, key, value, decay, length] = [0, 1, 2, 3, 4].map(|index| x[index]);
    // An input's length is one of a step of 33 tokens.
    let tokens = b.ty(query).shape[1].fixed().unwrap_or(0);
    let length = match tokens {
        33 => length,
        _ => b.constant(tokens as f64, DType::I32, fixed(&[1]))?,
    };
    let key = b.softmax(key)?;
    let decay = b.sigmoid(decay)?;
    let state = state(b, StateKind::Memory, shape, dtype);
    match delta {
        false => b.recurrence(query, key, value, decay, length, state),
        true => b.delta_recurrence(query, key, value, decay, key, key, length, state),
    }
}

/// Attention with all that may change a score.
pub(super) fn scores(cases: &mut Cases) {
    for width in [4, 32, 64] {
        for dtype in FLOATS {
            for (heads, kv_heads) in [(1, 1), (4, 2), (6, 1), (3, 1)] {
                for tokens in [1, 4, 33] {
                    for (chunk, softcap, slopes, sinks) in [
                        (Some(8), None, false, false),
                        (None, Some(3.0), false, false),
                        (None, None, true, false),
                        (None, None, false, true),
                        (Some(16), Some(3.0), true, true),
                    ] {
                        cases.add(
                            &[
                                ("q", dtype, &[1, tokens, heads, width]),
                                ("k", dtype, &[1, tokens, kv_heads, width]),
                                ("v", dtype, &[1, tokens, kv_heads, width]),
                                ("start", DType::I32, &[1]),
                            ],
                            |b, x| {
                                let dense = WeightFormat::Dense(DType::F32);
                                let sinks = sinks.then(|| weight(b, &[heads], dense));
                                let slopes = match slopes {
                                    true => (0..heads).map(|h| 0.125 * (h + 1) as f64).collect(),
                                    false => vec![],
                                };
                                let cache = [kv_heads, width, width];
                                let state = state(b, StateKind::Cache, cache, dtype);
                                b.attention(
                                    x[0],
                                    x[1],
                                    x[2],
                                    x[3],
                                    sinks,
                                    state,
                                    0.25,
                                    Mask::Causal,
                                    None,
                                    chunk,
                                    softcap,
                                    slopes,
                                )
                            },
                        );
                    }
                }
            }
        }
    }
}
