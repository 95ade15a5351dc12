"""Completes the cases of frontend/tests/data/families: tiny models with what Hugging Face transformers gives.

Usage: python family_cases.py FILE..., with torch and transformers installed. A file has a `config`, and for some
families `older`, the same in the spelling of transformers 4. What it lacks is written: the tensors' shapes, a
prompt, and the logits after its ninth and its last token. The weights are made from the tensors' names, as
`numbers` of tests/support makes them. With `"exact": true` transformers computes in f64, for models
that grow the rounding of f32 beyond the budget; such a file must be the only one.

Cases of data/vectors are completed in the same way: decoders with `files`, which say how a vector is made of a
text's states, and classifiers.

Cases that were made by transformers 5.17 but for `gemma3n-short`, some of whose tokens have no row in the table
of per-layer inputs, which 5.24 allows. RWKV-7, which transformers does not have, is computed by rwkv7.py.
"""

import json
import sys
import tempfile

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
)

from rwkv7 import rwkv7

torch.set_num_threads(1)
MASK = (1 << 64) - 1
IDS = [7, 21, 3, 40, 11, 5, 33, 18, 26, 9, 44, 14, 2, 37, 29, 6, 41, 12, 23, 31]


def numbers(name, shape):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    one = 1.0 if len(shape) == 1 and name.endswith(".weight") else 0.0

    def number(i):
        x = (h + i * 0x9E3779B97F4A7C15) & MASK
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
        x ^= x >> 31
        return one + ((x >> 56) - 128.0) / 512.0

    count = torch.Size(shape).numel()
    return torch.tensor([number(i) for i in range(count)], dtype=torch.float32).reshape(shape)


def in_f64():
    """Makes transformers compute in f64 where it asks for f32."""
    real_to, real_softmax = torch.Tensor.to, F.softmax

    def to(self, *a, **k):
        a = tuple(torch.float64 if x is torch.float32 else x for x in a)
        if k.get("dtype") is torch.float32:
            k["dtype"] = torch.float64
        return real_to(self, *a, **k)

    torch.Tensor.float = torch.Tensor.double
    torch.Tensor.to = to
    F.softmax = lambda x, dim=None, _stacklevel=3, dtype=None: real_softmax(x, dim)
    torch.set_default_dtype(torch.float64)


def by_transformers(config, exact, auto=AutoModelForCausalLM):
    with tempfile.TemporaryDirectory() as d:
        json.dump(config, open(f"{d}/config.json", "w"))
        c = AutoConfig.from_pretrained(d)
        c._attn_implementation = "eager"
        auto.from_config(c).save_pretrained(d)
        file = f"{d}/model.safetensors"
        with safe_open(file, "pt") as s:
            shapes = {k: list(s.get_slice(k).get_shape()) for k in s.keys()}
        save_file({k: numbers(k, s) for k, s in shapes.items()}, file, metadata={"format": "pt"})
        m, info = auto.from_pretrained(
            d, attn_implementation="eager", dtype=torch.float32, output_loading_info=True
        )
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    m.eval()
    if exact:
        in_f64()
        m = m.double()
    with torch.no_grad():
        return shapes, m(torch.tensor([IDS]), use_cache=False)[0][0]


def vector(states, files):
    """What the module files of sentence-transformers make of the states of a text."""
    pooling = files["1_Pooling/config.json"]
    made = states[-1] if pooling["pooling_mode_lasttoken"] else states.mean(0)
    kinds = [module["type"] for module in files["modules.json"]]
    return F.normalize(made, dim=0) if kinds[-1].endswith("Normalize") else made


for file in sys.argv[1:]:
    case = json.load(open(file))
    config = case["config"]
    if config["model_type"] == "rwkv7":
        shapes, logits = rwkv7(config, IDS, numbers)
        rows = torch.cat([logits[8], logits[-1]])
    elif "files" in case:
        shapes, states = by_transformers(config, False, AutoModel)
        rows = vector(states, case["files"])
    elif str(config.get("architectures")).endswith("ForSequenceClassification']"):
        shapes, rows = by_transformers(config, False, AutoModelForSequenceClassification)
    else:
        shapes, logits = by_transformers(config, case.get("exact", False))
        rows = torch.cat([logits[8], logits[-1]])
    rows = rows.tolist()
    case |= {"tensors": shapes, "ids": IDS, "logits": [float(f"{x:.7g}") for x in rows]}
    json.dump(case, open(file, "w"), separators=(",", ":"))
    print(file, flush=True)
