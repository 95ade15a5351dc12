"""RWKV-7 as its paper describes it (arXiv 2503.14456), token by token in f64."""

import torch
import torch.nn.functional as F


def shapes_of(c, hidden, layers, inner):
    """The names and shapes of the tensors of a checkpoint."""
    heads = hidden // c["head_dim"]
    affine = ["weight", "bias"] if c["norm_bias"] else ["weight"]
    ranks = {x: c.get(f"{name}_low_rank_dim", 4) for x, name in zip("wavg", ("decay", "a", "v", "gate"))}
    vocabulary = [c["vocab_size"], hidden]
    shapes = {"model.embeddings.weight": vocabulary, "lm_head.weight": vocabulary}
    shapes |= {f"model.norm.{x}": [hidden] for x in affine}
    for n in range(layers):
        m = f"model.layers.{n}"
        norms = ["attn_norm", "ffn_norm"] + ["pre_norm"] * (n == 0 and c["norm_first"])
        shapes |= {f"{m}.{norm}.{x}": [hidden] for norm in norms for x in affine}
        shapes |= {f"{m}.attn.x_{x}": [1, 1, hidden] for x in "rwkvag"}
        shapes |= {f"{m}.attn.{x}_proj.weight": [hidden, hidden] for x in "rkvo"}
        for x, rank in ranks.items():
            if x == "v" and n == 0:
                continue
            shapes[f"{m}.attn.{x}_lora.lora.0.weight"] = [rank, hidden]
            shapes[f"{m}.attn.{x}_lora.lora.2.weight"] = [hidden, rank]
            if x != "g":
                shapes[f"{m}.attn.{x}_lora.lora.2.bias"] = [hidden]
        shapes |= {f"{m}.attn.{x}": [hidden] for x in ("k_k", "k_a", "g_norm.weight", "g_norm.bias")}
        shapes[f"{m}.attn.r_k"] = [heads, c["head_dim"]]
        shapes[f"{m}.ffn.x_k"] = [hidden]
        shapes[f"{m}.ffn.key.weight"] = [inner, hidden]
        shapes[f"{m}.ffn.value.weight"] = [hidden, inner]
    return shapes


def rwkv7(c, ids, numbers):
    """The shapes of the tensors, and the logits after each of the tokens `ids`."""
    hidden, width, layers = c["hidden_size"], c["head_dim"], c["num_hidden_layers"]
    heads, eps = hidden // width, c["norm_eps"]
    inner = c.get("intermediate_size", int(hidden * c.get("hidden_ratio", 4)))
    shapes = shapes_of(c, hidden, layers, inner)
    W = {k: numbers(k, s).double() for k, s in shapes.items()}
    zeros = lambda *shape: torch.zeros(*shape, dtype=torch.float64)

    def norm(x, m):
        return F.layer_norm(x, x.shape[-1:], W[f"{m}.weight"], W.get(f"{m}.bias"), eps)

    def lora(x, m, act=lambda x: x):
        y = W[f"{m}.lora.2.weight"] @ act(W[f"{m}.lora.0.weight"] @ x)
        return y + W.get(f"{m}.lora.2.bias", 0)

    last = [[zeros(hidden), zeros(hidden)] for _ in range(layers)]
    memory = [zeros(heads, width, width) for _ in range(layers)]  # values by keys

    def time_mix(n, h, first):
        m = f"model.layers.{n}.attn"
        mix = lambda c: h + (last[n][0] - h) * W[f"{m}.x_{c}"].reshape(-1)
        r, k, v = (W[f"{m}.{x}_proj.weight"] @ mix(x) for x in "rkv")
        decay = torch.sigmoid(lora(mix("w"), f"{m}.w_lora", torch.tanh))
        w = torch.exp(-decay * torch.exp(torch.tensor(-0.5, dtype=torch.float64)))
        if first is None:
            first = v
        else:
            v = v + (first - v) * torch.sigmoid(lora(mix("v"), f"{m}.v_lora"))
        a = torch.sigmoid(lora(mix("a"), f"{m}.a_lora"))
        g = lora(mix("g"), f"{m}.g_lora", torch.sigmoid)
        last[n][0] = h
        kk = F.normalize((k * W[f"{m}.k_k"]).view(heads, width), dim=-1)
        k = k * (1 + (a - 1) * W[f"{m}.k_a"])
        r, w, k, v, a = (y.view(heads, width) for y in (r, w, k, v, a))
        for i in range(heads):
            s = memory[n][i]
            removed = torch.outer(s @ kk[i], a[i] * kk[i])
            memory[n][i] = s * w[i][None, :] - removed + torch.outer(v[i], k[i])
        y = torch.einsum("hvk,hk->hv", memory[n], r).reshape(1, -1)
        y = F.group_norm(y, heads, W[f"{m}.g_norm.weight"], W[f"{m}.g_norm.bias"], width * eps)[0]
        y = y + ((r * k * W[f"{m}.r_k"]).sum(-1, keepdim=True) * v).reshape(-1)
        return W[f"{m}.o_proj.weight"] @ (y * g), first

    def channel_mix(n, h):
        m = f"model.layers.{n}.ffn"
        mixed = h + (last[n][1] - h) * W[f"{m}.x_k"]
        last[n][1] = h
        return W[f"{m}.value.weight"] @ torch.relu(W[f"{m}.key.weight"] @ mixed) ** 2

    logits = []
    for token in ids:
        x, first = W["model.embeddings.weight"][token], None
        if c["norm_first"]:
            x = norm(x, "model.layers.0.pre_norm")
        for n in range(layers):
            y, first = time_mix(n, norm(x, f"model.layers.{n}.attn_norm"), first)
            x = x + y
            x = x + channel_mix(n, norm(x, f"model.layers.{n}.ffn_norm"))
        logits.append(W["lm_head.weight"] @ norm(x, "model.norm"))
    return shapes, torch.stack(logits)
