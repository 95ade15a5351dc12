"""Makes the files of gguf.tar.gz: tiny GGUF files as llama.cpp's converter writes them, and what transformers gives.

Usage: python gguf_cases.py LLAMA_CPP FOLDER [CASE]..., with torch and transformers 5.17 installed and the sources of llama.cpp
in the folder LLAMA_CPP; then tar -C FOLDER/.. --sort=name -cf - gguf | gzip -9 > gguf.tar.gz for a FOLDER called gguf.

A case is NAME.gguf, and NAME.json with a prompt and the logits after its ninth and its last
token. Numbers are multiples of 1/64, which every form holds exactly. Tokenizers are left out of the conversion.
"""

import json
import logging
import os
import pathlib
import re
import sys
import tempfile

import torch
from transformers import AutoConfig, AutoModelForCausalLM

sys.path[:0] = [sys.argv[1], sys.argv[1] + "/gguf-py"]
import gguf  # noqa: E402
from conversion import get_model_class  # noqa: E402
from conversion.base import ModelBase  # noqa: E402

torch.set_num_threads(1)
logging.disable(logging.CRITICAL)
IDS = [7, 21, 3, 40, 11, 5, 33, 18, 26, 9, 44, 14, 2, 37, 29, 6, 41, 12, 23, 31]
H = {
    "vocab_size": 48,
    "hidden_size": 16,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
KV = H | {"num_key_value_heads": 2}
WIDE = KV | {"head_dim": 8}
GPT2 = {"vocab_size": 48, "n_embd": 16, "n_head": 4, "n_layer": 2, "n_positions": 64, "n_ctx": 64}
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
LOCAL = {"num_local_experts": 4, "num_experts_per_tok": 2}
ROUTED = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 8,
    "first_k_dense_replace": 1,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
}
LATENT = ROUTED | {
    "q_lora_rank": 8,
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "num_key_value_heads": 4,
}
SLIDING = {"sliding_window": 6, "num_hidden_layers": 4}
ROPE = {"rope_theta": 10000.0}
YARN = ROPE | {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LONG = ROPE | {"rope_type": "longrope", "original_max_position_embeddings": 64}
GEMMA3 = WIDE | {"query_pre_attn_scalar": 8, "sliding_window": 6, "num_hidden_layers": 7}
CASES = {
    "llama": KV,
    "llama-linear": KV | {"rope_parameters": ROPE | {"rope_type": "linear", "factor": 2.0}},
    "llama-yarn": KV | {"rope_parameters": YARN},
    "llama-bias": KV | {"attention_bias": True, "mlp_bias": True},
    "mistral": KV,
    "mixtral": KV | LOCAL,
    "qwen2": KV,
    "qwen3": WIDE,
    "qwen2_moe": KV | MOE | {"shared_expert_intermediate_size": 8},
    "qwen3_moe": WIDE | MOE | {"norm_topk_prob": True},
    "gemma": WIDE,
    "gemma2": WIDE | {"query_pre_attn_scalar": 8, "sliding_window": 6},
    "phi": H,
    "phi3": KV | {"sliding_window": None},
    "phi3-longrope": KV | {"sliding_window": None, "original_max_position_embeddings": 64, "rope_parameters": LONG | {
        "short_factor": [1.0, 1.5], "long_factor": [1.0, 2.0]}, "max_position_embeddings": 128},
    "olmo": H,
    "olmo2": KV,
    "olmo3": KV | SLIDING,
    "olmoe": H | MOE,
    "cohere": KV,
    "stablelm": KV | {"partial_rotary_factor": 0.5},
    "stablelm-parallel": KV | {"partial_rotary_factor": 0.5, "use_parallel_residual": True, "use_qkv_bias": True},
    "starcoder2": KV,
    "granite": KV | {"attention_multiplier": 0.2, "embedding_multiplier": 2.0, "residual_multiplier": 0.5},
    "granitemoe": KV | LOCAL,
    "smollm3": KV | {"num_hidden_layers": 4},
    "gpt2": GPT2,
    "gpt_neox": H | {"rotary_pct": 0.5, "partial_rotary_factor": 0.5},
    "gpt_neox-sequential": H | {"rotary_pct": 0.5, "partial_rotary_factor": 0.5, "use_parallel_residual": False},
    "gpt_oss": WIDE | LOCAL | SLIDING | {"rope_parameters": YARN | {"truncate": False}},
    "deepseek_v2": H | LATENT | {"topk_method": "greedy"},
    "deepseek_v3": H | LATENT | {"scoring_func": "sigmoid"},
    "deepseek_v3-groups": H | LATENT | {"scoring_func": "sigmoid", "n_group": 2},
    "glm": H | {"rms_norm_eps": 1e-5, "hidden_size": 32, "num_key_value_heads": 2, "head_dim": 8},
    "glm4": WIDE,
    "glm4_moe": WIDE | ROUTED,
    "exaone4": KV | SLIDING,
    "ernie4_5": KV,
    "ernie4_5_moe": KV | {"moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 8, "moe_num_shared_experts": 1},
    "seed_oss": WIDE,
    "hunyuan_v1_dense": WIDE,
    "lfm2": KV | {"block_auto_adjust_ff_dim": False, "layer_types": ["conv", "full_attention"]},
    "lfm2_moe": KV | MOE | {"num_dense_layers": 1, "layer_types": ["conv", "full_attention"]},
    "mamba": {"vocab_size": 48, "hidden_size": 16, "state_size": 4, "num_hidden_layers": 2},
    "falcon_mamba": {"vocab_size": 48, "hidden_size": 16, "state_size": 4, "num_hidden_layers": 2},
    "mamba2": {"vocab_size": 48, "hidden_size": 16, "state_size": 4, "num_hidden_layers": 2, "num_heads": 4,
               "head_dim": 8, "n_groups": 1, "chunk_size": 8},
    "nemotron": KV,
    "arcee": KV,
    "apertus": KV | {"rope_parameters": ROPE | {"rope_type": "default"}},
    "dots1": KV | ROUTED,
    "afmoe": WIDE | SLIDING | MOE | {"num_dense_layers": 1, "num_shared_experts": 1, "n_group": 1, "mup_enabled": True},
    "exaone_moe": WIDE | SLIDING | MOE | {"first_k_dense_replace": 1, "n_group": 1, "topk_group": 1},
    "falcon": {"vocab_size": 48, "hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 2,
               "new_decoder_architecture": True, "num_kv_heads": 2, "max_position_embeddings": 64},
    "bloom": {"vocab_size": 48, "hidden_size": 16, "n_head": 4, "n_layer": 2, "seq_length": 64},
    "gpt_bigcode": GPT2,
    "jais2": KV,
    "phimoe": KV | LOCAL | {"sliding_window": 6, "attention_bias": True, "lm_head_bias": True},
    "mpt": {"vocab_size": 48, "d_model": 16, "n_heads": 4, "n_layers": 2, "max_seq_len": 64, "expansion_ratio": 4},
    "exaone": KV,
    "minicpm": KV | {"embedding_multiplier": 2.0, "residual_multiplier": 0.5, "logits_scaling": 2.0,
                     "attention_multiplier": 0.5},
    "ministral3": WIDE | {"rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 32.0,
                                                     "beta_slow": 1.0, "llama_4_scaling_beta": 0.1}},
    "minicpm3": H | LATENT,
    "cohere2": KV | SLIDING | {"rotary_pct": 1.0},
    "gemma3_text": GEMMA3,
    "gemma3_text-linear": GEMMA3 | {"rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
    "llama-llama3": KV | {"rope_parameters": ROPE | {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                                     "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}},
    "qwen2-yarn": KV | {"rope_parameters": YARN},
}


# Families that transformers has under another name: that name, what their configurations and tensors are called.
SAME = {
    "exaone": ("llama", {"architectures": ["ExaoneForCausalLM"], "activation_function": "silu", "layer_norm_epsilon": 1e-6}, [
        ("model.layers", "transformer.h"), ("model.embed_tokens", "transformer.wte"), ("model.norm", "transformer.ln_f"),
        ("self_attn.o_proj", "attn.attention.out_proj"), ("self_attn", "attn.attention"), ("input_layernorm", "ln_1"),
        ("post_attention_layernorm", "ln_2"), ("mlp.gate_proj", "mlp.c_fc_0"), ("mlp.up_proj", "mlp.c_fc_1"),
        ("mlp.down_proj", "mlp.c_proj")]),
    "minicpm": ("granite", {"architectures": ["MiniCPMForCausalLM"], "scale_emb": 2.0, "scale_depth": 0.5 * 2 ** 0.5,
                            "dim_model_base": 8}, []),
}


def renamed(folder, name):
    from safetensors.torch import load_file, save_file

    _, fields, names = SAME[name]
    tensors = {}
    for key, tensor in load_file(f"{folder}/model.safetensors").items():
        for old, new in names:
            key = key.replace(old, new)
        tensors[key] = tensor
    save_file(tensors, f"{folder}/model.safetensors")
    config = json.load(open(f"{folder}/config.json")) | fields | {"model_type": name}
    json.dump(config, open(f"{folder}/config.json", "w"))


def randomised(model):
    generator = torch.Generator().manual_seed(1)
    tensors = list(model.named_parameters())
    tensors += [(name, tensor) for name, tensor in model.named_buffers() if "bias" in name]
    with torch.no_grad():
        for name, tensor in tensors:
            wide = 24 if tensor.dim() > 1 else 8
            numbers = torch.randint(-wide, wide + 1, tensor.shape, generator=generator) / 64
            one = tensor.dim() == 1 and ("norm" in name.lower() or "ln_" in name) and name.endswith("weight")
            tensor.copy_(numbers + (1.0 if one else 0.0))
            if name.endswith("A_log"):
                # Rounded to what the logarithm of a number of f32 is.
                tensor.copy_(torch.log(torch.exp(tensor)))
    return model.eval()


def vocabulary(self):
    count, writer = self.hparams["vocab_size"], self.gguf_writer
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([chr(33 + index) for index in range(count)])
    writer.add_token_types([1] * count)
    writer.add_token_merges(["a b"])


def convert(folder, file, older):
    # The converter asks for fields of older configurations.
    hparams = ModelBase.load_hparams(pathlib.Path(folder), False) | older
    name = hparams["architectures"][0]
    cls = get_model_class({"PhimoeForCausalLM": "PhiMoEForCausalLM", "MptForCausalLM": "MPTForCausalLM"}.get(name, name))
    for base in cls.__mro__:
        if "set_vocab" in base.__dict__:
            base.set_vocab = vocabulary
    kind, settings = gguf.LlamaFileType.ALL_F32, {"eager": True, "model_name": "tiny", "hparams": hparams}
    cls(pathlib.Path(folder), kind, pathlib.Path(file), **settings).write()


def make(name, settings):
    with tempfile.TemporaryDirectory() as folder:
        kind = re.split("-", name)[0]
        config = {"model_type": SAME[kind][0] if kind in SAME else kind, **settings}
        file = f"{folder}/config.json"
        json.dump(config, open(file, "w"))
        config = AutoConfig.from_pretrained(folder)
        config._attn_implementation = "eager"
        model = randomised(AutoModelForCausalLM.from_config(config, dtype=torch.float32))
        with torch.no_grad():
            logits = model(torch.tensor([IDS]), use_cache=False).logits[0]
        model.save_pretrained(folder)
        if kind in SAME:
            renamed(folder, kind)
        older = {key: settings[key] for key in ("rotary_pct", "n_ctx", "seq_length") if key in settings}
        # Of which the number of tokens is asked for.
        words = {chr(33 + index): index for index in range(config.vocab_size)}
        tokenizer = {"model": {"vocab": words}, "added_tokens": []}
        json.dump(tokenizer, open(f"{folder}/tokenizer.json", "w"))
        convert(folder, f"{sys.argv[2]}/{name}.gguf", older)
    rows = torch.cat([logits[8], logits[-1]]).tolist()
    case = {"ids": IDS, "logits": [float(f"{number:.7g}") for number in rows]}
    json.dump(case, open(f"{sys.argv[2]}/{name}.json", "w"), separators=(",", ":"))
    print(name, flush=True)


os.makedirs(sys.argv[2], exist_ok=True)
for name, settings in CASES.items():
    if sys.argv[3:] and name not in sys.argv[3:]:
        continue
    make(name, settings)
