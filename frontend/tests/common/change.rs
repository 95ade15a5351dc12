//! Changes of files that tests make.

#![allow(dead_code, reason = "each test file uses a part")]

use proptest::prelude::*;
use serde_json::Value;

/// A change of a file's bytes.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Set(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Remove(prop::sample::Index, usize),
    Double(prop::sample::Index, usize),
    /// A number of a protocol buffer or a length, as large as it gets.
    Large(prop::sample::Index),
}

pub(crate) fn changes() -> impl Strategy<Value = Vec<Change>> {
    let at = any::<prop::sample::Index>;
    let change = prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        at().prop_map(Change::Cut),
        (at(), 1..40usize).prop_map(|(at, count)| Change::Remove(at, count)),
        (at(), 1..40usize).prop_map(|(at, count)| Change::Double(at, count)),
        at().prop_map(Change::Large),
    ];
    prop::collection::vec(change, 1..6)
}

pub(crate) fn change(bytes: &mut Vec<u8>, changes: &[Change]) {
    for change in changes {
        if bytes.is_empty() {
            return;
        }
        let size = bytes.len();
        let range = |at: &prop::sample::Index, count: usize| {
            let at = at.index(size);
            at..(at + count).min(size)
        };
        match change {
            Change::Set(at, byte) => bytes[at.index(size)] = *byte,
            Change::Cut(at) => bytes.truncate(at.index(size)),
            Change::Remove(at, count) => drop(bytes.drain(range(at, *count))),
            Change::Double(at, count) => {
                let part = bytes[range(at, *count)].to_vec();
                let at = at.index(size);
                bytes.splice(at..at, part);
            }
            Change::Large(at) => {
                bytes.splice(range(at, 1), [0xff, 0xff, 0xff, 0xff, 0x0f]);
            }
        }
    }
}

/// Bytes of `good` with some of the first `reach` overwritten and the end cut off.
pub(crate) fn mutated(good: Vec<u8>, reach: usize) -> impl Strategy<Value = Vec<u8>> {
    let places = prop::collection::vec((0..reach.min(good.len()), any::<u8>()), 0..8);
    (places, 0..=good.len(), prop::bool::weighted(0.3)).prop_map(move |(places, end, cut)| {
        let mut bytes = good.clone();
        for (at, byte) in places {
            bytes[at] = byte;
        }
        if cut {
            bytes.truncate(end);
        }
        bytes
    })
}

const WORDS: &[&str] = &[
    "default",
    "linear",
    "dynamic",
    "yarn",
    "longrope",
    "llama3",
    "silu",
    "gelu",
    "llama",
    "affine",
    "mean",
    "",
    "full_attention",
    "sliding_attention",
    "linear_attention",
    "mamba",
    "moe",
    "1e999",
    "-1",
];
const KEYS: &[&str] = &[
    "rope_type",
    "type",
    "factor",
    "bits",
    "group_size",
    "mode",
    "rope_theta",
    "full_attention",
    "text_config",
    "x",
];

/// A JSON value of any shape, near what configurations hold.
pub(crate) fn json() -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0..300u64).prop_map(Value::from),
        (0..64u32).prop_map(|power| Value::from(1u64 << power)),
    ];
    let text = prop::sample::select(WORDS).prop_map(Value::from);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number,
        text
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((prop::sample::select(KEYS), inner), 0..6).prop_map(|entries| {
                Value::Object(
                    entries
                        .into_iter()
                        .map(|(key, value)| (key.to_string(), value))
                        .collect(),
                )
            }),
        ]
    })
}

/// Puts `new` in the place of a value that `path` leads to.
pub(crate) fn replace(value: &mut Value, path: &[prop::sample::Index], new: Value) {
    let size = match &*value {
        Value::Array(items) => items.len(),
        Value::Object(fields) => fields.len(),
        _ => 0,
    };
    let Some((at, rest)) = path.split_first().filter(|_| size > 0) else {
        *value = new;
        return;
    };
    let at = at.index(size);
    let inner = match value {
        Value::Array(items) => items.get_mut(at),
        Value::Object(fields) => fields.values_mut().nth(at),
        _ => None,
    };
    if let Some(inner) = inner {
        replace(inner, rest, new);
    }
}
