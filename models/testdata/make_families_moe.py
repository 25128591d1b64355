"""Records transformers models with experts, and ones that keep a state: as make_families_hf.py, which has the rest.

    python make_families_moe.py                  everything
    python make_families_moe.py mixtral          the references of some model types

families/hf/defaults_moe.json is as defaults.json there. Beside what references have in make_families_hf.py, one of a causal model has "greedy": the tokens that it begins with and
those that are the likeliest after them, one after the other.
"""

import os
import sys
import warnings

import torch

import make_families_hf as hf
import zoo_program
import zoo_weights
from make_families_hf import LLAMA, LABELS, case, rope
from zoo_hf import padded

# How many tokens a greedy text has, and how many of them are given.
TEXT, PROMPT = 70, 5

# The grouped products of PyTorch have no doubles, which errors are measured with.
SMALL = LLAMA | {"max_position_embeddings": 512, "experts_implementation": "eager"}
ONE = [case(2, 11, attention_mask=padded)]
PLAIN = [case(2, 9)]
QWEN = SMALL | {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 20}
DEEPSEEK = {k: v for k, v in SMALL.items() if k != "num_key_value_heads"} | {
    "n_routed_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 20, "kv_lora_rank": 24, "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8, "v_head_dim": 10, "num_key_value_heads": 4}

HEADS = {
    "mixtral": [
        ("causal", "MixtralForCausalLM", SMALL | {"num_local_experts": 4, "sliding_window": 7} | rope("default", rope_theta=1e6), ONE),
    ],
    "qwen2_moe": [
        ("causal", "Qwen2MoeForCausalLM", QWEN | {"shared_expert_intermediate_size": 28, "num_hidden_layers": 3, "mlp_only_layers": [1],
                                                  "use_sliding_window": True, "sliding_window": 6}, ONE),
    ],
    "qwen3_moe": [
        ("causal", "Qwen3MoeForCausalLM", QWEN | {"head_dim": 16, "norm_topk_prob": True}, ONE),
        ("sequence", "Qwen3MoeForSequenceClassification",
         QWEN | LABELS | {"num_hidden_layers": 2, "decoder_sparse_step": 2, "attention_bias": True}, PLAIN),
    ],
    "olmoe": [("causal", "OlmoeForCausalLM", SMALL | {"num_experts": 6, "num_experts_per_tok": 3}, ONE)],
    "granitemoe": [
        ("causal", "GraniteMoeForCausalLM", SMALL | {
            "num_local_experts": 4, "embedding_multiplier": 6.0, "logits_scaling": 3.0, "residual_multiplier": 0.5,
            "attention_multiplier": 0.2, "attention_bias": True, "tie_word_embeddings": True}, ONE),
    ],
    "gpt_oss": [
        ("causal", "GptOssForCausalLM", SMALL | {
            "head_dim": 16, "num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 6, "intermediate_size": 28,
            "swiglu_limit": 0.5} | rope(
                "yarn", factor=8.0, beta_fast=32.0, beta_slow=1.0, truncate=False, original_max_position_embeddings=64), ONE),
    ],
    "glm4_moe": [
        ("causal", "Glm4MoeForCausalLM", SMALL | {
            "head_dim": 16, "n_routed_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 20, "use_qk_norm": True,
            "attention_bias": True, "routed_scaling_factor": 1.5, "n_group": 3, "topk_group": 2}, ONE),
    ],
    "ernie4_5_moe": [
        ("causal", "Ernie4_5_MoeForCausalLM", SMALL | {
            "moe_num_experts": 6, "moe_k": 3, "moe_intermediate_size": 20, "use_bias": True, "num_hidden_layers": 3}, ONE),
    ],
    "deepseek_v2": [
        ("causal", "DeepseekV2ForCausalLM", DEEPSEEK | {
            "q_lora_rank": None, "topk_method": "group_limited_greedy", "n_group": 3, "topk_group": 2, "routed_scaling_factor": 2.0,
            "n_shared_experts": 1} | rope("yarn", factor=4.0, mscale=0.7, mscale_all_dim=0.9, original_max_position_embeddings=128), ONE),
    ],
    "deepseek_v3": [
        ("causal", "DeepseekV3ForCausalLM", DEEPSEEK | {
            "q_lora_rank": 20, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1, "attention_bias": True}
         | rope("yarn", factor=4.0, mscale=1.0, mscale_all_dim=1.0, original_max_position_embeddings=128), ONE),
        ("halves", "DeepseekV3ForCausalLM", DEEPSEEK | {
            "q_lora_rank": None, "n_group": 1, "topk_group": 1, "num_hidden_layers": 1, "first_k_dense_replace": 0,
            "rope_interleave": False}, PLAIN),
    ],
}


def greedy(model):
    tokens = torch.arange(7, 7 + 31 * PROMPT, 31)[None]
    while tokens.shape[1] < TEXT:
        tokens = torch.cat([tokens, model(input_ids=tokens).logits[:, -1:].argmax(-1)], 1)
    return tokens[0].tolist()


class Weights(zoo_weights.Weights):
    """Weights of a model whose corrections are numbers of their own, too."""

    def __init__(self, model, *more):
        for m in model.modules():
            if "e_score_correction_bias" in m._buffers:
                x = m._buffers.pop("e_score_correction_bias")
                m.e_score_correction_bias = torch.nn.Parameter(x, requires_grad=False)
        super().__init__(model, *more)


def recorded(kind, name, cls, options, cases):
    """A reference, with a greedy text of the very model that it is of."""
    models = []
    run = hf.ref.run

    def kept(model, *args):
        models.append(model)
        return run(model, *args)
    hf.ref.run = kept
    config, record = hf.reference(cls, options, cases)
    hf.ref.run = run
    print(kind, name, [c["err64"] for c in record["cases"]], [o["name"] for o in record["cases"][0]["outputs"]])
    entry = {"name": name, "config": config, "reference": record}
    if "CausalLM" in cls:
        entry["greedy"] = greedy(next(m for m in models if next(m.parameters()).dtype == torch.float32))
    return entry


def main():
    warnings.simplefilter("ignore")
    zoo_weights.Weights = Weights
    torch.set_num_threads(1)
    hf.fields = lambda out: {k: v for k, v in out.items() if isinstance(v, torch.Tensor) and k in ("logits", "last_hidden_state")}
    if len(sys.argv) == 1:
        # The defaults of GLM-4-MoE turn an odd part of each head, which no checkpoint does.
        hf.defaults({k: v for k, v in HEADS.items() if k != "glm4_moe"}, {}, "defaults_moe.json")
    for kind in sys.argv[1:] or HEADS:
        records = [recorded(kind, *entry) for entry in HEADS[kind]]
        path = os.path.join(hf.OUT, kind + ".heads.json.gz")
        with open(path, "wb") as f:
            f.write(hf.gzip.compress(zoo_program.pack(records), 9, mtime=0))
        print(os.path.getsize(path))


if __name__ == "__main__":
    main()
