//! GGUF files give the numbers of the checkpoints that they were made from.

mod common;
#[path = "common/gguf.rs"]
mod writer;

use common::{Run, relative_error};
use half::{bf16, f16};
use mlxcel_frontend::{Message, Model, read_tensors};
use mlxcel_ir::weight::dequantize;
use mlxcel_ir::{HostTensor, step};
use mlxcel_test_support as support;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use writer::Writer;

/// What the writers of GGUF files make of a checkpoint of some architecture.
#[derive(Default)]
struct Conversion {
    /// Whether neighbouring rows of queries and keys turn together.
    paired: bool,
    /// Whether the weights of norms grow by 1.
    about_one: bool,
    /// Parts of names that change before those of all architectures do.
    names: &'static [(&'static str, &'static str)],
    /// Fields of the configuration that become metadata.
    metadata: &'static [(&'static str, &'static str)],
}

/// Parts of names that change in all architectures.
const NAMES: &[(&str, &str)] = &[
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
/// Fields of configurations that become metadata in all architectures.
const METADATA: &[(&str, &str)] = &[
    ("hidden_size", "embedding_length"),
    ("intermediate_size", "feed_forward_length"),
    ("num_hidden_layers", "block_count"),
    ("num_attention_heads", "attention.head_count"),
    ("num_key_value_heads", "attention.head_count_kv"),
    ("head_dim", "attention.key_length"),
    ("max_position_embeddings", "context_length"),
    ("rms_norm_eps", "attention.layer_norm_rms_epsilon"),
    ("layer_norm_eps", "attention.layer_norm_epsilon"),
    ("norm_eps", "attention.layer_norm_epsilon"),
    ("norm_epsilon", "attention.layer_norm_epsilon"),
    ("num_local_experts", "expert_count"),
    ("num_experts", "expert_count"),
    ("num_experts_per_tok", "expert_used_count"),
    ("moe_intermediate_size", "expert_feed_forward_length"),
    (
        "shared_expert_intermediate_size",
        "expert_shared_feed_forward_length",
    ),
    ("sliding_window", "attention.sliding_window"),
];
const SANDWICH: &[(&str, &str)] = &[
    ("post_attention_layernorm", "post_attention_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
];
const EXPERTS: &[(&str, &str)] = &[
    ("mlp.gate.", "ffn_gate_inp."),
    ("mlp.experts.gate_proj", "ffn_gate_exps"),
    ("mlp.experts.up_proj", "ffn_up_exps"),
    ("mlp.experts.down_proj", "ffn_down_exps"),
];

/// Every how manyth layer of the goldens has no window, where files say so.
const PERIOD: &[(&str, usize)] = &[("exaone4", 2), ("gemma3", 4)];

fn conversion(architecture: &str) -> Conversion {
    let plain = Conversion::default();
    match architecture {
        "arcee" | "smollm3" => Conversion {
            paired: true,
            ..plain
        },
        "internlm2" => Conversion {
            paired: true,
            names: &[
                ("model.tok_embeddings", "token_embd"),
                ("output.", "output."),
                ("attention_norm", "attn_norm"),
                ("attention.wo", "attn_output"),
                ("feed_forward.w1", "ffn_gate"),
                ("feed_forward.w2", "ffn_down"),
                ("feed_forward.w3", "ffn_up"),
            ],
            ..plain
        },
        "cohere2" | "command-r" => Conversion {
            metadata: &[("logit_scale", "logit_scale")],
            ..plain
        },
        "exaone4" | "olmo2" => Conversion {
            names: SANDWICH,
            ..plain
        },
        "gemma" | "nemotron" => Conversion {
            about_one: true,
            ..plain
        },
        "gemma2" | "gemma3" => Conversion {
            about_one: true,
            names: SANDWICH,
            metadata: &[
                ("attn_logit_softcapping", "attn_logit_softcapping"),
                ("final_logit_softcapping", "final_logit_softcapping"),
            ],
            ..plain
        },
        "glm4" => Conversion {
            names: &[
                ("post_self_attn_layernorm", "post_attention_norm"),
                ("post_mlp_layernorm", "post_ffw_norm"),
                ("mlp.gate_up_proj", "ffn_up"),
            ],
            ..plain
        },
        "granite" => Conversion {
            paired: true,
            metadata: &[
                ("attention_multiplier", "attention.scale"),
                ("embedding_multiplier", "embedding_scale"),
                ("residual_multiplier", "residual_scale"),
                ("logits_scaling", "logit_scale"),
            ],
            ..plain
        },
        "hunyuan-dense" => Conversion {
            names: &[("query_layernorm", "q_norm"), ("key_layernorm", "k_norm")],
            ..plain
        },
        "llama" => Conversion {
            paired: true,
            names: &[
                ("block_sparse_moe.gate.", "ffn_gate_inp."),
                ("block_sparse_moe.experts.w1", "ffn_gate_exps"),
                ("block_sparse_moe.experts.w2", "ffn_down_exps"),
                ("block_sparse_moe.experts.w3", "ffn_up_exps"),
            ],
            ..plain
        },
        "olmo" => Conversion {
            paired: true,
            metadata: &[("clip_qkv", "attention.clamp_kqv")],
            ..plain
        },
        "phi3" => Conversion {
            names: &[("mlp.gate_up_proj", "ffn_up")],
            ..plain
        },
        "qwen2moe" => Conversion {
            names: &[
                ("mlp.gate.", "ffn_gate_inp."),
                ("mlp.experts.gate_proj", "ffn_gate_exps"),
                ("mlp.experts.up_proj", "ffn_up_exps"),
                ("mlp.experts.down_proj", "ffn_down_exps"),
                ("mlp.shared_expert_gate", "ffn_gate_inp_shexp"),
                ("mlp.shared_expert.gate_proj", "ffn_gate_shexp"),
                ("mlp.shared_expert.up_proj", "ffn_up_shexp"),
                ("mlp.shared_expert.down_proj", "ffn_down_shexp"),
            ],
            ..plain
        },
        "qwen3moe" | "olmoe" => Conversion {
            names: EXPERTS,
            ..plain
        },
        "seed_oss" => Conversion {
            names: &[("post_attention_layernorm", "post_attention_norm")],
            ..plain
        },
        "starcoder2" => Conversion {
            names: &[("mlp.c_fc", "ffn_up"), ("mlp.c_proj", "ffn_down")],
            ..plain
        },
        _ => plain,
    }
}

/// `P.experts.N.S` as `P.experts.S` and N.
fn expert(name: &str) -> Option<(String, usize)> {
    let (before, after) = name.split_once(".experts.")?;
    let (number, rest) = after.split_once('.')?;
    Some((format!("{before}.experts.{rest}"), number.parse().ok()?))
}

/// Tensors by name: dimensions and numbers.
type Numbers = BTreeMap<String, (Vec<usize>, Vec<f64>)>;

/// `tensors` with InternLM's joined layers taken apart, which hold, for each head of keys, its `queries`
/// heads of queries, the keys and the values, `width` rows each.
fn split(tensors: Numbers, [queries, width]: [usize; 2]) -> Numbers {
    let mut all = BTreeMap::new();
    for (name, (shape, numbers)) in tensors {
        let Some(layer) = name.strip_suffix("attention.wqkv.weight") else {
            all.insert(name, (shape, numbers));
            continue;
        };
        let head = width * shape[1];
        let groups = numbers.chunks((queries + 2) * head);
        for (part, range) in [
            ("q", 0..queries),
            ("k", queries..queries + 1),
            ("v", queries + 1..queries + 2),
        ] {
            let rows = groups
                .clone()
                .flat_map(|group| &group[range.start * head..range.end * head]);
            let rows: Vec<f64> = rows.copied().collect();
            let name = format!("{layer}self_attn.{part}_proj.weight");
            all.insert(name, (vec![rows.len() / shape[1], shape[1]], rows));
        }
    }
    all
}

/// Tensors with the experts of a layer as one, in order.
fn stacked(tensors: BTreeMap<String, HostTensor>) -> Numbers {
    let mut all = BTreeMap::new();
    let mut experts: BTreeMap<String, BTreeMap<usize, HostTensor>> = BTreeMap::new();
    for (name, tensor) in tensors {
        match expert(&name) {
            Some((name, number)) => drop(experts.entry(name).or_default().insert(number, tensor)),
            None => drop(all.insert(name, (tensor.shape.clone(), tensor.to_f64()))),
        }
    }
    for (name, experts) in experts {
        let mut shape = vec![experts.len()];
        shape.extend(&experts[&0].shape);
        let numbers = experts.values().flat_map(HostTensor::to_f64).collect();
        all.insert(name, (shape, numbers));
    }
    all
}

/// The checkpoint in `folder` as a GGUF file of `architecture` with dense matrices of `kind` (0 F32,
/// 1 F16, 30 BF16).
fn convert(folder: &Path, architecture: &str, kind: u32) -> Writer {
    let config = std::fs::read(folder.join("config.json")).expect("a configuration");
    let config: Value = serde_json::from_slice(&config).expect("JSON");
    let rule = conversion(architecture);
    let mut writer = Writer::default().text("general.architecture", architecture);
    for (field, name) in METADATA.iter().chain(rule.metadata) {
        let key = format!("{architecture}.{name}");
        match &config[field] {
            Value::Number(number) if number.is_u64() => {
                writer = writer.size(&key, number.as_u64().unwrap_or(0) as usize);
            }
            Value::Number(number) => {
                writer = writer.number(&key, number.as_f64().unwrap_or(0.0) as f32);
            }
            _ => {}
        }
    }
    for (known, period) in PERIOD {
        if *known == architecture {
            let key = format!("{architecture}.attention.sliding_window_pattern");
            writer = writer.size(&key, *period);
        }
    }
    let size = |name: &str| config[name].as_u64().map(|size| size as usize);
    let heads = size("num_attention_heads").expect("heads");
    let width = size("head_dim").unwrap_or(size("hidden_size").expect("a width") / heads);
    let rope = match &config["rope_parameters"] {
        Value::Null => &config,
        rope => rope,
    };
    let full = match &rope["full_attention"] {
        Value::Null => rope,
        full => full,
    };
    let base = full["rope_theta"].as_f64().expect("a base");
    let share = full["partial_rotary_factor"].as_f64().unwrap_or(1.0);
    writer = writer
        .number(&format!("{architecture}.rope.freq_base"), base as f32)
        .size(
            &format!("{architecture}.rope.dimension_count"),
            (width as f64 * share) as usize,
        );
    if full["rope_type"] == "yarn" {
        let key = |name: &str| format!("{architecture}.rope.scaling.{name}");
        let original = full["original_max_position_embeddings"].as_u64();
        writer = writer
            .text(&key("type"), "yarn")
            .number(
                &key("factor"),
                full["factor"].as_f64().unwrap_or(1.0) as f32,
            )
            .size(
                &key("original_context_length"),
                original.unwrap_or(0) as usize,
            );
    }
    if architecture == "olmo" {
        // No configuration names it.
        writer = writer.number("olmo.attention.layer_norm_epsilon", 1e-5);
    }
    let tensors = read_tensors(&folder.join("model.safetensors")).expect("tensors");
    let kv_heads = size("num_key_value_heads").unwrap_or(heads);
    let tensors = split(stacked(tensors), [heads / kv_heads, width]);
    for (name, (mut shape, mut numbers)) in tensors {
        let names = rule.names.iter().chain(NAMES);
        let short = names.fold(name.clone(), |name, (from, to)| name.replace(from, to));
        if rule.paired && (name.contains("q_proj") || name.contains("k_proj")) {
            let row = numbers.len() / shape[0];
            let rows: Vec<&[f64]> = numbers.chunks(row).collect();
            let mut paired = Vec::new();
            for head in rows.chunks(width) {
                for pair in 0..width / 2 {
                    paired.extend_from_slice(head[pair]);
                    paired.extend_from_slice(head[width / 2 + pair]);
                }
            }
            numbers = paired;
        }
        if rule.about_one && name.ends_with("norm.weight") {
            numbers.iter_mut().for_each(|number| *number += 1.0);
        }
        if name.ends_with("shared_expert_gate.weight") {
            shape.remove(0);
        }
        let kind = if shape.len() == 1 { 0 } else { kind };
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
        writer = writer.tensor(&short, &shape, kind, bytes);
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
    let check = |folder: PathBuf, architecture: &str, kind: u32, budget: f64| {
        let other = tempfile::tempdir().expect("a folder");
        let file = write(other.path(), convert(&folder, architecture, kind));
        let model = Model::load(&file).unwrap_or_else(|error| panic!("{error}"));
        let expected = folder.join("expected.safetensors");
        let expected = read_tensors(&expected).expect("recorded values");
        for length in ["p9", "p45"] {
            let prompt = expected[&format!("{length}.input_ids")].to_f64();
            let prompt: Vec<i32> = prompt.into_iter().map(|id| id as i32).collect();
            let got = Run::new(&model, 1, 64).step(&[prompt], &[0]);
            let logits = expected[&format!("{length}.logits")].to_f64();
            let error = relative_error(&got[step::LOGITS], &logits);
            assert!(
                error <= budget,
                "{architecture}, type {kind}, {length}: {error:.3e}"
            );
        }
    };
    let golden = |architecture: &str, name: &str| {
        check(support::golden(name), architecture, 0, 1e-5);
    };
    golden("cohere2", "cohere2");
    golden("ernie4_5", "ernie4_5");
    golden("gemma2", "gemma2");
    golden("gemma3", "gemma3_text");
    golden("granite", "granite");
    golden("hunyuan-dense", "hunyuan_v1_dense");
    golden("llama", "llama");
    golden("llama", "mixtral");
    golden("nemotron", "nemotron");
    golden("olmo2", "olmo2");
    golden("phi3", "phi3");
    golden("qwen2", "qwen2");
    golden("qwen3", "qwen3");
    golden("qwen3moe", "qwen3_moe");
    golden("smollm3", "smollm3");
    check(support::families().join("gemma"), "gemma", 0, 1e-5);
    check(
        support::families().join("starcoder2"),
        "starcoder2",
        0,
        1e-5,
    );
    // Of these there are only the logits of two places.
    let recorded = |architecture: &str, name: &str| {
        let all = support::recorded_cases();
        let case = all.iter().find(|case| case.name == name);
        let case = case.unwrap_or_else(|| panic!("no record of {name}"));
        let folder = tempfile::tempdir().expect("a folder");
        case.write(folder.path());
        let file = write(folder.path(), convert(folder.path(), architecture, 0));
        let model = Model::load(&file).unwrap_or_else(|error| panic!("{error}"));
        let prompt = case.ids.iter().map(|&id| id as i32).collect();
        let got = Run::new(&model, 1, 64).step(&[prompt], &[0]);
        let vocabulary = model.config().vocabulary;
        let rows = case.rows();
        let rows = rows.map(|row| &got[step::LOGITS][row * vocabulary..(row + 1) * vocabulary]);
        let expected: Vec<f64> = case.logits.iter().map(|&logit| logit.into()).collect();
        let error = relative_error(&rows.concat(), &expected);
        assert!(error <= 1e-5, "{architecture}: {error:.3e}");
    };
    recorded("arcee", "arcee");
    recorded("command-r", "cohere");
    recorded("exaone4", "exaone4");
    recorded("glm4", "glm4");
    recorded("internlm2", "internlm2");
    recorded("olmo", "olmo");
    recorded("olmoe", "olmoe");
    recorded("qwen2moe", "qwen2_moe");
    recorded("seed_oss", "seed_oss");
    // The goldens' numbers are bfloat16 numbers; float16 loses the smallest of them.
    check(support::golden("llama"), "llama", 30, 1e-5);
    check(support::golden("llama"), "llama", 1, 1e-3);
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
    let good = || convert(&support::golden("llama"), "llama", 0);
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
        Writer::default()
            .text("general.architecture", "qwen2")
            .size("qwen2.expert_count", 8),
        &["qwen2.expert_count", "experts"],
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
        good().text("llama.rope.scaling.type", "longrope"),
        &["llama.rope.scaling.type", "longrope"],
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
    let good = convert(&support::golden("llama"), "llama", 0).finish();
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
