//! The module files of sentence-transformers, on states that Hugging Face transformers recorded.

mod common;

use common::{encoded, numbers, relative_error};
use mlxcel_frontend::{Model, Prompts, read_tensors};
use mlxcel_ir::step;
use mlxcel_test_support::{NewTensor, copy_folder, golden, write_tensors};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// The sizes of two layers on the vectors, after the width of the model's states.
const SIZES: [usize; 2] = [24, 10];

fn write(folder: &Path, name: &str, value: &Value) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder can be made");
    fs::write(path, value.to_string()).expect("a file can be written");
}

fn module(kind: &str, path: &str) -> Value {
    json!({"path": path, "type": format!("sentence_transformers.models.{kind}")})
}

fn weights(width: usize) -> [Vec<f32>; 3] {
    let [first, second] = SIZES;
    [
        numbers(1, first * width),
        numbers(2, first),
        numbers(3, second * first),
    ]
}

/// The golden BERT with the mean, a layer with bias and tanh, one without both, and length 1.
fn model() -> (TempDir, usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    copy_folder(&golden("bert"), path);
    let config: Value =
        serde_json::from_slice(&fs::read(path.join("config.json")).expect("a file")).expect("JSON");
    let width = config["hidden_size"].as_u64().expect("a width") as usize;
    let modules = [
        module("Transformer", ""),
        module("Pooling", "1_Pooling"),
        module("Dense", "2_Dense"),
        module("Dense", "3_Dense"),
        module("Normalize", "4_Normalize"),
    ];
    write(path, "modules.json", &json!(modules));
    write(
        path,
        "1_Pooling/config.json",
        &json!({"pooling_mode_mean_tokens": true}),
    );
    let [first, second] = SIZES;
    let settings = [
        json!({"in_features": width, "out_features": first, "bias": true,
               "activation_function": "torch.nn.modules.activation.Tanh"}),
        json!({"in_features": first, "out_features": second, "bias": false,
               "activation_function": "torch.nn.modules.linear.Identity"}),
    ];
    write(path, "2_Dense/config.json", &settings[0]);
    write(path, "3_Dense/config.json", &settings[1]);
    let [one, bias, two] = weights(width);
    let tensors = [
        NewTensor::f32("linear.weight", &[first, width], &one),
        NewTensor::f32("linear.bias", &[first], &bias),
    ];
    write_tensors(&path.join("2_Dense/model.safetensors"), &tensors);
    let tensors = [NewTensor::f32("linear.weight", &[second, first], &two)];
    write_tensors(&path.join("3_Dense/model.safetensors"), &tensors);
    (folder, width)
}

fn product(weight: &[f32], x: &[f64]) -> Vec<f64> {
    let rows = weight.chunks(x.len());
    rows.map(|row| row.iter().zip(x).map(|(&w, x)| f64::from(w) * x).sum())
        .collect()
}

#[test]
fn layers_follow_the_pooling() {
    let (folder, width) = model();
    let model = Model::load(folder.path()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(model.encoder().expect("an encoder").width, SIZES[1]);
    let expected = read_tensors(&golden("bert").join("expected.safetensors")).expect("records");
    let ints = |name: &str| -> Vec<i32> {
        expected[name]
            .to_f64()
            .into_iter()
            .map(|x| x as i32)
            .collect()
    };
    let states = expected["batch.last_hidden_state"].to_f64();
    let [rows, longest, _] = expected["batch.last_hidden_state"].shape[..] else {
        panic!("states have three dimensions");
    };
    let masks = ints("batch.attention_mask");
    let lengths: Vec<i32> = masks
        .chunks(longest)
        .map(|mask| mask.iter().sum())
        .collect();
    let tokens = ints("batch.input_ids");
    let types = match expected.contains_key("batch.token_type_ids") {
        true => ints("batch.token_type_ids"),
        false => vec![0; tokens.len()],
    };
    let outputs = encoded(&model, &tokens, &types, &lengths);
    let [one, bias, two] = weights(width);
    for row in 0..rows {
        let length = lengths[row] as usize;
        let own = &states[row * longest * width..][..length * width];
        let mean: Vec<f64> = (0..width)
            .map(|place| own.iter().skip(place).step_by(width).sum::<f64>() / length as f64)
            .collect();
        let inner = product(&one, &mean).into_iter().zip(&bias);
        let inner: Vec<f64> = inner
            .map(|(x, &bias)| (x + f64::from(bias)).tanh())
            .collect();
        let outer = product(&two, &inner);
        let size = outer.iter().map(|x| x * x).sum::<f64>().sqrt();
        let expect: Vec<f64> = outer.iter().map(|x| x / size).collect();
        let got = &outputs[step::EMBEDDING][row * SIZES[1]..][..SIZES[1]];
        let error = relative_error(got, &expect);
        assert!(error <= 1e-5, "row {row}: {error:.2e}");
    }
}

#[test]
fn modules_that_cannot_be_used_are_refused() {
    let check = |change: &dyn Fn(&Path), expect: &[&str]| {
        let (folder, _) = model();
        change(folder.path());
        let error = Model::load(folder.path())
            .expect_err("a refusal")
            .to_string();
        for part in expect {
            assert!(error.contains(part), "`{part}` is not in: {error}");
        }
    };
    let dense = |name: &str, value: Value| {
        let name = name.to_string();
        move |folder: &Path| {
            let path = "2_Dense/config.json";
            let file = fs::read(folder.join(path)).expect("a file");
            let mut config: Value = serde_json::from_slice(&file).expect("JSON");
            config[&name] = value.clone();
            write(folder, path, &config);
        }
    };
    let modules =
        |list: Vec<Value>| move |folder: &Path| write(folder, "modules.json", &json!(list));
    check(
        &|folder| fs::remove_file(folder.join("2_Dense/model.safetensors")).expect("removed"),
        &["2_Dense", "no model.safetensors"],
    );
    check(
        &dense("activation_function", json!("torch.nn.Softmax")),
        &["activation_function", "`torch.nn.Softmax`"],
    );
    check(
        &dense("out_features", json!(25)),
        &["2_Dense/model.safetensors", "linear.weight", "[24, "],
    );
    check(
        &dense("out_features", json!(1u64 << 60)),
        &["out_features", "16777216"],
    );
    check(
        &dense("in_features", json!(null)),
        &["in_features", "is missing"],
    );
    check(
        &dense("module_input_name", json!("token_embeddings")),
        &["module_input_name"],
    );
    let pooling = module("Pooling", "1_Pooling");
    check(
        &modules(vec![pooling.clone(), module("Dense", "../2_Dense")]),
        &["`../2_Dense`"],
    );
    check(
        &modules(vec![
            pooling,
            module("Normalize", ""),
            module("Dense", "2_Dense"),
        ]),
        &["after one that normalises"],
    );
    check(&modules(vec![module("LSTM", "")]), &["LSTM", "Dense"]);
    check(
        &|folder| {
            write(
                folder,
                "1_Pooling/config.json",
                &json!({"pooling_mode_mean_tokens": true, "include_prompt": false}),
            )
        },
        &["include_prompt"],
    );
}

#[test]
fn prompts_are_those_stored() {
    let (folder, _) = model();
    let model = Model::load(folder.path()).expect("a model");
    let file = "config_sentence_transformers.json";
    let check = |value: Value, expect: Result<Prompts, &str>| {
        write(folder.path(), file, &value);
        match (model.prompts(), expect) {
            (Ok(found), Ok(expect)) => assert_eq!(found, expect),
            (Err(error), Err(expect)) => {
                let error = error.to_string();
                assert!(error.contains(file) && error.contains(expect), "{error}");
            }
            (found, _) => panic!("{value}: {found:?}"),
        }
    };
    assert_eq!(model.prompts().expect("none"), Prompts::default());
    let texts = vec![
        ("query".into(), "query: ".into()),
        ("document".into(), String::new()),
    ];
    let prompts = json!({"query": "query: ", "document": ""});
    let default = Some("query".to_string());
    check(
        json!({"prompts": prompts, "default_prompt_name": "query"}),
        Ok(Prompts {
            texts: texts.clone(),
            default,
        }),
    );
    check(
        json!({"prompts": prompts, "default_prompt_name": null}),
        Ok(Prompts {
            texts,
            default: None,
        }),
    );
    check(json!({"prompts": {}}), Ok(Prompts::default()));
    check(json!({"prompts": {"query": 1}}), Err("query"));
    check(
        json!({"prompts": prompts, "default_prompt_name": "passage"}),
        Err("`passage`"),
    );
}
