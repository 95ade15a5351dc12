//! Adapters: what they do to a model, and what is refused.

mod common;

use common::{logits_of, numbers, relative_error};
use mlxcel_frontend::{Adapter, LoadOptions, Model, read_tensors};
use mlxcel_ir::weight::dequantize;
use mlxcel_ir::{DType, WeightData, WeightDecl, WeightFormat};
use mlxcel_test_support::{NewTensor, copy_folder, golden, write_tensors};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Both sides compute in f32.
const BUDGET: f64 = 1e-5;
const RANK: usize = 4;

/// Layers of the golden Llama that the adapters here change, with their `[N, K]`.
const MODULES: [(&str, [usize; 2]); 4] = [
    ("model.layers.0.self_attn.q_proj", [128, 64]),
    ("model.layers.1.self_attn.o_proj", [64, 128]),
    ("model.layers.2.mlp.down_proj", [64, 128]),
    ("lm_head", [320, 64]),
];

/// `A` `[r, K]` and `B` `[N, r]` of module `index`.
fn halves(index: usize) -> [Vec<f32>; 2] {
    let [n, k] = MODULES[index].1;
    [
        numbers(index as u64 + 1, RANK * k),
        numbers(index as u64 + 50, n * RANK),
    ]
}

fn transposed(values: &[f32], columns: usize) -> Vec<f32> {
    let rows = values.len() / columns;
    (0..columns)
        .flat_map(|column| (0..rows).map(move |row| values[row * columns + column]))
        .collect()
}

fn peft_config() -> Value {
    json!({"peft_type": "LORA", "r": RANK, "lora_alpha": 8, "target_modules": ["q_proj"], "bias": "none",
        "use_rslora": false, "modules_to_save": null, "rank_pattern": {}, "alpha_pattern": {}})
}

/// An adapter as PEFT saves it.
fn peft(folder: &Path, config: Value, edit: impl FnOnce(&mut Vec<NewTensor>)) {
    let mut tensors = Vec::new();
    for (index, (module, [n, k])) in MODULES.into_iter().enumerate() {
        let [a, b] = halves(index);
        let name = |half: &str| format!("base_model.model.{module}.lora_{half}.weight");
        tensors.push(NewTensor::f32(&name("A"), &[RANK, k], &a));
        tensors.push(NewTensor::f32(&name("B"), &[n, RANK], &b));
    }
    edit(&mut tensors);
    write_tensors(&folder.join("adapter_model.safetensors"), &tensors);
    fs::write(folder.join("adapter_config.json"), config.to_string()).expect("written");
}

/// The same adapter as mlx-lm saves it.
fn mlx(folder: &Path, config: Value, edit: impl FnOnce(&mut Vec<NewTensor>)) {
    let mut tensors = Vec::new();
    for (index, (module, [n, k])) in MODULES.into_iter().enumerate() {
        let [a, b] = halves(index);
        tensors.push(NewTensor::f32(
            &format!("{module}.lora_a"),
            &[k, RANK],
            &transposed(&a, k),
        ));
        tensors.push(NewTensor::f32(
            &format!("{module}.lora_b"),
            &[RANK, n],
            &transposed(&b, RANK),
        ));
    }
    edit(&mut tensors);
    write_tensors(&folder.join("adapters.safetensors"), &tensors);
    fs::write(folder.join("adapter_config.json"), config.to_string()).expect("written");
}

fn mlx_config() -> Value {
    json!({"fine_tune_type": "lora", "num_layers": 3, "lora_parameters": {"rank": RANK, "scale": 2.0, "dropout": 0.0}})
}

fn load(model: &Path, adapter: Adapter) -> Result<Model, String> {
    let options = LoadOptions {
        adapter: Some(adapter),
        ..LoadOptions::default()
    };
    Model::load_with(model, &options).map_err(|error| error.to_string())
}

fn near(got: &[f64], expect: &[f64], what: &str) {
    let error = relative_error(got, expect);
    assert!(error <= BUDGET, "{what}: relative error {error:.3e}");
}

/// A copy of the golden folder `family` whose weights `scale` times the adapter's are added to, dense in f32.
fn merged(family: &str, scale: impl Fn(&str) -> f64) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    copy_folder(&golden(family), folder.path());
    let file = folder.path().join("model.safetensors");
    let stored = read_tensors(&file).expect("tensors");
    let mut dense = BTreeMap::new();
    for (name, tensor) in &stored {
        let side = |end: &str| stored.get(&name.replace(".weight", end));
        if name.ends_with(".scales") || name.ends_with(".biases") {
            continue;
        }
        let numbers = match (side(".scales"), side(".biases")) {
            (Some(scales), Some(biases)) if name.ends_with(".weight") => {
                let shape = vec![tensor.shape[0], tensor.shape[1] * 8];
                let format = WeightFormat::Affine {
                    bits: 4,
                    group: 64,
                    scale: DType::F32,
                };
                let declaration = WeightDecl {
                    name: name.clone(),
                    shape: shape.clone(),
                    format,
                };
                let data = WeightData {
                    values: &tensor.bytes,
                    scales: &scales.bytes,
                    biases: &biases.bytes,
                };
                (
                    shape,
                    dequantize::<f64>(&declaration, data).expect("numbers"),
                )
            }
            _ => (tensor.shape.clone(), tensor.to_f64()),
        };
        dense.insert(name.clone(), numbers);
    }
    for (index, (module, [n, k])) in MODULES.into_iter().enumerate() {
        let [a, b] = halves(index);
        let scale = scale(module);
        let (shape, values) = dense
            .get_mut(&format!("{module}.weight"))
            .expect("the module");
        assert_eq!(*shape, [n, k], "{module}");
        for (flat, value) in values.iter_mut().enumerate() {
            let (row, column) = (flat / k, flat % k);
            let delta: f64 = (0..RANK)
                .map(|r| f64::from(b[row * RANK + r]) * f64::from(a[r * k + column]))
                .sum();
            *value += scale * delta;
        }
    }
    let tensors: Vec<NewTensor> = dense
        .iter()
        .map(|(name, (shape, values))| {
            let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
            NewTensor::f32(name, shape, &values)
        })
        .collect();
    write_tensors(&file, &tensors);
    let config = folder.path().join("config.json");
    let mut value: Value = serde_json::from_slice(&fs::read(&config).expect("read")).expect("JSON");
    for field in ["quantization", "quantization_config"] {
        value.as_object_mut().expect("an object").remove(field);
    }
    fs::write(&config, value.to_string()).expect("written");
    folder
}

#[test]
fn an_adapter_is_its_merged_model() {
    let check = |family: &str, what: &str, scale: &dyn Fn(&str) -> f64, adapter: Adapter| {
        let expect = logits_of(&Model::load(merged(family, scale).path()).expect("a model"));
        let got =
            logits_of(&load(&golden(family), adapter).unwrap_or_else(|error| panic!("{error}")));
        near(&got, &expect, &format!("{family}, {what}"));
    };
    for family in ["llama", "llama-mlx-q4-g64"] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path();
        peft(path, peft_config(), |_| {});
        check(family, "PEFT", &|_| 2.0, Adapter::new(path));
        check(
            family,
            "separate",
            &|_| 2.0,
            Adapter {
                separate: true,
                ..Adapter::new(path)
            },
        );
        check(
            family,
            "half",
            &|_| 1.0,
            Adapter {
                scale: 0.5,
                ..Adapter::new(path)
            },
        );
        check(
            family,
            "reversed",
            &|_| -2.0,
            Adapter {
                scale: -1.0,
                ..Adapter::new(path)
            },
        );

        let mut config = peft_config();
        config["use_rslora"] = json!(true);
        peft(path, config, |_| {});
        check(family, "rank-stabilised", &|_| 4.0, Adapter::new(path));

        let mut config = peft_config();
        config["r"] = json!(16);
        config["rank_pattern"] = json!({"[a-z]+_proj": RANK, "^lm_head": RANK});
        config["alpha_pattern"] = json!({"1.self_attn.o_proj": 12, "lm_head": 4});
        peft(path, config, |_| {});
        let scale = |module: &str| match module {
            "model.layers.1.self_attn.o_proj" => 3.0,
            "lm_head" => 1.0,
            _ => 2.0,
        };
        check(family, "patterns", &scale, Adapter::new(path));

        let folder = tempfile::tempdir().expect("a folder");
        mlx(folder.path(), mlx_config(), |_| {});
        check(family, "mlx-lm", &|_| 2.0, Adapter::new(folder.path()));
    }
}

#[test]
fn scaled_by_zero_it_is_the_model() {
    let folder = tempfile::tempdir().expect("a folder");
    peft(folder.path(), peft_config(), |_| {});
    for family in ["llama", "llama-mlx-q4-g64"] {
        let adapter = Adapter {
            scale: 0.0,
            ..Adapter::new(folder.path())
        };
        let model = load(&golden(family), adapter).expect("a model");
        let plain = Model::load(&golden(family)).expect("a model");
        assert_eq!(logits_of(&model), logits_of(&plain), "{family}");
    }
}

#[test]
fn the_digest_tells_models_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    peft(folder.path(), peft_config(), |_| {});
    let digest = |scale: f64| {
        let adapter = Adapter {
            scale,
            ..Adapter::new(folder.path())
        };
        load(&golden("llama"), adapter)
            .expect("a model")
            .digest()
            .expect("a digest")
    };
    let plain = Model::load(&golden("llama"))
        .expect("a model")
        .digest()
        .expect("a digest");
    assert_eq!(digest(0.0), plain);
    assert_ne!(digest(1.0), plain);
    assert_ne!(digest(1.0), digest(0.5));
}

#[test]
fn what_is_not_supported_is_named() {
    let check = |write: &dyn Fn(&Path), expect: &[&str]| {
        let folder = tempfile::tempdir().expect("a folder");
        write(folder.path());
        let error = load(&golden("llama"), Adapter::new(folder.path())).expect_err("refused");
        for part in expect {
            assert!(error.contains(part), "{part} in: {error}");
        }
    };
    let field = |name: &str, value: Value, expect: &[&str]| {
        let write = |folder: &Path| {
            let mut config = peft_config();
            config[name] = value.clone();
            peft(folder, config, |_| {});
        };
        check(&write, &[&["adapter_config.json", name], expect].concat());
    };
    field("peft_type", json!("IA3"), &["IA3", "LORA"]);
    field("use_dora", json!(true), &[]);
    field("bias", json!("all"), &[]);
    field("modules_to_save", json!(["lm_head"]), &["merge"]);
    field(
        "init_lora_weights",
        json!("pissa_niter_4"),
        &["pissa_niter_4"],
    );
    field("r", json!(5), &["rank 5", "rank 4"]);
    field("r", json!(0), &[]);
    field("lora_alpha", json!("x"), &["a number"]);
    field("rank_pattern", json!({"(": 4}), &["pattern"]);
    field("alpha_pattern", json!({"q_proj": "x"}), &["numbers"]);

    let tensors = |edit: &dyn Fn(&mut Vec<NewTensor>), expect: &[&str]| {
        let write = |folder: &Path| peft(folder, peft_config(), |tensors| edit(tensors));
        check(&write, expect);
    };
    tensors(&|all| all.clear(), &["no tensors"]);
    tensors(&|all| drop(all.remove(0)), &["one of its two"]);
    tensors(
        &|all| all[0].name = "base_model.model.model.layers.7.x.lora_A.weight".into(),
        &["one of its two"],
    );
    tensors(
        &|all| {
            all.push(NewTensor::f32(
                "base_model.model.lm_head.weight",
                &[1],
                &[0.0],
            ))
        },
        &["base_model.model.lm_head.weight", "whole modules"],
    );
    tensors(
        &|all| all[0].shape = vec![2, 2, 64],
        &["q_proj", "[2, 2, 64]"],
    );
    tensors(
        &|all| all[0] = NewTensor::f32(&all[0].name, &[RANK, 32], &[0.0; 128]),
        &["q_proj", "[128, 32]", "[128, 64]"],
    );
    tensors(
        &|all| all[0] = NewTensor::f32(&all[0].name, &[3, 64], &[0.0; 192]),
        &["rank 3", "rank 4"],
    );
    tensors(
        &|all| all[0].bytes[..4].copy_from_slice(&f32::NAN.to_le_bytes()),
        &["q_proj", "finite"],
    );
    tensors(
        &|all| {
            for (tensor, half) in all.iter_mut().zip(["A", "B"]) {
                tensor.name =
                    format!("base_model.model.model.layers.9.mlp.up_proj.lora_{half}.weight");
            }
        },
        &["model.layers.9.mlp.up_proj.weight", "does not have"],
    );

    let of_mlx = |edit: &dyn Fn(&mut Value), expect: &[&str]| {
        let write = |folder: &Path| {
            let mut config = mlx_config();
            edit(&mut config);
            mlx(folder, config, |_| {});
        };
        check(&write, expect);
    };
    of_mlx(
        &|config| config["fine_tune_type"] = json!("dora"),
        &["fine_tune_type", "dora"],
    );
    of_mlx(
        &|config| config["lora_parameters"] = json!(null),
        &["lora_parameters", "missing"],
    );
    of_mlx(
        &|config| config["lora_parameters"]["alpha"] = json!(16),
        &["lora_parameters.alpha"],
    );
    of_mlx(
        &|config| config["lora_parameters"]["scale"] = json!(null),
        &["lora_parameters.scale", "missing"],
    );
    check(
        &|folder| {
            mlx(folder, mlx_config(), |all| {
                all.push(NewTensor::f32("model.norm.m", &[1], &[0.0]))
            })
        },
        &["model.norm.m", "lora_a"],
    );

    check(
        &|_| {},
        &["adapter_model.safetensors", "adapters.safetensors"],
    );
    check(
        &|folder| fs::write(folder.join("adapter_model.bin"), "").expect("written"),
        &["adapter_model.bin", "safetensors"],
    );
    check(
        &|folder| {
            peft(folder, peft_config(), |_| {});
            fs::remove_file(folder.join("adapter_config.json")).expect("removed");
        },
        &["adapter_config.json"],
    );
}
