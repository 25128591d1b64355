"""Records eagle.json.gz: what heads of EAGLE and EAGLE-3 give on the model tiny_llama, as the published code computes it
(SafeAILab/EAGLE's eagle/model/cnets1.py and cnets.py, and vLLM's llama_eagle3.py for norm_before_residual). The weights
follow from their names: eagle_test.go makes the same ones.

    python record_eagle.py
"""

import gzip
import json
import os

import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
MASK = (1 << 64) - 1
BASE = {"model_type": "llama", "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2, "num_key_value_heads": 1,
        "num_hidden_layers": 1, "vocab_size": 32, "rms_norm_eps": 1e-6, "hidden_act": "silu", "max_position_embeddings": 64,
        "rope_theta": 10000.0}


def number(name, i):
    h = 0xCBF29CE484222325
    for b in name.encode():
        h = (h ^ b) * 0x100000001B3 & MASK
    x = (h + (i + 1) * 0x9E3779B97F4A7C15) & MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    x ^= x >> 31
    return (x >> 40) / (1 << 24) - 0.5


def weights(shapes):
    out = {}
    for name, shape in shapes.items():
        n = 1
        for d in shape:
            n *= d
        values = torch.tensor([number(name, i) for i in range(n)], dtype=torch.float64)
        if len(shape) == 1 and not name.endswith("bias"):
            values = 1 + values / 2
        out[name] = values.to(torch.float32).reshape(shape)
    return out


def shapes(config, prefix, third, embeds, bias):
    h, inner, size = config["hidden_size"], config["intermediate_size"], config.get("head_dim", config["hidden_size"] // 2)
    wide = 2 * h if third else h
    all = {prefix + "self_attn.q_proj.weight": [2 * size, wide], prefix + "self_attn.k_proj.weight": [size, wide],
           prefix + "self_attn.v_proj.weight": [size, wide], prefix + "self_attn.o_proj.weight": [h, 2 * size],
           prefix + "mlp.gate_proj.weight": [inner, h], prefix + "mlp.up_proj.weight": [inner, h],
           prefix + "mlp.down_proj.weight": [h, inner], prefix + "post_attention_layernorm.weight": [h]}
    if third:
        all |= {prefix + "hidden_norm.weight": [h], prefix + "input_layernorm.weight": [h], "norm.weight": [h],
                "lm_head.weight": [config["draft_vocab_size"], h], "fc.weight": [h, 48]}
    else:
        all |= {"fc.weight": [h, 2 * h]}
    if embeds:
        all["embed_tokens.weight"] = [32, h]
    if bias:
        all["fc.bias"] = [h]
    return all


def norm(x, w):
    return w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def turn(x):  # [heads, rows, size] by the rows' positions
    size, rows = x.shape[-1], x.shape[1]
    freq = 1.0 / (10000.0 ** (torch.arange(0, size, 2).float() / size))
    angles = torch.outer(torch.arange(rows).float(), freq)
    cos, sin = torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()
    half = size // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def attend(w, prefix, x):
    rows = x.shape[0]
    q, k, v = (x @ w[prefix + f"self_attn.{n}_proj.weight"].T for n in "qkv")
    size = k.shape[1]
    q, k, v = (turn(q.view(rows, 2, size).transpose(0, 1)), turn(k.view(rows, 1, size).transpose(0, 1)), v.view(rows, 1, size).transpose(0, 1))
    scores = q @ k.transpose(1, 2) / size ** 0.5 + torch.full((rows, rows), float("-inf")).triu(1)
    return (scores.softmax(-1) @ v).transpose(0, 1).reshape(rows, -1) @ w[prefix + "self_attn.o_proj.weight"].T


def feed(w, prefix, x):
    return (F.silu(x @ w[prefix + "mlp.gate_proj.weight"].T) * (x @ w[prefix + "mlp.up_proj.weight"].T)) @ w[prefix + "mlp.down_proj.weight"].T


def head(config, w, prefix, third, words, fused):
    """The hidden states that a head gives for all rows; fused are those that it sees, of EAGLE-3 behind fc."""
    if not third:
        x = torch.cat([words, fused], -1) @ w["fc.weight"].T + w.get("fc.bias", 0)
        x = x + attend(w, prefix, x)
    else:
        normed = norm(fused, w[prefix + "hidden_norm.weight"])
        residual = normed if config.get("norm_before_residual") else fused
        x = residual + attend(w, prefix, torch.cat([norm(words, w[prefix + "input_layernorm.weight"]), normed], -1))
    return x + feed(w, prefix, norm(x, w[prefix + "post_attention_layernorm.weight"]))


def record(name, config, layers, prefix, third, embeds, bias, tokens, target):
    w = weights(shapes(config, prefix, third, embeds, bias))
    flat = config | config.get("transformer_layer_config", {})
    out = target(torch.tensor([tokens]), output_hidden_states=True)
    states = [x[0] for x in out.hidden_states]
    if third:  # the last of the list is behind the norm
        kept = []
        hook = target.model.norm.register_forward_pre_hook(lambda _, args: kept.append(args[0][0]))
        target(torch.tensor([tokens]))
        hook.remove()
        states[-1] = kept[0]
        seen = torch.cat([states[i] for i in layers], -1)
        fused = seen @ w["fc.weight"].T
    else:
        seen = fused = states[-1]
    table = w["embed_tokens.weight"] if embeds else target.model.embed_tokens.weight
    known = [32 * k // 20 for k in range(20)] if third else list(range(32))

    def logits(x):
        if third:
            return norm(x, w["norm.weight"]) @ w["lm_head.weight"].T
        return x @ target.lm_head.weight.T

    text, fused = list(tokens), fused[:-1]  # the row of the last token has nothing behind it
    rows = head(flat, w, prefix, third, table[torch.tensor(text[1:])], fused)
    first, chain = rows, []
    for _ in range(3):
        last = logits(rows[-1])
        chain.append([round(x, 6) for x in last.tolist()])
        text.append(known[int(last.argmax())])
        fused = torch.cat([fused, rows[-1:]])
        # rows of before are what they were: attention looks back only
        rows = head(flat, w, prefix, third, table[torch.tensor(text[1:])], fused)
    config = config | {"architectures": ["LlamaForCausalLMEagle3" if third else "LlamaForCausalLM"]}
    return {"name": name, "config": config, "prefix": prefix, "shapes": shapes(flat, prefix, third, embeds, bias),
            "tokens": tokens, "layers": layers, "known": known, "guesses": text[len(tokens):], "logits": chain,
            "hidden": [[round(x, 6) for x in r] for r in first.tolist()], "seen": [round(x, 6) for x in seen[-2].tolist()]}


@torch.no_grad()
def main():
    target = AutoModelForCausalLM.from_pretrained(os.path.join(HERE, "tiny_llama")).float().eval()
    third = BASE | {"draft_vocab_size": 20}
    spec = {"speculators_model_type": "eagle3", "draft_vocab_size": 20, "norm_before_residual": True, "target_hidden_size": 16,
            "eagle_aux_hidden_state_layer_ids": [1, 1, 0],
            "transformer_layer_config": BASE | {"hidden_size": 24}}
    tokens = [3, 17, 9, 30, 4, 11, 26]
    flat = spec | spec["transformer_layer_config"]
    all = [
        record("eagle", BASE, [-1], "layers.0.", False, True, True, tokens, target),
        record("eagle3", third | {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [-1, 0, 0]}}, [0, 1, 1], "midlayer.", True, False, False,
               tokens, target),
        record("speculators", spec | {k: v for k, v in flat.items() if k not in spec}, [1, 1, 0], "layers.0.", True, True, False, tokens, target),
    ]
    all[2]["config"] = spec | {"architectures": ["Eagle3Speculator"]}
    with gzip.GzipFile(os.path.join(HERE, "eagle.json.gz"), "wb", mtime=0) as f:
        f.write(json.dumps(all, separators=(",", ":")).encode())


if __name__ == "__main__":
    main()
