"""Records eagle.json.gz: what heads of EAGLE and EAGLE-3 give on the model tiny_llama, as the published code computes it
(SafeAILab/EAGLE's eagle/model/cnets1.py and cnets.py, and vLLM's llama_eagle3.py for norm_before_residual), and the trees
that EAGLE-2's topK_genrate drafts with them. The weights follow from their names: eagle_test.go makes the same ones. Those of
the last head are trained here to guess what tiny_llama writes, and are recorded.

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


def grown(after, known, top, levels, nodes):
    """The tree of topK_genrate: of each of the best nodes of a level the likeliest tokens follow, the best of those by joint
    probability are the next level's, and the best of all are kept. Returns the tokens of each path that ends at a kept node."""
    scored, level = [], [((), 0.0)]
    for _ in range(levels):
        found = []
        for path, score in level:
            p = after(path).log_softmax(-1).topk(top)
            found += [(path + (known[int(i)],), score + float(x)) for i, x in zip(p.indices, p.values)]
        scored += found
        level = sorted(found, key=lambda x: -x[1])[:top]
    return [path for path, _ in sorted(scored, key=lambda x: -x[1])[:nodes]]


def leaves(tree):
    return [p for p in tree if not any(q[:-1] == p for q in tree)]


def trained(config, target):
    """The weights of a head of EAGLE that was trained on texts of the target, in two bytes each."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    w = {k: x.clone().requires_grad_() for k, x in weights(shapes(config, "layers.0.", False, False, False)).items()}
    table, last = target.model.embed_tokens.weight.detach(), target.lm_head.weight.detach()
    with torch.no_grad():
        texts = target.generate(torch.randint(0, 32, (192, 4)), do_sample=True, top_k=0, min_new_tokens=26, max_new_tokens=26)
        states = target(texts, output_hidden_states=True).hidden_states[-1]
        wanted = (states @ last.T).softmax(-1)
    run = torch.func.vmap(lambda words, fused: head(config, w, "layers.0.", False, words, fused))
    adam = torch.optim.Adam(w.values(), lr=8e-3)
    steps = 600
    for step in range(steps):
        for group in adam.param_groups:
            group["lr"] = 8e-3 * (1 - step / steps)
        pick = torch.randint(0, len(texts), (32,))
        words, seen, loss = table[texts[pick, 1:]], states[pick, :-1], 0
        for _ in range(3):  # then it sees what it gave itself, as it does where it guesses
            own = run(words, seen)
            miss = -(wanted[pick, 1:] * (own @ last.T).log_softmax(-1)).sum(-1).mean()
            loss = loss + miss + F.smooth_l1_loss(own, states[pick, 1:])
            seen = torch.cat([states[pick, :1], own[:, :-1]], 1)
        adam.zero_grad()
        loss.backward()
        adam.step()
        if step % 100 == 99:
            print(step + 1, float(loss.detach()), flush=True)
    return {k: x.detach().to(torch.bfloat16).float() for k, x in w.items()}


def record(name, config, layers, prefix, third, embeds, bias, tokens, target, own=None):
    w = own or weights(shapes(config, prefix, third, embeds, bias))
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

    begin = fused[:-1]
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

    def after(path):
        seen, out = begin, begin[-1:]
        for k in range(len(path) + 1):
            out = head(flat, w, prefix, third, table[torch.tensor((list(tokens) + list(path))[1:len(tokens) + k])], seen)
            seen = torch.cat([seen, out[-1:]])
        return logits(out[-1])

    for nodes in range(7, 0, -1):  # as many as have no more than four ends
        tree = grown(after, known, 4, 4, nodes)
        if len(leaves(tree)) <= 4:
            break
    config = config | {"architectures": ["LlamaForCausalLMEagle3" if third else "LlamaForCausalLM"]}
    more = {"weights": {k: [round(float(x), 6) for x in v.flatten()] for k, v in own.items()}} if own else {}
    return more | {"nodes": len(tree), "tree": leaves(tree), "name": name, "config": config, "prefix": prefix, "shapes": shapes(flat, prefix, third, embeds, bias),
            "tokens": tokens, "layers": layers, "known": known, "guesses": text[len(tokens):], "logits": chain,
            "hidden": [[round(x, 6) for x in r] for r in first.tolist()], "seen": [round(x, 6) for x in seen[-2].tolist()]}


def main():
    target = AutoModelForCausalLM.from_pretrained(os.path.join(HERE, "tiny_llama")).float().eval()
    own = trained(BASE, target)
    torch.set_grad_enabled(False)
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
        record("trained", BASE, [-1], "layers.0.", False, False, False, tokens, target, own),
    ]
    all[2]["config"] = spec | {"architectures": ["Eagle3Speculator"]}
    with gzip.GzipFile(os.path.join(HERE, "eagle.json.gz"), "wb", mtime=0) as f:
        f.write(json.dumps(all, separators=(",", ":")).encode())


if __name__ == "__main__":
    main()
