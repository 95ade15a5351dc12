//! Broken model folders are refused by messages that name the file and the field or tensor.

use mlxcel_frontend::Model;
use mlxcel_test_support as support;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Breaks a copy of the golden `family` and expects loading it (and its text, where that is
/// reached) to fail with all of `expect` in the message.
fn check_family(family: &str, break_it: impl Fn(&Path), expect: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().join("model");
    support::copy_folder(&support::golden(family), &folder);
    break_it(&folder);
    let result = Model::load(&folder).and_then(|model| model.text());
    let error = result.expect_err("a broken model").to_string();
    for part in expect {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
}

fn check(break_it: impl Fn(&Path), expect: &[&str]) {
    check_family("llama", break_it, expect);
}

fn edit_json(file: &Path, edit: impl Fn(&mut Value)) {
    let mut value = serde_json::from_slice(&fs::read(file).expect("a file")).expect("JSON");
    edit(&mut value);
    fs::write(file, value.to_string()).expect("written");
}

/// Expects a refusal after `field` of config.json is set (null removes it).
fn check_config(field: &str, value: Value, expect: &[&str]) {
    check(
        |folder| {
            edit_json(&folder.join("config.json"), |config| {
                match value.is_null() {
                    true => drop(
                        config
                            .as_object_mut()
                            .expect("an object")
                            .shift_remove(field),
                    ),
                    false => config[field] = value.clone(),
                }
            });
        },
        &[&["config.json", field], expect].concat(),
    );
}

/// The header and the data of a safetensors file.
fn split(bytes: &[u8]) -> (Value, Vec<u8>) {
    let length = u64::from_le_bytes(bytes[..8].try_into().expect("a length")) as usize;
    let header = serde_json::from_slice(&bytes[8..8 + length]).expect("a header");
    (header, bytes[8 + length..].to_vec())
}

fn join(header: &str, data: &[u8]) -> Vec<u8> {
    [
        &(header.len() as u64).to_le_bytes(),
        header.as_bytes(),
        data,
    ]
    .concat()
}

/// Edits the header of the weights.
fn edit_header(edit: impl Fn(&mut Value)) -> impl Fn(&Path) {
    move |folder| {
        let file = folder.join("model.safetensors");
        let (mut header, data) = split(&fs::read(&file).expect("a file"));
        edit(&mut header);
        fs::write(&file, join(&header.to_string(), &data)).expect("written");
    }
}

/// Expects a refusal that names the file after the header of the weights was edited.
fn check_header(edit: impl Fn(&mut Value), expect: &[&str]) {
    check(
        edit_header(edit),
        &[&["model.safetensors"], expect].concat(),
    );
}

#[test]
fn configurations() {
    check(
        |folder| fs::remove_file(folder.join("config.json")).expect("removed"),
        &["config.json"],
    );
    check(
        |folder| fs::write(folder.join("config.json"), "{\"a\": }").expect("written"),
        &["config.json", "JSON", "line 1"],
    );
    check(
        |folder| fs::write(folder.join("config.json"), "[]").expect("written"),
        &["config.json", "object"],
    );
    check_config("model_type", json!("lama"), &["`lama`", "llama", "qwen3"]);
    check_config("model_type", json!(null), &["is missing"]);
    // A size that is left out is the class's default, as in transformers.
    check(
        |folder| {
            edit_json(&folder.join("config.json"), |config| {
                config
                    .as_object_mut()
                    .expect("an object")
                    .shift_remove("hidden_size");
            });
        },
        &[
            "model.safetensors",
            "model.embed_tokens.weight",
            "[320, 4096]",
            "`hidden_size`, which is 4096 by default",
            "has [320,",
        ],
    );
    check_config("hidden_size", json!("64"), &["whole number"]);
    check_config("hidden_size", json!(0), &["whole number from 1"]);
    check_config("num_hidden_layers", json!(u64::MAX), &["whole number"]);
    check_config("num_key_value_heads", json!(3), &["does not divide"]);
    check_config("head_dim", json!(31), &["even"]);
    check_config("rms_norm_eps", json!(-1.0), &["greater than zero"]);
    check_config("hidden_act", json!("swirl"), &["`swirl`", "silu"]);
    check_config(
        "rope_parameters",
        json!({"rope_type": "spiral"}),
        &["rope_type", "`spiral`", "llama3"],
    );
    check_config(
        "rope_parameters",
        json!({"rope_type": "linear"}),
        &["factor", "is missing"],
    );
    check_config("eos_token_id", json!("two"), &["token id"]);
    check_config(
        "quantization",
        json!({"bits": 0, "group_size": 64}),
        &["quantization.bits", "is 0"],
    );
    check_config(
        "quantization",
        json!({"bits": 4, "group_size": 0}),
        &["quantization.group_size"],
    );
    check_config(
        "quantization",
        json!({"bits": 4, "group_size": 1e15}),
        &["quantization.group_size"],
    );
    check_config(
        "quantization_config",
        json!({"quant_method": "bitsandbytes", "load_in_4bit": true}),
        &["quant_method", "bitsandbytes", "not quantised"],
    );
    check_config(
        "quantization_config",
        json!({"quant_method": "gptq", "bits": 5, "group_size": 64}),
        &["quantization_config.bits", "5"],
    );
    check_config(
        "quantization_config",
        json!({"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemv"}),
        &["quantization_config.version", "gemv"],
    );
    check_config(
        "quantization_config",
        json!({"quant_method": "compressed-tensors", "format": "marlin-24"}),
        &["quantization_config.format", "marlin-24"],
    );
    check_config(
        "quantization",
        json!({"mode": "mxfp4", "bits": 4, "group_size": 64}),
        &["quantization.group_size", "mxfp4"],
    );
}

#[test]
fn tensors_that_do_not_fit_the_configuration() {
    let set = |field: &'static str, value: Value| {
        move |folder: &Path| {
            edit_json(&folder.join("config.json"), |config| {
                config[field] = value.clone()
            });
        }
    };
    check(
        set("hidden_size", json!(128)),
        &[
            "model.safetensors",
            "embed_tokens",
            "[320, 128]",
            "[320, 64]",
        ],
    );
    check(
        set("num_hidden_layers", json!(4)),
        &["model.layers.3.", "missing"],
    );
    check(
        set("attention_bias", json!(true)),
        &["q_proj.bias", "missing"],
    );
    let quantised = "llama-mlx-q4-g64";
    let quantization = |value: Value| {
        move |folder: &Path| {
            edit_json(&folder.join("config.json"), |config| {
                config["quantization"] = value.clone();
            });
        }
    };
    check_family(
        quantised,
        quantization(json!({"bits": 8, "group_size": 32})),
        &["embed_tokens.weight", "[320, 32]", "affine8(group = 32"],
    );
    check_family(
        quantised,
        quantization(json!({"bits": 4, "group_size": 7})),
        &["groups of 7", "config.json"],
    );
    check_family(
        quantised,
        quantization(json!({"bits": 4, "group_size": 32})),
        &["embed_tokens.weight", "[320, 32]", "affine8(group = 32"],
    );
    check_family(
        quantised,
        quantization(json!({"bits": 4, "group_size": 64, "lm_head": false})),
        &["config.json", "`quantization`", "`lm_head`"],
    );
    // Any file could have held it, so the folder is named.
    check(
        edit_header(|header| {
            let tensors = header.as_object_mut().expect("an object");
            let norm = tensors.shift_remove("model.norm.weight").expect("a norm");
            tensors.insert("model.morn.weight".into(), norm);
        }),
        &["model: tensor `model.norm.weight` is missing"],
    );
    check_header(
        |header| header["model.norm.weight"]["dtype"] = json!("I32"),
        &["model.norm.weight", "I32"],
    );
}

#[test]
fn weights() {
    let write = |bytes: Vec<u8>| {
        move |folder: &Path| fs::write(folder.join("model.safetensors"), &bytes).expect("written")
    };
    let file = "model.safetensors";
    check(
        |folder| {
            fs::remove_file(folder.join("expected.safetensors")).expect("removed");
            fs::remove_file(folder.join(file)).expect("removed");
        },
        &["no .safetensors file"],
    );
    check(write(Vec::new()), &[file, "0 bytes", "truncated"]);
    check(
        write((0..4096).map(|i: u32| ((i * i) >> 3) as u8 | 1).collect()),
        &[file, "header"],
    );
    check(
        write(u64::MAX.to_le_bytes().to_vec()),
        &[file, "header", "bytes long"],
    );
    check(
        write([&900u64.to_le_bytes()[..], b"{}"].concat()),
        &[file, "900 bytes long"],
    );
    check(write(join("{\"a\"", &[])), &[file, "not valid JSON"]);
    check(write(join("{}", &[0])), &[file, "1 bytes after"]);
    check(
        |folder| {
            let bytes = fs::read(folder.join(file)).expect("a file");
            fs::write(folder.join(file), &bytes[..bytes.len() - 100]).expect("written");
        },
        &[file, "tensor `", "truncated"],
    );
    let norm = "model.norm.weight";
    let offsets = |edit: fn(u64, u64) -> (u64, u64)| {
        move |header: &mut Value| {
            let pair = &mut header[norm]["data_offsets"];
            let (from, to) = (
                pair[0].as_u64().expect("from"),
                pair[1].as_u64().expect("to"),
            );
            let (from, to) = edit(from, to);
            *pair = json!([from, to]);
        }
    };
    check_header(offsets(|from, to| (to, from)), &[norm, "reversed"]);
    check_header(
        offsets(|from, to| (from + (1 << 40), to + (1 << 40))),
        &[norm, "outside of the file"],
    );
    check_header(offsets(|from, to| (from - 4, to - 4)), &["overlap"]);
    check_header(
        offsets(|from, to| (from, to - 4)),
        &[norm, "takes 256 bytes", "give 252"],
    );
    check_header(
        |header| header[norm]["shape"] = json!([65]),
        &[norm, "[65]", "260 bytes"],
    );
    check_header(
        |header| header[norm]["shape"] = json!([u64::MAX, 9]),
        &[norm, "too large"],
    );
    check_header(
        |header| header[norm]["dtype"] = json!("F33"),
        &[norm, "`F33`"],
    );
    check_header(
        |header| header[norm]["shape"] = json!(-1),
        &[norm, "description"],
    );
    check(
        |folder| {
            let header =
                "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},\"a\":null}";
            fs::write(folder.join(file), join(header, &[])).expect("written");
        },
        &[file, "`a`", "twice"],
    );
}

#[test]
fn shards() {
    let index = "model.safetensors.index.json";
    // All tensors in one shard, and an index that `edit` changed.
    let sharded = |edit: fn(&mut Value)| {
        move |folder: &Path| {
            let shard = "model-00001-of-00001.safetensors";
            let (header, _) = split(&fs::read(folder.join("model.safetensors")).expect("a file"));
            fs::rename(folder.join("model.safetensors"), folder.join(shard)).expect("renamed");
            let names = header.as_object().expect("an object").keys();
            let map: serde_json::Map<_, _> = names
                .filter(|name| *name != "__metadata__")
                .map(|name| (name.clone(), json!(shard)))
                .collect();
            let mut content = json!({ "metadata": {}, "weight_map": map });
            edit(&mut content);
            fs::write(folder.join(index), content.to_string()).expect("written");
        }
    };
    // A sharded checkpoint loads, and only the missing tokenizer is left to complain about.
    check(sharded(|_| {}), &["tokenizer.json"]);
    let second = "model-00002-of-00002.safetensors";
    check(
        sharded(|index| {
            index["weight_map"]["lm_head.weight"] = json!("model-00002-of-00002.safetensors")
        }),
        &[index, second, "download"],
    );
    check(
        sharded(|index| index["weight_map"]["x"] = json!("../x.safetensors")),
        &[index, "weight_map.x"],
    );
    // What the index says of a tensor does not count beside what the files say.
    check(
        sharded(|index| index["weight_map"]["x"] = json!("model-00001-of-00001.safetensors")),
        &["tokenizer.json"],
    );
    check(
        sharded(|index| index["weight_map"] = json!({})),
        &[index, "weight_map"],
    );
    check(
        sharded(|index| index["weight_map"] = json!(null)),
        &[index, "weight_map", "missing"],
    );
}

#[test]
fn text_files() {
    let demo = |break_it: fn(&Path), expect: &[&str]| {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("model");
        support::copy_folder(&support::demo_model(), &folder);
        break_it(&folder);
        let model = Model::load(&folder).unwrap_or_else(|error| panic!("{error}"));
        let error = model.text().expect_err("a broken text").to_string();
        for part in expect {
            assert!(error.contains(part), "`{part}` is not in: {error}");
        }
    };
    demo(
        |folder| fs::remove_file(folder.join("tokenizer.json")).expect("removed"),
        &["tokenizer.json"],
    );
    demo(
        |folder| fs::write(folder.join("tokenizer.json"), "{\"model\":").expect("written"),
        &["tokenizer.json"],
    );
    demo(
        |folder| {
            edit_json(&folder.join("tokenizer.json"), |value| {
                value["model"]["merges"] = json!(["a b c"])
            })
        },
        &["tokenizer.json", "not a tokenizer"],
    );
    demo(
        |folder| {
            edit_json(&folder.join("tokenizer_config.json"), |value| {
                value["chat_template"] = json!("\n{% for x in %}");
            })
        },
        &["tokenizer_config.json", "chat_template", "line 2"],
    );
    demo(
        |folder| fs::write(folder.join("chat_template.jinja"), "{{ a").expect("written"),
        &["chat_template.jinja", "line 1"],
    );
    demo(
        |folder| {
            edit_json(&folder.join("tokenizer_config.json"), |value| {
                value["chat_template"] = json!([{"name": "tool_use", "template": ""}]);
            })
        },
        &["tokenizer_config.json", "chat_template", "default"],
    );
    demo(
        |folder| {
            edit_json(&folder.join("generation_config.json"), |value| {
                value["eos_token_id"] = json!(-1)
            })
        },
        &["generation_config.json", "eos_token_id"],
    );
}

#[test]
fn factors_that_make_sizes_too_large() {
    let check = |case: &str, field: &str| {
        let all = mlxcel_test_support::recorded_cases();
        let case = all
            .iter()
            .find(|known| known.name == case)
            .expect("a record");
        let folder = tempfile::tempdir().expect("a folder");
        case.write(folder.path());
        edit_json(&folder.path().join("config.json"), |config| {
            config[field] = json!(709_490_156_681_136_576_u64);
        });
        let error = Model::load(folder.path())
            .expect_err("a refusal")
            .to_string();
        assert!(
            error.contains(field) && error.contains("more than"),
            "{error}"
        );
    };
    check("lfm2-adjusted", "block_ffn_dim_multiplier");
    check("rwkv7-plain", "hidden_ratio");
}
