//! `bench load`: how long a large model takes to its first token, and what memory.
//!
//! The model is made here: a Llama of 8 billion random numbers in MLX's affine 4-bit format, 4.5 GB, with a tokenizer
//! of single bytes. What it says means nothing; how its weights are read does.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

use crate::mlxcel::{Backend, Program, Request};

const HIDDEN: usize = 4096;
const INTERMEDIATE: usize = 14336;
const KV: usize = 1024;
const VOCABULARY: usize = 128_256;
const GROUP: usize = 64;
/// Layers of the model that the goals are for.
pub(super) const LAYERS: usize = 32;

/// Memory that the program may take above the weights.
const MEMORY: u64 = 300_000_000;
/// Seconds that it may take to the first token, its start included.
const SECONDS: f64 = 2.0;

/// Makes the model of `layers` layers in `folder`, runs it, and prints what it took. The folder is left as it is.
pub(super) fn run(
    program: &Program,
    folder: &Path,
    layers: usize,
    rounds: usize,
    as_json: bool,
) -> Result<()> {
    eprintln!("writing the model to {}", folder.display());
    let bytes = write(folder, layers)?;
    let request = Request {
        model: folder,
        backend: Backend::Mlx,
        prompt: "a river",
        tokens: 1,
        raw: true,
    };
    // The first run reads the file, if the system has dropped it since it was written.
    program.generate(&request)?;
    let mut best: Option<(f64, f64, u64)> = None;
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        let start = Instant::now();
        let reply = program.generate(&request)?;
        let seconds = start.elapsed().as_secs_f64();
        if best.is_none_or(|(fastest, ..)| seconds < fastest) {
            best = Some((seconds, reply.time_to_first_token, reply.peak_memory));
        }
    }
    let Some((seconds, first, peak)) = best else {
        bail!("nothing was measured");
    };
    let above = peak.saturating_sub(bytes);
    if as_json {
        let figures = json!({
            "layers": layers,
            "weight_bytes": bytes,
            "seconds": seconds,
            "time_to_first_token": first,
            "peak_memory_bytes": peak,
            "bytes_above_weights": above,
        });
        println!("{figures:#}");
    } else {
        let verdict = |good: bool| if good { "reached" } else { "missed" };
        println!(
            "weights                     {:8.1} MB in {layers} layers",
            bytes as f64 / 1e6
        );
        println!(
            "start to end of a token     {seconds:8.2} s   (at most {SECONDS} s: {})",
            verdict(seconds <= SECONDS)
        );
        println!("first token, model loaded   {first:8.2} s");
        let most = MEMORY as f64 / 1e6;
        println!("peak memory                 {:8.1} MB", peak as f64 / 1e6);
        println!(
            "above the weights           {:8.1} MB  (at most {most} MB: {})",
            above as f64 / 1e6,
            verdict(above <= MEMORY)
        );
    }
    Ok(())
}

/// Writes the model; gives the bytes of its weights.
fn write(folder: &Path, layers: usize) -> Result<u64> {
    let tensors = tensors(layers);
    let mut header = Map::new();
    let mut end = 0;
    for tensor in &tensors {
        let start = end;
        end += tensor.bytes();
        let description =
            json!({"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [start, end]});
        header.insert(tensor.name.clone(), description);
    }
    let mut header = Value::from(header).to_string();
    while !header.len().is_multiple_of(8) {
        header.push(' ');
    }
    let path = folder.join("model.safetensors");
    let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    let mut file = BufWriter::with_capacity(1 << 20, file);
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header.as_bytes())?;
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for tensor in &tensors {
        tensor.write(&mut file, &mut random)?;
    }
    file.flush()
        .with_context(|| format!("cannot write {}", path.display()))?;
    let put = |name: &str, value: &Value| {
        let path = folder.join(name);
        std::fs::write(&path, value.to_string())
            .with_context(|| format!("cannot write {}", path.display()))
    };
    put("config.json", &config(layers))?;
    put("tokenizer.json", &tokenizer())?;
    Ok(end as u64)
}

fn config(layers: usize) -> Value {
    json!({
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": layers,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500_000.0,
        "tie_word_embeddings": false,
        "eos_token_id": VOCABULARY - 1,
        "quantization": {"bits": 4, "group_size": GROUP},
    })
}

/// A byte-level tokenizer without merges: each byte is a token, as GPT-2 spells bytes.
fn tokenizer() -> Value {
    let plain = |byte: u32| matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    let others = (0..256).filter(|byte| !plain(*byte)).enumerate();
    let spelled = (0..256)
        .filter(|byte| plain(*byte))
        .map(|byte| (byte, byte));
    let spelled = spelled.chain(others.map(|(index, byte)| (byte, 256 + index as u32)));
    let vocabulary: Map<String, Value> = spelled
        .filter_map(|(byte, spelling)| Some((char::from_u32(spelling)?.to_string(), json!(byte))))
        .collect();
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    json!({
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": bytes,
        "decoder": bytes,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    })
}

/// What a tensor is filled with.
#[derive(Clone, Copy)]
enum Content {
    Codes,
    /// The same number, as bf16, everywhere.
    Bf16(u16),
}

struct Tensor {
    name: String,
    dtype: &'static str,
    shape: Vec<usize>,
    content: Content,
}

impl Tensor {
    fn bytes(&self) -> usize {
        let size = if self.dtype == "U32" { 4 } else { 2 };
        self.shape.iter().product::<usize>() * size
    }

    fn write(&self, file: &mut impl Write, random: &mut Random) -> Result<()> {
        let mut left = self.bytes();
        let mut block = vec![0u8; 1 << 16];
        while left > 0 {
            let size = left.min(block.len());
            for chunk in block.chunks_exact_mut(8) {
                let word = match self.content {
                    Content::Codes => random.next(),
                    Content::Bf16(bits) => u64::from(bits) * 0x0001_0001_0001_0001,
                };
                chunk.copy_from_slice(&word.to_le_bytes());
            }
            file.write_all(&block[..size])?;
            left -= size;
        }
        Ok(())
    }
}

fn tensors(layers: usize) -> Vec<Tensor> {
    let mut tensors = Vec::new();
    // Numbers of mean 0: a scale of 2^-7 and 7.5 of it below.
    let (scale, bias, one) = (0x3C00, 0xBD70, 0x3F80);
    let matrix = |module: String, rows: usize, columns: usize| {
        let part = |end: &str, dtype, width, content| Tensor {
            name: format!("{module}.{end}"),
            dtype,
            shape: vec![rows, width],
            content,
        };
        [
            part("weight", "U32", columns / 8, Content::Codes),
            part("scales", "BF16", columns / GROUP, Content::Bf16(scale)),
            part("biases", "BF16", columns / GROUP, Content::Bf16(bias)),
        ]
    };
    let norm = |module: String| Tensor {
        name: format!("{module}.weight"),
        dtype: "BF16",
        shape: vec![HIDDEN],
        content: Content::Bf16(one),
    };
    tensors.extend(matrix("model.embed_tokens".into(), VOCABULARY, HIDDEN));
    for layer in 0..layers {
        let within = |part: &str| format!("model.layers.{layer}.{part}");
        tensors.push(norm(within("input_layernorm")));
        tensors.push(norm(within("post_attention_layernorm")));
        for (part, rows, columns) in [
            ("self_attn.q_proj", HIDDEN, HIDDEN),
            ("self_attn.k_proj", KV, HIDDEN),
            ("self_attn.v_proj", KV, HIDDEN),
            ("self_attn.o_proj", HIDDEN, HIDDEN),
            ("mlp.gate_proj", INTERMEDIATE, HIDDEN),
            ("mlp.up_proj", INTERMEDIATE, HIDDEN),
            ("mlp.down_proj", HIDDEN, INTERMEDIATE),
        ] {
            tensors.extend(matrix(within(part), rows, columns));
        }
    }
    tensors.push(norm("model.norm".into()));
    tensors.extend(matrix("lm_head".into(), VOCABULARY, HIDDEN));
    tensors
}

/// Marsaglia's xorshift (2003).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_of_eight_billion() {
        let bytes: usize = tensors(LAYERS).iter().map(Tensor::bytes).sum();
        assert!((4_500_000_000..4_550_000_000).contains(&bytes), "{bytes}");
    }

    #[test]
    fn every_byte_has_a_token() {
        let vocabulary = tokenizer()["model"]["vocab"].clone();
        assert_eq!(vocabulary.as_object().expect("an object").len(), 256);
        assert_eq!(vocabulary["Ġ"], 32);
    }
}
