//! The tokenizers of `tests/tokenizers`, and folders like theirs.

#![allow(dead_code, reason = "each test file uses a part")]

use mlxcel_frontend::Text;
use mlxcel_test_support::repository;
use serde_json::Value;
use std::path::{Path, PathBuf};

pub(crate) fn fixture(name: &str) -> PathBuf {
    repository().join("frontend/tests/tokenizers").join(name)
}

/// A folder with the files of the fixture `name`.
pub(crate) fn copied(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for entry in std::fs::read_dir(fixture(name)).expect("a fixture") {
        let path = entry.expect("an entry").path();
        let to = folder.path().join(path.file_name().expect("a name"));
        std::fs::copy(&path, to).expect("a copy");
    }
    folder
}

/// Uses the tokenizer of a folder, if it is one, and tells whether it is.
pub(crate) fn try_folder(folder: &Path) -> bool {
    let Ok(text) = Text::from_folder(folder) else {
        return false;
    };
    for input in [
        "",
        " ",
        "The river <s> é 日本 \u{1F600}\n\n  x<user>",
        "<|im_start|>",
    ] {
        if let Ok(tokens) = text.encode(input, true) {
            text.decode(&tokens);
            // A mutated vocabulary may be small, but a text of bytes never grows without bound.
            assert!(tokens.len() < 10_000, "{} tokens", tokens.len());
        }
    }
    let ids: Vec<u32> = (0..300).chain([u32::MAX]).collect();
    text.decode(&ids);
    for id in ids {
        text.token_kind(id);
    }
    true
}

/// The `tokenizer.json` that a fixture is made into.
pub(crate) fn described(name: &str) -> Value {
    let text = Text::from_folder(&fixture(name)).expect("a tokenizer");
    let files = text.files();
    let file = files.iter().find(|(name, _)| name == "tokenizer.json");
    serde_json::from_slice(&file.expect("a description").1).expect("JSON")
}
