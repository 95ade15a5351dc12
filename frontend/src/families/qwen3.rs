//! Qwen3, dense: a Llama with a norm on each head of queries and keys.

use super::decoder::{Decoder, Switch};
use super::{Family, Names};

pub(super) const FAMILY: Family = Family {
    model_type: "qwen3",
    gguf: "qwen3",
    gguf_paired: false,
    names: Names::MODEL,
    decoder: Decoder {
        qk_norm: true,
        qkv_bias: Switch::AttentionBias,
        output_bias: Switch::AttentionBias,
        mlp_bias: Switch::Never,
        windows: true,
    },
};
