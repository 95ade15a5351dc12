//! Descriptions of tokenizers.

use crate::change::replace;
use crate::fuzzing::{Bound, fuzz};
use crate::texts::{copied, described, try_folder};
use proptest::prelude::*;
use serde_json::{Value, json};

pub(crate) const BOUND: Bound = Bound {
    base: 192 << 20,
    each: 64,
};

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
        Just(json!({"type": "Replace", "pattern": {"Regex": "(a*)*$"}, "content": "aaaaaaaa"})),
        Just(
            json!({"type": "Split", "pattern": {"Regex": "(?=a)|.{0,999}{0,99}"}, "behavior": "Isolated", "invert": false})
        ),
        "[a-z▁ ]{0,8}".prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
    ]
}

#[test]
fn tokenizer_descriptions() {
    let names = [
        "pieces-merged",
        "pieces-unigram",
        "words-cased",
        "bytes-roberta",
        "bytes-qwen2",
    ];
    let valid = names.map(|name| (copied(name), described(name)));
    let path = prop::collection::vec(any::<prop::sample::Index>(), 2..6);
    let edits = prop::collection::vec((path, replacement()), 1..4);
    let inputs = (0..names.len(), edits);
    fuzz("tokenizer.json", BOUND, inputs, |(at, edits), meter| {
        let (folder, value) = &valid[at];
        let mut value = value.clone();
        for (path, new) in edits {
            replace(&mut value, &path, new);
        }
        let text = value.to_string();
        std::fs::write(folder.path().join("tokenizer.json"), &text).expect("a file");
        meter.hold(text.len(), || try_folder(folder.path()))
    });
}
