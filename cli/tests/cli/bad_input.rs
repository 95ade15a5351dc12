//! Damaged and wrong files: the message names the file and the field, the exit code is 1, nothing
//! panics or is killed.

use crate::program::{Copy, argument, run};
use mlxcel_test_support::demo_model;
use serde_json::{Value, json};

const WEIGHTS: &str = "model.safetensors";

/// Loads and runs the model, which must fail with every one of `parts` in its message.
#[track_caller]
fn refuse(model: &Copy, parts: &[&str]) {
    let out = argument(&model.folder.join("out.safetensors"));
    let arguments = [
        "logits",
        &model.path(),
        "--tokens",
        "1,2",
        "-b",
        "reference",
        "--out",
        &out,
    ];
    run(arguments).failure(1, parts);
    assert!(!model.folder.join("out.safetensors").exists());
}

/// Rewrites the header of a safetensors file, which keeps its data.
fn edit_header(bytes: Vec<u8>, change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let (length, rest) = bytes.split_first_chunk::<8>().expect("a header");
    let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let mut value = serde_json::from_slice(header).expect("a JSON header");
    change(&mut value);
    let header = value.to_string();
    [
        &(header.len() as u64).to_le_bytes(),
        header.as_bytes(),
        data,
    ]
    .concat()
}

/// A tensor of the golden checkpoints that are damaged here.
const TENSOR: &str = "model.norm.weight";

#[test]
fn a_model_without_its_files() {
    let model = Copy::golden("llama");
    std::fs::remove_file(model.folder.join("config.json")).unwrap();
    refuse(&model, &["config.json"]);

    let model = Copy::golden("llama");
    for file in [WEIGHTS, "expected.safetensors"] {
        std::fs::remove_file(model.folder.join(file)).unwrap();
    }
    refuse(&model, &["safetensors"]);

    let nowhere = argument(&model.folder.join("nowhere"));
    run(["run", &nowhere, "-p", "x"]).failure(1, &["nowhere", "no such file"]);
    let file = argument(&model.folder.join("config.json"));
    run(["run", &file, "-p", "x"]).failure(1, &["config.json"]);
}

#[test]
fn configurations() {
    let check = |family: &str, change: &dyn Fn(&mut Value), parts: &[&str]| {
        let model = Copy::golden(family);
        model.edit_json("config.json", change);
        refuse(&model, parts);
    };
    let mlx = "llama-mlx-q4-g64";
    check(
        "llama",
        &|config| config["model_type"] = json!("perceptron"),
        &[
            "config.json",
            "`model_type`",
            "`perceptron`",
            "llama",
            "qwen3",
        ],
    );
    check(
        "llama",
        &|config| config["hidden_size"] = json!("wide"),
        &["config.json", "hidden_size"],
    );
    check(
        "llama",
        &|config| config["hidden_size"] = json!(0),
        &["config.json", "hidden_size"],
    );
    check(
        "llama",
        &|config| config["num_hidden_layers"] = json!(4_000_000_000u64),
        &["config.json", "num_hidden_layers"],
    );
    // The weights have another width.
    check(
        "llama",
        &|config| config["intermediate_size"] = json!(72),
        &["mlp", "shape"],
    );
    for field in ["bits", "group_size"] {
        for value in [json!(0), json!(-1), json!(1u64 << 40), json!("four")] {
            let change = |config: &mut Value| {
                for name in ["quantization", "quantization_config"] {
                    if let Some(quantization) = config.get_mut(name) {
                        quantization[field] = value.clone();
                    }
                }
            };
            check(mlx, &change, &["config.json", field]);
        }
    }
    let model = Copy::golden("llama");
    model.edit("config.json", |mut bytes| {
        bytes.truncate(40);
        bytes
    });
    refuse(&model, &["config.json"]);
}

#[test]
fn weights() {
    let check = |change: &dyn Fn(Vec<u8>) -> Vec<u8>, parts: &[&str]| {
        let model = Copy::golden("llama");
        model.edit(WEIGHTS, change);
        refuse(&model, &[&[WEIGHTS], parts].concat());
    };
    check(&|_| Vec::new(), &[]);
    check(&|bytes| bytes[..7].to_vec(), &[]);
    check(&|bytes| bytes[..100].to_vec(), &["header"]);
    check(&|bytes| bytes[..bytes.len() - 1].to_vec(), &[]);
    let random = |length: usize| (0..length).map(|i| (i * i * 31 + i * 7) as u8).collect();
    check(&|bytes| random(bytes.len()), &["header"]);
    check(
        &|mut bytes| {
            bytes[..8].copy_from_slice(&u64::MAX.to_le_bytes());
            bytes
        },
        &["header"],
    );
    let header = |change: &dyn Fn(&mut Value), parts: &[&str]| {
        check(&|bytes| edit_header(bytes, change), parts);
    };
    let offsets = |change: &dyn Fn(u64, u64) -> [u64; 2], parts: &[&str]| {
        let edit = |header: &mut Value| {
            let offsets = &mut header[TENSOR]["data_offsets"];
            let at = |index: usize| offsets[index].as_u64().expect("an offset");
            let changed = change(at(0), at(1));
            *offsets = json!(changed);
        };
        header(&edit, parts);
    };
    offsets(&|start, end| [end, start], &[TENSOR]);
    offsets(
        &|start, end| [start + (1 << 40), end + (1 << 40)],
        &[TENSOR],
    );
    offsets(&|start, end| [start, end - 4], &[TENSOR]);
    offsets(&|start, _| [start, u64::MAX], &[TENSOR]);
    // The bytes of another tensor.
    offsets(
        &|start, end| {
            if start == 0 {
                [4, end + 4]
            } else {
                [start - 4, end - 4]
            }
        },
        &[],
    );
    header(&|header| header[TENSOR]["shape"] = json!([3]), &[TENSOR]);
    header(
        &|header| header[TENSOR]["shape"] = json!([u64::MAX, u64::MAX]),
        &[TENSOR],
    );
    header(&|header| header[TENSOR]["dtype"] = json!("F7"), &["F7"]);
}

#[test]
fn tensors() {
    let model = Copy::golden("llama");
    model.edit(WEIGHTS, |bytes| {
        edit_header(bytes, |header| {
            let header = header.as_object_mut().expect("an object");
            let tensor = header.remove(TENSOR).expect("the tensor");
            header.insert("another".into(), tensor);
        })
    });
    refuse(&model, &[TENSOR, "missing"]);

    // An index beside a whole model.safetensors would be stale, and is passed over.
    let model = Copy::golden("llama");
    let shard = model.folder.join("model-00001-of-00002.safetensors");
    std::fs::rename(model.folder.join(WEIGHTS), shard).unwrap();
    let index = json!({"metadata": {}, "weight_map": {TENSOR: "model-00002-of-00002.safetensors"}});
    std::fs::write(
        model.folder.join("model.safetensors.index.json"),
        index.to_string(),
    )
    .unwrap();
    refuse(
        &model,
        &[
            "model.safetensors.index.json",
            "model-00002-of-00002.safetensors",
        ],
    );
}

#[test]
fn text_files() {
    let check = |name: &str, change: &dyn Fn(Vec<u8>) -> Vec<u8>, parts: &[&str]| {
        let model = Copy::of(&demo_model());
        model.edit(name, change);
        let arguments = [
            "run",
            &model.path(),
            "-p",
            "hi",
            "-b",
            "reference",
            "-n",
            "1",
        ];
        run(arguments).failure(1, parts);
    };
    check("tokenizer.json", &|_| b"{}".to_vec(), &["tokenizer.json"]);
    check(
        "tokenizer.json",
        &|bytes| bytes[..1000].to_vec(),
        &["tokenizer.json"],
    );
    let template = |bytes: Vec<u8>, template: &str| {
        let mut value: Value = serde_json::from_slice(&bytes).unwrap();
        value["chat_template"] = json!(template);
        value.to_string().into_bytes()
    };
    let config = "tokenizer_config.json";
    check(
        config,
        &|bytes| template(bytes, "{% for %}"),
        &["chat_template"],
    );
    check(
        config,
        &|bytes| template(bytes, "{{ nothing() }}"),
        &["template", "nothing"],
    );
    check(config, &|_| b"[".to_vec(), &[config]);
}

#[test]
fn prompts() {
    let demo = argument(&demo_model());
    let long = "word ".repeat(600);
    run(["run", &demo, "-p", &long, "-b", "reference"]).failure(1, &["context holds 512"]);
    run([
        "run",
        &demo,
        "-p",
        "a b c",
        "-b",
        "reference",
        "--context",
        "3",
    ])
    .failure(1, &["context holds 3"]);
    run([
        "run",
        &demo,
        "-p",
        "x",
        "-b",
        "reference",
        "--context",
        "100000",
    ])
    .failure(1, &["100000", "512"]);
    run(["run", &demo, "--raw", "-p", "", "-b", "reference"]).failure(1, &["no tokens"]);
    let out = argument(&std::env::temp_dir().join("never-written.safetensors"));
    run([
        "logits",
        &demo,
        "--tokens",
        "1,99999999",
        "-b",
        "reference",
        "--out",
        &out,
    ])
    .failure(1, &["99999999", "8192"]);
    run([
        "logits",
        &demo,
        "--tokens",
        "1,99999999",
        "--hidden",
        "-b",
        "reference",
        "--out",
        &out,
    ])
    .failure(1, &["99999999", "8192"]);
    run([
        "logits",
        &demo,
        "--tokens",
        "1",
        "-b",
        "reference",
        "--out",
        "/nowhere/at/all",
    ])
    .failure(1, &["/nowhere/at/all"]);
}
