//! Broken and hostile tokenizers and templates are refused or used, but nothing panics, aborts or takes
//! unbounded memory. Each test takes a second; `MLXCEL_FUZZ_SECONDS` makes each take as many.

#[path = "common/change.rs"]
mod change;
#[path = "common/fuzz.rs"]
mod fuzzing;
#[path = "common/texts.rs"]
mod texts;

use change::{change, changes};
use fuzzing::{Bound, Meter, alone, fuzz};
use mlxcel_frontend::{Message, Text};
use serde_json::{Value, json};
use texts::{copied, described, fixture, try_folder};

/// That of each input here.
const BOUND: Bound = Bound {
    base: 128 << 20,
    each: 64,
};

/// Changes bytes of the file `file` of the fixture `name`.
fn fuzz_file(name: &str, file: &str) {
    let valid = std::fs::read(fixture(name).join(file)).expect("a file");
    let folder = copied(name);
    let path = folder.path().join(file);
    fuzz(file, BOUND, changes(), |changes, meter| {
        let mut bytes = valid.clone();
        change(&mut bytes, &changes);
        std::fs::write(&path, &bytes).expect("a file");
        meter.hold(bytes.len(), || try_folder(folder.path()))
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

#[test]
fn hostile_descriptions() {
    let _alone = alone();
    let valid = described("pieces-merged");
    let check = |field: &str, value: Value, expect: Option<&str>| {
        let mut description = valid.clone();
        description[field] = value;
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("tokenizer.json");
        std::fs::write(file, description.to_string()).expect("a file");
        match (Text::from_folder(folder.path()), expect) {
            (Ok(_), None) => assert!(try_folder(folder.path())),
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
    // Automata larger than any published one.
    let split = |pattern: &str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
    check(
        "pre_tokenizer",
        split(&"\\w(?=a)".repeat(2000)),
        Some("bytes of patterns"),
    );
    check("pre_tokenizer", split("(\\w{40}){40}"), Some("counted"));
    check("pre_tokenizer", split("\\p{N}{1,3}| {2,}|\\p{L}+"), None);
    // A map of characters that says that it has 4 GiB, and one whose replacement is long.
    let map = |map: &str| json!({"type": "Precompiled", "precompiled_charsmap": map});
    check("normalizer", map("/////wAAAAA="), Some("shorter than"));
    check("normalizer", map("?"), Some("not base64"));
    let long = format!("BAAAAAAAAAAA{}", "YWFh".repeat(10_000));
    let steps = json!({"type": "Sequence", "normalizers": [map(&long)]});
    check("normalizer", steps, Some("times as long"));
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
fn hostile_templates_end() {
    let _alone = alone();
    let meter = Meter::new(BOUND);
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
        let start: String = source.chars().take(60).collect();
        let held = meter.hold(source.len(), || {
            text.set_template(&source).is_ok()
                && text.chat(&[Message::new("user", "a\nb")], true).is_ok()
        });
        assert!(held.is_ok(), "{start}: {held:?}");
    }
}

#[test]
fn long_texts_take_linear_time() {
    let _alone = alone();
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
