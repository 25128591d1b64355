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
        if name.endswith("ssm_a"):
            return (-b / 512 - 0.75).astype("<f4").tobytes()
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



# Models whose layers keep states, and Gemma 3n: what the converter changes is in `laid_out`, what it calls modules in NAMES, of
# which the first that fits is taken.
SELECTIVE = [("dt_layernorm", "ssm_dt_norm"), ("b_layernorm", "ssm_b_norm"), ("c_layernorm", "ssm_c_norm"), ("in_proj", "ssm_in"),
             ("conv1d", "ssm_conv1d"), ("x_proj", "ssm_x"), ("dt_proj", "ssm_dt"), ("dt_bias", "ssm_dt.bias"), ("A_log", "ssm_a"),
             ("D", "ssm_d"), ("out_proj", "ssm_out"), ("norm", "ssm_norm")]
ATTENTION = [("q_proj", "attn_q"), ("k_proj", "attn_k"), ("v_proj", "attn_v"), ("o_proj", "attn_output")]
GATED = [("gate_proj", "ffn_gate"), ("up_proj", "ffn_up"), ("down_proj", "ffn_down")]
at = lambda place, pairs: [(place + k, v) for k, v in pairs]  # noqa: E731
EXPERTS = [("experts.gate_proj", "ffn_gate_exps.weight"), ("experts.up_proj", "ffn_up_exps.weight"),
           ("experts.down_proj", "ffn_down_exps.weight")]
LFM2 = [("operator_norm", "attn_norm"), ("ffn_norm", "ffn_norm"), ("conv.conv", "shortconv.conv"), ("conv.in_proj", "shortconv.in_proj"),
        ("conv.out_proj", "shortconv.out_proj"), ("self_attn.out_proj", "attn_output"), ("self_attn.q_layernorm", "attn_q_norm"),
        ("self_attn.k_layernorm", "attn_k_norm"), ("feed_forward.expert_bias", "exp_probs_b.bias"), ("feed_forward.gate.", "ffn_gate_inp.")
        ] + at("feed_forward.", EXPERTS) + at("self_attn.", ATTENTION) + [
            ("feed_forward.w1", "ffn_gate"), ("feed_forward.w3", "ffn_up"), ("feed_forward.w2", "ffn_down")]
BOTH = [("input_layernorm", "attn_norm"), ("pre_ff_layernorm", "ffn_norm"), ("feed_forward.router.", "ffn_gate_inp.")] + at(
    "feed_forward.", EXPERTS + GATED) + at("self_attn.", ATTENTION) + at("mamba.", SELECTIVE)
NAMES = {
    "mamba": at("mixer.", SELECTIVE) + [("norm", "attn_norm")], "mamba2": at("mixer.", SELECTIVE) + [("norm", "attn_norm")],
    "lfm2": LFM2, "lfm2moe": LFM2, "jamba": BOTH, "falcon-h1": BOTH,
    "granitehybrid": [("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm"),
                      ("block_sparse_moe.router.", "ffn_gate_inp.")] + at("block_sparse_moe.", EXPERTS) + at("self_attn.", ATTENTION) + at(
                          "mamba.", SELECTIVE),
    "nemotron_h": at("mixer.", ATTENTION + GATED + SELECTIVE) + [("norm", "attn_norm")],
    "gemma3n": [("altup.correction_coefs", "altup_correct_coef"), ("altup.correct_output_scale", "altup_correct_scale.weight"),
                ("altup.prediction_coefs", "altup_predict_coef"), ("altup.router_norm", "altup_router_norm"),
                ("altup.modality_router", "altup_router"), ("laurel.linear_left", "laurel_l"), ("laurel.linear_right", "laurel_r"),
                ("laurel.post_laurel_norm", "laurel_post_norm"), ("per_layer_input_gate", "inp_gate"),
                ("post_per_layer_input_norm", "post_norm"), ("per_layer_projection", "proj"), ("self_attn.q_norm", "attn_q_norm"),
                ("self_attn.k_norm", "attn_k_norm"), ("input_layernorm", "attn_norm"), ("post_attention_layernorm", "post_attention_norm"),
                ("pre_feedforward_layernorm", "ffn_norm"), ("post_feedforward_layernorm", "post_ffw_norm")
                ] + at("self_attn.", ATTENTION) + at("mlp.", GATED),
}
OUTSIDE = [("embed_tokens_per_layer", "per_layer_token_embd"), ("per_layer_model_projection", "per_layer_model_proj"),
           ("per_layer_projection_norm", "per_layer_proj_norm"), ("altup_projections", "altup_proj"),
           ("altup_unembed_projections", "altup_unembd_proj"), ("embedding_norm", "token_embd_norm"), ("embed_tokens", "token_embd"),
           ("embeddings", "token_embd"), ("norm_f", "output_norm"), ("final_layernorm", "output_norm"), ("norm", "output_norm"),
           ("lm_head", "output")]


def file_name(arch, hf):
    hf = hf.removeprefix("model.").removeprefix("backbone.")
    pairs, before = OUTSIDE, ""
    if hf.startswith("layers."):
        _, i, hf = hf.split(".", 2)
        pairs, before = NAMES[arch], f"blk.{i}."
    key, value = next((k, v) for k, v in pairs if hf.startswith(k))
    return before + value + hf[len(key):]


def laid_out(name, shape, groups):
    """The shape that a tensor has in the file."""
    if "ssm_conv1d.weight" in name or "shortconv.conv" in name:
        return [shape[0], shape[2]]
    if name.endswith(("ssm_a", "ssm_d")) and len(shape) == 1 and groups:
        return [shape[0], 1]
    return [groups, shape[0] // groups] if "ssm_norm" in name else shape


def tensors_of(model, arch):
    """Names in the file, each with those of the model that it has, and how to take it apart."""
    experts_apart = {"gate_up_proj": ("gate_proj", "up_proj")}
    for hf, x in model.state_dict().items():
        shape, last = list(x.shape), hf.rsplit(".", 1)[1]
        if hf == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        if "altup_projections." in hf or "altup_unembed_projections." in hf:
            if ".0." in hf:
                stem = hf.split(".0.")[0]
                yield file_name(arch, stem + ".weight"), [3] + shape, lambda x, stem=stem: {f"{stem}.{i}.weight": x[i] for i in range(3)}
        elif ".experts." in hf:
            made = {}
            for part in experts_apart.get(last, (last,)):
                name = hf.rsplit(".", 1)[0] + "." + part
                half = [shape[0], shape[1] // len(experts_apart.get(last, (1,))), shape[2]]

                def back(x, part=part, made=made, hf=hf, many=len(experts_apart.get(last, (1,)))):
                    made[part] = x
                    return {hf: np.concatenate(list(made.values()), 1)} if len(made) == many else {}
                yield file_name(arch, name), half, back
        elif "shared_mlp." in hf:
            i, tail = hf.split(".")[2], "_shexp" if model.config.num_local_experts else ""
            if "output_linear" in hf:
                yield f"blk.{i}.ffn_down{tail}.weight", shape, lambda x, hf=hf: {hf: x}
            else:
                made = {}
                for part in ("gate", "up"):
                    def join(x, part=part, made=made, hf=hf):
                        made[part] = x
                        return {hf: np.concatenate(list(made.values()), 0)} if len(made) == 2 else {}
                    yield f"blk.{i}.ffn_{part}{tail}.weight", [shape[0] // 2, shape[1]], join
        elif last == "A_log":
            yield file_name(arch, hf), shape, lambda x, hf=hf: {hf: np.log(-x)}
        else:
            yield file_name(arch, hf), shape, lambda x, hf=hf: {hf: x}


def hybrid(case, arch, model_class, keys, groups=0, **fields):
    fields = {k: v for k, v in (SIZES | {"rms_norm_eps": float(np.float32(1e-5)), "rope_theta": 5000.0} | fields).items() if v is not None}
    config = model_class.config_class(**fields)
    config._attn_implementation = "eager"
    model = model_class(config).eval()
    tensors, state = [], {}
    for name, shape, back in tensors_of(model, arch):
        laid = laid_out(name, shape, groups)
        plain = len(laid) == 1 or laid[-1] % 32 or "ssm_norm" in name
        kind = Q.F32 if plain else Q.Q8_0
        x = numbers(raw_tensor(len(tensors), name, laid, kind), laid, kind)
        for hf, y in back(x.reshape(shape)).items():
            state[hf] = torch.from_numpy(np.ascontiguousarray(y))
        tensors.append([name, laid, int(kind)])
    missing = model.load_state_dict(state, strict=False)
    assert not missing.unexpected_keys and all(k == "lm_head.weight" for k in missing.missing_keys), missing
    model.tie_weights()
    with torch.no_grad():
        logits = model(torch.tensor([IDS]), use_cache=False).logits[0]
    assert torch.isfinite(logits).all()
    CASES.append({
        "name": case, "keys": {"general.architecture": arch} | {f"{arch}.{k}": v for k, v in keys.items()}, "tensors": tensors, "extra": {},
        "logits": [[float("%.6g" % x) for x in row[:6]] for row in (logits[0], logits[4], logits[-1])]})
    print(case, float(logits.std()))


SSM = {"ssm.conv_kernel": 4, "ssm.inner_size": 64, "ssm.state_size": 8}
ALONE = {k: v for k, v in KEYS.items() if k not in ("attention.head_count_kv", "rope.freq_base")} | {
    "feed_forward_length": 0, "attention.head_count": 0} | SSM
EPS = float(np.float32(1e-5))
MAMBA = dict(state_size=8, layer_norm_epsilon=EPS, tie_word_embeddings=True, num_attention_heads=None, num_key_value_heads=None,
             intermediate_size=None, rope_theta=None, rms_norm_eps=None, max_position_embeddings=None, pad_token_id=0)
hybrid("mamba", "mamba", T.MambaForCausalLM, ALONE | {"ssm.time_step_rank": 2, "ssm.dt_b_c_rms": False}, **MAMBA)
hybrid("falcon mamba", "mamba", T.FalconMambaForCausalLM, ALONE | {"ssm.time_step_rank": 2, "ssm.dt_b_c_rms": True},
       **(MAMBA | {"mixer_rms_eps": 1e-6}))
hybrid("mamba2", "mamba2", T.Mamba2ForCausalLM, ALONE | {"ssm.time_step_rank": 4, "ssm.group_count": 2}, 2,
       **(MAMBA | {"num_heads": 4, "head_dim": 16, "n_groups": 2, "chunk_size": 4, "tie_word_embeddings": False}))
DUAL = dict(mamba_d_state=8, mamba_d_conv=4, mamba_expand=2, mamba_chunk_size=4, mamba_n_heads=4, mamba_n_groups=2)
DUALS = SSM | {"ssm.time_step_rank": 4, "ssm.group_count": 2}
hybrid("falcon h1", "falcon-h1", T.FalconH1ForCausalLM, KEYS | DUALS | {"attention.key_length": 8, "attention.value_length": 8}, 2,
       **DUAL, mamba_d_ssm=64, tie_word_embeddings=False, head_dim=8)
CONV = ["conv", "full_attention", "conv", "conv"]
hybrid("lfm2", "lfm2", T.Lfm2ForCausalLM, KEYS | {
    "block_count": 4, "attention.head_count_kv": [0, 2, 0, 0], "shortconv.l_cache": 3}, num_hidden_layers=4, layer_types=CONV,
    norm_eps=EPS, block_auto_adjust_ff_dim=False, rms_norm_eps=None, tie_word_embeddings=True)
MIXED = {"expert_count": 4, "expert_used_count": 2}
hybrid("lfm2 moe", "lfm2moe", T.Lfm2MoeForCausalLM, KEYS | MIXED | {
    "block_count": 4, "attention.head_count_kv": [0, 2, 0, 0], "shortconv.l_cache": 3, "leading_dense_block_count": 1,
    "expert_feed_forward_length": 32}, num_hidden_layers=4, layer_types=CONV, norm_eps=EPS, rms_norm_eps=None, num_experts=4,
    num_experts_per_tok=2, moe_intermediate_size=32, num_dense_layers=1, tie_word_embeddings=True)
hybrid("jamba", "jamba", T.JambaForCausalLM, KEYS | SSM | MIXED | {
    "block_count": 4, "attention.head_count_kv": [0, 2, 0, 0], "ssm.time_step_rank": 2}, num_hidden_layers=4, num_experts=4,
    num_experts_per_tok=2, mamba_d_state=8, mamba_dt_rank=2, attn_layer_period=4, attn_layer_offset=1, rope_theta=None,
    tie_word_embeddings=False)
SCALES = {"attention.scale": 0.125, "embedding_scale": 6.0, "residual_scale": 0.25, "logit_scale": 4.0}
GRANITE = dict(embedding_multiplier=6.0, residual_multiplier=0.25, logits_scaling=4.0, attention_multiplier=0.125, rope_theta=None,
               tie_word_embeddings=True, layer_types=["mamba", "attention"])
hybrid("granite hybrid", "granitehybrid", T.GraniteMoeHybridForCausalLM, KEYS | DUALS | SCALES | MIXED | {
    "attention.head_count_kv": [0, 2], "expert_shared_feed_forward_length": 32, "rope.scaling.finetuned": False}, 2, **DUAL, **GRANITE,
    num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=32)
hybrid("granite hybrid, dense", "granitehybrid", T.GraniteMoeHybridForCausalLM, KEYS | DUALS | SCALES | {
    "attention.head_count_kv": [0, 2]}, 2, **DUAL, **GRANITE, num_local_experts=0, shared_intermediate_size=64)
hybrid("nemotron h", "nemotron_h", T.NemotronHForCausalLM, KEYS | DUALS | {
    "block_count": 4, "feed_forward_length": [0, 64, 0, 0], "attention.head_count_kv": [0, 0, 2, 0], "attention.key_length": 8,
    "attention.value_length": 8}, 2, num_hidden_layers=None, rope_theta=None, rms_norm_eps=None, layer_norm_epsilon=EPS, head_dim=8,
    layers_block_type=["linear_attention", "mlp", "full_attention", "linear_attention"], ssm_state_size=8, mamba_num_heads=4,
    mamba_head_dim=16, n_groups=2, time_step_min=1e-30)
hybrid("gemma 3n", "gemma3n", T.Gemma3nForCausalLM, KEYS | gemma | {
    "block_count": 4, "attention.shared_kv_layers": 2, "embedding_length_per_layer_input": 32, "altup.active_idx": 0, "altup.num_inputs": 4,
    "attention.sliding_window": 4, "attention.sliding_window_pattern": [True, False, True, False], "final_logit_softcapping": 10.0,
    "activation_sparsity_scale": [0.5244005, -40.0, -40.0, 0.0]}, num_hidden_layers=4, head_dim=16, num_kv_shared_layers=2,
    layer_types=["sliding_attention", "full_attention"] * 2, hidden_size_per_layer_input=32, vocab_size_per_layer_input=VOCABULARY,
    laurel_rank=32, altup_num_inputs=4, sliding_window=4, final_logit_softcapping=10.0, rope_theta=None, tie_word_embeddings=True,
    activation_sparsity_pattern=[0.7, 0.0, 0.0, 0.5], rope_parameters={
        "full_attention": {"rope_type": "default", "rope_theta": 5000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})

with gzip.GzipFile("gguf.json.gz", "wb", mtime=0) as f:
    f.write(json.dumps({"ids": IDS, "masks": {int(k): v for k, v in MASKS.items()}, "cases": CASES}).encode())
