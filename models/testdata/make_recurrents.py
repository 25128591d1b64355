"""make_decoders.py for models whose layers keep a state of a fixed size: families/hf/recurrents.json.gz and defaults_recurrents.json.

    python make_recurrents.py [--only-compare] [NAME …]

transformers computes them with PyTorch's ops: kernels of other packages are not installed. To add a family, add a line to MODELS.
"""

import os

import make_decoders
from make_decoders import FOUR, TEXT, V
from make_families_hf import OUT

MAMBA = dict(vocab_size=V, hidden_size=32, num_hidden_layers=3, state_size=8, pad_token_id=0, bos_token_id=1, eos_token_id=2)
DUAL = dict(mamba_d_state=8, mamba_d_conv=4, mamba_expand=2, mamba_chunk_size=16)
GRANITE = dict(embedding_multiplier=6.0, residual_multiplier=0.22, logits_scaling=0.7, attention_multiplier=0.2,
               shared_intermediate_size=24, num_experts_per_tok=2)
MIXED = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24)
NEMOTRON = {k: v for k, v in TEXT.items() if k != "num_hidden_layers"} | dict(
    head_dim=8, ssm_state_size=8, mamba_num_heads=4, mamba_head_dim=16, n_groups=2, n_routed_experts=4, num_experts_per_tok=2,
    moe_intermediate_size=24, moe_shared_expert_intermediate_size=24)
DELTA = dict(head_dim=16, linear_key_head_dim=64, linear_value_head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4,
             moe_intermediate_size=24, shared_expert_intermediate_size=24, num_experts=4, num_experts_per_tok=2,
             layer_types=["full_attention", "linear_attention", "linear_attention"])
# A norm behind the rule makes the rounding of small sums large: with smaller heads transformers' steps are 1e-3 from its whole texts.

MODELS = [
    ("mamba", "MambaForCausalLM", MAMBA),
    ("mamba_biased", "MambaForCausalLM", MAMBA | {"use_bias": True, "use_conv_bias": False, "time_step_rank": 5, "conv_kernel": 3,
                                                  "state_size": 5, "tie_word_embeddings": False}),
    ("mamba2", "Mamba2ForCausalLM", MAMBA | {"num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 16}),
    ("mamba2_biased", "Mamba2ForCausalLM", MAMBA | {"num_heads": 4, "head_dim": 16, "n_groups": 1, "chunk_size": 16, "use_bias": True,
                                                    "tie_word_embeddings": True}),
    ("lfm2", "Lfm2ForCausalLM", TEXT | FOUR | {"block_multiple_of": 8, "layer_types": ["conv", "full_attention", "conv", "conv"]}),
    ("lfm2_biased", "Lfm2ForCausalLM", TEXT | {"conv_bias": True, "conv_L_cache": 5, "full_attn_idxs": [2], "tie_word_embeddings": False,
                                               "block_auto_adjust_ff_dim": False}),
    ("lfm2_moe", "Lfm2MoeForCausalLM", TEXT | MIXED | {"num_dense_layers": 1, "layer_types": ["conv", "full_attention", "conv"]}),
    ("lfm2_moe_unbiased", "Lfm2MoeForCausalLM", TEXT | MIXED | {
        "num_dense_layers": 0, "layer_types": ["full_attention", "conv", "conv"], "use_expert_bias": False, "norm_topk_prob": False,
        "routed_scaling_factor": 1.5, "conv_bias": True}),
    ("jamba", "JambaForCausalLM", TEXT | MIXED | {
        "num_hidden_layers": 4, "mamba_d_state": 8, "attn_layer_period": 4, "attn_layer_offset": 1, "mamba_dt_rank": 4}),
    ("jamba_biased", "JambaForCausalLM", TEXT | {
        "num_hidden_layers": 2, "num_experts": 1, "mamba_d_state": 8, "attn_layer_period": 2, "attn_layer_offset": 0,
        "mamba_conv_bias": False, "mamba_proj_bias": True, "tie_word_embeddings": True}),
    ("nemotron_h", "NemotronHForCausalLM", NEMOTRON | {"layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"]}),
    ("nemotron_h_biased", "NemotronHForCausalLM", NEMOTRON | {
        "layers_block_type": ["mlp", "moe", "linear_attention", "full_attention"], "moe_latent_size": 16, "mlp_bias": True, "use_bias": True,
        "n_group": 2, "topk_group": 1, "routed_scaling_factor": 1.5, "norm_topk_prob": False}),
    ("minimax", "MiniMaxForCausalLM", TEXT | MIXED | {
        "layer_types": ["linear_attention", "full_attention", "linear_attention"], "block_size": 16, "full_attn_alpha_factor": 1.5,
        "linear_attn_alpha_factor": 1.2, "linear_attn_beta_factor": 0.9, "mlp_alpha_factor": 1.3, "mlp_beta_factor": 0.8}),
    ("kimi_linear", "KimiLinearForCausalLM", TEXT | {
        "num_key_value_heads": 4, "num_local_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 20, "kv_lora_rank": 24,
        "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10, "linear_head_dim": 32, "linear_num_heads": 2,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"]}),
    ("falcon_mamba", "FalconMambaForCausalLM", MAMBA),
    ("falcon_h1", "FalconH1ForCausalLM", TEXT | DUAL | {
        "num_hidden_layers": 2, "mamba_d_ssm": 48, "mamba_n_heads": 6, "mamba_n_groups": 2, "embedding_multiplier": 5.5,
        "lm_head_multiplier": 0.6, "mlp_multipliers": [0.9, 0.8], "key_multiplier": 0.4, "attention_out_multiplier": 0.7,
        "attention_in_multiplier": 1.2, "ssm_multipliers": [0.35, 0.25, 0.17, 0.5, 0.35], "ssm_in_multiplier": 1.3,
        "ssm_out_multiplier": 0.23}),
    ("falcon_h1_biased", "FalconH1ForCausalLM", TEXT | DUAL | {
        "num_hidden_layers": 2, "mamba_d_ssm": None, "mamba_n_heads": 4, "mamba_rms_norm": True, "mamba_norm_before_gate": False,
        "mamba_proj_bias": True, "projectors_bias": True, "attention_bias": True, "mlp_bias": True, "mamba_conv_bias": False}),
    ("falcon_h1_normed_biased", "FalconH1ForCausalLM", TEXT | DUAL | {
        "num_hidden_layers": 2, "mamba_d_ssm": 64, "mamba_n_heads": 8, "mamba_n_groups": 4, "mamba_rms_norm": True}),
    ("bamba", "BambaForCausalLM", TEXT | DUAL | {"mamba_n_heads": 8, "mamba_n_groups": 2, "attn_layer_indices": [1]}),
    ("granitemoehybrid", "GraniteMoeHybridForCausalLM", TEXT | DUAL | GRANITE | {
        "mamba_n_heads": 8, "num_local_experts": 4, "layer_types": ["linear_attention", "full_attention", "linear_attention"]}),
    ("granitemoehybrid_biased", "GraniteMoeHybridForCausalLM", TEXT | DUAL | GRANITE | {
        "mamba_n_heads": 4, "mamba_n_groups": 2, "num_local_experts": 0, "position_embedding_type": "rope", "mamba_proj_bias": True,
        "attention_bias": True, "layer_types": ["linear_attention", "full_attention", "linear_attention"]}),
    ("qwen3_next", "Qwen3NextForCausalLM", TEXT | DELTA),
    ("qwen3_next_biased", "Qwen3NextForCausalLM", TEXT | DELTA | {
        "layer_types": ["linear_attention", "full_attention"], "num_hidden_layers": 2, "linear_num_value_heads": 2,
        "mlp_only_layers": [1], "attention_bias": True, "norm_topk_prob": False, "tie_word_embeddings": True}),
    ("qwen3_5", "Qwen3_5ForCausalLM", TEXT | DELTA),
    ("qwen3_5_moe", "Qwen3_5MoeForCausalLM", TEXT | DELTA),
]


if __name__ == "__main__":
    make_decoders.MODELS = MODELS
    make_decoders.PATH = os.path.join(OUT, "recurrents.json.gz")
    make_decoders.DEFAULTS = os.path.join(OUT, "defaults_recurrents.json")
    make_decoders.main()
