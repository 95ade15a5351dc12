//! A published model, as a GGUF file, as a folder in MLX's format, and compiled from either, against the tokens that
//! a float32 evaluation of the same weights chose.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use mlxcel_frontend::Model;
use mlxcel_test_support::{smollm2_gguf, smollm2_prompts};
use serde_json::Value;

use crate::mlx_folder;
use crate::program::{compile, folder, mlxcel};

/// The model in MLX's format, made on first use.
fn mlx_model() -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let make = || {
        let folder = folder("smollm2-mlx");
        let model = Model::load(&smollm2_gguf()).expect("the GGUF file loads");
        mlx_folder::write(&model, &folder);
        folder
    };
    FOLDER.get_or_init(make).clone()
}

fn compiled(model: &Path, name: &str) -> PathBuf {
    let artifact = folder(name).join("artifact");
    compile(model, &artifact);
    artifact
}

/// What `generate` tells of a greedy reply.
fn generate(model: &Path, backend: &str, prompt: &str, options: &[&str]) -> Value {
    let model = model.to_str().expect("a path of plain characters");
    let arguments = [
        "generate",
        model,
        "--backend",
        backend,
        "-p",
        prompt,
        "--temp",
        "0",
        "--json",
    ];
    let output = mlxcel(arguments.iter().chain(options)).success();
    serde_json::from_str(&output).unwrap_or_else(|error| panic!("{error}: {output}"))
}

/// Requires the recorded tokens for every recorded prompt, and the answer to a question asked by the chat template.
#[track_caller]
fn check(model: &Path, backend: &str) {
    for prompt in smollm2_prompts() {
        let reply = generate(
            model,
            backend,
            &prompt.prompt,
            &["--raw", "--max-tokens", "16"],
        );
        let ids = |field: &str| -> Vec<u32> {
            serde_json::from_value(reply[field].clone()).expect("a list of ids")
        };
        assert_eq!(ids("prompt_ids"), prompt.ids, "{}", prompt.prompt);
        let tokens = ids("tokens");
        // A reply that ends by itself ends with an end token, which the recording leaves out.
        let ended = reply["finish_reason"] == "stop";
        assert_eq!(
            tokens[..tokens.len() - usize::from(ended)],
            prompt.greedy,
            "{}",
            prompt.prompt
        );
        assert_eq!(reply["text"], prompt.text.as_str());
    }
    let reply = generate(model, backend, "What is the capital of France?", &[]);
    assert_eq!(reply["text"], "The capital of France is Paris.");
}

#[test]
fn gguf_file_on_mlx() {
    check(&smollm2_gguf(), "mlx");
}

#[test]
fn gguf_file_on_the_interpreter() {
    check(&smollm2_gguf(), "reference");
}

#[test]
fn gguf_file_compiled() {
    check(&compiled(&smollm2_gguf(), "smollm2-gguf-artifact"), "iree");
}

#[test]
fn folder_on_mlx() {
    check(&mlx_model(), "mlx");
}

#[test]
fn folder_on_the_interpreter() {
    check(&mlx_model(), "reference");
}

#[test]
fn folder_compiled() {
    check(&compiled(&mlx_model(), "smollm2-mlx-artifact"), "iree");
}
