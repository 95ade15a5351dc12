//! No bytes make loading panic. Each test takes a second; `MLXCEL_FUZZ_SECONDS` makes each take as many.

#[path = "common/fuzz.rs"]
mod fuzzing;
#[path = "common/gguf.rs"]
mod writer;

use fuzzing::fuzz;
use mlxcel_frontend::artifact::Manifest;
use mlxcel_frontend::{Adapter, Config, LoadOptions, Model, read_tensors};
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

#[test]
fn random_bytes() {
    fuzz(prop::collection::vec(any::<u8>(), 0..300), |bytes| {
        written("a.safetensors", &bytes, |file| drop(read_tensors(file)));
        let gguf = [&b"GGUF\x03\0\0\0"[..], &bytes].concat();
        written("a.gguf", &gguf, |file| drop(Model::load(file)));
        Ok(())
    });
}

#[test]
fn random_safetensors_headers() {
    let entries = prop::collection::vec((json(), json(), json()), 0..4);
    fuzz((entries, 0usize..64), |(entries, size)| {
        let tensors: serde_json::Map<_, _> = entries
            .into_iter()
            .enumerate()
            .map(|(index, (shape, from, to))| {
                let shape = serde_json::json!([shape]);
                let entry =
                    serde_json::json!({"dtype": "F32", "shape": shape, "data_offsets": [from, to]});
                (index.to_string(), entry)
            })
            .collect();
        let header = serde_json::Value::Object(tensors).to_string();
        let length = (header.len() as u64).to_le_bytes();
        let bytes = [&length[..], header.as_bytes(), &vec![0; size]].concat();
        written("a.safetensors", &bytes, |file| drop(read_tensors(file)));
        Ok(())
    });
}

#[test]
fn damaged_safetensors() {
    let file = support::golden("llama").join("expected.safetensors");
    let good = std::fs::read(file).expect("a file");
    fuzz(mutated(good, 2000), |bytes| {
        written("a.safetensors", &bytes, |file| drop(read_tensors(file)));
        Ok(())
    });
}

#[test]
fn damaged_gguf() {
    fuzz(mutated(small_gguf(), 2000), |bytes| {
        written("a.gguf", &bytes, |file| {
            if let Ok(model) = Model::load(file) {
                drop(model.text());
            }
        });
        Ok(())
    });
}

/// Values in place of fields of the configuration of a checkpoint.
#[test]
fn random_configurations() {
    let file = support::golden("llama3-rope").join("config.json");
    let text = std::fs::read(&file).expect("a file");
    let good: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let names = good.as_object().expect("an object").keys().cloned();
    let more = [
        "quantization",
        "quantization_config",
        "rope_scaling",
        "layer_types",
        "use_sliding_window",
        "sliding_window",
    ];
    let names: Vec<String> = names.chain(more.map(String::from)).collect();
    let pair = (prop::sample::select(names), json());
    fuzz(prop::collection::vec(pair, 1..4), |values| {
        let mut config = good.clone();
        for (name, value) in values {
            config[name] = value;
        }
        drop(Config::parse(&file, &config));
        Ok(())
    });
}

/// Quantised tensors of every vendor's names and any shapes, under each of their methods.
#[test]
fn random_quantised_modules() {
    let parts = [
        "weight",
        "weight_packed",
        "weight_scale",
        "weight_scale_inv",
        "weight_scale_2",
        "weight_shape",
        "weight_global_scale",
        "weight_zero_point",
        "weight_g_idx",
        "qweight",
        "qzeros",
        "scales",
        "biases",
        "g_idx",
    ];
    let types = [
        "U8", "I8", "I32", "U32", "F8_E4M3", "F8_E8M0", "F16", "BF16", "F32", "I64",
    ];
    let sizes = prop::collection::vec(
        prop::sample::select(vec![0usize, 1, 2, 3, 4, 8, 16, 32, 33, 64]),
        0..4,
    );
    let tensor = (prop::sample::select(types.to_vec()), sizes, any::<u8>());
    let tensors = prop::collection::btree_map(prop::sample::select(parts.to_vec()), tensor, 1..6);
    let methods = [
        "",
        "awq",
        "gptq",
        "fp8",
        "compressed-tensors",
        "modelopt",
        "bitnet",
        "mxfp4",
    ];
    let config = std::fs::read(support::golden("llama").join("config.json")).expect("a file");
    let config: serde_json::Value = serde_json::from_slice(&config).expect("JSON");
    fuzz(
        (tensors, prop::sample::select(methods.to_vec())),
        |(tensors, method)| {
            let folder = tempfile::tempdir().expect("a folder");
            let mut config = config.clone();
            config["quantization_config"] = match method {
                "" => serde_json::json!({"bits": 4, "group_size": 32}),
                _ => serde_json::json!({"quant_method": method, "bits": 4, "group_size": 32}),
            };
            std::fs::write(folder.path().join("config.json"), config.to_string()).expect("written");
            let tensors: Vec<support::NewTensor> = tensors
                .into_iter()
                .map(|(part, (dtype, shape, fill))| {
                    let bits = match dtype {
                        "I64" => 64,
                        "I32" | "U32" | "F32" => 32,
                        "F16" | "BF16" => 16,
                        _ => 8,
                    };
                    let bytes = vec![fill; shape.iter().product::<usize>() * bits / 8];
                    let name = format!("model.layers.0.mlp.up_proj.{part}");
                    support::NewTensor {
                        name,
                        dtype,
                        shape,
                        bytes,
                    }
                })
                .collect();
            support::write_tensors(&folder.path().join("model.safetensors"), &tensors);
            drop(Model::load(folder.path()));
            Ok(())
        },
    );
}

/// Damaged files of an adapter of the golden Llama.
#[test]
fn damaged_adapters() {
    let base = support::golden("llama");
    let config = serde_json::json!({
        "peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "bias": "none",
        "rank_pattern": {}, "alpha_pattern": {},
    });
    let config = config.to_string().into_bytes();
    let name = |half: &str| format!("base_model.model.lm_head.lora_{half}.weight");
    let tensors = [
        support::NewTensor::f32(&name("A"), &[4, 64], &[0.5; 256]),
        support::NewTensor::f32(&name("B"), &[320, 4], &[0.25; 1280]),
    ];
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("adapter_model.safetensors");
    support::write_tensors(&file, &tensors);
    let weights = std::fs::read(&file).expect("a file");
    let reach = config.len();
    let damaged = (mutated(config, reach), mutated(weights, 300));
    fuzz(damaged, |(config, weights)| {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("adapter_config.json"), config).expect("written");
        std::fs::write(folder.path().join("adapter_model.safetensors"), weights).expect("written");
        let options = LoadOptions {
            adapter: Some(Adapter::new(folder.path())),
            ..LoadOptions::default()
        };
        drop(Model::load_with(&base, &options));
        Ok(())
    });
}

/// Manifests with values of any kind, as far as this crate reads them.
#[test]
fn random_manifests() {
    let keys = [
        "format",
        "name",
        "model",
        "family",
        "functions",
        "buffers",
        "parts",
        "weights",
        "compiler",
        "contract",
        "context",
        "vocabulary",
        "seal",
    ];
    let pair = (prop::sample::select(keys.to_vec()), json());
    fuzz(prop::collection::vec(pair, 0..12), |pairs| {
        let manifest: serde_json::Map<String, serde_json::Value> = pairs
            .into_iter()
            .map(|(key, value)| (key.to_string(), value))
            .collect();
        let text = serde_json::Value::Object(manifest).to_string();
        if let Ok(manifest) = serde_json::from_str::<Manifest>(&text) {
            manifest.digest();
        }
        Ok(())
    });
}
