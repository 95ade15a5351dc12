//! GGUF files give the numbers of the checkpoints that they were made from.

mod common;
#[path = "common/gguf.rs"]
mod writer;

use common::{Run, relative_error};
use half::{bf16, f16};
use mlxcel_frontend::{Message, Model, read_tensors};
use mlxcel_ir::step;
use mlxcel_ir::weight::dequantize;
use mlxcel_test_support as support;
use std::path::{Path, PathBuf};
use writer::Writer;

/// A golden checkpoint as a GGUF file with dense tensors of `kind` (0 F32, 1 F16, 30 BF16).
fn convert(family: &str, kind: u32) -> Writer {
    let folder = support::golden(family);
    let architecture = if family.starts_with("qwen3") {
        "qwen3"
    } else {
        "llama"
    };
    let key = |name: &str| format!("{architecture}.{name}");
    let mut writer = Writer::default()
        .text("general.architecture", architecture)
        .size(&key("embedding_length"), 64)
        .size(&key("feed_forward_length"), 128)
        .size(&key("block_count"), 3)
        .size(&key("attention.head_count"), 4)
        .size(&key("attention.head_count_kv"), 2)
        .size(&key("attention.key_length"), 32)
        .size(&key("context_length"), 512)
        .number(&key("attention.layer_norm_rms_epsilon"), 1e-6)
        .number(&key("rope.freq_base"), 10000.0);
    let names = [
        ("model.embed_tokens", "token_embd"),
        ("model.norm", "output_norm"),
        ("lm_head", "output"),
        ("model.layers.", "blk."),
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.", "attn_"),
        ("mlp.", "ffn_"),
        ("_proj", ""),
    ];
    let tensors = read_tensors(&folder.join("model.safetensors")).expect("tensors");
    for (name, tensor) in tensors {
        let mut numbers = tensor.to_f64();
        let short = names
            .iter()
            .fold(name.clone(), |name, (from, to)| name.replace(from, to));
        // As converters to GGUF do for Llama: neighbours turn together.
        if architecture == "llama" && (name.contains("q_proj") || name.contains("k_proj")) {
            let width = tensor.shape[1];
            let rows: Vec<&[f64]> = numbers.chunks(width).collect();
            let mut paired = Vec::new();
            for head in rows.chunks(32) {
                for pair in 0..16 {
                    paired.extend_from_slice(head[pair]);
                    paired.extend_from_slice(head[16 + pair]);
                }
            }
            numbers = paired;
        }
        let kind = if tensor.shape.len() == 1 { 0 } else { kind };
        let bytes = match kind {
            0 => numbers
                .iter()
                .flat_map(|&x| (x as f32).to_le_bytes())
                .collect(),
            1 => numbers
                .iter()
                .flat_map(|&x| f16::from_f64(x).to_le_bytes())
                .collect(),
            _ => numbers
                .iter()
                .flat_map(|&x| bf16::from_f64(x).to_le_bytes())
                .collect(),
        };
        writer = writer.tensor(&short, &tensor.shape, kind, bytes);
    }
    writer
}

fn write(folder: &Path, writer: Writer) -> PathBuf {
    let file = folder.join("model.gguf");
    std::fs::write(&file, writer.finish()).expect("written");
    file
}

#[test]
fn dense_files_give_the_checkpoints_logits() {
    let check = |family: &str, kind: u32, budget: f64| {
        let folder = tempfile::tempdir().expect("a folder");
        let file = write(folder.path(), convert(family, kind));
        let model = Model::load(&file).unwrap_or_else(|error| panic!("{error}"));
        let expected = support::golden(family).join("expected.safetensors");
        let expected = read_tensors(&expected).expect("recorded values");
        let prompt = expected["p9.input_ids"].to_f64();
        let prompt: Vec<i32> = prompt.into_iter().map(|id| id as i32).collect();
        let got = Run::new(&model, 1, 16).step(&[prompt], &[0]);
        let error = relative_error(&got[step::LOGITS], &expected["p9.logits"].to_f64());
        assert!(error <= budget, "{family}, type {kind}: {error:.3e}");
    };
    check("llama", 0, 1e-5);
    check("qwen3", 0, 1e-5);
    // The goldens' numbers are bfloat16 numbers; float16 loses the smallest of them.
    check("llama", 30, 1e-5);
    check("llama", 1, 1e-3);
}

#[test]
fn broken_files_are_refused() {
    let check = |writer: Writer, expect: &[&str]| {
        let folder = tempfile::tempdir().expect("a folder");
        let file = write(folder.path(), writer);
        let error = Model::load(&file).expect_err("a broken file").to_string();
        for part in expect.iter().chain(&["model.gguf"]) {
            assert!(error.contains(part), "`{part}` is not in: {error}");
        }
    };
    let good = || convert("llama", 0);
    let tensor = |kind, bytes| {
        Writer::default()
            .text("general.architecture", "llama")
            .tensor("token_embd.weight", &[32, 64], kind, bytes)
    };
    check(Writer::default(), &["general.architecture", "is missing"]);
    check(
        Writer::default().text("general.architecture", "lama"),
        &["general.architecture", "`lama`", "llama", "qwen3"],
    );
    check(
        good().size("llama.expert_count", 8),
        &["llama.expert_count", "experts"],
    );
    check(
        good().text("llama.block_count", "3"),
        &["llama.block_count", "twice"],
    );
    check(
        good().size("general.alignment", 3),
        &["general.alignment", "power of two"],
    );
    check(
        good().text("llama.rope.scaling.type", "yarn"),
        &["llama.rope.scaling.type", "yarn"],
    );
    check(
        good().tensor("blk.0.attn_sinks.weight", &[4], 0, vec![0; 16]),
        &["blk.0.attn_sinks.weight"],
    );
    check(
        good().tensor("blk.1.attn_q.bias", &[128], 0, vec![0; 512]),
        &["0.self_attn.q_proj.bias", "missing"],
    );
    check(tensor(0, vec![0; 100]), &["token_embd.weight", "truncated"]);
    check(
        tensor(0, vec![0; 32 * 64 * 4]),
        &["llama.embedding_length", "is missing"],
    );
}

#[test]
fn broken_containers_are_refused() {
    let good = convert("llama", 0).finish();
    let check = |bytes: &[u8], expect: &[&str]| {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("model.gguf");
        std::fs::write(&file, bytes).expect("written");
        let error = Model::load(&file).expect_err("a broken file").to_string();
        for part in expect.iter().chain(&["model.gguf"]) {
            assert!(error.contains(part), "`{part}` is not in: {error}");
        }
    };
    let patched = |at: usize, bytes: &[u8]| {
        let mut patched = good.clone();
        patched[at..at + bytes.len()].copy_from_slice(bytes);
        patched
    };
    check(b"", &["the magic", "truncated"]);
    check(b"GGML....", &["does not start with `GGUF`"]);
    check(&patched(4, &1u32.to_le_bytes()), &["version 1"]);
    check(
        &patched(8, &u64::MAX.to_le_bytes()),
        &["tensors", "truncated"],
    );
    check(
        &patched(16, &u64::MAX.to_le_bytes()),
        &["metadata entries", "truncated"],
    );
    check(
        &patched(24, &u64::MAX.to_le_bytes()),
        &["a metadata key", "truncated"],
    );
    check(&good[..good.len() / 2], &["truncated"]);
    check(&good[..300], &["truncated"]);
}

/// The published model, or `None` with a message where it was not fetched.
fn smollm2() -> Option<Model> {
    let file = support::repository().join(".deps/models/SmolLM2-135M-Instruct.Q4_1.gguf");
    if !file.is_file() {
        eprintln!(
            "skipped: `cargo xtask setup --model` fetches {}",
            file.display()
        );
        return None;
    }
    Some(Model::load(&file).unwrap_or_else(|error| panic!("{error}")))
}

#[test]
fn smollm2_answers_as_recorded() {
    let Some(model) = smollm2() else { return };
    let text = model.text().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(text.end_tokens(), [2]);
    let prompts = support::smollm2_prompts();
    for prompt in &prompts {
        assert_eq!(
            text.encode(&prompt.prompt, true).expect("tokens"),
            prompt.ids
        );
        assert_eq!(text.decode(&prompt.greedy), prompt.text);
    }
    let question = [Message::new("user", "What is the capital of France?")];
    assert_eq!(
        text.chat(&question, true).expect("a prompt"),
        prompts[0].prompt
    );
    let ids = prompts[0].ids.iter().map(|&id| id as i32).collect();
    let wanted: Vec<i32> = prompts[0].greedy.iter().map(|&id| id as i32).collect();
    let got = Run::new(&model, 1, 64).greedy(&[ids], wanted.len());
    assert_eq!(got, [wanted]);
}

#[test]
fn smollm2_has_the_numbers_of_its_mlx_conversion() {
    let Some(model) = smollm2() else { return };
    let folder = support::repository().join(".deps/models/SmolLM2-135M-Instruct-4bit-mlx");
    if !folder.is_dir() {
        eprintln!("skipped: {} is not there", folder.display());
        return;
    }
    let other = Model::load(&folder).unwrap_or_else(|error| panic!("{error}"));
    let graphs = [&model, &other].map(|model| model.graph(&Default::default()).expect("a graph"));
    assert_eq!(graphs[0].nodes, graphs[1].nodes);
    let (one, two) = (model.weights(), other.weights());
    for (a, b) in graphs[0].weights.iter().zip(&graphs[1].weights) {
        let a = dequantize::<f32>(a, one.get(&a.name).expect("bytes")).expect("numbers");
        let numbers = dequantize::<f32>(b, two.get(&b.name).expect("bytes")).expect("numbers");
        assert!(a == numbers, "{}", b.name);
    }
    let text = other.text().unwrap_or_else(|error| panic!("{error}"));
    for prompt in support::smollm2_prompts() {
        assert_eq!(
            text.encode(&prompt.prompt, true).expect("tokens"),
            prompt.ids
        );
    }
}
