//! Files whose content takes the most memory for its length: what random ones, which are short, do not
//! show. Each is a mebibyte.

use crate::fuzzing::{Bound, Meter, alone};
use crate::texts::{copied, described, try_folder};
use crate::writer::Writer;
use crate::{config, gguf, safetensors, template, tokenizer};
use mlxcel_frontend::{Message, Model, Text, read_tensors};
use mlxcel_test_support as support;
use serde_json::json;

const LENGTH: usize = 1 << 20;

/// As many of `part` as fill the length.
fn many(part: &str) -> String {
    part.repeat(LENGTH / part.len())
}

/// Texts joined by commas, each with a number of its own in the place of `#`.
fn numbered(part: &str) -> String {
    let parts = (0..LENGTH / (part.len() + 6)).map(|number| part.replace('#', &number.to_string()));
    parts.collect::<Vec<_>>().join(",")
}

#[track_caller]
fn check(name: &str, bound: Bound, length: usize, work: impl FnMut() -> bool) {
    let meter = Meter::new(bound);
    let held = meter.hold(length, work);
    meter.report(name);
    assert!(held.is_ok(), "{name}: {held:?}");
}

#[test]
fn safetensors_headers() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a.safetensors");
    let try_header = |name: &str, header: String| {
        let length = (header.len() as u64).to_le_bytes();
        let bytes = [&length[..], header.as_bytes()].concat();
        std::fs::write(&file, &bytes).expect("written");
        check(name, safetensors::BOUND, bytes.len(), || {
            read_tensors(&file).is_ok()
        });
    };
    let tensor =
        |shape: &str| format!(r##""#":{{"dtype":"U8","shape":{shape},"data_offsets":[0,0]}}"##);
    try_header("tensors", format!("{{{}}}", numbered(&tensor("[0]"))));
    try_header(
        "dimensions",
        format!("{{{}}}", tensor(&format!("[{}0]", many("0,")))),
    );
    try_header(
        "lists",
        format!(r#"{{"__metadata__":[{}[]]}}"#, many("[],")),
    );
    try_header(
        "fields",
        format!(r#"{{"a":{{{}}}}}"#, numbered(r##""#":{}"##)),
    );
    try_header("nested", many("[{"));
}

#[test]
fn gguf_headers() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a.gguf");
    let try_file = |name: &str, writer: Writer| {
        let bytes = writer.finish();
        std::fs::write(&file, &bytes).expect("written");
        check(name, gguf::BOUND, bytes.len(), || {
            let model = Model::load(&file);
            if let Ok(model) = &model {
                drop(model.text());
            }
            model.is_ok()
        });
    };
    let names: Vec<String> = (0..LENGTH / 40).map(|number| number.to_string()).collect();
    let tokens: Vec<&str> = names.iter().map(String::as_str).collect();
    let merges: Vec<String> = names.iter().map(|name| format!("{name} {name}")).collect();
    let merges: Vec<&str> = merges.iter().map(String::as_str).collect();
    try_file(
        "metadata",
        names
            .iter()
            .fold(gguf::small(), |writer, name| writer.size(name, 1)),
    );
    let tensor = |writer: Writer, name: &String| writer.tensor(name, &[0], 0, Vec::new());
    try_file("tensors", names.iter().fold(gguf::small(), tensor));
    let tensor = |writer: Writer, name: &String| {
        writer.tensor(&format!("blk.{name}.attn_q.weight"), &[0], 0, Vec::new())
    };
    try_file("layers", names.iter().fold(gguf::small(), tensor));
    for model in ["gpt2", "llama", "bert", "t5"] {
        let writer = gguf::with_vocabulary(model, &tokens, &merges);
        try_file(&format!("{model} vocabulary"), writer);
    }
}

#[test]
fn configurations() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    support::copy_folder(&support::golden("llama"), folder.path());
    let file = folder.path().join("config.json");
    let good = std::fs::read_to_string(&file).expect("a configuration");
    let good = good.trim_end().trim_end_matches('}').to_string();
    let try_fields = |name: &str, fields: String| {
        let text = format!("{good}, {fields}}}");
        std::fs::write(&file, &text).expect("written");
        check(name, config::BOUND, text.len(), || {
            Model::load(folder.path()).is_ok()
        });
    };
    try_fields("lists", format!(r#""x":[{}[]]"#, many("[],")));
    try_fields("lists of one", format!(r#""x":[{}[]]"#, many("[0],")));
    try_fields("objects", format!(r#""x":[{}[]]"#, many(r#"{"":0},"#)));
    try_fields("fields", numbered(r##""#":[0]"##));
    try_fields(
        "windows",
        format!(r#""layer_types":[{}""]"#, many(r#""","#)),
    );
    try_fields(
        "overrides",
        format!(
            r#""quantization":{{"bits":4,"group_size":64,{}}}"#,
            numbered(r##""#":{"bits":8}"##)
        ),
    );
}

/// As many layers as a configuration may ask for, of models that have two.
#[test]
fn layers() {
    let _alone = alone();
    let meter = Meter::new(config::BOUND);
    let folder = tempfile::tempdir().expect("a folder");
    for case in support::recorded_cases() {
        let place = folder.path().join(&case.name);
        std::fs::create_dir_all(&place).expect("a folder");
        case.write(&place);
        let file = place.join("config.json");
        let mut text = std::fs::read_to_string(&file).expect("a configuration");
        for name in ["num_hidden_layers", "n_layer", "n_layers", "num_layers"] {
            text = text.replace(
                &format!("\"{name}\":"),
                &format!("\"{name}\":4096,\"was\":"),
            );
        }
        std::fs::write(&file, &text).expect("written");
        let held = meter.hold(text.len(), || Model::load(&place).is_ok());
        assert!(held.is_ok(), "{}: {held:?}", case.name);
    }
    meter.report("layers");
}

#[test]
fn tokenizer_descriptions() {
    let _alone = alone();
    let folder = copied("bytes-qwen2");
    let valid = described("bytes-qwen2");
    let try_field = |name: &str, field: &str, value: serde_json::Value| {
        let mut description = valid.clone();
        description[field] = value;
        let text = description.to_string();
        std::fs::write(folder.path().join("tokenizer.json"), &text).expect("written");
        check(name, tokenizer::BOUND, text.len(), || {
            try_folder(folder.path())
        });
    };
    let tokens = || (0..LENGTH / 16).map(|number| number.to_string());
    let vocabulary: serde_json::Map<_, _> = tokens()
        .enumerate()
        .map(|(id, token)| (token, id.into()))
        .collect();
    let merges: Vec<_> = tokens()
        .take(10)
        .map(|token| json!([token, token]))
        .collect();
    try_field(
        "merges",
        "model",
        json!({"type": "BPE", "vocab": vocabulary.clone(), "merges": merges}),
    );
    try_field(
        "words",
        "model",
        json!({"type": "WordLevel", "vocab": vocabulary.clone(), "unk_token": "1"}),
    );
    try_field(
        "pieces of words",
        "model",
        json!({"type": "WordPiece", "vocab": vocabulary, "unk_token": "1", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}),
    );
    let pieces: Vec<_> = tokens().map(|token| json!([token, -1.0])).collect();
    try_field(
        "pieces",
        "model",
        json!({"type": "Unigram", "vocab": pieces, "unk_id": 0}),
    );
    let added = |(id, token): (usize, String)| json!({"id": id, "content": token, "special": false, "single_word": false, "lstrip": false, "rstrip": false, "normalized": true});
    let added: Vec<_> = tokens().enumerate().take(LENGTH / 120).map(added).collect();
    try_field("added tokens", "added_tokens", json!(added));
    let lists: Vec<_> = (0..LENGTH / 3).map(|_| json!([])).collect();
    try_field("lists", "x", json!(lists.clone()));
    try_field("steps", "normalizer", json!(lists));
    // Expressions: as many automata as there may be, of a class of many characters.
    let split = |pattern: String| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
    let apart = |part: &str, bytes: usize| split(part.repeat(bytes / part.len()));
    try_field("one expression", "pre_tokenizer", apart(r"\w", 8 << 10));
    try_field("parts of one", "pre_tokenizer", apart(r"\w(?!a)", 8 << 10));
    try_field(
        "counts",
        "pre_tokenizer",
        split(r"(\w{9}){9}(?!a)".repeat(3)),
    );
    let steps: Vec<_> = (0..250).map(|_| apart(r"\w(?!a)", 32)).collect();
    try_field(
        "expressions",
        "pre_tokenizer",
        json!({"type": "Sequence", "pretokenizers": steps}),
    );
}

#[test]
fn templates() {
    let _alone = alone();
    let mut text = Text::from_folder(&crate::texts::fixture("bytes-qwen2")).expect("a tokenizer");
    for part in [
        "a",
        "{{a}}",
        "{%if a%}{%endif%}",
        "{{[[],[]]}}",
        "{% set n.a=b %}",
        "{#",
        "{{{}}}",
    ] {
        let source = part.repeat((1 << 19) / part.len());
        check(part, template::BOUND, source.len(), || {
            text.set_template(&source).is_ok()
                && text.chat(&[Message::new("user", "a")], true).is_ok()
        });
    }
    // Lists of lists take forty steps to make, and would take terabytes to print.
    let doubled = "{% set a = ['é\\n', 1.5] %}".to_string() + &"{% set a = [a, a] %}".repeat(40);
    for printed in [
        "{{ a }}",
        "{{ a | tojson(indent=64) }}",
        "{% set b %}{{ a }}{% endset %}",
    ] {
        let source = format!("{doubled}{printed}");
        check(printed, template::BOUND, source.len(), || {
            text.set_template(&source).is_ok() && text.render(template::variables()).is_ok()
        });
    }
    // What is assigned to a namespace is computed twice, and each time the text here is longer.
    let grows = "{% set ns = namespace(a=0) %}{% for x in range(99) %}{% set ns.a = \
                 [{'a': (ns.a | indent(x)), 3745: x}, 'é%d {}'] | map('upper') %}{% endfor %}";
    check("grows", template::BOUND, grows.len(), || {
        text.set_template(grows).is_ok() && text.render(template::variables()).is_ok()
    });
}
