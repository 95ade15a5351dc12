//! What is wrong with a model's files is told with file and field: exit code 1, no panic, no abort.

use std::fs;
use std::path::Path;

use mlxcel_test_support::{copy_folder, demo_model, golden};
use serde_json::{Value, json};

use crate::program::{folder, mlxcel};

/// Copies `model`, applies `damage`, and requires that running the copy fails with `parts`.
#[track_caller]
fn check(model: &Path, name: &str, damage: impl FnOnce(&Path), parts: &[&str]) {
    let copy = folder(&format!("bad-{name}"));
    copy_folder(model, &copy);
    damage(&copy);
    let copy = copy.to_str().expect("a path of plain characters");
    mlxcel(["generate", copy, "-p", "The", "-n", "1"]).failure(1, parts);
}

fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let text = fs::read_to_string(path).expect("the file is there");
    let mut value = serde_json::from_str(&text).expect("the file is JSON");
    change(&mut value);
    fs::write(path, value.to_string()).expect("the file can be written");
}

/// Replaces the header of the weights by what `change` makes of it, its length told truly.
fn edit_header(folder: &Path, change: impl FnOnce(&mut Value)) {
    let path = folder.join("model.safetensors");
    let bytes = fs::read(&path).expect("the file is there");
    let (length, rest) = bytes.split_first_chunk::<8>().expect("a length");
    let (header, tensors) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let mut header: Value = serde_json::from_slice(header).expect("the header is JSON");
    change(&mut header);
    let mut header = header.to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let length = (header.len() as u64).to_le_bytes();
    fs::write(&path, [&length, header.as_slice(), tensors].concat()).expect("written");
}

fn write(folder: &Path, file: &str, bytes: &[u8]) {
    fs::write(folder.join(file), bytes).expect("the file can be written");
}

const WEIGHTS: &str = "model.safetensors";
const NORM: &str = "model.norm.weight";

#[test]
fn faults_of_the_configuration_are_told() {
    let config = |name: &str, change: &dyn Fn(&mut Value), parts: &[&str]| {
        let damage = |folder: &Path| edit(&folder.join("config.json"), change);
        check(&demo_model(), name, damage, &[&["config.json"], parts].concat());
    };
    check(
        &demo_model(),
        "no-config",
        |folder| fs::remove_file(folder.join("config.json")).expect("it is there"),
        &["config.json"],
    );
    config("type", &|c| c["model_type"] = json!("mamba9"), &["mamba9", "llama", "qwen3"]);
    config("bits", &|c| c["quantization"]["bits"] = json!(0), &["bits", "0"]);
    config("group", &|c| c["quantization"]["group_size"] = json!(1_u64 << 60), &["group_size"]);
    config("layers", &|c| c["num_hidden_layers"] = json!(1_u64 << 60), &["num_hidden_layers"]);
}

#[test]
fn faults_of_the_weights_are_told() {
    let file = |name: &str, bytes: &[u8]| {
        check(&demo_model(), name, |folder| write(folder, WEIGHTS, bytes), &[WEIGHTS]);
    };
    file("empty", &[]);
    file("short", &[1, 2, 3]);
    file("random", &(0..4096_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect::<Vec<_>>());
    file("long-header", &(1_u64 << 40).to_le_bytes());
    check(
        &demo_model(),
        "truncated",
        |folder| {
            let bytes = fs::read(folder.join(WEIGHTS)).expect("the file is there");
            write(folder, WEIGHTS, &bytes[..bytes.len() / 2]);
        },
        &[WEIGHTS],
    );
    let header = |name: &str, change: &dyn Fn(&mut Value), parts: &[&str]| {
        let damage = |folder: &Path| edit_header(folder, change);
        check(&demo_model(), name, damage, &[&[WEIGHTS], parts].concat());
    };
    let offsets = |header: &mut Value, begin: u64, end: u64| {
        header[NORM]["data_offsets"] = json!([begin, end]);
    };
    header("reversed", &|h| offsets(h, 100, 50), &[NORM]);
    header("outside", &|h| offsets(h, 1 << 40, (1 << 40) + 4), &[NORM]);
    header("overlap", &|h| offsets(h, 0, 768), &["model."]);
    header("bytes", &|h| h[NORM]["shape"] = json!([7]), &[NORM]);
    header("missing", &|h| { h.as_object_mut().expect("an object").remove(NORM); }, &[]);
}

#[test]
fn faults_of_shards_are_told() {
    check(
        &golden("llama"),
        "shard",
        |folder| {
            let index = json!({"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}});
            write(folder, "model.safetensors.index.json", index.to_string().as_bytes());
        },
        &["model-00001-of-00002.safetensors", "model.safetensors.index.json"],
    );
    check(
        &golden("llama"),
        "shape",
        |folder| edit(&folder.join("config.json"), |config| config["intermediate_size"] = json!(96)),
        &["mlp"],
    );
}

#[test]
fn faults_of_the_text_files_are_told() {
    let demo = demo_model();
    check(&demo, "tokenizer", |folder| write(folder, "tokenizer.json", b"{\"model\":"), &["tokenizer.json"]);
    check(
        &demo,
        "template",
        |folder| {
            let path = folder.join("tokenizer_config.json");
            edit(&path, |config| config["chat_template"] = json!("{% for message in %}"));
        },
        &["template"],
    );
}

#[test]
fn wrong_usage_is_told() {
    let demo = demo_model();
    let demo = demo.to_str().expect("a path of plain characters");
    let long = "word ".repeat(5000);
    mlxcel(["generate", demo, "--raw", "-p", &long]).failure(1, &["tokens", "context"]);
    mlxcel(["generate", "no-such-model", "-p", "The"]).failure(1, &["no-such-model"]);
    mlxcel(["generate", demo, "-p", "The", "--temp", "-1"]).failure(2, &["temp"]);
    mlxcel(["compile", demo, "--target", "iree-cuda", "--chip", "nonsense"])
        .failure(2, &["nonsense", "sm_80", "sm_89"]);
    mlxcel(["compile", demo, "--target", "iree-abacus"]).failure(2, &["iree-abacus", "iree-cpu"]);
}
