//! Vocabularies of every form give the ids and texts that their own libraries give; what those gave is
//! recorded in `tokenizers/expected.json`, see `tokenizers/README.md`.

use mlxcel_frontend::{Text, TextError};
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

fn copy(name: &str) -> tempfile::TempDir {
    let to = tempfile::tempdir().expect("a folder");
    mlxcel_test_support::copy_folder(&folder().join(name), to.path());
    to
}

#[test]
fn templates_are_found_and_travel_with_an_artifact() {
    let model = copy("bytes-qwen2");
    let write = |name: &str, text: &str| {
        let file = model.path().join(name);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        std::fs::write(file, text).expect("a file");
    };
    write(
        "chat_template.jinja",
        "plain {{ messages | length }} {{ eos_token }}",
    );
    write(
        "additional_chat_templates/tool_use.jinja",
        "tools {{ tools | length }}",
    );
    write(
        "additional_chat_templates/rag.jinja",
        "{{ raise_exception('no documents') }}",
    );
    let check = |folder: &Path| {
        let text = Text::from_folder(folder).expect("a text");
        let render = |tools: serde_json::Value| {
            let mut variables = serde_json::Map::new();
            variables.insert("messages".into(), serde_json::json!([]));
            variables.insert("tools".into(), tools);
            text.render(variables).expect("a rendering")
        };
        assert_eq!(render(serde_json::Value::Null), "plain 0 <|im_end|>");
        assert_eq!(render(serde_json::json!([])), "plain 0 <|im_end|>");
        assert_eq!(render(serde_json::json!([{}, {}])), "tools 2");
        match text.render_named("rag", serde_json::Map::new()) {
            Err(TextError::Refused { message, .. }) => assert_eq!(message, "no documents"),
            other => panic!("{other:?}"),
        }
        let mut names: Vec<&str> = text.templates().collect();
        names.sort_unstable();
        assert_eq!(names, ["default", "rag", "tool_use"]);
        text
    };
    let text = check(model.path());
    let artifact = tempfile::tempdir().expect("a folder");
    for (name, bytes) in text.files() {
        std::fs::write(artifact.path().join(name), bytes).expect("a file without a folder");
    }
    let again = check(artifact.path());
    let input = "The <|im_start|>river <sep> ";
    assert_eq!(
        text.encode(input, true).expect("tokens"),
        again.encode(input, true).expect("tokens")
    );
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
