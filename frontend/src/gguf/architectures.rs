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
    /// Whether a file holds the rows of a joined layer of queries, keys and values kind by kind,
    /// where the checkpoint has them key-value head by key-value head.
    pub(crate) grouped: bool,
    /// The checkpoint's list of layers.
    pub(crate) list: &'static str,
    /// Parts outside of layers that have other names in the checkpoint than [`super::names`] says,
    pub(crate) model: &'static [(&'static str, &'static str)],
    /// and parts of a layer. One with an ending stands for that tensor alone, by its whole name.
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
    grouped: false,
    list: "model.layers",
    model: &[],
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

/// Experts of Mixtral.
const MIXTRAL: &[(&str, &str)] = &[
    ("ffn_gate_inp", "block_sparse_moe.gate"),
    ("ffn_gate_exps", "block_sparse_moe.experts.gate_proj"),
    ("ffn_up_exps", "block_sparse_moe.experts.up_proj"),
    ("ffn_down_exps", "block_sparse_moe.experts.down_proj"),
];

/// Experts beside shared ones, chosen with a correction.
const DEEPSEEK: &[(&str, &str)] = &[
    ("ffn_gate_inp", "mlp.gate"),
    ("exp_probs_b.bias", "mlp.gate.e_score_correction_bias"),
    ("exp_probs_b", "mlp.gate.e_score_correction_bias"),
    ("ffn_gate_exps", "mlp.experts.gate_proj"),
    ("ffn_up_exps", "mlp.experts.up_proj"),
    ("ffn_down_exps", "mlp.experts.down_proj"),
    ("ffn_gate_shexp", "mlp.shared_experts.gate_proj"),
    ("ffn_up_shexp", "mlp.shared_experts.up_proj"),
    ("ffn_down_shexp", "mlp.shared_experts.down_proj"),
    ("post_attention_norm", "post_attention_layernorm"),
];

/// The parts of GPT-2,
const GPT2: &[(&str, &str)] = &[
    ("attn_norm", "ln_1"),
    ("attn_qkv", "attn.c_attn"),
    ("attn_output", "attn.c_proj"),
    ("ffn_norm", "ln_2"),
    ("ffn_up", "mlp.c_fc"),
    ("ffn_down", "mlp.c_proj"),
];

/// and outside of its layers.
const GPT2_MODEL: &[(&str, &str)] = &[
    ("token_embd", "transformer.wte"),
    ("position_embd", "transformer.wpe"),
    ("output_norm", "transformer.ln_f"),
];

/// The parts of Bloom and Falcon,
const BLOOM: &[(&str, &str)] = &[
    ("attn_norm", "input_layernorm"),
    ("attn_norm_2", "ln_attn"),
    ("attn_qkv", "self_attention.query_key_value"),
    ("attn_output", "self_attention.dense"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_up", "mlp.dense_h_to_4h"),
    ("ffn_down", "mlp.dense_4h_to_h"),
];

/// and outside of their layers.
const BLOOM_MODEL: &[(&str, &str)] = &[
    ("token_embd", "transformer.word_embeddings"),
    ("token_embd_norm", "transformer.word_embeddings_layernorm"),
    ("output_norm", "transformer.ln_f"),
];

/// The parts of LFM2 and of its mixtures of experts,
const LFM2: &[(&str, &str)] = &[
    ("attn_norm", "operator_norm"),
    ("ffn_norm", "ffn_norm"),
    ("attn_output", "self_attn.out_proj"),
    ("attn_q_norm", "self_attn.q_layernorm"),
    ("attn_k_norm", "self_attn.k_layernorm"),
    ("shortconv.conv", "conv.conv"),
    ("shortconv.in_proj", "conv.in_proj"),
    ("shortconv.out_proj", "conv.out_proj"),
    ("ffn_gate", "feed_forward.w1"),
    ("ffn_down", "feed_forward.w2"),
    ("ffn_up", "feed_forward.w3"),
    ("ffn_gate_inp", "feed_forward.gate"),
    ("exp_probs_b.bias", "feed_forward.expert_bias"),
    ("ffn_gate_exps", "feed_forward.experts.gate_proj"),
    ("ffn_down_exps", "feed_forward.experts.down_proj"),
    ("ffn_up_exps", "feed_forward.experts.up_proj"),
];

/// and outside of their layers.
const LFM2_MODEL: &[(&str, &str)] = &[
    ("token_embd_norm", "model.embedding_norm"),
    ("output_norm", "model.embedding_norm"),
];

/// The parts of Mamba,
const MAMBA: &[(&str, &str)] = &[
    ("attn_norm", "norm"),
    ("ssm_in", "mixer.in_proj"),
    ("ssm_conv1d", "mixer.conv1d"),
    ("ssm_x", "mixer.x_proj"),
    ("ssm_dt", "mixer.dt_proj"),
    ("ssm_a", "mixer.A_log"),
    ("ssm_d", "mixer.D"),
    ("ssm_out", "mixer.out_proj"),
];

/// and of its second version,
const MAMBA2: &[(&str, &str)] = &[
    ("attn_norm", "norm"),
    ("ssm_in", "mixer.in_proj"),
    ("ssm_conv1d", "mixer.conv1d"),
    ("ssm_dt.bias", "mixer.dt_bias"),
    ("ssm_a", "mixer.A_log"),
    ("ssm_d", "mixer.D"),
    ("ssm_norm", "mixer.norm"),
    ("ssm_out", "mixer.out_proj"),
];

/// and outside of their layers.
const MAMBA_MODEL: &[(&str, &str)] = &[
    ("token_embd", "backbone.embeddings"),
    ("output_norm", "backbone.norm_f"),
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
        name: "afmoe",
        family: "afmoe",
        sparse: Some("afmoe"),
        names: &[
            ("attn_gate", "self_attn.gate_proj"),
            ("post_attention_norm", "post_attention_layernorm"),
            ("ffn_norm", "pre_mlp_layernorm"),
            ("post_ffw_norm", "post_mlp_layernorm"),
            ("ffn_gate_inp", "mlp.router.gate"),
            ("exp_probs_b.bias", "mlp.expert_bias"),
            ("ffn_gate_exps", "mlp.experts.gate_proj"),
            ("ffn_up_exps", "mlp.experts.up_proj"),
            ("ffn_down_exps", "mlp.experts.down_proj"),
            ("ffn_gate_shexp", "mlp.shared_experts.gate_proj"),
            ("ffn_up_shexp", "mlp.shared_experts.up_proj"),
            ("ffn_down_shexp", "mlp.shared_experts.down_proj"),
        ],
        fields: &[
            WINDOW,
            ("expert_weights_scale", "route_scale"),
            ("leading_dense_block_count", "num_dense_layers"),
        ],
        implied: r#"{"mup_enabled": true}"#,
        ..PLAIN
    },
    Architecture {
        name: "apertus",
        family: "apertus",
        names: &[
            ("attn_norm", "attention_layernorm"),
            ("ffn_norm", "feedforward_layernorm"),
        ],
        ..PLAIN
    },
    Architecture {
        name: "arcee",
        family: "arcee",
        paired: true,
        ..PLAIN
    },
    Architecture {
        name: "bloom",
        family: "bloom",
        grouped: true,
        list: "transformer.h",
        model: BLOOM_MODEL,
        names: BLOOM,
        ..PLAIN
    },
    Architecture {
        name: "chatglm",
        family: "glm",
        names: &[("ffn_up", "mlp.gate_up_proj")],
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
        name: "deepseek2",
        family: "deepseek_v2",
        sparse: Some("deepseek_v2"),
        names: &[
            ("attn_q_a", "self_attn.q_a_proj"),
            ("attn_q_a_norm", "self_attn.q_a_layernorm"),
            ("attn_q_b", "self_attn.q_b_proj"),
            ("attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"),
            ("attn_kv_a_norm", "self_attn.kv_a_layernorm"),
            ("attn_kv_b", "self_attn.kv_b_proj"),
            ("attn_k_b", "self_attn.k_b_proj"),
            ("attn_v_b", "self_attn.v_b_proj"),
            ("ffn_gate_inp", "mlp.gate"),
            ("exp_probs_b.bias", "mlp.gate.e_score_correction_bias"),
            ("exp_probs_b", "mlp.gate.e_score_correction_bias"),
            ("ffn_gate_exps", "mlp.experts.gate_proj"),
            ("ffn_up_exps", "mlp.experts.up_proj"),
            ("ffn_down_exps", "mlp.experts.down_proj"),
            ("ffn_gate_shexp", "mlp.shared_experts.gate_proj"),
            ("ffn_up_shexp", "mlp.shared_experts.up_proj"),
            ("ffn_down_shexp", "mlp.shared_experts.down_proj"),
            ("post_attention_norm", "post_attention_layernorm"),
        ],
        fields: &[
            ("attention.q_lora_rank", "q_lora_rank"),
            ("attention.kv_lora_rank", "kv_lora_rank"),
            ("rope.dimension_count", "qk_rope_head_dim"),
        ],
        ..PLAIN
    },
    Architecture {
        name: "dots1",
        family: "dots1",
        sparse: Some("dots1"),
        names: DEEPSEEK,
        ..PLAIN
    },
    Architecture {
        name: "ernie4_5",
        family: "ernie4_5",
        ..PLAIN
    },
    Architecture {
        name: "ernie4_5-moe",
        family: "ernie4_5_moe",
        sparse: Some("ernie4_5_moe"),
        names: &[
            ("ffn_gate_inp", "mlp.gate"),
            (
                "exp_probs_b.bias",
                "mlp.moe_statics.e_score_correction_bias",
            ),
            ("ffn_gate_exps", "mlp.experts.gate_proj"),
            ("ffn_up_exps", "mlp.experts.up_proj"),
            ("ffn_down_exps", "mlp.experts.down_proj"),
            ("ffn_gate_shexp", "mlp.shared_experts.gate_proj"),
            ("ffn_up_shexp", "mlp.shared_experts.up_proj"),
            ("ffn_down_shexp", "mlp.shared_experts.down_proj"),
        ],
        fields: &[
            ("interleave_moe_layer_step", "moe_layer_interval"),
            ("leading_dense_block_count", "moe_layer_start_index"),
            ("expert_shared_count", "moe_num_shared_experts"),
        ],
        ..PLAIN
    },
    Architecture {
        name: "exaone",
        family: "exaone",
        list: "transformer.h",
        model: &[
            ("token_embd", "transformer.wte"),
            ("output_norm", "transformer.ln_f"),
        ],
        names: &[
            ("attn_norm", "ln_1"),
            ("attn_q", "attn.attention.q_proj"),
            ("attn_k", "attn.attention.k_proj"),
            ("attn_v", "attn.attention.v_proj"),
            ("attn_output", "attn.attention.out_proj"),
            ("ffn_norm", "ln_2"),
            ("ffn_gate", "mlp.c_fc_0"),
            ("ffn_up", "mlp.c_fc_1"),
            ("ffn_down", "mlp.c_proj"),
        ],
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
        name: "exaone-moe",
        family: "exaone_moe",
        sparse: Some("exaone_moe"),
        names: &[
            ("ffn_gate_inp", "mlp.gate"),
            ("exp_probs_b.bias", "mlp.e_score_correction_bias"),
            ("ffn_gate_exps", "mlp.experts.gate_proj"),
            ("ffn_up_exps", "mlp.experts.up_proj"),
            ("ffn_down_exps", "mlp.experts.down_proj"),
            ("ffn_gate_shexp", "mlp.shared_experts.gate_proj"),
            ("ffn_up_shexp", "mlp.shared_experts.up_proj"),
            ("ffn_down_shexp", "mlp.shared_experts.down_proj"),
        ],
        fields: &[WINDOW, PERIOD],
        ..PLAIN
    },
    Architecture {
        name: "falcon",
        family: "falcon",
        grouped: true,
        list: "transformer.h",
        model: BLOOM_MODEL,
        names: BLOOM,
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
        name: "glm4moe",
        family: "glm4_moe",
        sparse: Some("glm4_moe"),
        names: DEEPSEEK,
        ..PLAIN
    },
    Architecture {
        name: "gpt-oss",
        family: "gpt_oss",
        sparse: Some("gpt_oss"),
        names: &[
            ("attn_sinks.weight", "self_attn.sinks"),
            ("post_attention_norm", "post_attention_layernorm"),
            ("ffn_gate_inp", "mlp.router"),
            ("ffn_gate_exps", "mlp.experts.gate_proj"),
            ("ffn_up_exps", "mlp.experts.up_proj"),
            ("ffn_down_exps", "mlp.experts.down_proj"),
        ],
        fields: &[WINDOW],
        ..PLAIN
    },
    Architecture {
        name: "gpt2",
        family: "gpt2",
        list: "transformer.h",
        model: GPT2_MODEL,
        names: GPT2,
        ..PLAIN
    },
    Architecture {
        name: "gptneox",
        family: "gpt_neox",
        grouped: true,
        list: "gpt_neox.layers",
        model: &[
            ("token_embd", "gpt_neox.embed_in"),
            ("output_norm", "gpt_neox.final_layer_norm"),
            ("output", "embed_out"),
        ],
        names: &[
            ("attn_qkv", "attention.query_key_value"),
            ("attn_output", "attention.dense"),
            ("ffn_up", "mlp.dense_h_to_4h"),
            ("ffn_down", "mlp.dense_4h_to_h"),
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
        name: "granitemoe",
        family: "granitemoe",
        sparse: Some("granitemoe"),
        paired: true,
        names: &[
            ("ffn_gate_inp", "block_sparse_moe.router.layer"),
            ("ffn_gate_exps", "block_sparse_moe.gate"),
            ("ffn_up_exps", "block_sparse_moe.up"),
            ("ffn_down_exps", "block_sparse_moe.output_linear"),
        ],
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
        name: "jais2",
        family: "jais2",
        ..PLAIN
    },
    Architecture {
        name: "lfm2",
        family: "lfm2",
        model: LFM2_MODEL,
        names: LFM2,
        fields: &[("shortconv.l_cache", "conv_L_cache")],
        implied: r#"{"block_auto_adjust_ff_dim": false}"#,
        ..PLAIN
    },
    Architecture {
        name: "lfm2moe",
        family: "lfm2_moe",
        sparse: Some("lfm2_moe"),
        model: LFM2_MODEL,
        names: LFM2,
        fields: &[
            ("shortconv.l_cache", "conv_L_cache"),
            ("leading_dense_block_count", "num_dense_layers"),
        ],
        ..PLAIN
    },
    Architecture {
        name: "llama",
        family: "llama",
        sparse: Some("mixtral"),
        paired: true,
        names: MIXTRAL,
        ..PLAIN
    },
    Architecture {
        name: "mamba",
        family: "mamba",
        list: "backbone.layers",
        model: MAMBA_MODEL,
        names: MAMBA,
        fields: &[
            ("ssm.state_size", "state_size"),
            ("ssm.conv_kernel", "conv_kernel"),
            ("ssm.inner_size", "intermediate_size"),
            ("ssm.time_step_rank", "time_step_rank"),
        ],
        implied: r#"{"use_bias": false, "use_conv_bias": true}"#,
        ..PLAIN
    },
    Architecture {
        name: "mamba2",
        family: "mamba2",
        list: "backbone.layers",
        model: MAMBA_MODEL,
        names: MAMBA2,
        fields: &[
            ("ssm.state_size", "state_size"),
            ("ssm.conv_kernel", "conv_kernel"),
            ("ssm.inner_size", "intermediate_size"),
            ("ssm.time_step_rank", "num_heads"),
            ("ssm.group_count", "n_groups"),
        ],
        implied: r#"{"use_bias": false, "use_conv_bias": true}"#,
        ..PLAIN
    },
    Architecture {
        name: "minicpm",
        family: "minicpm",
        paired: true,
        fields: &[("embedding_scale", "scale_emb")],
        ..PLAIN
    },
    Architecture {
        name: "minicpm3",
        family: "minicpm3",
        names: &[
            ("attn_q_a", "self_attn.q_a_proj"),
            ("attn_q_a_norm", "self_attn.q_a_layernorm"),
            ("attn_q_b", "self_attn.q_b_proj"),
            ("attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"),
            ("attn_kv_a_norm", "self_attn.kv_a_layernorm"),
            ("attn_kv_b", "self_attn.kv_b_proj"),
        ],
        fields: &[
            ("attention.q_lora_rank", "q_lora_rank"),
            ("attention.kv_lora_rank", "kv_lora_rank"),
            ("rope.dimension_count", "qk_rope_head_dim"),
        ],
        ..PLAIN
    },
    Architecture {
        name: "mistral3",
        family: "ministral3",
        paired: true,
        ..PLAIN
    },
    Architecture {
        name: "mpt",
        family: "mpt",
        list: "transformer.blocks",
        model: &[
            ("token_embd", "transformer.wte"),
            ("output_norm", "transformer.norm_f"),
        ],
        names: &[
            ("attn_norm", "norm_1"),
            ("attn_qkv", "attn.Wqkv"),
            ("attn_output", "attn.out_proj"),
            ("ffn_norm", "norm_2"),
            ("ffn_up", "ffn.up_proj"),
            ("ffn_down", "ffn.down_proj"),
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
        fields: &[WINDOW, PERIOD],
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
        name: "phi2",
        family: "phi",
        model: &[("output_norm", "model.final_layernorm")],
        names: &[
            ("attn_output", "self_attn.dense"),
            ("ffn_up", "mlp.fc1"),
            ("ffn_down", "mlp.fc2"),
        ],
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
        name: "phimoe",
        family: "phimoe",
        sparse: Some("phimoe"),
        names: MIXTRAL,
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
        name: "stablelm",
        family: "stablelm",
        names: &[
            ("attn_q_norm", "self_attn.q_layernorm.norms"),
            ("attn_k_norm", "self_attn.k_layernorm.norms"),
        ],
        ..PLAIN
    },
    Architecture {
        name: "starcoder",
        family: "gpt_bigcode",
        list: "transformer.h",
        model: GPT2_MODEL,
        names: GPT2,
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
