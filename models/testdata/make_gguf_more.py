"""Writes gguf_more.json.gz: what make_gguf.py writes, for more architectures. Names in the file are those of Python's package gguf; what
llama.cpp's converter does to a tensor is undone in `built`.

    pip install gguf transformers torch && python make_gguf_more.py
"""

import gzip
import json

import gguf
import numpy as np
import torch
import transformers as T

Q = gguf.GGMLQuantizationType
IDS = [3, 1, 4, 1, 5, 9, 2, 6]
VOCABULARY = 40
MASKS = {Q.Q8_0: [(1, 3, 0x14)], Q.MXFP4: [(0, 1, 0x7A)]}  # as make_gguf.py has them
EPS = float(np.float32(1e-5))
CASES = []


def pseudo_random(seed, n):
    state, out = seed, bytearray()
    for _ in range(n):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        out.append(state >> 24)
    return out


def numbers(seed, name, shape, kind):
    """The numbers of a tensor, as make_gguf.py and the test make them."""
    n = int(np.prod(shape))
    if kind == Q.F32:
        b = np.frombuffer(bytes(pseudo_random(seed, n)), dtype=np.uint8).astype(np.float32)
        return ((b - 128) / 1024 if name.endswith("bias") else b / 512 + 0.75).reshape(shape)
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    data = pseudo_random(seed, n // elements * size)
    for at in range(0, len(data), size):
        for off, kept, put in MASKS[kind]:
            data[at + off] = data[at + off] & kept | put
    raw = np.frombuffer(bytes(data), dtype=np.uint8).reshape(*shape[:-1], -1)
    return gguf.dequantize(raw, kind).astype(np.float32).reshape(shape)


def turned_back(x, heads):
    """Rows as transformers has them, of those that llama.cpp's converter interleaved."""
    return x.reshape(heads, x.shape[0] // heads // 2, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def built(hf, shape, arch, config, names, take):
    """A tensor of the model, of those that the file has."""
    block = f"blk.{hf.split('.')[2]}." if ".layers." in hf else ""
    if hf.endswith((".experts.gate_up_proj", ".experts.gate_up_proj_bias", "moe.input_linear.weight")):
        suffix = ".bias" if hf.endswith("bias") else ".weight"
        turned = arch in ("gpt-oss", "llama4") and suffix == ".weight"
        each = [shape[0], shape[2], shape[1]] if turned else list(shape)
        each[1] //= 2
        gate, up = (take(f"{block}ffn_{k}_exps{suffix}", each) for k in ("gate", "up"))
        x = np.concatenate([gate, up], 1)
        if arch == "gpt-oss":
            x[:, ::2], x[:, 1::2] = gate, up
        return x.swapaxes(1, 2) if turned else x
    if hf.endswith((".experts.down_proj", "moe.output_linear.weight")):
        turned = arch in ("gpt-oss", "llama4")
        x = take(f"{block}ffn_down_exps.weight", [shape[0], shape[2], shape[1]] if turned else shape)
        return x.swapaxes(1, 2) if turned else x
    if hf.endswith(".experts.down_proj_bias"):
        return take(f"{block}ffn_down_exps.bias", shape)
    if hf.endswith("shared_expert_gate.weight"):
        return take(f"{block}ffn_gate_inp_shexp.weight", [shape[1]]).reshape(shape)
    if hf.endswith("kv_b_proj.weight") and config.model_type == "deepseek_v3":
        heads, rank = config.num_attention_heads, config.kv_lora_rank
        keys = take(f"{block}attn_k_b.weight", [heads, rank, config.qk_nope_head_dim]).swapaxes(1, 2)
        return np.concatenate([keys, take(f"{block}attn_v_b.weight", [heads, config.v_head_dim, rank])], 1).reshape(shape)
    if hf.endswith(("sinks", "e_score_correction_bias")):
        return take(f"{block}{'attn_sinks.weight' if hf.endswith('sinks') else 'exp_probs_b.bias'}", shape)
    if "shared_mlp." in hf:
        if "output" in hf:
            return take(f"{block}ffn_down_shexp.weight", shape)
        return np.concatenate([take(f"{block}ffn_{k}_shexp.weight", [shape[0] // 2, shape[1]]) for k in ("gate", "up")])
    if arch == "phi2" and config.fused and hf.rsplit(".", 2)[1] in ("q_proj", "k_proj", "v_proj"):
        n, suffix, which = shape[0], hf.rsplit(".", 1)[1], "qkv".index(hf.rsplit(".", 2)[1][0])
        name, whole = f"{block}attn_qkv.{suffix}", [3 * n, *shape[1:]]
        kind = Q.Q8_0 if suffix == "weight" else Q.F32
        if name not in take.seeds:
            take(name, whole)
        return numbers(take.seeds[name], name, whole, kind)[which * n:(which + 1) * n]
    if "layernorm.norms." in hf:
        name, row = f"{block}attn_{hf.split('.')[4][0]}_norm.weight", int(hf.split(".")[6])
        heads = config.num_attention_heads if "q_layernorm" in hf else config.num_key_value_heads
        return (take(name, [heads, shape[0]]) if row == 0 else numbers(take.seeds[name], name, [heads, shape[0]], Q.F32))[row]
    base, suffix = hf.rsplit(".", 1)
    name = names.get_name(base)
    assert name, hf
    x = take(name + "." + suffix, shape)
    if arch == "nemotron" and name.endswith("norm") and suffix == "weight":
        x = x - 1
    if "query_key_value" in hf:
        heads = config.num_attention_heads
        x = x.reshape(3, heads, shape[0] // heads // 3, -1).swapaxes(0, 1).reshape(shape)
    if arch in INTERLEAVED and ".attn_q." in name + ".":
        x = turned_back(x, config.num_attention_heads)
    if arch in INTERLEAVED and ".attn_k." in name + ".":
        x = turned_back(x, config.num_key_value_heads)
    return x


INTERLEAVED = ("granitemoe",)


def record(case, arch, model_class, keys, kinds=None, ahead=False, **fields):
    """The case as the test reads it. keys are those of the file, without the architecture; kinds are encodings of tensors by a part
    of their names; ahead is set for a block that guesses tokens ahead, whose tensors are those of the last and more."""
    config = model_class.config_class(**{k: v for k, v in (SIZES | fields).items() if v is not None or k == "sliding_window"})
    config._attn_implementation = "eager"
    model = model_class(config).eval()
    names = gguf.get_tensor_name_map(next(k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == arch), 8)
    tensors, state = [], {}

    def take(name, shape):
        whole = len(shape) == 1 or shape[-1] % 32 or name.endswith("bias")
        kind = Q.F32 if whole else next((k for part, k in (kinds or {}).items() if part in name), Q.Q8_0)
        take.seeds[name] = len(tensors)
        tensors.append([name, list(shape), int(kind)])
        return numbers(len(tensors) - 1, name, shape, kind)

    take.seeds = {}
    for hf, x in model.state_dict().items():
        if hf != "lm_head.weight" or not config.tie_word_embeddings:
            state[hf] = torch.from_numpy(np.ascontiguousarray(built(hf, list(x.shape), arch, config, names, take)))
    if ahead:
        last = f"blk.{config.num_hidden_layers - 1}."
        for name, shape, _ in [x for x in tensors if x[0].startswith(last)]:
            take(name.replace(last, f"blk.{config.num_hidden_layers}."), shape)
        for name, shape in (("eh_proj", [32, 64]), ("enorm", [32]), ("hnorm", [32])):
            take(f"blk.{config.num_hidden_layers}.nextn.{name}.weight", shape)
    missing = model.load_state_dict(state, strict=False)
    assert not missing.unexpected_keys and all(k == "lm_head.weight" for k in missing.missing_keys), missing
    model.tie_weights()
    with torch.no_grad():
        logits = model(torch.tensor([IDS]), use_cache=False).logits[0]
    assert torch.isfinite(logits).all()
    CASES.append({
        "name": case, "keys": {"general.architecture": arch} | {f"{arch}.{k}": v for k, v in keys.items()}, "tensors": tensors,
        "logits": [[float("%.6g" % x) for x in row[:6]] for row in (logits[0], logits[4], logits[-1])]})
    print(case, float(logits.std()))


SIZES = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=128, rms_norm_eps=EPS, rope_theta=5000.0, tie_word_embeddings=False)
KEYS = {"context_length": 128, "embedding_length": 32, "block_count": 2, "feed_forward_length": 64, "attention.head_count": 4,
        "attention.head_count_kv": 2, "attention.layer_norm_rms_epsilon": 1e-5, "rope.freq_base": 5000.0}
SIXTEEN = {"attention.key_length": 16, "attention.value_length": 16}
MIXED = {"expert_count": 4, "expert_used_count": 2}
FOUR = dict(num_experts=4, num_experts_per_tok=2)
LOCAL = dict(num_local_experts=4, num_experts_per_tok=2)

GPT_OSS = KEYS | MIXED | SIXTEEN | {"attention.sliding_window": 4, "expert_feed_forward_length": 64}
record("gpt oss", "gpt-oss", T.GptOssForCausalLM, GPT_OSS | {
    "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 32}, {"_exps": Q.MXFP4}, head_dim=16,
    sliding_window=4, **LOCAL, rope_theta=None, rope_parameters={
        "rope_type": "yarn", "factor": 4.0, "rope_theta": 5000.0, "original_max_position_embeddings": 32, "truncate": False,
        "beta_fast": 32.0, "beta_slow": 1.0})
record("gpt oss, plain", "gpt-oss", T.GptOssForCausalLM, GPT_OSS, head_dim=16, sliding_window=4, **LOCAL, rope_theta=None,
       rope_parameters={"rope_type": "default", "rope_theta": 5000.0})
for case, said in (("qwen2 moe", {"expert_feed_forward_length": 32, "expert_shared_feed_forward_length": 64}), ("qwen2 moe, first files", {})):
    record(case, "qwen2moe", T.Qwen2MoeForCausalLM, KEYS | MIXED | said, **FOUR, moe_intermediate_size=32, shared_expert_intermediate_size=64)
record("olmoe", "olmoe", T.OlmoeForCausalLM, KEYS | MIXED | {"attention.head_count_kv": 4}, **FOUR, num_key_value_heads=4,
       pad_token_id=0)
SCALES = {"attention.scale": 0.125, "embedding_scale": 6.0, "residual_scale": 0.25, "logit_scale": 4.0, "rope.dimension_count": 8}
GRANITE = dict(embedding_multiplier=6.0, residual_multiplier=0.25, logits_scaling=4.0, attention_multiplier=0.125, tie_word_embeddings=True)
record("granite moe", "granitemoe", T.GraniteMoeForCausalLM, KEYS | MIXED | SCALES, **LOCAL, **GRANITE)
record("granite moe, shared", "granitemoe", T.GraniteMoeSharedForCausalLM, KEYS | MIXED | SCALES | {
    "expert_shared_feed_forward_length": 32}, **LOCAL, **GRANITE, shared_intermediate_size=32)
LATENT = {k: v for k, v in KEYS.items() if k != "attention.head_count_kv"} | {
    "attention.kv_lora_rank": 32, "attention.q_lora_rank": 32, "expert_used_count": 2, "expert_feed_forward_length": 32,
    "expert_shared_count": 1, "leading_dense_block_count": 1}
LATENTS = dict(num_key_value_heads=4, q_lora_rank=32, kv_lora_rank=32, n_shared_experts=1, num_experts_per_tok=2,
               moe_intermediate_size=32, first_k_dense_replace=1)
record("deepseek v2", "deepseek2", T.DeepseekV2ForCausalLM, LATENT | {
    "attention.head_count_kv": 4, "attention.key_length": 24, "attention.value_length": 16, "rope.dimension_count": 8, "expert_count": 4,
    "expert_weights_scale": 2.5}, **LATENTS, n_routed_experts=4, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16,
    routed_scaling_factor=2.5, topk_method="greedy", n_group=1, topk_group=1)
record("deepseek v3", "deepseek2", T.DeepseekV3ForCausalLM, LATENT | {
    "attention.head_count_kv": 1, "attention.key_length": 48, "attention.value_length": 32, "attention.key_length_mla": 48,
    "attention.value_length_mla": 32, "rope.dimension_count": 16, "expert_count": 8, "expert_weights_scale": 2.5, "expert_weights_norm": True,
    "expert_gating_func": 2, "expert_group_count": 4, "expert_group_used_count": 2, "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 32, "rope.scaling.yarn_log_multiplier": 0.1, "vocab_size": VOCABULARY}, **LATENTS,
    n_routed_experts=8, n_group=4, topk_group=2, qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=32, routed_scaling_factor=2.5,
    norm_topk_prob=True, rope_theta=None, rope_parameters={
        "rope_type": "yarn", "factor": 4.0, "rope_theta": 5000.0, "original_max_position_embeddings": 32, "mscale": 1.0,
        "mscale_all_dim": 1.0})
record("glm4 moe", "glm4moe", T.Glm4MoeForCausalLM, KEYS | SIXTEEN | MIXED | {
    "block_count": 3, "nextn_predict_layers": 1, "rope.dimension_count": 8, "expert_feed_forward_length": 32, "expert_shared_count": 1,
    "leading_dense_block_count": 1, "expert_gating_func": 2, "expert_weights_scale": 1.5, "expert_weights_norm": True}, ahead=True,
    head_dim=16, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=32, first_k_dense_replace=1,
    routed_scaling_factor=1.5, norm_topk_prob=True, n_group=1, topk_group=1, use_qk_norm=True, attention_bias=True, rope_theta=None,
    rope_parameters={"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5})
record("llama 4", "llama4", T.Llama4ForCausalLM, KEYS | SIXTEEN | MIXED | {
    "expert_used_count": 1, "block_count": 4, "expert_feed_forward_length": 32, "interleave_moe_layer_step": 2, "rope.dimension_count": 16},
    num_hidden_layers=4, head_dim=16, num_local_experts=4, num_experts_per_tok=1, intermediate_size=32, intermediate_size_mlp=64,
    interleave_moe_layer_step=2, pad_token_id=0)
record("glm4", "glm4", T.Glm4ForCausalLM, KEYS | SIXTEEN | {"rope.dimension_count": 8}, head_dim=16, attention_bias=True, pad_token_id=0,
       rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5})
PLAIN = {k: v for k, v in KEYS.items() if "rms" not in k} | {"attention.layer_norm_epsilon": 1e-5}
SPREAD = dict(rms_norm_eps=None, layer_norm_eps=EPS)
for case, normed in (("command-r", False), ("command-r, normed heads", True)):
    record(case, "command-r", T.CohereForCausalLM, PLAIN | {"logit_scale": 0.25, "rope.scaling.type": "none"}, **SPREAD, logit_scale=0.25,
           use_qk_norm=normed, tie_word_embeddings=True, pad_token_id=0)
record("cohere2", "cohere2", T.Cohere2ForCausalLM, PLAIN | {
    "block_count": 4, "logit_scale": 0.25, "rope.scaling.type": "none", "rope.dimension_count": 8, "attention.sliding_window": 4,
    "vocab_size": VOCABULARY}, **SPREAD, num_hidden_layers=4, logit_scale=0.25, sliding_window=4, tie_word_embeddings=True, pad_token_id=0)
record("exaone4", "exaone4", T.Exaone4ForCausalLM, KEYS | {
    "attention.sliding_window": 4, "attention.sliding_window_pattern": [True, False]}, sliding_window=4,
    layer_types=["sliding_attention", "full_attention"])
record("exaone4, all turned", "exaone4", T.Exaone4ForCausalLM, KEYS, sliding_window=None,
       layer_types=["full_attention"] * 2)
record("ernie4.5", "ernie4_5", T.Ernie4_5ForCausalLM, KEYS | {"vocab_size": VOCABULARY}, use_bias=False, head_dim=8, tie_word_embeddings=True)
PART = {"rope.dimension_count": 4}
HALF = dict(rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5})
record("nemotron", "nemotron", T.NemotronForCausalLM, PLAIN | PART | {"rope.scaling.type": "none", "vocab_size": VOCABULARY},
       rms_norm_eps=None, norm_eps=EPS, **HALF, attention_bias=False, mlp_bias=False)
for case, fused in (("phi 2", False), ("phi 2, fused", True)):
    record(case, "phi2", T.PhiForCausalLM, PLAIN | PART | {"attention.head_count_kv": 4}, **SPREAD, **HALF, num_key_value_heads=4, fused=fused)
for case, beside in (("stablelm", False), ("stablelm, beside", True)):
    record(case, "stablelm", T.StableLmForCausalLM, PLAIN | PART | {"use_parallel_residual": beside}, **SPREAD, **HALF,
           use_parallel_residual=beside, qk_layernorm=beside, use_qkv_bias=not beside)
for case, beside in (("gpt-neox", True), ("gpt-neox, one after the other", False)):
    record(case, "gptneox", T.GPTNeoXForCausalLM, {k: v for k, v in PLAIN.items() if "_kv" not in k} | PART | {
        "use_parallel_residual": beside}, **SPREAD, **HALF, num_key_value_heads=None, use_parallel_residual=beside, hidden_act="gelu")
# The transformers that wrote these stretches what slides as well, where the model's authors do not: this has nothing stretched.
record("olmo3", "olmo2", T.Olmo3ForCausalLM, KEYS | {
    "attention.head_count_kv": 4, "attention.sliding_window": 4, "attention.sliding_window_pattern": [True, False]}, num_key_value_heads=4,
    sliding_window=4, layer_types=["sliding_attention", "full_attention"], pad_token_id=0)

with gzip.GzipFile("gguf_more.json.gz", "wb", mtime=0) as f:
    f.write(json.dumps({"ids": IDS, "masks": {int(k): v for k, v in MASKS.items()}, "cases": CASES}).encode())
