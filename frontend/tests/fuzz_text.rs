//! Broken and hostile tokenizers and templates are refused or used, but nothing panics, aborts or takes
//! unbounded memory. Each test takes a second; `MLXCEL_FUZZ_SECONDS` makes each take as many.

#[path = "common/fuzz.rs"]
mod fuzzing;

use fuzzing::fuzz;
use mlxcel_frontend::{Message, Text};
use mlxcel_test_support::repository;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A change of a file's bytes.
#[derive(Clone, Debug)]
enum Change {
    Set(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Remove(prop::sample::Index, usize),
    Double(prop::sample::Index, usize),
    /// A number of a protocol buffer or a length, as large as it gets.
    Large(prop::sample::Index),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let at = any::<prop::sample::Index>;
    let change = prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        at().prop_map(Change::Cut),
        (at(), 1..40usize).prop_map(|(at, count)| Change::Remove(at, count)),
        (at(), 1..40usize).prop_map(|(at, count)| Change::Double(at, count)),
        at().prop_map(Change::Large),
    ];
    prop::collection::vec(change, 1..6)
}

fn change(bytes: &mut Vec<u8>, changes: &[Change]) {
    for change in changes {
        if bytes.is_empty() {
            return;
        }
        let size = bytes.len();
        let range = |at: &prop::sample::Index, count: usize| {
            let at = at.index(size);
            at..(at + count).min(size)
        };
        match change {
            Change::Set(at, byte) => bytes[at.index(size)] = *byte,
            Change::Cut(at) => bytes.truncate(at.index(size)),
            Change::Remove(at, count) => drop(bytes.drain(range(at, *count))),
            Change::Double(at, count) => {
                let part = bytes[range(at, *count)].to_vec();
                let at = at.index(size);
                bytes.splice(at..at, part);
            }
            Change::Large(at) => {
                bytes.splice(range(at, 1), [0xff, 0xff, 0xff, 0xff, 0x0f]);
            }
        }
    }
}

fn fixture(name: &str) -> PathBuf {
    repository().join("frontend/tests/tokenizers").join(name)
}

/// Loads the fixture `name` with its `file` replaced, and uses what loads.
fn try_file(name: &str, file: &str, bytes: &[u8]) -> Result<(), TestCaseError> {
    let folder = tempfile::tempdir().expect("a folder");
    for entry in std::fs::read_dir(fixture(name)).expect("a fixture") {
        let path = entry.expect("an entry").path();
        let to = folder.path().join(path.file_name().expect("a name"));
        std::fs::copy(&path, to).expect("a copy");
    }
    std::fs::write(folder.path().join(file), bytes).expect("a file");
    use_folder(folder.path())
}

fn use_folder(folder: &Path) -> Result<(), TestCaseError> {
    let Ok(text) = Text::from_folder(folder) else {
        return Ok(());
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
            prop_assert!(tokens.len() < 10_000, "{} tokens", tokens.len());
        }
    }
    let ids: Vec<u32> = (0..300).chain([u32::MAX]).collect();
    text.decode(&ids);
    for id in ids {
        text.token_kind(id);
    }
    Ok(())
}

/// Changes bytes of the file `file` of the fixture `name`.
fn fuzz_file(name: &str, file: &str) {
    let valid = std::fs::read(fixture(name).join(file)).expect("a file");
    fuzz(changes(), |changes| {
        let mut bytes = valid.clone();
        change(&mut bytes, &changes);
        try_file(name, file, &bytes)
    });
}

#[test]
fn sentence_piece_models() {
    fuzz_file("pieces-merged", "tokenizer.model");
    fuzz_file("pieces-unigram", "tokenizer.model");
}

#[test]
fn vocabularies_of_lines() {
    fuzz_file("words-lower", "vocab.txt");
    fuzz_file("bytes-roberta", "merges.txt");
    fuzz_file("bytes-gpt2", "vocab.json");
    fuzz_file("ranks-qwen", "qwen.tiktoken");
}

#[test]
fn tokenizer_settings() {
    fuzz_file("bytes-qwen2", "tokenizer_config.json");
}

/// The `tokenizer.json` that a fixture is made into.
fn described(name: &str) -> Value {
    let text = Text::from_folder(&fixture(name)).expect("a tokenizer");
    let files = text.files();
    let file = files.iter().find(|(name, _)| name == "tokenizer.json");
    serde_json::from_slice(&file.expect("a description").1).expect("JSON")
}

/// A value that takes the place of another.
fn replacement() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!([])),
        Just(json!({})),
        Just(json!("")),
        Just(json!("▁▁")),
        Just(json!(-1)),
        Just(json!(u64::MAX)),
        Just(json!(1e300)),
        Just(json!(true)),
        Just(json!({"type": "Strip", "content": " ", "start": 1, "stop": 9})),
        Just(
            json!({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Strip", "content": "e", "start": 0, "stop": 50}]})
        ),
        Just(json!({"type": "Precompiled", "precompiled_charsmap": "/////wAAAAA="})),
        Just(json!({"type": "WordPiece", "prefix": "", "cleanup": true})),
        Just(
            json!({"type": "CTC", "pad_token": "a", "word_delimiter_token": "b", "cleanup": true})
        ),
        Just(json!({"type": "Unigram", "unk_id": 0, "vocab": [["", 0.0], ["a", -1.0]]})),
        Just(json!({"type": "FixedLength", "length": 0})),
        "[a-z▁ ]{0,8}".prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
    ]
}

/// Puts `new` in the place of a value that `path` leads to.
fn replace(value: &mut Value, path: &[prop::sample::Index], new: Value) {
    let size = match &*value {
        Value::Array(items) => items.len(),
        Value::Object(fields) => fields.len(),
        _ => 0,
    };
    let Some((at, rest)) = path.split_first().filter(|_| size > 0) else {
        *value = new;
        return;
    };
    let at = at.index(size);
    let inner = match value {
        Value::Array(items) => items.get_mut(at),
        Value::Object(fields) => fields.values_mut().nth(at),
        _ => None,
    };
    if let Some(inner) = inner {
        replace(inner, rest, new);
    }
}

#[test]
fn descriptions_of_tokenizers() {
    for name in [
        "pieces-merged",
        "pieces-unigram",
        "words-cased",
        "bytes-roberta",
    ] {
        let valid = described(name);
        let path = prop::collection::vec(any::<prop::sample::Index>(), 1..6);
        let edits = prop::collection::vec((path, replacement()), 1..4);
        fuzz(edits, |edits| {
            let mut value = valid.clone();
            for (path, new) in edits {
                replace(&mut value, &path, new);
            }
            try_file(name, "tokenizer.json", value.to_string().as_bytes())
        });
    }
}

#[test]
fn hostile_descriptions() {
    let valid = described("pieces-merged");
    let check = |field: &str, value: Value, expect: Option<&str>| {
        let mut description = valid.clone();
        description[field] = value;
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("tokenizer.json");
        std::fs::write(file, description.to_string()).expect("a file");
        match (Text::from_folder(folder.path()), expect) {
            (Ok(_), None) => use_folder(folder.path()).expect("use"),
            (Err(error), Some(expect)) => {
                assert!(error.to_string().contains(expect), "{field}: {error}");
            }
            (result, _) => panic!("{field}: {result:?}, expected {expect:?}"),
        }
    };
    // Steps in one another, at a cost that doubles with each level.
    let mut nested = json!({"type": "Lowercase"});
    for _ in 0..40 {
        nested = json!({"type": "Sequence", "normalizers": [nested]});
    }
    check("normalizer", nested, Some("nests deeper"));
    // A text a thousand times as long after each of ten steps.
    let grow = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "a".repeat(1000)});
    let steps = vec![grow; 10];
    check(
        "normalizer",
        json!({"type": "Sequence", "normalizers": steps}),
        Some("times as long"),
    );
    let mut model = valid["model"].clone();
    model["continuing_subword_prefix"] = json!("########");
    check("model", model, Some("does not start"));
    check(
        "decoder",
        json!({"type": "Strip", "content": " ", "start": 0, "stop": 1000}),
        None,
    );
    let mut model = valid["model"].clone();
    model["dropout"] = json!(0.5);
    check("model", model, Some("dropout"));
}

#[test]
fn templates() {
    let sources = [
        "{% for m in messages %}{{ m.role }}: {{ m['content'] | trim }}{% if not loop.last %},{% endif %}{% endfor %}",
        "{% macro f(x, y=1) %}{{ x }}{{ y }}{% endmacro %}{% set ns = namespace(a=0) %}{% for i in range(3) %}{% set ns.a = ns.a + i %}{% endfor %}{{ f(ns.a) }}{{ messages | tojson(indent=2) }}",
        "{%- if messages[0].role == 'system' -%}{% generation %}{{ raise_exception('x') }}{% endgeneration %}{%- else -%}{{ strftime_now('%d %b %Y') }}{{ 'a' * 3 ~ [1, 2][::-1] }}{%- endif -%}",
    ];
    let mut text = Text::from_folder(&fixture("bytes-qwen2")).expect("a tokenizer");
    let texts = std::cell::RefCell::new(&mut text);
    fuzz((0..sources.len(), changes()), |(source, changes)| {
        let mut bytes = sources[source].as_bytes().to_vec();
        change(&mut bytes, &changes);
        let source = String::from_utf8_lossy(&bytes);
        let mut text = texts.borrow_mut();
        if text.set_template(&source).is_ok() {
            let _ = text.chat(&[Message::new("user", "hi")], true);
        }
        Ok(())
    });
}

#[test]
fn hostile_templates_end() {
    let mut text = Text::from_folder(&fixture("bytes-qwen2")).expect("a tokenizer");
    let nest = |open: &str, close: &str, count: usize| open.repeat(count) + &close.repeat(count);
    for source in [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}".to_string(),
        "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(90) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}".into(),
        "{{ 'a' * 99999999999 }}".into(),
        "{% for i in range(9999) %}{{ 'a' * 9999999 }}{% endfor %}".into(),
        "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}".into(),
        "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}".into(),
        "{% set ns = namespace(x={}) %}{% for i in range(99999) %}{% set ns.x = {'a': ns.x} %}{% endfor %}{{ ns.x | tojson }}".into(),
        "{{ 'a' | indent(999999999) }}{{ 'a\nb' | indent(999999999) }}".into(),
        "{{ '%999999999d' | format(1) }}".into(),
        "{{ messages | tojson(indent=999999999) }}".into(),
        nest("{{ (", ") }}", 5000),
        nest("{% if 1 %}", "{% endif %}", 5000),
        format!("{{{{ {} }}}}", nest("[", "]", 5000)),
        format!("{{{{ {}1 }}}}", "-".repeat(5000)),
        "x".repeat(2 << 20),
    ] {
        if text.set_template(&source).is_ok() {
            let _ = text.chat(&[Message::new("user", "a\nb")], true);
        }
    }
}

#[test]
fn long_texts_take_linear_time() {
    // Each would take minutes or fail if any step were quadratic.
    for name in [
        "pieces-merged",
        "pieces-unigram",
        "words-lower",
        "bytes-qwen2",
        "bytes-gpt2",
        "ranks-kimi",
    ] {
        let text = Text::from_folder(&fixture(name)).expect("a tokenizer");
        for input in [
            "a".repeat(100_000),
            " ".repeat(100_000) + "x",
            "é\n".repeat(50_000),
        ] {
            let tokens = text.encode(&input, true).expect(name);
            text.decode(&tokens);
        }
    }
}
