//! `mlxcel embed` and `mlxcel rerank`: vectors and scores that Hugging Face transformers recorded.

use crate::program::{argument, command, run, run_with};
use mlxcel_test_support::{Tensors, copy_folder, golden, relative_error};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

/// A golden encoder with a tokenizer whose word `w7` is token 7.
struct Encoder {
    _folder: TempDir,
    model: PathBuf,
    expected: Tensors,
}

impl Encoder {
    fn golden(family: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let model = folder.path().join(family);
        copy_folder(&golden(family), &model);
        let vocabulary: Map<String, Value> = (0..320)
            .map(|id| (format!("w{id}"), Value::from(id)))
            .collect();
        let tokenizer = json!({
            "version": "1.0",
            "added_tokens": [],
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [{"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [
                    {"Sequence": {"id": "A", "type_id": 0}},
                    {"Sequence": {"id": "B", "type_id": 1}},
                ],
                "special_tokens": {},
            },
            "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "w0"},
        });
        fs::write(model.join("tokenizer.json"), tokenizer.to_string()).expect("it can be written");
        let expected = Tensors::read(&model.join("expected.safetensors"));
        Self {
            _folder: folder,
            model,
            expected,
        }
    }

    fn path(&self) -> String {
        argument(&self.model)
    }

    /// The batch's rows: the tokens that count, with their kinds.
    fn rows(&self) -> Vec<Vec<(u32, u32)>> {
        let expected = &self.expected;
        let width = expected.shape("batch.input_ids")[1];
        let tokens = expected.tokens("batch.input_ids");
        let masks = expected.tokens("batch.attention_mask");
        let kinds = match expected.names().contains(&"batch.token_type_ids".into()) {
            true => expected.tokens("batch.token_type_ids"),
            false => vec![0; tokens.len()],
        };
        let all: Vec<(u32, u32)> = tokens.into_iter().zip(kinds).collect();
        let rows = all.chunks(width).zip(masks.chunks(width));
        rows.map(|(row, mask)| {
            let kept = row.iter().zip(mask).filter(|(_, mask)| **mask == 1);
            kept.map(|(&token, _)| token).collect()
        })
        .collect()
    }
}

fn words(tokens: impl IntoIterator<Item = u32>) -> String {
    let words: Vec<String> = tokens.into_iter().map(|id| format!("w{id}")).collect();
    words.join(" ")
}

fn numbers(value: &Value) -> Vec<f32> {
    let numbers = value.as_array().expect("a list").iter();
    numbers
        .map(|x| x.as_f64().expect("a number") as f32)
        .collect()
}

fn close(got: &[f32], expect: &[f32]) {
    let error = relative_error(got, expect);
    assert!(error <= 1e-5, "{got:?} instead of {expect:?}: {error:.2e}");
}

#[test]
fn vectors_are_the_means_of_the_recorded_states() {
    let encoder = Encoder::golden("bert");
    let states = encoder.expected.f32("batch.last_hidden_state");
    let [_, longest, width] = states.shape[..] else {
        panic!("states have three dimensions");
    };
    let rows = encoder.rows();
    let texts: Vec<String> = rows
        .iter()
        .map(|row| words(row.iter().map(|(token, _)| *token)))
        .collect();
    let path = encoder.path();
    let state = |row: usize, token: usize| {
        let start = (row * longest + token) * width;
        &states.values[start..start + width]
    };
    for backend in ["mlx", "reference"] {
        let check = |options: &[&str], expect: &dyn Fn(usize) -> Vec<f32>| {
            let all = [&["embed", &path, "--json", "-b", backend], options].concat();
            let found = run_with(command(all), &texts.join("\n")).success();
            let found: Value = serde_json::from_str(&found).expect("JSON");
            assert_eq!(found["inputs"], json!(texts));
            let tokens: usize = rows.iter().map(Vec::len).sum();
            assert_eq!(found["prompt_tokens"], tokens);
            for row in 0..rows.len() {
                let vector = numbers(&found["embeddings"][row]);
                assert_eq!(found["dim"], vector.len());
                close(&vector, &expect(row));
                let own = found["similarity"][row][row].as_f64().expect("a number");
                assert!((own - 1.0).abs() < 1e-9, "{own}");
            }
        };
        let mean = |row: usize| -> Vec<f32> {
            let count = rows[row].len();
            let sum = |place: usize| {
                (0..count)
                    .map(|token| state(row, token)[place])
                    .sum::<f32>()
            };
            (0..width).map(|place| sum(place) / count as f32).collect()
        };
        let unit = |vector: Vec<f32>| -> Vec<f32> {
            let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
            vector.into_iter().map(|x| x / length).collect()
        };
        check(&[], &mean);
        check(&["--batch-size", "1"], &mean);
        check(&["--pooling", "cls"], &|row| state(row, 0).to_vec());
        check(&["--pooling", "last"], &|row| {
            state(row, rows[row].len() - 1).to_vec()
        });
        check(&["--normalize"], &|row| unit(mean(row)));
        check(&["--dimensions", "8"], &|row| unit(mean(row)[..8].to_vec()));
    }
}

#[test]
fn scores_are_those_recorded() {
    let encoder = Encoder::golden("bert-crossencoder");
    let expect = encoder.expected.f32("batch.logits").values;
    for (row, expect) in encoder.rows().iter().zip(expect) {
        let part = |kind: u32| {
            let tokens = row.iter().filter(|(_, own)| *own == kind);
            words(tokens.map(|(token, _)| *token))
        };
        for backend in ["mlx", "reference"] {
            let path = encoder.path();
            let (query, document) = (part(0), part(1));
            let options = ["-b", backend, "-q", &query, "-d", &document, "-d", "w5 w6"];
            let all = [&["rerank", &path, "--json"], &options[..]].concat();
            let found: Value = serde_json::from_str(&run(all).success()).expect("JSON");
            let scores = numbers(&found["scores"]);
            close(&scores[..1], &[expect]);
            let best = if scores[0] >= scores[1] {
                [0, 1]
            } else {
                [1, 0]
            };
            assert_eq!(found["ranking"], json!(best));
            let all = [&["rerank", &path, "--top-n", "1"], &options[..]].concat();
            let shown = run(all).success();
            let best = [document.as_str(), "w5 w6"][best[0]];
            assert!(
                shown.ends_with(&format!("{best}\n")) && shown.lines().count() == 1,
                "{shown}"
            );
        }
    }
}

#[test]
fn what_cannot_be_done_is_said() {
    let encoder = Encoder::golden("bert");
    let bert = encoder.path();
    let check = |arguments: &[&str], code, parts: &[&str]| run(arguments).failure(code, parts);
    check(&["embed", &bert], 2, &["no text"]);
    check(&["embed", &bert, "-p", " "], 2, &["empty"]);
    check(
        &["embed", &bert, "-p", "w1", "--dimensions", "65"],
        2,
        &["64"],
    );
    check(
        &["embed", &bert, "w1", "-b", "iree"],
        2,
        &["'iree'", "[possible values: mlx, reference]"],
    );
    check(
        &["embed", &bert, "-p", "w1", "--max-length", "513"],
        1,
        &["512"],
    );
    check(&["embed", &bert, "-f", "nowhere.txt"], 1, &["nowhere.txt"]);
    check(
        &["rerank", &bert, "-q", "w1", "-d", "w2"],
        1,
        &["cross-encoder"],
    );
    check(&["rerank", &bert, "-q", "w1"], 2, &["no document"]);
    check(
        &["rerank", &bert, "-q", " ", "-d", "w2"],
        2,
        &["query is empty"],
    );
    let llama = argument(&golden("llama"));
    check(
        &["embed", &llama, "-p", "w1"],
        1,
        &["language model", "encoder"],
    );
    check(
        &["embed", &bert, "w1", "--prompt-name", "query"],
        2,
        &["query", "stores none", "--instruction"],
    );
    // An encoder gives no text.
    check(&["run", &bert, "-p", "w1"], 1, &["mlxcel embed"]);
}

#[test]
fn stored_prompts_stand_before_texts() {
    let encoder = Encoder::golden("bert");
    let path = encoder.path();
    let prompts = json!({
        "prompts": {"query": "w9 w8 ", "document": ""},
        "default_prompt_name": "query",
    });
    let file = encoder.model.join("config_sentence_transformers.json");
    fs::write(file, prompts.to_string()).expect("it can be written");
    let check = |options: &[&str], expect: &[&str]| {
        let all = [&["embed", &path, "--json"], options].concat();
        let found: Value = serde_json::from_str(&run(all).success()).expect("JSON");
        assert_eq!(found["inputs"], json!(expect), "{options:?}");
    };
    check(&["w1", "w2 w3"], &["w9 w8 w1", "w9 w8 w2 w3"]);
    check(&["w1", "-p", "w2"], &["w9 w8 w1", "w9 w8 w2"]);
    check(&["w1", "--prompt-name", "document"], &["w1"]);
    check(&["w1", "--prompt-name", "query"], &["w9 w8 w1"]);
    check(&["w1", "--instruction", "w4 "], &["w4 w1"]);
    let refused = |options: &[&str], parts: &[&str]| {
        run([&["embed", &path, "w1"], options].concat()).failure(2, parts);
    };
    refused(
        &["--prompt-name", "passage"],
        &["passage", "query, document"],
    );
    refused(
        &["--prompt-name", "query", "--instruction", "w4"],
        &["--instruction"],
    );
}

#[test]
fn what_ends_no_text_is_not_told() {
    let encoder = Encoder::golden("bert");
    let file = encoder.model.join("config.json");
    let config = fs::read_to_string(&file).expect("a configuration");
    let config = config.replace("eos_token_id", "no_eos_token_id");
    fs::write(file, config).expect("it can be written");
    let told = run(["inspect", &encoder.path()]).success();
    assert!(
        told.contains("chat template") && !told.contains("end tokens"),
        "{told}"
    );
}
