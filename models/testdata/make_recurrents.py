"""make_decoders.py for models whose layers keep a state of a fixed size: families/hf/recurrents.json.gz and defaults_recurrents.json.

    python make_recurrents.py [--only-compare] [NAME …]

transformers computes them with PyTorch's ops: kernels of other packages are not installed. To add a family, add a line to MODELS.
"""

import os

import make_decoders
from make_decoders import FOUR, TEXT, V
from make_families_hf import OUT

MAMBA = dict(vocab_size=V, hidden_size=32, num_hidden_layers=3, state_size=8, pad_token_id=0, bos_token_id=1, eos_token_id=2)

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
]


if __name__ == "__main__":
    make_decoders.MODELS = MODELS
    make_decoders.PATH = os.path.join(OUT, "recurrents.json.gz")
    make_decoders.DEFAULTS = os.path.join(OUT, "defaults_recurrents.json")
    make_decoders.main()
