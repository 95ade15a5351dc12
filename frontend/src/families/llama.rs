//! Llama 1 to 3 and the many models published under its `model_type` (SmolLM, TinyLlama, Yi).

use super::decoder::{Decoder, Switch};
use super::{Family, Names};

pub(super) const FAMILY: Family = Family {
    model_type: "llama",
    gguf: "llama",
    gguf_paired: true,
    names: Names::MODEL,
    decoder: Decoder {
        qk_norm: false,
        qkv_bias: Switch::AttentionBias,
        output_bias: Switch::AttentionBias,
        mlp_bias: Switch::MlpBias,
        windows: false,
    },
};
