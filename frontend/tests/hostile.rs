//! No tensors, adapters or manifests make loading panic or take more memory than a bound. Each test takes a
//! second; `MLXCEL_FUZZ_SECONDS` makes each take as many.

#[path = "common/change.rs"]
mod change;
#[path = "common/fuzz.rs"]
mod fuzzing;

use change::{json, mutated};
use fuzzing::{Bound, fuzz};
use mlxcel_frontend::artifact::Manifest;
use mlxcel_frontend::{Adapter, LoadOptions, Model};
use mlxcel_test_support as support;
use proptest::prelude::*;

/// That of each input here.
const BOUND: Bound = Bound {
    base: 8 << 20,
    each: 64,
};

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
        "quantised tensors",
        BOUND,
        (tensors, prop::sample::select(methods.to_vec())),
        |(tensors, method), meter| {
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
            let size = |tensor: &support::NewTensor| tensor.bytes.len();
            let length = tensors.iter().map(size).sum();
            meter.hold(length, || Model::load(folder.path()).is_ok())
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
    fuzz("adapters", BOUND, damaged, |(config, weights), meter| {
        let length = config.len() + weights.len();
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("adapter_config.json"), config).expect("written");
        std::fs::write(folder.path().join("adapter_model.safetensors"), weights).expect("written");
        let options = LoadOptions {
            adapter: Some(Adapter::new(folder.path())),
            ..LoadOptions::default()
        };
        meter.hold(length, || Model::load_with(&base, &options).is_ok())
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
    let pairs = prop::collection::vec(pair, 0..12);
    fuzz("manifests", BOUND, pairs, |pairs, meter| {
        let manifest: serde_json::Map<String, serde_json::Value> = pairs
            .into_iter()
            .map(|(key, value)| (key.to_string(), value))
            .collect();
        let text = serde_json::Value::Object(manifest).to_string();
        meter.hold(text.len(), || {
            let manifest = serde_json::from_str::<Manifest>(&text);
            manifest.map(|manifest| manifest.digest()).is_ok()
        })
    });
}
