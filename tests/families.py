"""Makes the checkpoints of families.tar.gz: tiny random ones with what Hugging Face transformers gives.

Usage: python families.py FOLDER, with torch and transformers installed; then
tar -C FOLDER/.. --sort=name -cf - families | gzip -9 > families.tar.gz for a FOLDER called families.

The files of a folder are those of the golden checkpoints. Falcon with ALiBi is recorded with `sdpa`: the
`eager` attention of transformers 5.24 adds the slopes twice.
"""

import os
import sys

import torch
from safetensors.torch import save_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
)

torch.set_num_threads(1)


def randomised(m):
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for n, p in m.named_parameters():
            if p.dim() > 1:
                p.copy_(
                    (
                        torch.randn(p.shape, generator=g)
                        * (0.25 if "emb" in n or "wte" in n or "wpe" in n else 1.2 / p.shape[-1] ** 0.5)
                    )
                    .bfloat16()
                    .float()
                )
            else:
                c = 1.0 if ("norm" in n.lower() or "ln_" in n) and n.endswith("weight") else 0.0
                p.copy_((c + torch.randn(p.shape, generator=g) * 0.1).bfloat16().float())
    return m.eval()


def ids(T, g, V=96):
    return torch.randint(5, V, (1, T), generator=g)


def dec(name, mt, **kw):
    c = AutoConfig.for_model(mt, vocab_size=96, bos_token_id=1, eos_token_id=2, pad_token_id=0, **kw)
    c._attn_implementation = "sdpa" if kw.get("alibi") else "eager"
    m = randomised(AutoModelForCausalLM.from_config(c))
    d = f"{sys.argv[1]}/{name}"
    os.makedirs(d, exist_ok=True)
    m.save_pretrained(d)
    m = AutoModelForCausalLM.from_pretrained(
        d, attn_implementation="sdpa" if kw.get("alibi") else "eager"
    ).eval()
    e = {}
    g = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for T in (1, 9, 45):
            x = ids(T, g)
            e[f"p{T}.input_ids"] = x[0].int()
            e[f"p{T}.logits"] = m(x, use_cache=False).logits[0].clone()

        def greedy(x, n):
            out = []
            for _ in range(n):
                t = m(x, use_cache=False).logits[0, -1].argmax()
                out.append(int(t))
                x = torch.cat([x, t.view(1, 1)], 1)
            return out

        x = e["p9.input_ids"].long()[None]
        e["p9.greedy"] = torch.tensor(greedy(x, 24), dtype=torch.int32)
        a = ids(9, g)
        b = ids(5, g)
        e["batch.input_ids"] = torch.cat([a, torch.cat([torch.zeros(1, 4, dtype=torch.long), b], 1)]).int()
        e["batch.attention_mask"] = torch.tensor([[1] * 9, [0] * 4 + [1] * 5], dtype=torch.int32)
        e["batch.greedy"] = torch.tensor([greedy(a, 8), greedy(b, 8)], dtype=torch.int32)
    save_file({k: v.contiguous() for k, v in e.items()}, d + "/expected.safetensors")
    print(name, "ok", flush=True)


def enc(name, mt, cls=None, off=0, **kw):
    c = AutoConfig.for_model(mt, **{**dict(vocab_size=96, pad_token_id=off), **kw})
    c._attn_implementation = "eager"
    if cls:
        c.num_labels = cls
    A = AutoModelForSequenceClassification if cls else AutoModel
    m = randomised(A.from_config(c))
    d = f"{sys.argv[1]}/{name}"
    os.makedirs(d, exist_ok=True)
    m.save_pretrained(d)
    m = A.from_pretrained(d, attn_implementation="eager").eval()
    e = {}
    g = torch.Generator().manual_seed(7)
    with torch.no_grad():
        a = ids(9, g)
        b = ids(5, g)
        x = torch.cat([a, torch.cat([b, torch.full((1, 4), off)], 1)])
        mask = torch.tensor([[1] * 9, [1] * 5 + [0] * 4])
        e["batch.input_ids"] = x.int()
        e["batch.attention_mask"] = mask.int()
        o = m(x, attention_mask=mask)
        if cls:
            e["batch.logits"] = o.logits
        else:
            e["batch.last_hidden_state"] = o.last_hidden_state
            for T in (9, 45):
                x = ids(T, g)
                o = m(x, attention_mask=torch.ones_like(x))
                e[f"p{T}.input_ids"] = x[0].int()
                e[f"p{T}.last_hidden_state"] = o.last_hidden_state[0]
                if getattr(o, "pooler_output", None) is not None:
                    e[f"p{T}.pooler_output"] = o.pooler_output[0]
    save_file({k: v.contiguous().clone() for k, v in e.items()}, d + "/expected.safetensors")
    print(name, "ok", flush=True)


G = dict(n_embd=16, n_head=4, n_layer=2, n_positions=64)
H = dict(
    hidden_size=16,
    num_attention_heads=4,
    num_hidden_layers=2,
    intermediate_size=32,
    max_position_embeddings=64,
)
MODELS = [
    lambda: dec("gemma", "gemma", num_key_value_heads=1, head_dim=8, **H),
    lambda: dec("gpt_neox", "gpt_neox", **{**H, "hidden_size": 32}),
    lambda: dec(
        "gpt_neox-sequential",
        "gpt_neox",
        use_parallel_residual=False,
        tie_word_embeddings=False,
        **{**H, "hidden_size": 32},
    ),
    lambda: dec("bloom", "bloom", hidden_size=16, n_head=4, n_layer=2),
    lambda: dec(
        "bloom-6-heads",
        "bloom",
        hidden_size=24,
        n_head=6,
        n_layer=2,
        apply_residual_connection_post_layernorm=True,
    ),
    lambda: dec(
        "mpt", "mpt", d_model=24, n_heads=6, n_layers=2, max_seq_len=64, attn_config={"clip_qkv": 0.8}
    ),
    lambda: dec("gpt_bigcode", "gpt_bigcode", n_inner=32, **G),
    lambda: dec("gpt_bigcode-many-heads", "gpt_bigcode", multi_query=False, **G),
    lambda: dec("starcoder2", "starcoder2", num_key_value_heads=2, sliding_window=16, **H),
    lambda: dec("phi-head-norms", "phi", num_key_value_heads=2, qk_layernorm=True, **H),
    lambda: dec("phi", "phi", **H),
    lambda: dec(
        "falcon-new",
        "falcon",
        hidden_size=16,
        num_attention_heads=4,
        num_hidden_layers=2,
        new_decoder_architecture=True,
        num_kv_heads=2,
        max_position_embeddings=64,
    ),
    lambda: dec(
        "falcon-alibi",
        "falcon",
        hidden_size=16,
        num_attention_heads=4,
        num_hidden_layers=2,
        alibi=True,
        multi_query=False,
        parallel_attn=False,
        bias=True,
        max_position_embeddings=64,
    ),
    lambda: dec(
        "opt-post-norm",
        "opt",
        hidden_size=16,
        num_attention_heads=4,
        num_hidden_layers=2,
        ffn_dim=32,
        max_position_embeddings=64,
        do_layer_norm_before=False,
        word_embed_proj_dim=8,
    ),
    lambda: enc("roberta", "roberta", off=1, type_vocab_size=1, **H),
    lambda: enc("roberta-crossencoder", "roberta", cls=1, off=1, type_vocab_size=1, **H),
    lambda: enc("albert", "albert", embedding_size=8, num_hidden_groups=2, **{**H, "num_hidden_layers": 4}),
    lambda: enc("albert-crossencoder", "albert", cls=3, embedding_size=8, **H),
    lambda: enc("mpnet", "mpnet", off=1, **{**H, "max_position_embeddings": 256}),
    lambda: enc("mpnet-crossencoder", "mpnet", cls=1, off=1, **H),
    lambda: enc("electra-factorised", "electra", embedding_size=8, **H),
    lambda: enc("electra-crossencoder", "electra", cls=2, embedding_size=8, **H),
    lambda: enc(
        "distilbert-crossencoder",
        "distilbert",
        cls=1,
        dim=16,
        n_heads=4,
        n_layers=2,
        hidden_dim=32,
        max_position_embeddings=64,
    ),
    lambda: enc(
        "modernbert-crossencoder",
        "modernbert",
        cls=1,
        classifier_pooling="mean",
        local_attention=6,
        global_attn_every_n_layers=2,
        cls_token_id=1,
        sep_token_id=2,
        **H,
    ),
    lambda: enc(
        "deberta-v2",
        "deberta-v2",
        relative_attention=True,
        position_buckets=16,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
        type_vocab_size=0,
        **H,
    ),
    lambda: enc(
        "deberta-v2-plain",
        "deberta-v2",
        relative_attention=True,
        pos_att_type=["c2p", "p2c"],
        type_vocab_size=2,
        **H,
    ),
    lambda: enc(
        "deberta-v2-crossencoder",
        "deberta-v2",
        cls=1,
        relative_attention=True,
        position_buckets=16,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type="p2c|c2p",
        position_biased_input=False,
        type_vocab_size=0,
        **H,
    ),
]

for make in MODELS:
    make()
