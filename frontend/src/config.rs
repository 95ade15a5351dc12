//! The configuration of a model: `config.json` in the spellings of transformers 4 and 5 and of MLX,
//! checked field by field and bounded before any of it is used as a size.

pub(crate) mod fields;
mod quantization;
mod rope;

pub use quantization::{Grouping, Method, Mode, Quantization};
pub use rope::RopeConfig;

use crate::LoadError;
use fields::Fields;
use mlxcel_ir::Activation;
use serde_json::Value;
use std::path::Path;

/// Upper bounds of sizes, far above any published model and low enough that products of two of them
/// fit 64 bits.
pub(crate) mod limit {
    /// Widths and counts of features.
    pub(crate) const WIDTH: usize = 1 << 24;
    /// Layers.
    pub(crate) const LAYERS: usize = 4096;
    /// Attention heads.
    pub(crate) const HEADS: usize = 1 << 14;
    /// Positions.
    pub(crate) const CONTEXT: usize = 1 << 30;
}

/// What every decoder's configuration says.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `model_type`, which chooses the family.
    pub model_type: String,
    /// Width of the hidden state (H).
    pub hidden: usize,
    /// Width inside the feed-forward part.
    pub intermediate: usize,
    /// Number of layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key-value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head; even.
    pub head_dim: usize,
    /// Rows of the embedding (V), which may exceed the tokenizer's entries.
    pub vocabulary: usize,
    /// Positions the model was made for.
    pub context: usize,
    /// Added to the mean square in norms.
    pub epsilon: f64,
    /// The nonlinearity of the feed-forward part.
    pub activation: Activation,
    /// Rotary embedding.
    pub rope: RopeConfig,
    /// Whether the head is the embedding; `None` where the configuration does not say, in which case
    /// the tensors decide.
    pub tied: Option<bool>,
    /// Whether the projections of attention have biases.
    pub attention_bias: bool,
    /// Whether the projections of the feed-forward part have biases.
    pub mlp_bias: bool,
    /// The sliding window of each layer that has one; empty where no layer has.
    pub windows: Vec<Option<usize>>,
    /// How linear layers and embeddings are quantised.
    pub quantization: Option<Quantization>,
    /// Tokens that end a text.
    pub end_tokens: Vec<u32>,
}

impl Config {
    /// Reads the configuration `value` of `file`.
    ///
    /// # Errors
    /// The first field that is missing, of the wrong kind, out of bounds or unsupported.
    pub fn parse(file: &Path, value: &Value) -> Result<Self, LoadError> {
        let fields = Fields::root(file, value)?;
        let width = 1..=limit::WIDTH;
        let model_type = fields
            .text("model_type")?
            .ok_or_else(|| fields.missing("model_type"))?
            .to_string();
        let hidden = fields.required("hidden_size", width.clone())?;
        let layers = fields.required("num_hidden_layers", 1..=limit::LAYERS)?;
        let heads = fields.required("num_attention_heads", 1..=limit::HEADS)?;
        let kv_heads = fields
            .size("num_key_value_heads", 1..=limit::HEADS)?
            .unwrap_or(heads);
        if !heads.is_multiple_of(kv_heads) {
            let reason = format!("{kv_heads} does not divide num_attention_heads {heads}");
            return Err(fields.error("num_key_value_heads", reason));
        }
        let context = fields
            .size("max_position_embeddings", 1..=limit::CONTEXT)?
            .unwrap_or(2048);
        Ok(Self {
            model_type,
            hidden,
            intermediate: fields.required("intermediate_size", width.clone())?,
            layers,
            heads,
            kv_heads,
            head_dim: head_dim(&fields, hidden, heads)?,
            vocabulary: fields.required("vocab_size", width)?,
            context,
            epsilon: fields.positive("rms_norm_eps")?.unwrap_or(1e-6),
            activation: activation(&fields)?,
            rope: RopeConfig::parse(&fields, context)?,
            tied: fields.flag("tie_word_embeddings")?,
            attention_bias: fields.flag("attention_bias")?.unwrap_or(false),
            mlp_bias: fields.flag("mlp_bias")?.unwrap_or(false),
            windows: windows(&fields, layers)?,
            quantization: Quantization::parse(&fields)?,
            end_tokens: token_ids(&fields, "eos_token_id")?,
        })
    }
}

/// `head_dim` where given, else the hidden width shared among the heads.
fn head_dim(fields: &Fields<'_>, hidden: usize, heads: usize) -> Result<usize, LoadError> {
    let given = fields.size("head_dim", 1..=limit::HEADS)?;
    if given.is_none() && !hidden.is_multiple_of(heads) {
        let reason = format!("is missing, and {heads} heads do not divide hidden_size {hidden}");
        return Err(fields.error("head_dim", reason));
    }
    let head_dim = given.unwrap_or(hidden / heads);
    if !head_dim.is_multiple_of(2) {
        let reason = format!("must be even for rotary embedding, is {head_dim}");
        return Err(fields.error("head_dim", reason));
    }
    Ok(head_dim)
}

fn activation(fields: &Fields<'_>) -> Result<Activation, LoadError> {
    let field = ["hidden_act", "hidden_activation"]
        .into_iter()
        .find(|name| fields.get(name).is_some())
        .unwrap_or("hidden_act");
    match fields.text(field)?.unwrap_or("silu") {
        "silu" | "swish" => Ok(Activation::Silu),
        "gelu" => Ok(Activation::Gelu),
        "gelu_pytorch_tanh" | "gelu_new" | "gelu_fast" => Ok(Activation::GeluTanh),
        "relu" => Ok(Activation::Relu),
        other => Err(fields.error(
            field,
            format!(
                "`{other}` is not supported; supported are silu, gelu, gelu_pytorch_tanh, relu"
            ),
        )),
    }
}

/// The windows of layers, where the configuration switches them on.
///
/// `sliding_window` alone means nothing: Qwen publishes it with `use_sliding_window: false`, and the
/// layers that use it are named by `layer_types` (transformers 5) or `max_window_layers` (before).
fn windows(fields: &Fields<'_>, layers: usize) -> Result<Vec<Option<usize>>, LoadError> {
    if fields.flag("use_sliding_window")? != Some(true) {
        return Ok(Vec::new());
    }
    let Some(window) = fields.size("sliding_window", 1..=limit::CONTEXT)? else {
        return Ok(Vec::new());
    };
    let Some(types) = fields.get("layer_types") else {
        let first = fields.required("max_window_layers", 0..=limit::LAYERS)?;
        return Ok((0..layers)
            .map(|layer| (layer >= first).then_some(window))
            .collect());
    };
    let windows: Option<Vec<_>> = types.as_array().and_then(|types| {
        types
            .iter()
            .map(|kind| match kind.as_str() {
                Some("sliding_attention") => Some(Some(window)),
                Some("full_attention") => Some(None),
                _ => None,
            })
            .collect()
    });
    windows
        .filter(|windows| windows.len() == layers)
        .ok_or_else(|| {
            let what = format!("{layers} entries, each full_attention or sliding_attention");
            fields.expected("layer_types", &what, types)
        })
}

/// The token ids at `name`: one number, a list of them, or nothing.
pub(crate) fn token_ids(fields: &Fields<'_>, name: &str) -> Result<Vec<u32>, LoadError> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match fields.get(name) {
        None => Ok(Vec::new()),
        Some(value) => match value {
            Value::Array(items) => items.iter().map(id).collect::<Option<Vec<_>>>(),
            single => id(single).map(|id| vec![id]),
        }
        .ok_or_else(|| fields.expected(name, "a token id or a list of them", value)),
    }
}
