//! The configuration of a model: `config.json` in the spellings of transformers 4 and 5 and of MLX,
//! checked field by field and bounded before any of it is used as a size.
//!
//! [`Config`] holds what every model has. The rest is read by the model's family through a
//! [`Reader`].

pub(crate) mod fields;
mod quantization;
mod reader;
mod rope;
mod vendor;

pub use quantization::{Grouping, Method, Mode, Quantization};
pub(crate) use reader::Reader;
pub(crate) use rope::{Rope, yarn_scale};

use crate::LoadError;
use fields::Fields;
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

/// The names that one field has in the configurations of different families.
pub(crate) mod alias {
    pub(crate) const HIDDEN: &[&str] = &[
        "hidden_size",
        "n_embd",
        "n_embed",
        "d_model",
        "dim",
        "model_dim",
    ];
    pub(crate) const LAYERS: &[&str] = &["num_hidden_layers", "n_layer", "n_layers", "num_layers"];
    pub(crate) const HEADS: &[&str] = &["num_attention_heads", "n_head", "n_heads"];
    pub(crate) const CONTEXT: &[&str] = &[
        "max_position_embeddings",
        "n_positions",
        "n_ctx",
        "max_seq_len",
        "max_sequence_length",
        "seq_length",
        "context_length",
    ];
    pub(crate) const VOCABULARY: &[&str] = &["vocab_size"];
    pub(crate) const KV_HEADS: &[&str] = &["num_key_value_heads", "num_kv_heads", "n_head_kv"];
    /// Experts of a layer.
    pub(crate) const EXPERTS: &[&str] = &[
        "num_local_experts",
        "num_experts",
        "n_routed_experts",
        "moe_num_experts",
    ];
    /// Experts of a token.
    pub(crate) const CHOSEN: &[&str] = &[
        "num_experts_per_tok",
        "num_experts_per_token",
        "moe_k",
        "moe_top_k",
        "top_k_experts",
    ];
    /// Of norms.
    pub(crate) const EPSILON: &[&str] = &[
        "rms_norm_eps",
        "norm_epsilon",
        "layer_norm_epsilon",
        "layer_norm_eps",
        "norm_eps",
        "rms_norm_epsilon",
        "layernorm_epsilon",
        "block_norm_eps",
    ];
    pub(crate) const ACTIVATION: &[&str] = &[
        "hidden_activation",
        "hidden_act",
        "activation_function",
        "activation",
    ];
    /// How rotary embedding is stretched.
    pub(crate) const STRETCH: &[&str] = &["rope_parameters", "rope_scaling"];
    pub(crate) const ROPE_BASE: &[&str] = &["rope_theta", "rotary_emb_base"];
    /// The share of each head that turns.
    pub(crate) const TURNING: &[&str] = &["partial_rotary_factor", "rotary_pct", "rope_pct"];
    /// Experts that every token uses.
    pub(crate) const SHARED: &[&str] = &["n_shared_experts", "num_shared_experts"];
    pub(crate) const GROUPS: &[&str] = &["n_group", "num_expert_group"];
    /// Whether the weights of a token's experts add up to 1.
    pub(crate) const NORMALISED: &[&str] = &["norm_topk_prob", "moe_renormalize"];
    /// Of the convolutions of Mamba.
    pub(crate) const KERNEL: &[&str] = &["conv_kernel", "mamba_d_conv"];
    /// Whether the projections of Mamba have biases,
    pub(crate) const MAMBA_BIAS: &[&str] = &["use_bias", "mamba_proj_bias"];
    /// and its convolutions.
    pub(crate) const KERNEL_BIAS: &[&str] = &["use_conv_bias", "mamba_conv_bias"];
    /// Every field that has several names, for what fills in those that are left out.
    pub(crate) const ALL: &[&[&str]] = &[
        HIDDEN,
        LAYERS,
        HEADS,
        CONTEXT,
        KV_HEADS,
        EXPERTS,
        CHOSEN,
        EPSILON,
        ACTIVATION,
        STRETCH,
        ROPE_BASE,
        TURNING,
        SHARED,
        GROUPS,
        NORMALISED,
        KERNEL,
        MAMBA_BIAS,
        KERNEL_BIAS,
    ];
}

/// What every model's configuration says.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `model_type`, which chooses the family.
    pub model_type: String,
    /// Width of the hidden state (H).
    pub hidden: usize,
    /// Number of layers.
    pub layers: usize,
    /// Rows of the embedding (V), which may exceed the tokenizer's entries.
    pub vocabulary: usize,
    /// Positions the model was made for.
    pub context: usize,
    /// Whether the head is the embedding; `None` where the configuration does not say, in which case
    /// the tensors decide.
    pub tied: Option<bool>,
    /// How linear layers and embeddings are quantised.
    pub quantization: Option<Quantization>,
    /// Tokens that end a text.
    pub end_tokens: Vec<u32>,
}

/// Where a model of several parts has the configuration of its language model.
const INNER: [&str; 3] = ["text_config", "language_config", "llm_config"];

/// The name of the part of `value` that configures its language model, where it has parts.
fn inner(value: &Value) -> Option<&'static str> {
    let is_language =
        |inner: &Value| inner.get("model_type").is_some() || inner.get("hidden_size").is_some();
    INNER
        .into_iter()
        .find(|name| value.get(name).is_some_and(is_language))
}

/// The configuration of the language model within `value`, which for a model of several parts is
/// the object `text_config`, `language_config` or `llm_config`.
pub(crate) fn language(value: &Value) -> &Value {
    inner(value)
        .and_then(|name| value.get(name))
        .unwrap_or(value)
}

/// The same, to be changed.
pub(crate) fn language_mut(value: &mut Value) -> &mut Value {
    match inner(value) {
        Some(name) => &mut value[name],
        None => value,
    }
}

impl Config {
    /// Reads the configuration `value` of `file`.
    ///
    /// # Errors
    /// The first field that is missing, of the wrong kind, out of bounds or unsupported.
    pub fn parse(file: &Path, value: &Value) -> Result<Self, LoadError> {
        let outer = Fields::root(file, value)?;
        let fields = Fields::root(file, language(value))?;
        let width = 1..=limit::WIDTH;
        let model_type = fields
            .text("model_type")?
            .or(outer.text("model_type")?)
            .ok_or_else(|| fields.missing("model_type"))?
            .to_string();
        let end = match token_ids(&fields, "eos_token_id")? {
            found if found.is_empty() => token_ids(&outer, "eos_token_id")?,
            found => found,
        };
        Ok(Self {
            model_type,
            hidden: fields.required(fields.any(alias::HIDDEN), width.clone())?,
            layers: match listed_layers(&fields) {
                Some(listed) if fields.get(fields.any(alias::LAYERS)).is_none() => listed,
                _ => fields.required(fields.any(alias::LAYERS), 1..=limit::LAYERS)?,
            },
            vocabulary: fields.required(fields.any(alias::VOCABULARY), width)?,
            context: fields
                .size(fields.any(alias::CONTEXT), 1..=limit::CONTEXT)?
                .unwrap_or(2048),
            tied: match fields.flag("tie_word_embeddings")? {
                Some(tied) => Some(tied),
                None => outer.flag("tie_word_embeddings")?,
            },
            quantization: match Quantization::parse(&fields)? {
                Some(found) => Some(found),
                None => Quantization::parse(&outer)?,
            },
            end_tokens: end,
        })
    }
}

/// The number of layers of a configuration that only lists what each of them is.
fn listed_layers(fields: &Fields<'_>) -> Option<usize> {
    let words = ["layers_block_type", "layer_types"].into_iter();
    let listed = words.filter_map(|name| fields.get(name)?.as_array().map(Vec::len));
    let letters = fields
        .get("hybrid_override_pattern")
        .and_then(Value::as_str);
    let listed = listed.chain(letters.map(|letters| letters.chars().count()));
    listed
        .into_iter()
        .find(|&count| (1..=limit::LAYERS).contains(&count))
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
