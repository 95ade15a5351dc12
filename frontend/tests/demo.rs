//! The demo model: text to tokens, logits, and tokens to text.

mod common;

use common::{Run, relative_error};
use mlxcel_frontend::{Message, Model, Text, read_tensors};
use mlxcel_ir::step;
use mlxcel_test_support as support;
use serde_json::Value;

#[test]
fn the_demo_model_gives_its_reference_values() {
    let folder = support::demo_model();
    let model = Model::load(&folder).unwrap_or_else(|error| panic!("{error}"));
    let text = model.text().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(text.end_tokens(), [8191, 8189]);

    let expected = read_tensors(&folder.join("expected.safetensors")).expect("recorded values");
    let ids = |name: &str| -> Vec<i32> {
        let numbers = expected[name].to_f64();
        numbers.into_iter().map(|id| id as i32).collect()
    };
    let outputs = Run::new(&model, 1, 64).step(&[ids("logits.input_ids")], &[0]);
    let error = relative_error(&outputs[step::LOGITS], &expected["logits"].to_f64());
    assert!(error <= 1e-5, "relative error {error:.3e}");

    let reference = std::fs::read(folder.join("reference.json")).expect("reference.json");
    let reference: Value = serde_json::from_slice(&reference).expect("JSON");
    let greedy = reference["demo-4bit"]["greedy"].as_array().expect("a list");
    for (index, entry) in greedy.iter().enumerate() {
        let list = |name: &str| -> Vec<u32> {
            serde_json::from_value(entry[name].clone()).expect("token ids")
        };
        let prompt = entry["prompt"].as_str().expect("a prompt");
        let tokens = text.encode(prompt, false).expect("tokens");
        assert_eq!(tokens, list("input_ids"), "{prompt}");
        // The recorded text spells out special tokens; decoding leaves them out.
        let output = entry["text"].as_str().expect("a text");
        let output = output.split("<|").next().expect("a part");
        let answer = list("output_ids");
        let length = answer.iter().position(|&id| id >= 8189);
        assert_eq!(
            text.decode(&answer[..length.unwrap_or(answer.len())]),
            output
        );
        let prompt = ids(&format!("greedy{index}.input_ids"));
        let wanted = ids(&format!("greedy{index}.output_ids"));
        let got = Run::new(&model, 1, 128).greedy(&[prompt], wanted.len());
        assert_eq!(got, [wanted]);
    }
}

#[test]
fn text_is_the_same_from_an_artifacts_files() {
    let text = Text::from_folder(&support::demo_model()).unwrap_or_else(|error| panic!("{error}"));
    let folder = tempfile::tempdir().expect("a folder");
    for (name, bytes) in text.files() {
        std::fs::write(folder.path().join(name), bytes).expect("written");
    }
    let again = Text::from_folder(folder.path()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(again.end_tokens(), text.end_tokens());
    assert_eq!(again.files(), text.files());
    let messages = [Message::new("user", "What is a violin?")];
    let prompt = text.chat(&messages, true).expect("a prompt");
    assert_eq!(
        prompt,
        "<|im_start|>user\nWhat is a violin?<|im_end|>\n<|im_start|>assistant\n"
    );
    assert_eq!(again.chat(&messages, true).expect("a prompt"), prompt);
    let tokens = text.encode(&prompt, false).expect("tokens");
    assert_eq!(again.encode(&prompt, false).expect("tokens"), tokens);
    // Special tokens have no text; an id past the tokenizer's entries has none either.
    assert_eq!(text.decode(&[8190, 283, 198, 400_000]), "user\n");
}
