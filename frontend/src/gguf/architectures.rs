//! The architectures of GGUF files: which family's graph each is, and in what its files differ from
//! those of Llama.

/// An architecture, as the writers of such files treat it.
#[derive(Debug)]
pub(crate) struct Architecture {
    /// The value of `general.architecture`.
    pub(crate) name: &'static str,
    /// The `model_type` of the family that it is read as;
    pub(crate) family: &'static str,
    /// the one of files that have experts, where those are read.
    pub(crate) sparse: Option<&'static str>,
    /// Whether a file holds the rows of queries and keys paired for rotary embedding.
    pub(crate) paired: bool,
    /// Whether a file has 1 added to the weights of norms.
    pub(crate) about_one: bool,
    /// Parts of a layer that have other names in the checkpoint than [`super::names`] says.
    pub(crate) names: &'static [(&'static str, &'static str)],
    /// Metadata and the fields of a configuration that they are.
    pub(crate) fields: &'static [(&'static str, &'static str)],
    /// Fields that the architecture implies, as JSON.
    pub(crate) implied: &'static str,
}

/// One whose files differ from those of Llama in nothing but that rows are not paired.
const PLAIN: Architecture = Architecture {
    name: "",
    family: "",
    sparse: None,
    paired: false,
    about_one: false,
    names: &[],
    fields: &[],
    implied: "{}",
};

/// Experts under `mlp`.
const EXPERTS: &[(&str, &str)] = &[
    ("ffn_gate_inp", "mlp.gate"),
    ("ffn_gate_exps", "mlp.experts.gate_proj"),
    ("ffn_up_exps", "mlp.experts.up_proj"),
    ("ffn_down_exps", "mlp.experts.down_proj"),
    ("ffn_gate_inp_shexp", "mlp.shared_expert_gate"),
    ("ffn_gate_shexp", "mlp.shared_expert.gate_proj"),
    ("ffn_up_shexp", "mlp.shared_expert.up_proj"),
    ("ffn_down_shexp", "mlp.shared_expert.down_proj"),
];

/// Norms on both sides of each part.
const SANDWICH: &[(&str, &str)] = &[
    ("post_attention_norm", "post_attention_layernorm"),
    ("ffn_norm", "pre_feedforward_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];

/// Norms after each part.
const AFTER: &[(&str, &str)] = &[
    ("post_attention_norm", "post_attention_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];

const WINDOW: (&str, &str) = ("attention.sliding_window", "sliding_window");
/// Every how manyth layer has none.
const PERIOD: (&str, &str) = ("attention.sliding_window_pattern", "sliding_window_pattern");

const GRANITE: &[(&str, &str)] = &[
    ("attention.scale", "attention_multiplier"),
    ("embedding_scale", "embedding_multiplier"),
    ("residual_scale", "residual_multiplier"),
    ("logit_scale", "logits_scaling"),
];

/// Every architecture that is read, in alphabetical order.
pub(crate) const ARCHITECTURES: &[Architecture] = &[
    Architecture {
        name: "arcee",
        family: "arcee",
        paired: true,
        ..PLAIN
    },
    Architecture {
        name: "cohere2",
        family: "cohere2",
        fields: &[WINDOW, PERIOD, ("logit_scale", "logit_scale")],
        ..PLAIN
    },
    Architecture {
        name: "command-r",
        family: "cohere",
        fields: &[("logit_scale", "logit_scale")],
        ..PLAIN
    },
    Architecture {
        name: "ernie4_5",
        family: "ernie4_5",
        ..PLAIN
    },
    Architecture {
        name: "exaone4",
        family: "exaone4",
        names: AFTER,
        fields: &[WINDOW, PERIOD],
        ..PLAIN
    },
    Architecture {
        name: "gemma",
        family: "gemma",
        about_one: true,
        ..PLAIN
    },
    Architecture {
        name: "gemma2",
        family: "gemma2",
        about_one: true,
        names: SANDWICH,
        fields: &[
            WINDOW,
            ("attn_logit_softcapping", "attn_logit_softcapping"),
            ("final_logit_softcapping", "final_logit_softcapping"),
        ],
        ..PLAIN
    },
    Architecture {
        name: "gemma3",
        family: "gemma3_text",
        about_one: true,
        names: SANDWICH,
        fields: &[
            WINDOW,
            PERIOD,
            ("rope.freq_base_swa", "rope_local_base_freq"),
            ("final_logit_softcapping", "final_logit_softcapping"),
        ],
        ..PLAIN
    },
    Architecture {
        name: "glm4",
        family: "glm4",
        names: &[
            ("post_attention_norm", "post_self_attn_layernorm"),
            ("post_ffw_norm", "post_mlp_layernorm"),
            ("ffn_up", "mlp.gate_up_proj"),
        ],
        ..PLAIN
    },
    Architecture {
        name: "granite",
        family: "granite",
        paired: true,
        fields: GRANITE,
        ..PLAIN
    },
    Architecture {
        name: "hunyuan-dense",
        family: "hunyuan_v1_dense",
        names: &[
            ("attn_q_norm", "self_attn.query_layernorm"),
            ("attn_k_norm", "self_attn.key_layernorm"),
        ],
        ..PLAIN
    },
    Architecture {
        name: "internlm2",
        family: "llama",
        paired: true,
        ..PLAIN
    },
    Architecture {
        name: "llama",
        family: "llama",
        sparse: Some("mixtral"),
        paired: true,
        names: &[
            ("ffn_gate_inp", "block_sparse_moe.gate"),
            ("ffn_gate_exps", "block_sparse_moe.experts.gate_proj"),
            ("ffn_up_exps", "block_sparse_moe.experts.up_proj"),
            ("ffn_down_exps", "block_sparse_moe.experts.down_proj"),
        ],
        ..PLAIN
    },
    Architecture {
        name: "nemotron",
        family: "nemotron",
        about_one: true,
        ..PLAIN
    },
    Architecture {
        name: "olmo",
        family: "olmo",
        paired: true,
        fields: &[("attention.clamp_kqv", "clip_qkv")],
        ..PLAIN
    },
    Architecture {
        name: "olmo2",
        family: "olmo2",
        names: AFTER,
        ..PLAIN
    },
    Architecture {
        name: "olmoe",
        family: "olmoe",
        sparse: Some("olmoe"),
        names: EXPERTS,
        ..PLAIN
    },
    Architecture {
        name: "phi3",
        family: "phi3",
        names: &[
            ("attn_qkv", "self_attn.qkv_proj"),
            ("ffn_up", "mlp.gate_up_proj"),
        ],
        fields: &[WINDOW],
        ..PLAIN
    },
    Architecture {
        name: "qwen2",
        family: "qwen2",
        ..PLAIN
    },
    Architecture {
        name: "qwen2moe",
        family: "qwen2_moe",
        sparse: Some("qwen2_moe"),
        names: EXPERTS,
        implied: r#"{"norm_topk_prob": false}"#,
        ..PLAIN
    },
    Architecture {
        name: "qwen3",
        family: "qwen3",
        ..PLAIN
    },
    Architecture {
        name: "qwen3moe",
        family: "qwen3_moe",
        sparse: Some("qwen3_moe"),
        names: EXPERTS,
        implied: r#"{"norm_topk_prob": true}"#,
        ..PLAIN
    },
    Architecture {
        name: "seed_oss",
        family: "seed_oss",
        names: &[("post_attention_norm", "post_attention_layernorm")],
        ..PLAIN
    },
    Architecture {
        name: "smollm3",
        family: "smollm3",
        paired: true,
        ..PLAIN
    },
    Architecture {
        name: "starcoder2",
        family: "starcoder2",
        names: &[("ffn_up", "mlp.c_fc"), ("ffn_down", "mlp.c_proj")],
        fields: &[WINDOW],
        ..PLAIN
    },
];
