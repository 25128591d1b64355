"""Writes gguf.json.gz: language models of every architecture that runs from a GGUF file, as what such a file says, and the logits
of transformers for the numbers in it. The tensors are pseudo-random blocks that the test makes as well.

    pip install gguf transformers torch && python make_gguf.py
"""

import gzip
import json

import gguf
import numpy as np
import torch
import transformers

Q = gguf.GGMLQuantizationType
IDS = [3, 1, 4, 1, 5, 9, 2, 6]
VOCABULARY = 40
# Bytes of a block whose bits are kept in part, so that scales have a size of use: offset, bits kept, bits set.
MASKS = {Q.Q8_0: [(1, 3, 0x14)], Q.Q4_1: [(1, 3, 0x24), (3, 3, 0xB0)], Q.F16: [(1, 0x83, 0x2C)], Q.BF16: [(1, 0x80, 0x3D)]}


def pseudo_random(seed, n):
    state, out = seed, bytearray()
    for _ in range(n):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        out.append(state >> 24)
    return out


def raw_tensor(seed, name, shape, kind):
    """The bytes of a tensor, as the file has them."""
    n = int(np.prod(shape))
    if kind == Q.F32:
        b = np.frombuffer(bytes(pseudo_random(seed, n)), dtype=np.uint8).astype(np.float32)
        return ((b - 128) / 1024 if name.endswith("bias") else b / 512 + 0.75).astype("<f4").tobytes()
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    data = pseudo_random(seed, n // elements * size)
    for at in range(0, len(data), size):
        for off, kept, put in MASKS[kind]:
            data[at + off] = data[at + off] & kept | put
    return bytes(data)


def numbers(raw, shape, kind):
    if kind == Q.F32:
        return np.frombuffer(raw, dtype="<f4").reshape(shape).copy()
    return gguf.dequantize(np.frombuffer(raw, dtype=np.uint8).reshape(*shape[:-1], -1), kind).astype(np.float32).reshape(shape)


def turned_back(x, heads):
    """Rows as transformers has them, of those that llama.cpp's converter interleaved."""
    return x.reshape(heads, x.shape[0] // heads // 2, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def record(case, arch, model, keys, kinds=None, extra=None, transposed=()):
    """The case as the test reads it. keys are those of the file, without the architecture; kinds are encodings of tensors by a part
    of their names, Q8_0 for others; extra are tensors that are not the model's."""
    names = gguf.get_tensor_name_map(next(k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == arch), model.config.num_hidden_layers)
    tensors, state = [], {}
    tied = model.config.tie_word_embeddings
    for hf in model.state_dict():
        if hf == "lm_head.weight" and tied or hf.endswith((".attn.bias", ".attn.masked_bias")):
            continue
        base, suffix = hf.rsplit(".", 1)
        if base.endswith(".experts"): # tensors with all experts, gates and ups apart
            parts = []
            for part in ["gate", "up"] if suffix == "gate_up_proj" else ["down"]:
                name = f"blk.{base.split('.')[2]}.ffn_{part}_exps.weight"
                shape = list(model.state_dict()[hf].shape)
                shape[1] //= 2 if suffix == "gate_up_proj" else 1
                kind = next((k for p, k in (kinds or {}).items() if p in name), Q.Q8_0)
                parts.append(numbers(raw_tensor(len(tensors), name, shape, kind), shape, kind))
                tensors.append([name, shape, int(kind)])
            state[hf] = torch.from_numpy(np.concatenate(parts, 1))
            continue
        name = names.get_name(base) + "." + suffix
        shape = list(model.state_dict()[hf].shape)
        if base.endswith(tuple(transposed)) and suffix == "weight":
            shape.reverse()
        kind = Q.F32 if len(shape) == 1 else next((k for part, k in (kinds or {}).items() if part in name), Q.Q8_0)
        raw = raw_tensor(len(tensors), name, shape, kind)
        x = numbers(raw, shape, kind)
        if arch in INTERLEAVED and ".attn_q." in name:
            x = turned_back(x, model.config.num_attention_heads)
        if arch in INTERLEAVED and ".attn_k." in name:
            x = turned_back(x, model.config.num_key_value_heads)
        if arch.startswith("gemma") and name.endswith("norm.weight"):
            x = x - 1
        if base.endswith(tuple(transposed)) and suffix == "weight":
            x = np.ascontiguousarray(x.T)
        state[hf] = torch.from_numpy(x)
        tensors.append([name, shape, int(kind)])
    missing = model.load_state_dict(state, strict=False)
    assert not missing.unexpected_keys and all(k == "lm_head.weight" or k.endswith("bias") for k in missing.missing_keys), missing
    model.tie_weights()
    with torch.no_grad():
        logits = model(torch.tensor([IDS])).logits[0]
    assert torch.isfinite(logits).all()
    stated = {"general.architecture": arch}
    stated |= {f"{arch}.{k}": v for k, v in keys.items()}
    CASES.append({
        "name": case, "keys": stated, "tensors": tensors, "extra": extra or {},
        "logits": [[float("%.6g" % x) for x in row[:6]] for row in (logits[0], logits[4], logits[-1])],
    })
    print(case, float(logits.std()))


INTERLEAVED = ("llama", "granite", "smollm3", "arcee")
CASES = []
SIZES = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=128)
KEYS = {"context_length": 128, "embedding_length": 32, "block_count": 2, "feed_forward_length": 64, "attention.head_count": 4,
        "attention.head_count_kv": 2, "attention.layer_norm_rms_epsilon": 1e-5, "rope.freq_base": 5000.0}
T = transformers


def of(config_class, model_class, **fields):
    config = config_class(**(SIZES | {"rms_norm_eps": float(np.float32(1e-5)), "rope_theta": 5000.0} | fields))
    config._attn_implementation = "eager"
    return model_class(config).eval()


plain = {"attn_q.weight": Q.F16, "attn_k.weight": Q.BF16, "ffn_down": Q.Q4_1}
record("llama", "llama", of(T.LlamaConfig, T.LlamaForCausalLM, attention_bias=True, mlp_bias=True, tie_word_embeddings=False),
       KEYS | {"rope.dimension_count": 8}, plain)
scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 16}
llama3 = of(T.LlamaConfig, T.LlamaForCausalLM, rope_parameters=scaling | {"rope_theta": 5000.0}, tie_word_embeddings=True)
straight = 1 / 5000.0 ** (np.arange(0, 8, 2, dtype=np.float64) / 8)
factors = (straight / llama3.model.rotary_emb.inv_freq.numpy().astype(np.float64)).astype(np.float32)
record("llama 3 frequencies", "llama", llama3, KEYS, extra={"rope_freqs.weight": [float(x) for x in factors]})
record("linear scaling", "llama", of(T.LlamaConfig, T.LlamaForCausalLM, tie_word_embeddings=True,
       rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0}),
       KEYS | {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0})
record("yarn", "llama", of(T.LlamaConfig, T.LlamaForCausalLM, tie_word_embeddings=True,
       rope_parameters={"rope_type": "yarn", "factor": 4.0, "rope_theta": 5000.0, "original_max_position_embeddings": 32}),
       KEYS | {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 32})
record("qwen2", "qwen2", of(T.Qwen2Config, T.Qwen2ForCausalLM, tie_word_embeddings=True), KEYS)
record("qwen3", "qwen3", of(T.Qwen3Config, T.Qwen3ForCausalLM, head_dim=16, tie_word_embeddings=False),
       KEYS | {"attention.key_length": 16, "attention.value_length": 16})
gemma = {"attention.key_length": 16, "attention.value_length": 16}
record("gemma", "gemma", of(T.GemmaConfig, T.GemmaForCausalLM, head_dim=16, tie_word_embeddings=True), KEYS | gemma)
record("gemma 2", "gemma2", of(T.Gemma2Config, T.Gemma2ForCausalLM, head_dim=16, tie_word_embeddings=True, sliding_window=4,
       query_pre_attn_scalar=16, attn_logit_softcapping=20.0, final_logit_softcapping=10.0),
       KEYS | gemma | {"attention.sliding_window": 4, "attn_logit_softcapping": 20.0, "final_logit_softcapping": 10.0})
short, long = [1.0, 1.5, 2.0, 2.5], [1.0, 4.0, 9.0, 16.0]
record("phi 3", "phi3", of(T.Phi3Config, T.Phi3ForCausalLM, tie_word_embeddings=False, pad_token_id=0, sliding_window=5,
       original_max_position_embeddings=16,
       rope_parameters={"rope_type": "longrope", "short_factor": short, "long_factor": long, "rope_theta": 5000.0,
                        "original_max_position_embeddings": 16, "partial_rotary_factor": 1.0}),
       KEYS | {"attention.sliding_window": 5, "rope.dimension_count": 8, "rope.scaling.original_context_length": 16},
       extra={"rope_factors_long.weight": long, "rope_factors_short.weight": short})
record("gemma 3", "gemma3", of(T.Gemma3TextConfig, T.Gemma3ForCausalLM, head_dim=16, tie_word_embeddings=True, sliding_window=4,
       query_pre_attn_scalar=16, num_hidden_layers=6, rope_theta=None, final_logit_softcapping=8.0, rope_parameters={
           "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0},
           "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}),
       KEYS | gemma | {"block_count": 6, "attention.sliding_window": 4, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0,
                       "final_logit_softcapping": 8.0})
record("smollm3", "smollm3", of(T.SmolLM3Config, T.SmolLM3ForCausalLM, tie_word_embeddings=True, num_hidden_layers=4, pad_token_id=0),
       KEYS | {"block_count": 4, "rope.dimension_count": 8}, {"attn_q.weight": Q.F16})
record("granite", "granite", of(T.GraniteConfig, T.GraniteForCausalLM, tie_word_embeddings=True, embedding_multiplier=6.0,
       residual_multiplier=0.25, logits_scaling=4.0, attention_multiplier=0.125),
       KEYS | {"attention.scale": 0.125, "embedding_scale": 6.0, "residual_scale": 0.25, "logit_scale": 4.0})
record("arcee", "arcee", of(T.ArceeConfig, T.ArceeForCausalLM, tie_word_embeddings=False), KEYS)
record("olmo2", "olmo2", of(T.Olmo2Config, T.Olmo2ForCausalLM, tie_word_embeddings=False, pad_token_id=0), KEYS)
record("seed oss", "seed_oss", of(T.SeedOssConfig, T.SeedOssForCausalLM, head_dim=16, tie_word_embeddings=False, pad_token_id=0),
       KEYS | {"attention.key_length": 16, "attention.value_length": 16})
record("starcoder2", "starcoder2", of(T.Starcoder2Config, T.Starcoder2ForCausalLM, tie_word_embeddings=True, sliding_window=5,
       norm_epsilon=float(np.float32(1e-5))), {k: v for k, v in KEYS.items() if "rms" not in k} | {
           "attention.layer_norm_epsilon": 1e-5, "attention.sliding_window": 5})
gpt2 = T.GPT2LMHeadModel(T.GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=128,
                                      layer_norm_epsilon=float(np.float32(1e-5)), attn_implementation="eager")).eval()
record("gpt2", "gpt2", gpt2, {"context_length": 128, "embedding_length": 32, "block_count": 2, "feed_forward_length": 128,
       "attention.head_count": 4, "attention.layer_norm_epsilon": 1e-5}, {"attn_qkv": Q.F16, "position": Q.F16},
       transposed=("c_attn", "c_proj", "c_fc"))

experts = {"expert_count": 4, "expert_used_count": 2}
record("mixtral", "llama", of(T.MixtralConfig, T.MixtralForCausalLM, tie_word_embeddings=False, num_local_experts=4,
       num_experts_per_tok=2, experts_implementation="eager"), KEYS | experts, {"ffn_down": Q.Q4_1})
record("qwen3 moe", "qwen3moe", of(T.Qwen3MoeConfig, T.Qwen3MoeForCausalLM, head_dim=16, tie_word_embeddings=False, num_experts=4,
       num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True, experts_implementation="eager"),
       KEYS | experts | {"attention.key_length": 16, "attention.value_length": 16, "expert_feed_forward_length": 32})

with gzip.GzipFile("gguf.json.gz", "wb", mtime=0) as f:
    f.write(json.dumps({"ids": IDS, "masks": {int(k): v for k, v in MASKS.items()}, "cases": CASES}).encode())
