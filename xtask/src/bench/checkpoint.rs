//! Checkpoints of random numbers in the shapes of models, with a tokenizer of single bytes. What they say means
//! nothing; how long it takes to read, compile and run them does.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

/// Width of a head.
const HEAD: usize = 128;
/// Numbers that share a scale.
const GROUP: usize = 64;

/// How large a model is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shape {
    pub(super) family: &'static str,
    pub(super) hidden: usize,
    pub(super) intermediate: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) vocabulary: usize,
    /// Whether the embedding is the head as well.
    pub(super) tied: bool,
    /// Whether the heads of queries and keys are normed.
    pub(super) head_norms: bool,
}

/// Llama 3.1 8B.
pub(super) const EIGHT_BILLION: Shape = Shape {
    family: "llama",
    hidden: 4096,
    intermediate: 14336,
    layers: 32,
    heads: 32,
    kv_heads: 8,
    vocabulary: 128_256,
    tied: false,
    head_norms: false,
};

/// Qwen3 0.6B.
pub(super) const SMALL: Shape = Shape {
    family: "qwen3",
    hidden: 1024,
    intermediate: 3072,
    layers: 28,
    heads: 16,
    kv_heads: 8,
    vocabulary: 151_936,
    tied: true,
    head_norms: true,
};

/// What matrices are stored as.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Form {
    /// Affine codes of 4 bits, as MLX has them.
    FourBits,
    Bf16,
}

/// Writes a model to `folder`; gives the bytes of its weights.
pub(super) fn write(folder: &Path, shape: &Shape, form: Form) -> Result<u64> {
    let tensors = tensors(shape, form);
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
    put("config.json", &config(shape, form))?;
    put("tokenizer.json", &tokenizer())?;
    Ok(end as u64)
}

fn config(shape: &Shape, form: Form) -> Value {
    let mut config = json!({
        "model_type": shape.family,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": HEAD,
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500_000.0,
        "tie_word_embeddings": shape.tied,
        "eos_token_id": shape.vocabulary - 1,
    });
    if form == Form::FourBits {
        config["quantization"] = json!({"bits": 4, "group_size": GROUP});
    }
    config
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
    /// Random bits.
    Codes,
    /// Random bf16 of either sign, from 2^-8 to 2^-7.
    Noise,
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
                    Content::Noise => random.next() & 0x807F_807F_807F_807F | 0x3B80_3B80_3B80_3B80,
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

fn tensors(shape: &Shape, form: Form) -> Vec<Tensor> {
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
        match form {
            Form::Bf16 => vec![part("weight", "BF16", columns, Content::Noise)],
            Form::FourBits => vec![
                part("weight", "U32", columns / 8, Content::Codes),
                part("scales", "BF16", columns / GROUP, Content::Bf16(scale)),
                part("biases", "BF16", columns / GROUP, Content::Bf16(bias)),
            ],
        }
    };
    let norm = |module: String, width: usize| Tensor {
        name: format!("{module}.weight"),
        dtype: "BF16",
        shape: vec![width],
        content: Content::Bf16(one),
    };
    let Shape {
        hidden,
        intermediate,
        vocabulary,
        ..
    } = *shape;
    let (heads, kv) = (shape.heads * HEAD, shape.kv_heads * HEAD);
    tensors.extend(matrix("model.embed_tokens".into(), vocabulary, hidden));
    for layer in 0..shape.layers {
        let within = |part: &str| format!("model.layers.{layer}.{part}");
        tensors.push(norm(within("input_layernorm"), hidden));
        tensors.push(norm(within("post_attention_layernorm"), hidden));
        if shape.head_norms {
            tensors.push(norm(within("self_attn.q_norm"), HEAD));
            tensors.push(norm(within("self_attn.k_norm"), HEAD));
        }
        for (part, rows, columns) in [
            ("self_attn.q_proj", heads, hidden),
            ("self_attn.k_proj", kv, hidden),
            ("self_attn.v_proj", kv, hidden),
            ("self_attn.o_proj", hidden, heads),
            ("mlp.gate_proj", intermediate, hidden),
            ("mlp.up_proj", intermediate, hidden),
            ("mlp.down_proj", hidden, intermediate),
        ] {
            tensors.extend(matrix(within(part), rows, columns));
        }
    }
    tensors.push(norm("model.norm".into(), hidden));
    if !shape.tied {
        tensors.extend(matrix("lm_head".into(), vocabulary, hidden));
    }
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
    fn models_have_their_sizes() {
        let check = |shape: &Shape, form: Form, expect: std::ops::Range<usize>| {
            let bytes: usize = tensors(shape, form).iter().map(Tensor::bytes).sum();
            assert!(expect.contains(&bytes), "{shape:?} {form:?}: {bytes}");
        };
        check(&EIGHT_BILLION, Form::FourBits, 4_500_000_000..4_550_000_000);
        check(&SMALL, Form::FourBits, 330_000_000..340_000_000);
        check(&SMALL, Form::Bf16, 1_190_000_000..1_195_000_000);
    }

    #[test]
    fn every_byte_has_a_token() {
        let vocabulary = tokenizer()["model"]["vocab"].clone();
        assert_eq!(vocabulary.as_object().expect("an object").len(), 256);
        assert_eq!(vocabulary["\u{120}"], 32);
    }
}
