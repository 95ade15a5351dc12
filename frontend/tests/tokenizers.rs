//! Vocabularies of every form give the ids and texts that their own libraries give; what those gave is
//! recorded in `tokenizers/expected.json`, see `tokenizers/README.md`.

use mlxcel_frontend::Text;
use mlxcel_test_support::repository;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
struct Expected {
    texts: Vec<String>,
    tokenizers: BTreeMap<String, Recorded>,
}

/// What a library gave for each text.
#[derive(Deserialize)]
struct Recorded {
    ids: Vec<Vec<u32>>,
    text: Vec<String>,
}

fn folder() -> PathBuf {
    repository().join("frontend/tests/tokenizers")
}

fn expected(file: &Path) -> Expected {
    let bytes = std::fs::read(file).expect("recorded ids");
    serde_json::from_slice(&bytes).expect("recorded ids")
}

/// Every difference between `text` and what is recorded.
fn differences(name: &str, text: &Text, texts: &[String], recorded: &Recorded) -> Vec<String> {
    let mut found = Vec::new();
    for ((input, ids), decoded) in texts.iter().zip(&recorded.ids).zip(&recorded.text) {
        match text.encode(input, true) {
            Ok(own) if &own == ids => {}
            own => found.push(format!("{name} {input:?}: {own:?}, expected {ids:?}")),
        }
        let own = text.decode(ids);
        if &own != decoded {
            found.push(format!("{name} {ids:?}: {own:?}, expected {decoded:?}"));
        }
    }
    found
}

fn check(name: &str) {
    let expected = expected(&folder().join("expected.json"));
    let text = Text::from_folder(&folder().join(name)).expect("a tokenizer");
    let found = differences(name, &text, &expected.texts, &expected.tokenizers[name]);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn sentence_piece_merges() {
    check("pieces-merged");
}

#[test]
fn sentence_piece_unigrams() {
    check("pieces-unigram");
    check("pieces-unigram-bytes");
}

#[test]
fn word_pieces() {
    check("words-lower");
    check("words-cased");
}

#[test]
fn bytes_and_merges() {
    check("bytes-gpt2");
    check("bytes-roberta");
    check("bytes-qwen2");
}

#[test]
fn ranks() {
    check("ranks-qwen");
    check("ranks-kimi");
    check("ranks-llama3");
}

/// Published tokenizers, which do not travel with the repository: `MLXCEL_TOKENIZERS` names a folder
/// with one folder for each.
#[test]
#[ignore = "needs MLXCEL_TOKENIZERS, see tokenizers/README.md"]
fn published_tokenizers() {
    let root = std::env::var_os("MLXCEL_TOKENIZERS").expect("MLXCEL_TOKENIZERS");
    let expected = expected(&folder().join("published.json"));
    let mut found = Vec::new();
    for (name, recorded) in &expected.tokenizers {
        let text = Text::from_folder(&Path::new(&root).join(name)).expect(name);
        found.extend(differences(name, &text, &expected.texts, recorded));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
