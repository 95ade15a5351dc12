//! The checkpoints and reference values that the tests of several crates share.
//!
//! Two sets travel with the repository as archives, unpacked by this crate's build script, so a test that
//! uses them needs neither network nor set-up: [`golden`] checkpoints of every family, tiny and random, and
//! the [`demo_model`], tiny and trained. A third, [`smollm2_gguf`], is a published model that
//! `cargo xtask setup --model` fetches.
//!
//! Invariants: the folders returned are complete and shared between tests, so a test that changes a file
//! copies the folder first (see [`copy_folder`]); functions panic, with what to do, when something is missing:
//! this crate is a dev-dependency only.

mod recorded;
mod tensors;
mod write;

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

pub use recorded::{RecordedCase, recorded_cases, recorded_vectors};
pub use tensors::{F32Tensor, Tensors, relative_error};
pub use write::{NewTensor, write_tensors};

/// The folder that holds one folder for each golden family, and a README on what is in them.
pub fn goldens() -> PathBuf {
    Path::new(env!("OUT_DIR")).join("goldens")
}

/// The folder of further checkpoints like those of [`goldens`], smaller ones, of families that are not
/// among them. `tests/families.py` made them, with the same library.
pub fn families() -> PathBuf {
    Path::new(env!("OUT_DIR")).join("families")
}

/// The folder of GGUF files as llama.cpp's converter writes them, tiny ones, each `NAME.gguf` with the
/// logits by Hugging Face transformers in `NAME.json`. `tests/gguf_cases.py` made them.
pub fn gguf_files() -> PathBuf {
    Path::new(env!("OUT_DIR")).join("gguf")
}

/// Records whose own rounding is more than a test's budget, of a model that grows it on one prompt, and
/// how far their logits are from the exact numbers, interpreted in f64.
pub const INEXACT: [(&str, f64); 1] = [("falcon_mamba", 1.29e-5)];

/// How far the record called `name` is from the exact numbers, where that matters; else 0.
pub fn inexactness(name: &str) -> f64 {
    let known = INEXACT.iter().find(|(inexact, _)| *inexact == name);
    known.map_or(0.0, |(_, error)| *error)
}

/// Those of [`goldens`] that the slower tests, on every execution, make do with.
pub const GOLDEN_FAMILIES: [&str; 5] = [
    "llama",
    "llama3-rope",
    "llama-mlx-q4-g64",
    "qwen3",
    "qwen3-mlx-q4-g64-bf16",
];

/// The folder of one golden family.
pub fn golden(family: &str) -> PathBuf {
    let folder = goldens().join(family);
    assert!(
        folder.is_dir(),
        "no golden checkpoint is called {family}; see {}",
        goldens().display()
    );
    folder
}

/// The folder of a Llama of 18.9 million parameters in MLX's affine 4-bit format (group 64), with tokenizer,
/// chat template and reference values (`reference.json`, `expected.safetensors`).
pub fn demo_model() -> PathBuf {
    Path::new(env!("OUT_DIR")).join("demo-4bit")
}

/// SmolLM2-135M-Instruct as a GGUF file: Q4_1 matrices, a Q8_0 embedding and f32 norms.
///
/// # Panics
/// If the file has not been fetched.
pub fn smollm2_gguf() -> PathBuf {
    let file = repository().join(".deps/models/SmolLM2-135M-Instruct.Q4_1.gguf");
    assert!(
        file.is_file(),
        "{} is missing; run `cargo xtask setup --model` to fetch it",
        file.display()
    );
    file
}

/// A prompt for SmolLM2-135M-Instruct, and what a float32 evaluation of its 4-bit weights gives for it.
#[derive(Debug, Clone, Deserialize)]
pub struct ReferencePrompt {
    /// The prompt, special tokens spelled out.
    pub prompt: String,
    /// The prompt's token ids.
    pub ids: Vec<u32>,
    /// The best tokens after the prompt, each with its logit.
    pub last_top: Vec<(u32, f32)>,
    /// The tokens that greedy decoding gives, up to the end token, 16 at most.
    pub greedy: Vec<u32>,
    /// The text of `greedy`.
    pub text: String,
}

/// The recorded prompts for [`smollm2_gguf`].
pub fn smollm2_prompts() -> Vec<ReferencePrompt> {
    serde_json::from_str(include_str!("../../smollm2.json"))
        .unwrap_or_else(|error| panic!("tests/smollm2.json: {error}"))
}

/// The root of the repository.
pub fn repository() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::canonicalize(&root).unwrap_or_else(|error| panic!("{}: {error}", root.display()))
}

/// Copies the files of `from`, folders in it included, into `to`, which is made if it is missing.
///
/// # Panics
/// If a file cannot be read or written.
pub fn copy_folder(from: &Path, to: &Path) {
    let fail = |path: &Path, error| -> ! { panic!("{}: {error}", path.display()) };
    fs::create_dir_all(to).unwrap_or_else(|error| fail(to, error));
    for entry in fs::read_dir(from).unwrap_or_else(|error| fail(from, error)) {
        let source = entry.unwrap_or_else(|error| fail(from, error)).path();
        let target = to.join(source.file_name().expect("an entry has a name"));
        if source.is_dir() {
            copy_folder(&source, &target);
        } else {
            fs::copy(&source, &target).unwrap_or_else(|error| fail(&source, error));
        }
    }
}
