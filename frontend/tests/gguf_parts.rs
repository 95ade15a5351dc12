//! GGUF models in several files: any of them, or their folder, opens all.

mod common;
#[path = "common/gguf.rs"]
mod writer;

use common::{Run, numbers};
use mlxcel_frontend::Model;
use mlxcel_ir::step;
use std::path::Path;
use writer::Writer;

const PARTS: [&str; 3] = [
    "tiny-00001-of-00003.gguf",
    "tiny-00002-of-00003.gguf",
    "tiny-00003-of-00003.gguf",
];

/// A Llama of one layer with random weights.
fn tiny() -> Writer {
    let writer = Writer::default()
        .text("general.architecture", "llama")
        .size("llama.embedding_length", 32)
        .size("llama.feed_forward_length", 32)
        .size("llama.block_count", 1)
        .size("llama.attention.head_count", 2)
        .size("llama.context_length", 16)
        .number("llama.attention.layer_norm_rms_epsilon", 1e-5)
        .text("tokenizer.ggml.model", "gpt2")
        .texts("tokenizer.ggml.tokens", &["a", "b", "ab"])
        .texts("tokenizer.ggml.merges", &["a b"]);
    let tensors = [
        ("token_embd", vec![3, 32]),
        ("output_norm", vec![32]),
        ("blk.0.attn_norm", vec![32]),
        ("blk.0.ffn_norm", vec![32]),
        ("blk.0.attn_q", vec![32, 32]),
        ("blk.0.attn_k", vec![32, 32]),
        ("blk.0.attn_v", vec![32, 32]),
        ("blk.0.attn_output", vec![32, 32]),
        ("blk.0.ffn_gate", vec![32, 32]),
        ("blk.0.ffn_up", vec![32, 32]),
        ("blk.0.ffn_down", vec![32, 32]),
    ];
    let tensors = tensors.iter().enumerate();
    tensors.fold(writer, |writer, (seed, (name, shape))| {
        let numbers = numbers(seed as u64, shape.iter().product());
        let bytes = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        writer.tensor(&format!("{name}.weight"), shape, 0, bytes)
    })
}

/// A folder with `files`.
fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, bytes) in files {
        std::fs::write(folder.path().join(name), bytes).expect("written");
    }
    folder
}

fn logits(model: &Model) -> Vec<f64> {
    let mut outputs = Run::new(model, 1, 16).step(&[vec![2, 0, 1]], &[0]);
    outputs.remove(step::LOGITS).expect("logits")
}

#[test]
fn any_part_opens_all() {
    let whole = folder(&[("tiny.gguf", &tiny().finish())]);
    let expected = Model::load(&whole.path().join("tiny.gguf")).expect("a model");
    let parts = tiny().split(3);
    let files: Vec<(&str, &[u8])> = PARTS
        .into_iter()
        .zip(parts.iter().map(Vec::as_slice))
        // What turns images into tokens is no model of its own.
        .chain([("mmproj-tiny.gguf", &b"GGUF"[..])])
        .collect();
    let split = folder(&files);
    let check = |path: &Path| {
        let model = Model::load(path).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(model.name(), "tiny");
        assert_eq!(logits(&model), logits(&expected));
        let text = model.text().expect("a tokenizer");
        assert_eq!(text.encode("ab", false).expect("tokens"), [2]);
        // The digest is of all files.
        assert_ne!(
            model.digest().expect("a digest"),
            expected.digest().expect("a digest")
        );
    };
    for part in PARTS {
        check(&split.path().join(part));
    }
    check(split.path());
    let model = Model::load(whole.path()).expect("a folder with one file");
    assert_eq!(logits(&model), logits(&expected));
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    let parts = tiny().split(3);
    let [one, two, three] = [0, 1, 2].map(|index| parts[index].as_slice());
    let check = |files: &[(&str, &[u8])], open: &str, expect: &[&str]| {
        let folder = folder(files);
        let error = Model::load(&folder.path().join(open)).expect_err("a broken model");
        let error = error.to_string();
        for part in expect {
            assert!(error.contains(part), "`{part}` is not in: {error}");
        }
    };
    let [first, second, third] = PARTS;
    check(
        &[(first, one), (third, three)],
        first,
        &[second, "3 files", "is not there"],
    );
    check(
        &[(second, two), (third, three)],
        third,
        &[first, "is not there"],
    );
    check(&[(second, two)], "", &[first, "is not there"]);
    check(
        &[(first, one), (second, three), (third, three)],
        first,
        &[second, "split.no", "is 2", "must be 1"],
    );
    check(
        &[("tiny-1-of-2.gguf", one), ("tiny-2-of-2.gguf", two)],
        "tiny-1-of-2.gguf",
        &["split.count", "is 3", "must be 2"],
    );
    check(
        &[("tiny.gguf", one)],
        "tiny.gguf",
        &["split.count", "NAME-00001-of-00003.gguf"],
    );
    // Of another model of as many parts.
    let other = tiny()
        .tensor("output.weight", &[3, 32], 0, vec![0; 384])
        .split(3);
    check(
        &[(first, one), (second, &other[1]), (third, three)],
        first,
        &["split.tensors.count"],
    );
    check(
        &[
            (first, one),
            (second, &two[..two.len() - 40]),
            (third, three),
        ],
        first,
        &[second, "truncated"],
    );
    check(
        &[(first, one), (second, b"GGML"), (third, three)],
        first,
        &[second, "does not start with `GGUF`"],
    );
    // Numbers that the name says are not trusted.
    check(
        &[("a-00001-of-99999.gguf", one)],
        "a-00001-of-99999.gguf",
        &["a-00002-of-99999.gguf", "is not there"],
    );
    let large = "a-11111111111111111111-of-99999999999999999999.gguf";
    check(&[(large, one)], large, &["split.count"]);
    check(
        &[("a.gguf", one), ("b.gguf", one)],
        "",
        &["several .gguf files", "a.gguf, b.gguf"],
    );
    check(&[("a.txt", one)], "", &["no config.json"]);
}
