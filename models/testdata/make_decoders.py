"""Makes tiny models of a list of configurations and records what transformers computes: families/hf/decoders.json.gz.

    python make_decoders.py                     everything
    python make_decoders.py glm4 phi            some, the others stay as they are
    python make_decoders.py --only-compare      records nothing: prints what differs from the file

A list of models; of each `name`, `config` (config.json as save_pretrained writes it), `state`, the names and the shapes of
its state dict without those that are tied to others, and

- `logits`: of the tokens of the last run's prompt, three rows of the first 40, and `masked`: the first 8 of the last token of
  each of two rows of tokens, of which the first has 4 tokens of padding before it;
- `runs`: prompts, and the 72 tokens that are the most likely ones one after the other.

Weights are stored nowhere. They come from the hash of README.md: `weight_rule` says with which offset and scale.
families/hf/defaults_decoders.json has, of every class with the defaults of its configuration, what names and shapes there are.
To add a family, add a line to MODELS.
"""

import gzip
import hashlib
import json
import os
import random
import sys
import warnings

import torch
import transformers as T

import zoo_hash
from make_families_hf import OUT

PATH = os.path.join(OUT, "decoders.json.gz")
DEFAULTS = os.path.join(OUT, "defaults_decoders.json")
V = 96
TEXT = dict(vocab_size=V, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=512, pad_token_id=0, bos_token_id=1, eos_token_id=2)
GPT = {k: v for k, v in TEXT.items() if k != "num_key_value_heads"}
WINDOW = {"sliding_window": 12}


def rope(kind, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **more}}


def renamed(options, **names):
    return {names.get(k, k): v for k, v in options.items() if names.get(k, k)}


GPTJ = renamed(GPT, hidden_size="n_embd", num_hidden_layers="n_layer", num_attention_heads="n_head",
               max_position_embeddings="n_positions", intermediate_size="n_inner")
BLOOM = renamed(GPT, num_hidden_layers="n_layer", num_attention_heads="n_head", max_position_embeddings=None, intermediate_size=None)
MPT = renamed(GPT, hidden_size="d_model", num_hidden_layers="n_layers", num_attention_heads="n_heads",
              max_position_embeddings="max_seq_len", intermediate_size=None)
FALCON = renamed(GPT, intermediate_size="ffn_hidden_size")
EYES = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4)
LOOKING = dict(hidden_size=8, intermediate_size=8, depth=1, num_heads=2, patch_size=4, spatial_merge_size=2, out_hidden_size=32)
ROUTED = dict(n_routed_experts=6, num_experts_per_tok=3, moe_intermediate_size=20, n_shared_experts=1, n_group=3, topk_group=2,
              routed_scaling_factor=1.5)
FOUR = {"num_hidden_layers": 4}
LLAMA3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
MIXED = ["sliding_attention", "full_attention"] * 2
GEMMA3N = dict(head_dim=8, layer_types=MIXED, hidden_size_per_layer_input=8, vocab_size_per_layer_input=80, laurel_rank=8,
               altup_num_inputs=3)
GEMMA4 = dict(head_dim=8, global_head_dim=16, layer_types=MIXED)
SHORT, LONG = [1.0, 1.1, 1.3, 1.6], [1.5, 2.5, 4.0, 6.0]

# Families, each with what its configurations may ask for.
MODELS = [
    ("gemma3", "Gemma3ForCausalLM", TEXT | WINDOW | {"num_hidden_layers": 6, "head_dim": 16, "query_pre_attn_scalar": 16}),
    ("gemma3_linear", "Gemma3ForCausalLM", TEXT | WINDOW | FOUR | {
        "head_dim": 16, "attention_bias": True, "final_logit_softcapping": 5.0, "layer_types": ["sliding_attention", "full_attention"] * 2,
        "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}),
    ("gemma3n", "Gemma3nForCausalLM", TEXT | WINDOW | FOUR | GEMMA3N | {
        "num_kv_shared_layers": 2, "activation_sparsity_pattern": [0.9, 0.0, 0.5, 0.0], "intermediate_size": [48, 40, 48, 56]}),
    ("gemma3n_alone", "Gemma3nForCausalLM", TEXT | WINDOW | {"num_hidden_layers": 2} | GEMMA3N | {
        "layer_types": ["sliding_attention", "full_attention"], "num_kv_shared_layers": 0, "altup_correct_scale": False,
        "altup_active_idx": 1, "vocab_size_per_layer_input": V, "final_logit_softcapping": 5.0}),
    ("gemma4", "Gemma4ForCausalLM", TEXT | WINDOW | FOUR | GEMMA4 | {
        "num_kv_shared_layers": 2, "attention_k_eq_v": True, "num_global_key_value_heads": 1, "use_double_wide_mlp": True,
        "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": V, "final_logit_softcapping": 5.0}),
    ("gemma4_experts", "Gemma4ForCausalLM", TEXT | WINDOW | {"num_hidden_layers": 2} | GEMMA4 | {
        "layer_types": ["sliding_attention", "full_attention"], "hidden_size_per_layer_input": 0, "enable_moe_block": True,
        "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 24, "attention_bias": True}),
    ("smollm3", "SmolLM3ForCausalLM", TEXT | FOUR),
    ("smollm3_listed", "SmolLM3ForCausalLM", TEXT | WINDOW | {"no_rope_layers": [0, 1, 0], "use_sliding_window": True, "mlp_bias": True}),
    ("ministral", "MinistralForCausalLM", TEXT | WINDOW | {"head_dim": 8, "layer_types": ["full_attention", "sliding_attention", "sliding_attention"]}),
    ("ministral3", "Ministral3ForCausalLM", TEXT | {"head_dim": 16, "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 16, "beta_fast": 32.0,
        "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}}),
    ("minimax_m2", "MiniMaxM2ForCausalLM", TEXT | {"head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "rotary_dim": 4}),
    ("dots1", "Dots1ForCausalLM", TEXT | WINDOW | {
        "head_dim": 8, "n_routed_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 20, "n_shared_experts": 2, "n_group": 3,
        "topk_group": 2, "first_k_dense_replace": 1, "max_window_layers": 2, "routed_scaling_factor": 1.5, "norm_topk_prob": True}),
    ("phimoe", "PhimoeForCausalLM", TEXT | {
        "num_local_experts": 4, "num_experts_per_tok": 2, "router_jitter_noise": 0.2, "attention_bias": True, "lm_head_bias": True}),
    ("phimoe_longrope", "PhimoeForCausalLM", TEXT | {
        "num_hidden_layers": 1, "num_local_experts": 4, "num_experts_per_tok": 2, "router_jitter_noise": 0.2, "sliding_window": 12} | rope(
            "longrope", short_factor=SHORT, long_factor=LONG, original_max_position_embeddings=32, short_mscale=1.2, long_mscale=1.2)),
    ("flex_olmo", "FlexOlmoForCausalLM", TEXT | {"num_experts": 4, "num_experts_per_tok": 2}),
    ("granitemoeshared", "GraniteMoeSharedForCausalLM", TEXT | {
        "num_local_experts": 4, "embedding_multiplier": 6.0, "logits_scaling": 0.7, "residual_multiplier": 0.5,
        "attention_multiplier": 0.2, "shared_intermediate_size": 24}),
    ("solar_open", "SolarOpenForCausalLM", {k: v for k, v in TEXT.items() if k != "intermediate_size"} | ROUTED | {
        "head_dim": 8, "attention_bias": True}),
    ("exaone_moe", "ExaoneMoeForCausalLM", TEXT | WINDOW | FOUR | {
        "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "first_k_dense_replace": 2}),
    ("glm4_moe_lite", "Glm4MoeLiteForCausalLM", TEXT | ROUTED | {
        "num_key_value_heads": 4, "kv_lora_rank": 24, "q_lora_rank": 20, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10,
        "mlp_layer_types": ["sparse", "dense", "sparse"]}),
    ("hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", TEXT | {"head_dim": 8, "num_experts": 4, "moe_topk": 2} | rope(
        "dynamic", alpha=1000.0, factor=1.0)),
    ("vaultgemma", "VaultGemmaForCausalLM", TEXT | WINDOW | {"head_dim": 16, "query_pre_attn_scalar": 16}),
    ("olmo", "OlmoForCausalLM", TEXT),
    ("olmo_clipped", "OlmoForCausalLM", TEXT | {"clip_qkv": 0.5, "tie_word_embeddings": True}),
    ("olmo2", "Olmo2ForCausalLM", TEXT),
    ("olmo3", "Olmo3ForCausalLM", TEXT | WINDOW | FOUR | {"rope_parameters": {
        "full_attention": {"rope_type": "yarn", "rope_theta": 5e5, "factor": 8.0, "original_max_position_embeddings": 64,
                           "attention_factor": 1.2, "beta_fast": 32.0, "beta_slow": 1.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 5e5}}}),
    ("granite", "GraniteForCausalLM", TEXT | {"embedding_multiplier": 6.0, "residual_multiplier": 0.22, "logits_scaling": 0.7,
                                              "attention_multiplier": 0.2, "tie_word_embeddings": True}),
    ("cohere", "CohereForCausalLM", TEXT | {"logit_scale": 0.5}),
    ("cohere_normed", "CohereForCausalLM", TEXT | {"logit_scale": 0.5, "use_qk_norm": True, "attention_bias": True}),
    ("cohere2", "Cohere2ForCausalLM", TEXT | WINDOW | FOUR | {"logit_scale": 0.5}),
    ("phi", "PhiForCausalLM", TEXT),
    ("phi_normed", "PhiForCausalLM", TEXT | {"qk_layernorm": True, "partial_rotary_factor": 0.25, "hidden_act": "gelu"}),
    ("stablelm", "StableLmForCausalLM", TEXT),
    ("stablelm_parallel", "StableLmForCausalLM", TEXT | {"use_parallel_residual": True, "qk_layernorm": True, "use_qkv_bias": True,
                                                         "partial_rotary_factor": 0.5}),
    ("exaone4", "Exaone4ForCausalLM", TEXT | WINDOW | FOUR),
    ("exaone4_full", "Exaone4ForCausalLM", TEXT | {"sliding_window": None, "layer_types": ["full_attention"] * 3} | rope("llama3", **LLAMA3)),
    ("glm", "GlmForCausalLM", TEXT | {"head_dim": 8}),
    ("glm4", "Glm4ForCausalLM", TEXT | {"head_dim": 16, "attention_bias": False}),
    ("starcoder2", "Starcoder2ForCausalLM", TEXT | WINDOW),
    ("nemotron", "NemotronForCausalLM", TEXT | {"mlp_bias": True}),
    ("helium", "HeliumForCausalLM", TEXT | {"head_dim": 8}),
    ("seed_oss", "SeedOssForCausalLM", TEXT | {"head_dim": 16, "attention_out_bias": True}),
    ("ernie4_5", "Ernie4_5ForCausalLM", TEXT | {"head_dim": 16, "use_bias": True}),
    ("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", TEXT | {"head_dim": 8} | rope("dynamic", alpha=1000.0, factor=1.0)),
    ("apertus", "ApertusForCausalLM", TEXT | rope("llama3", **LLAMA3)),
    ("arcee", "ArceeForCausalLM", TEXT | {"mlp_bias": True}),
    ("cwm", "CwmForCausalLM", TEXT | WINDOW | FOUR | {"head_dim": 8} | rope("llama3", **LLAMA3)),
    ("hyperclovax", "HyperCLOVAXForCausalLM", TEXT | {"embedding_multiplier": 6.0, "residual_multiplier": 0.5, "logits_scaling": 0.8,
                                                      "attention_multiplier": 0.3}),
    ("hyperclovax_bare", "HyperCLOVAXForCausalLM", TEXT | {"use_post_norm": False, "attention_bias": True}),
    ("jais2", "Jais2ForCausalLM", TEXT),
    ("gpt_neox", "GPTNeoXForCausalLM", GPT),
    ("gpt_neox_serial", "GPTNeoXForCausalLM", GPT | {"use_parallel_residual": False, "attention_bias": False, "rope_parameters": {
        "rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 1.0}}),
    ("gptj", "GPTJForCausalLM", GPTJ | {"rotary_dim": 4}),
    ("falcon", "FalconForCausalLM", FALCON),
    ("falcon_new", "FalconForCausalLM", FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2, "bias": True}),
    ("falcon_new_one", "FalconForCausalLM", FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1}),
    ("falcon_alibi", "FalconForCausalLM", FALCON | {"alibi": True, "multi_query": False, "parallel_attn": False, "bias": True,
                                                    "num_attention_heads": 8}),
    ("bloom", "BloomForCausalLM", BLOOM),
    ("bloom_six", "BloomForCausalLM", BLOOM | {"n_head": 6, "hidden_size": 48, "apply_residual_connection_post_layernorm": True}),
    ("mpt", "MptForCausalLM", MPT),
    ("mpt_clipped", "MptForCausalLM", MPT | {"n_heads": 6, "d_model": 48, "attn_config": {
        "clip_qkv": 0.6, "alibi_bias_max": 16, "softmax_scale": 0.3}}),
    # Rotary embeddings that depend on how long the text is: the first prompt's becomes too long, the second's is.
    ("llama_dynamic", "LlamaForCausalLM", TEXT | {"max_position_embeddings": 40} | rope("dynamic", factor=8.0)),
    ("gpt_neox_dynamic", "GPTNeoXForCausalLM", GPT | {"max_position_embeddings": 40, "rope_parameters": {
        "rope_type": "dynamic", "factor": 8.0, "rope_theta": 10000.0, "partial_rotary_factor": 0.5}}),
    ("phi3_longrope", "Phi3ForCausalLM", TEXT | {"original_max_position_embeddings": 32} | rope(
        "longrope", short_factor=SHORT, long_factor=LONG, original_max_position_embeddings=32)),
    ("phi3_longrope_partial", "Phi3ForCausalLM", TEXT | {"original_max_position_embeddings": 40, "tie_word_embeddings": True} | rope(
        "longrope", short_factor=SHORT[:2], long_factor=LONG[:2], original_max_position_embeddings=40, partial_rotary_factor=0.5)),
    # The text parts of models that see.
    ("gemma3_pictures", "Gemma3ForConditionalGeneration", {
        "text_config": TEXT | WINDOW | {"num_hidden_layers": 2, "head_dim": 16, "query_pre_attn_scalar": 16},
        "vision_config": EYES | {"model_type": "siglip_vision_model", "vision_use_head": False}}),
    ("ministral3_pictures", "Mistral3ForConditionalGeneration", {
        "text_config": TEXT | {"model_type": "ministral3", "num_hidden_layers": 2, "head_dim": 16},
        "vision_config": EYES | {"model_type": "pixtral"}}),
    ("qwen2_5_vl_pictures", "Qwen2_5_VLForConditionalGeneration", {
        "text_config": TEXT | {"num_hidden_layers": 2, "rope_parameters": {
            "rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}},
        "vision_config": LOOKING | {"fullatt_block_indexes": [0], "window_size": 8}}),
    ("qwen3_vl_pictures", "Qwen3VLForConditionalGeneration", {
        "text_config": TEXT | {"num_hidden_layers": 2, "head_dim": 8, "rope_parameters": {
            "rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1], "mrope_interleaved": True}},
        "vision_config": LOOKING | {"deepstack_visual_indexes": [0], "num_position_embeddings": 4}}),
    ("qwen3_vl_moe_pictures", "Qwen3VLMoeForConditionalGeneration", {
        "text_config": TEXT | {"num_hidden_layers": 2, "head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2,
                               "moe_intermediate_size": 24, "rope_parameters": {
                                   "rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}},
        "vision_config": LOOKING | {"deepstack_visual_indexes": [0], "num_position_embeddings": 4}}),
    ("llava_pictures", "LlavaForConditionalGeneration", {
        "text_config": TEXT | {"model_type": "llama", "num_hidden_layers": 2},
        "vision_config": EYES | {"model_type": "clip_vision_model"}}),
]
SEEING = ("Gemma3", "Gemma3n", "Gemma4", "Qwen3_5", "Qwen3_5Moe")  # whose models see, too
PROMPTS, WRITTEN, ROWS, COLUMNS = (7, 61), 72, (0, 30, 60), 40


COMPUTED = (".masked_bias", ".attn.bias", ".slope_rate", "_decay")  # what checkpoints may hold and constructors compute


def weight_rule(name, shape):
    """The offset and scale of a weight: norms near 1, biases and embeddings small, products larger."""
    if name.endswith("bias") or "alpha_" in name:
        return 0.0, 0.125
    if name.endswith((".beta", ".eps")):
        return (0.5, 0.0) if name.endswith("beta") else (-1e-6, 0.0)
    if len(shape) == 1 or "norm" in name and "embed" not in name:
        return 1.0, 0.25
    if "embed" in name or ".wte." in name:
        return 0.0, 0.25
    return 0.0, float("%.3g" % ((6.0 / shape[-1]) ** 0.5))


def config_text(model):
    model.config.use_cache = True
    model.config.architectures = [type(model).__name__]
    config = json.loads(model.config.to_json_string(use_diff=True))
    for name in ("transformers_version", "initializer_range", "dtype", "use_cache"):
        config.pop(name, None)
    return json.dumps(config)


def stored(model):
    """The state dict as a checkpoint has it."""
    names, seen = {}, set()
    for name, x in model.state_dict().items():
        if x.data_ptr() not in seen and not name.endswith(COMPUTED):
            names[name] = list(x.shape)
        seen.add(x.data_ptr())
    return names


def forget(model):
    """Rotary embeddings of the type dynamic remember the longest text until a short one comes."""
    model(torch.tensor([[3]]), use_cache=False)


def run(model, prompt):
    """The most likely tokens, and how near another one ever was: rounding cannot choose that."""
    forget(model)
    out = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
                         max_new_tokens=WRITTEN, do_sample=False, output_logits=True, return_dict_in_generate=True)
    top = torch.stack([x[0] for x in out.logits]).topk(2).values
    return out.sequences[0, len(prompt):].tolist(), float((top[:, 0] - top[:, 1]).min())


def record(name, cls, options):
    torch.manual_seed(0)
    config = getattr(T, cls).config_class(**options)
    model = getattr(T, cls)(config).float().eval().requires_grad_(False)
    state = stored(model)
    for key, x in model.state_dict().items():
        if key in state:
            x.copy_(zoo_hash.floats(key, tuple(x.shape), x.dtype, *weight_rule(key, x.shape)))
    model.generation_config.eos_token_id = None
    rng = random.Random(name)
    runs, least = [], 1.0
    for n in PROMPTS:
        while True:
            prompt = [rng.randrange(3, V) for _ in range(n)]
            tokens, gap = run(model, prompt)
            if gap > 1e-3:
                break
        least = min(least, gap)
        runs.append({"prompt": prompt, "tokens": tokens})
    assert all(len(r["tokens"]) == WRITTEN for r in runs)
    model.config.use_cache = False
    with torch.no_grad():
        forget(model)
        logits = model(torch.tensor([prompt]), use_cache=False).logits[0]
        two, mask = torch.tensor([prompt[:12], prompt[12:24]]), torch.ones(2, 12, dtype=torch.int64)
        mask[0, :4] = 0
        forget(model)
        masked = model(two, attention_mask=mask, use_cache=False).logits[:, -1]
    digits = lambda x: [[float("%.6g" % v) for v in row] for row in x.tolist()]  # noqa: E731
    print(name, "gap %.3g" % least, "logits ±%.3g" % float(logits.abs().max()), len(set(sum((r["tokens"] for r in runs), []))))
    return {"name": name, "config": config_text(model), "state": state, "logits": digits(logits[list(ROWS), :COLUMNS]),
            "masked": digits(masked[:, :8]), "runs": runs}


def defaults():
    """Of every class with its defaults: how many entries its state dict has, and the beginning of the SHA-256 of their lines."""
    found = {}
    for _, cls, _ in MODELS:
        base = cls.removesuffix("ForCausalLM")
        if base == cls or cls in found:
            continue
        for head in ("Model", "ForCausalLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"):
            of = getattr(T, base + ("TextModel" if head == "Model" and base in SEEING else head), None)
            if of is None or base in ("Dots1", "HunYuanMoEV1") or of.config_class.model_type in ("gemma3", "qwen3_5", "qwen3_5_moe"):
                continue
            if of.config_class.model_type in ("falcon", "bloom", "mpt", "gptj", "gpt_neox") and head in (
                    "ForTokenClassification", "ForQuestionAnswering"):
                continue  # not known
            with torch.device("meta"):
                config = of.config_class()
                if vars(config).get("head_dim", 1) is None:
                    config.head_dim = config.hidden_size // config.num_attention_heads
                if vars(config).get("num_key_value_heads", 1) is None:
                    config.num_key_value_heads = config.num_attention_heads
                if config.model_type == "lfm2_moe":  # which has no default
                    config.layer_types = ["full_attention"] * config.num_hidden_layers
                model = of(config)
            lines = sorted(f"{k} {','.join(map(str, v.shape))}\n" for k, v in model.state_dict().items()
                           if not k.endswith(COMPUTED[2:]))
            digest = hashlib.sha256("".join(lines).encode()).hexdigest()[:8]
            name = of.__name__ if base.startswith(("Qwen", "Gemma3n", "Gemma4")) else base + head
            found.setdefault(config.model_type, {})[name] = [len(lines), digest]
    with open(DEFAULTS, "w") as f:
        f.write(json.dumps(found, sort_keys=True).replace("}, ", "},\n ") + "\n")


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    compare = "--only-compare" in sys.argv
    some = [a for a in sys.argv[1:] if not a.startswith("-")]
    have = {}
    if os.path.exists(PATH):
        with gzip.open(PATH) as f:
            have = {r["name"]: r for r in json.load(f)}
    records = []
    for name, cls, options in MODELS:
        r = have.get(name) if some and name not in some else record(name, cls, options)
        if compare and r != have.get(name):
            print(name, "differs:", [k for k in r if r[k] != have.get(name, {}).get(k)])
        records.append(r)
    if not compare:
        with gzip.GzipFile(PATH, "wb", mtime=0) as f:
            f.write(json.dumps([r for r in records if r], separators=(",", ":")).encode())
        if not some:
            defaults()


if __name__ == "__main__":
    main()
