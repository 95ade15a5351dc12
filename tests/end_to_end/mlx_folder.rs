//! SmolLM2 as a folder in MLX's quantised format, written from the weights of its GGUF file and its published sizes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use half::f16;
use mlxcel_frontend::{GraphOptions, Model};
use mlxcel_ir::{DType, WeightDecl, WeightFormat};
use serde_json::{Map, Value, json};

/// A tensor of the file: element type and shape, and the bytes.
type Tensor<'a> = (Value, Cow<'a, [u8]>);

/// Writes `model` into `folder`: configuration, weights as they are stored, tokenizer and template.
pub(crate) fn write(model: &Model, folder: &Path) {
    let graph = model
        .graph(&GraphOptions::default())
        .expect("the model has a graph");
    let weights = model.weights();
    let mut tensors = BTreeMap::new();
    for declaration in &graph.weights {
        let data = weights
            .get(&declaration.name)
            .expect("a declared weight is there");
        tensors.extend(parts(declaration, [data.values, data.scales, data.biases]));
    }
    write_tensors(&tensors, &folder.join("model.safetensors"));
    let config = config(model, &graph.weights);
    fs::write(folder.join("config.json"), format!("{config:#}")).expect("a file can be written");
    for (name, bytes) in model.text().expect("the model has a tokenizer").files() {
        fs::write(folder.join(name), bytes).expect("a file can be written");
    }
}

/// The name of the module that a weight belongs to.
fn module(declaration: &WeightDecl) -> &str {
    let name = declaration.name.as_str();
    name.strip_suffix(".weight").unwrap_or(name)
}

/// The tensors that MLX stores a weight as.
fn parts<'a>(declaration: &WeightDecl, data: [&'a [u8]; 3]) -> Vec<(String, Tensor<'a>)> {
    let (outer, width) = match declaration.shape.as_slice() {
        [outer @ .., width] => (outer, *width),
        [] => panic!("{} is a scalar", declaration.name),
    };
    let shape = |width: usize| [outer, &[width]].concat();
    let named = |name: String, dtype: &str, shape: Vec<usize>, bytes: Cow<'a, [u8]>| {
        (name, (json!({"dtype": dtype, "shape": shape}), bytes))
    };
    let [values, scales, biases] = data.map(Cow::Borrowed);
    match declaration.format {
        WeightFormat::Dense(dtype) => {
            vec![named(
                declaration.name.clone(),
                name_of(dtype),
                shape(width),
                values,
            )]
        }
        WeightFormat::Affine { bits, group, scale }
        | WeightFormat::ZeroPoint {
            bits, group, scale, ..
        } => {
            let biases = match declaration.format {
                WeightFormat::ZeroPoint { zero, .. } => {
                    assert_eq!(scale, DType::F16, "{}", declaration.name);
                    Cow::Owned(below_zero(&scales, zero))
                }
                _ => biases,
            };
            let module = module(declaration);
            let groups = shape(width / group);
            let words = shape(width * usize::from(bits) / 32);
            vec![
                named(declaration.name.clone(), "U32", words, values),
                named(
                    format!("{module}.scales"),
                    name_of(scale),
                    groups.clone(),
                    scales,
                ),
                named(format!("{module}.biases"), name_of(scale), groups, biases),
            ]
        }
        format => panic!("{} is {format}", declaration.name),
    }
}

/// The biases that make the number of code `zero` 0, of scales in f16.
fn below_zero(scales: &[u8], zero: u8) -> Vec<u8> {
    let bias = |scale: &[u8]| {
        let scale = f16::from_le_bytes([scale[0], scale[1]]).to_f32();
        f16::from_f32(-f32::from(zero) * scale).to_le_bytes()
    };
    scales.chunks_exact(2).flat_map(bias).collect()
}

fn name_of(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "F32",
        DType::F16 => "F16",
        DType::BF16 => "BF16",
        other => panic!("no weight has the type {other}"),
    }
}

/// Writes a safetensors file: the header's length, the header, the tensors.
fn write_tensors(tensors: &BTreeMap<String, Tensor<'_>>, path: &Path) {
    let mut header = Map::new();
    let mut begin = 0;
    for (name, (description, bytes)) in tensors {
        let end = begin + bytes.len();
        let mut description = description.clone();
        description["data_offsets"] = json!([begin, end]);
        header.insert(name.clone(), description);
        begin = end;
    }
    header.insert("__metadata__".into(), json!({"format": "mlx"}));
    let mut header = Value::from(header).to_string();
    // Tensors begin at a multiple of 8 bytes.
    header.extend(std::iter::repeat_n(
        ' ',
        header.len().next_multiple_of(8) - header.len(),
    ));
    let mut file = BufWriter::new(File::create(path).expect("a file can be made"));
    let mut put = |bytes: &[u8]| file.write_all(bytes).expect("a file can be written");
    put(&(header.len() as u64).to_le_bytes());
    put(header.as_bytes());
    tensors.values().for_each(|(_, bytes)| put(bytes));
    file.flush().expect("a file can be written");
}

/// The configuration in Hugging Face's spelling, with MLX's description of the quantisation: what most weights have,
/// and the modules that differ.
fn config(model: &Model, weights: &[WeightDecl]) -> Value {
    let config = model.config();
    let modules: Vec<(&str, Value)> = weights
        .iter()
        .filter_map(|weight| match weight.format {
            WeightFormat::Affine { bits, group, .. }
            | WeightFormat::ZeroPoint { bits, group, .. } => {
                Some((module(weight), json!({"group_size": group, "bits": bits})))
            }
            _ => None,
        })
        .collect();
    let count = |format: &Value| modules.iter().filter(|(_, other)| other == format).count();
    let formats = modules.iter().map(|(_, format)| format);
    let mut quantization = formats
        .max_by_key(|format| count(format))
        .cloned()
        .unwrap_or_default();
    for (module, format) in &modules {
        let common = ["group_size", "bits"]
            .iter()
            .all(|key| format[key] == quantization[key]);
        if !common {
            quantization[module] = format.clone();
        }
    }
    json!({
        "model_type": config.model_type,
        "hidden_size": config.hidden,
        "intermediate_size": 1536,
        "num_hidden_layers": config.layers,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "max_position_embeddings": config.context,
        "rms_norm_eps": 1e-5,
        "rope_theta": 100_000.0,
        "vocab_size": config.vocabulary,
        "tie_word_embeddings": !weights.iter().any(|weight| weight.name.starts_with("lm_head.")),
        "hidden_act": "silu",
        "eos_token_id": config.end_tokens,
        "quantization": quantization,
    })
}
