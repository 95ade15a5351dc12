"""Completes frontend/src/families/defaults.json: what holds where a configuration leaves a field out.

Usage: python family_defaults.py, in the folder tests, with transformers installed. For each family it adds the
defaults of the class in transformers, of the fields that the sources of the frontend name and that are no sizes of
the model; what the file has already is kept. Lists depend on the number of layers and are left to the families.
"""

import json
import pathlib
import re

from transformers import AutoConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

FRONTEND = pathlib.Path(__file__).parent.parent / "frontend/src"
FILE = FRONTEND / "families/defaults.json"
# Whole numbers that are no sizes of the model.
NUMBERS = """
sliding_window original_max_position_embeddings sliding_window_pattern no_rope_layer_interval n_group topk_group
first_k_dense_replace decoder_sparse_step moe_layer_freq moe_layer_interval moe_layer_start_index num_experts_per_tok
interleave_moe_layer_step conv_kernel mamba_d_conv linear_conv_kernel_dim attn_layer_period attn_layer_offset
expert_layer_period expert_layer_offset attention_chunk_size floor_scale rescale_every max_window_layers conv_L_cache
num_dense_layers dim_model_base mamba_conv_kernel n_shared_experts num_shared_experts full_attn_mod moe_num_shared_experts
position_buckets local_attention global_attn_every_n_layers
""".split()
# Fields about which the tensors decide, or that mean nothing here.
OTHER = {"tie_word_embeddings", "dtype", "torch_dtype", "dropout", "legacy"}
WORDS = re.compile(r"act|norm_type|topk_method|scoring_func|mlp_type|position_embedding_type|hidden_act")


def main():
    source = "".join(path.read_text() for path in FRONTEND.rglob("*.rs"))
    named = set(re.findall(r'"([A-Za-z_0-9]+)"', source))
    families = re.findall(r"model_types: &\[\s*\"([^\"]+)\"", source)
    defaults = json.loads(FILE.read_text())
    for family in families:
        if family not in CONFIG_MAPPING:
            continue
        config = AutoConfig.for_model(family)
        cls = type(config)
        found = config.to_dict()
        theta = getattr(cls, "default_theta", None)
        rope = found.get("rope_parameters") or {}
        if isinstance(theta, (int, float)) and "rope_parameters" in found and not any(isinstance(part, dict) for part in rope.values()):
            found["rope_theta"] = float(theta)
            if "partial_rotary_factor" in rope:
                found["partial_rotary_factor"] = rope["partial_rotary_factor"]
        known = defaults.setdefault(family, {})
        for name, value in sorted(found.items()):
            if name in known or name not in named or name in OTHER:
                continue
            kind = type(value)
            if kind in (bool, float) or kind is int and value > 0 and name in NUMBERS or kind is str and WORDS.search(name):
                known[name] = value
    defaults = {family: fields for family, fields in sorted(defaults.items()) if fields}
    FILE.write_text(json.dumps(defaults, indent=2) + "\n")


main()
