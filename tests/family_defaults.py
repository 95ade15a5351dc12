"""Completes frontend/src/families/defaults.json: what holds where a configuration leaves a field out.

Usage: python family_defaults.py, in the folder tests, with transformers installed. For each family it adds the
defaults of the class in transformers, of the fields that the sources of the frontend name; what the file has already
is kept. Lists depend on the number of layers and are left to the families.
"""

import dataclasses
import json
import pathlib
import re

from transformers.models.auto.configuration_auto import CONFIG_MAPPING

FRONTEND = pathlib.Path(__file__).parent.parent / "frontend/src"
FILE = FRONTEND / "families/defaults.json"
# Fields about which the tensors decide, or that mean nothing here.
OTHER = {"tie_word_embeddings", "dtype", "torch_dtype", "dropout", "legacy", "bos_token_id", "eos_token_id", "pad_token_id"}
WORDS = re.compile(r"act|norm_type|topk_method|scoring_func|mlp_type|position_embedding_type|hidden_act")


def main():
    source = "".join(path.read_text() for path in FRONTEND.rglob("*.rs"))
    named = set(re.findall(r'"([A-Za-z_0-9]+)"', source))
    families = re.findall(r"model_types: &\[\s*\"([^\"]+)\"", source)
    defaults = json.loads(FILE.read_text())
    for family in families:
        if family not in CONFIG_MAPPING:
            continue
        cls = CONFIG_MAPPING[family]
        # What is computed from other fields where it is not given, as the width of a head, has the default None.
        own = {field.name: field.default for field in dataclasses.fields(cls)}
        names = {old: new for new, old in cls.attribute_map.items()}
        found = {name: own.get(name) for name in cls().to_dict() if own.get(name) is not dataclasses.MISSING}
        found |= {new: found.pop(old) for old, new in names.items() if old in found and new in named and old not in named}
        theta = getattr(cls, "default_theta", None)
        rope = cls().to_dict().get("rope_parameters") or {}
        if isinstance(theta, (int, float)) and "rope_parameters" in found and not any(isinstance(part, dict) for part in rope.values()):
            found["rope_theta"] = float(theta)
            if "partial_rotary_factor" in rope:
                found["partial_rotary_factor"] = rope["partial_rotary_factor"]
        if rope.get("rope_type", "default") != "default":
            found["rope_parameters"] = {name: value for name, value in rope.items() if name != "rope_theta"}
        known = defaults.setdefault(family, {})
        for name, value in sorted(found.items()):
            if name in known or name not in named or name in OTHER:
                continue
            kind = type(value)
            if kind in (bool, float, dict) or kind is int and value >= 0 or kind is str and WORDS.search(name):
                known[name] = value
    defaults = {family: fields for family, fields in sorted(defaults.items()) if fields}
    FILE.write_text(json.dumps(defaults, indent=2) + "\n")


main()
