//! GGUF files.

use crate::change::{change, changes};
use crate::fuzzing::{Bound, fuzz};
use crate::writer::Writer;
use mlxcel_frontend::Model;
use mlxcel_test_support::gguf_files;
use proptest::prelude::*;

pub(crate) const BOUND: Bound = Bound {
    base: 4 << 20,
    each: 64,
};

/// The bytes of a file that precede its data, about, and of every file with them.
const HEAD: usize = 4096;

/// A file of everything but a tokenizer.
fn bare() -> Writer {
    Writer::default()
        .text("general.architecture", "llama")
        .size("llama.embedding_length", 32)
        .size("llama.feed_forward_length", 32)
        .size("llama.block_count", 1)
        .size("llama.attention.head_count", 2)
        .size("llama.context_length", 16)
        .number("llama.attention.layer_norm_rms_epsilon", 1e-5)
        .tensor("token_embd.weight", &[3, 32], 8, vec![7; 3 * 34])
        .tensor("output_norm.weight", &[32], 0, vec![0; 128])
        .tensor("blk.0.attn_norm.weight", &[32], 0, vec![0; 128])
        .tensor("blk.0.ffn_norm.weight", &[32], 0, vec![0; 128])
        .tensor("blk.0.attn_q.weight", &[32, 32], 3, vec![9; 32 * 20])
        .tensor("blk.0.attn_k.weight", &[32, 32], 8, vec![9; 32 * 34])
        .tensor("blk.0.attn_v.weight", &[32, 32], 3, vec![9; 32 * 20])
        .tensor("blk.0.attn_output.weight", &[32, 32], 0, vec![0; 4096])
        .tensor("blk.0.ffn_gate.weight", &[32, 32], 8, vec![9; 32 * 34])
        .tensor("blk.0.ffn_up.weight", &[32, 32], 8, vec![9; 32 * 34])
        .tensor("blk.0.ffn_down.weight", &[32, 32], 8, vec![9; 32 * 34])
}

/// A file with a vocabulary of the kind `model`.
pub(crate) fn with_vocabulary(model: &str, tokens: &[&str], merges: &[&str]) -> Writer {
    bare()
        .text("tokenizer.ggml.model", model)
        .texts("tokenizer.ggml.tokens", tokens)
        .texts("tokenizer.ggml.merges", merges)
}

pub(crate) fn small() -> Writer {
    with_vocabulary("gpt2", &["a", "b", "ab"], &["a b"])
}

const KEYS: &[&str] = &[
    "general.alignment",
    "llama.expert_count",
    "llama.rope.scaling.type",
    "llama.rope.dimension_count",
    "llama.attention.head_count_kv",
    "llama.attention.key_length",
    "llama.nextn_predict_layers",
    "llama.vocab_size",
    "tokenizer.ggml.pre",
    "tokenizer.ggml.token_type",
    "tokenizer.ggml.scores",
    "tokenizer.ggml.bos_token_id",
    "tokenizer.chat_template",
    "split.count",
    "x",
];

/// A small file with more metadata and tensors, of any kinds, names and sizes.
fn made() -> impl Strategy<Value = Vec<u8>> {
    let key = prop::sample::select(KEYS);
    let name = prop::sample::select(vec![
        "blk.1.attn_k.weight",
        "blk.0.ffn_gate_exps.weight",
        "blk.18446744073709551615.attn_q.weight",
        "blk.0.attn_k_b.weight",
        "rope_freqs.weight",
        "rope_factors_long.weight",
        "output.weight",
        "x",
    ]);
    let entries = prop::collection::vec((key, any::<u8>(), any::<u32>(), "[a-z{}% ]{0,12}"), 0..6);
    let size = prop::sample::select(vec![0usize, 1, 2, 32, 256, 1 << 31, usize::MAX]);
    let shape = prop::collection::vec(size, 0..4);
    let tensors = prop::collection::vec((name, shape, 0..42u32, 0..600usize), 0..4);
    (entries, tensors).prop_map(|(entries, tensors)| {
        let mut writer = small();
        for (key, kind, number, text) in entries {
            writer = match kind % 5 {
                0 => writer.size(key, number as usize),
                1 => writer.number(key, f32::from_bits(number)),
                2 => writer.text(key, &text),
                3 => writer.texts(key, &[&text, "a"]),
                _ => writer.size(key, number as usize % 64),
            };
        }
        for (name, shape, kind, bytes) in tensors {
            writer = writer.tensor(name, &shape, kind, vec![5; bytes]);
        }
        writer.finish()
    })
}

#[test]
fn gguf_headers() {
    let mut files: Vec<Vec<u8>> = std::fs::read_dir(gguf_files())
        .expect("the files are unpacked")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "gguf"))
        .map(|path| std::fs::read(path).expect("a file"))
        .collect();
    files.push(small().finish());
    let count = files.len();
    let damaged = (0..count, changes(), any::<bool>()).prop_map(move |(file, list, everywhere)| {
        let mut bytes = files[file].clone();
        // Most changes of a whole file would be of weights, any of which are right.
        let rest = match everywhere {
            true => Vec::new(),
            false => bytes.split_off(HEAD.min(bytes.len())),
        };
        change(&mut bytes, &list);
        bytes.extend(rest);
        bytes
    });
    let random = prop::collection::vec(any::<u8>(), 0..300)
        .prop_map(|bytes| [&b"GGUF\x03\0\0\0"[..], &bytes].concat());
    let bytes = prop_oneof![1 => random, 4 => damaged, 3 => made()];
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a.gguf");
    fuzz("GGUF header", BOUND, bytes, |bytes, meter| {
        std::fs::write(&file, &bytes).expect("written");
        meter.hold(bytes.len(), || {
            let model = Model::load(&file);
            if let Ok(model) = &model {
                drop(model.text());
            }
            model.is_ok()
        })
    });
}
