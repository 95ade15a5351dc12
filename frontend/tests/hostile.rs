//! No bytes make loading panic.

#[path = "common/gguf.rs"]
mod writer;

use mlxcel_frontend::{Config, Model, read_tensors};
use mlxcel_test_support as support;
use proptest::prelude::*;
use std::path::Path;

/// Bytes of `good` with some places overwritten and the end cut off.
fn mutated(good: Vec<u8>, reach: usize) -> impl Strategy<Value = Vec<u8>> {
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

fn small_gguf() -> Vec<u8> {
    writer::Writer::default()
        .text("general.architecture", "llama")
        .size("llama.embedding_length", 32)
        .size("llama.feed_forward_length", 32)
        .size("llama.block_count", 1)
        .size("llama.attention.head_count", 2)
        .size("llama.context_length", 16)
        .number("llama.attention.layer_norm_rms_epsilon", 1e-5)
        .text("tokenizer.ggml.model", "gpt2")
        .texts("tokenizer.ggml.tokens", &["a", "b", "ab"])
        .texts("tokenizer.ggml.merges", &["a b"])
        .tensor("token_embd.weight", &[3, 32], 8, vec![7; 3 * 34])
        .tensor("output_norm.weight", &[32], 0, vec![0; 128])
        .tensor("blk.0.attn_q.weight", &[32, 32], 3, vec![9; 32 * 20])
        .finish()
}

const WORDS: &[&str] = &["default", "linear", "llama3", "silu", "llama", "affine"];
const KEYS: &[&str] = &[
    "rope_type",
    "type",
    "factor",
    "bits",
    "group_size",
    "mode",
    "rope_theta",
    "x",
];

/// A JSON value of any shape, near what configurations hold.
fn json() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::Value;
    let number = prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0..300u64).prop_map(Value::from),
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

fn written(name: &str, bytes: &[u8], then: impl FnOnce(&Path)) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join(name);
    std::fs::write(&file, bytes).expect("written");
    then(&file);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        written("a.safetensors", &bytes, |file| drop(read_tensors(file)));
        let gguf = [&b"GGUF\x03\0\0\0"[..], &bytes].concat();
        written("a.gguf", &gguf, |file| drop(Model::load(file)));
    }

    #[test]
    fn random_safetensors_headers(
        entries in prop::collection::vec((json(), json(), json()), 0..4),
        size in 0usize..64,
    ) {
        let tensors: serde_json::Map<_, _> = entries
            .into_iter()
            .enumerate()
            .map(|(index, (shape, from, to))| {
                let shape = serde_json::json!([shape]);
                let entry = serde_json::json!({"dtype": "F32", "shape": shape, "data_offsets": [from, to]});
                (index.to_string(), entry)
            })
            .collect();
        let header = serde_json::Value::Object(tensors).to_string();
        let length = (header.len() as u64).to_le_bytes();
        let bytes = [&length[..], header.as_bytes(), &vec![0; size]].concat();
        written("a.safetensors", &bytes, |file| drop(read_tensors(file)));
    }

    #[test]
    fn damaged_safetensors(
        bytes in mutated(std::fs::read(support::golden("llama").join("expected.safetensors")).expect("a file"), 2000),
    ) {
        written("a.safetensors", &bytes, |file| drop(read_tensors(file)));
    }

    #[test]
    fn damaged_gguf(bytes in mutated(small_gguf(), 2000)) {
        written("a.gguf", &bytes, |file| {
            if let Ok(model) = Model::load(file) {
                drop(model.text());
            }
        });
    }

    #[test]
    fn random_configurations(
        field in 0usize..40,
        value in json(),
        other in 0usize..40,
        second in json(),
    ) {
        let file = support::golden("llama3-rope").join("config.json");
        let text = std::fs::read(&file).expect("a file");
        let mut config: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        let names: Vec<String> = config.as_object().expect("an object").keys().cloned()
            .chain(["quantization", "rope_scaling", "layer_types", "use_sliding_window", "sliding_window"].map(String::from))
            .collect();
        config[&names[field % names.len()]] = value;
        config[&names[other % names.len()]] = second;
        drop(Config::parse(&file, &config));
    }
}
