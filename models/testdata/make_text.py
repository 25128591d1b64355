"""Records the text that transformers writes with tiny models: families/hf/text.json.gz.

    python make_text.py

A list of models; of each `name`, `config` and `reference` as in families/hf/TYPE.heads.json.gz, and `runs`: prompts, and the
256 tokens that are the most likely ones one after the other, with their logits' largest value for the first and the last.
"""

import gzip
import json
import os
import random

import torch
import transformers as T

import zoo_weights
from make_families_hf import OUT, config_text

TEXT = dict(vocab_size=200, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4,
            max_position_embeddings=512, pad_token_id=0, bos_token_id=1, eos_token_id=2)
GROUPED = TEXT | {"num_key_value_heads": 2}


def rope(kind, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **more}}


MODELS = [
    ("gpt2", "GPT2LMHeadModel", dict(vocab_size=200, n_embd=48, n_layer=3, n_head=4, n_positions=512, bos_token_id=1,
                                     eos_token_id=2)),
    ("opt", "OPTForCausalLM", {k: v for k, v in TEXT.items() if k != "intermediate_size"}
     | {"ffn_dim": 80, "word_embed_proj_dim": 48}),
    ("llama", "LlamaForCausalLM", GROUPED),
    ("llama_biased", "LlamaForCausalLM", TEXT | {"attention_bias": True, "mlp_bias": True, "head_dim": 16,
                                                 "tie_word_embeddings": True}),
    ("llama_linear", "LlamaForCausalLM", GROUPED | rope("linear", factor=4.0)),
    ("llama_llama3", "LlamaForCausalLM", GROUPED | {"head_dim": 32} | rope(
        "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)),
    ("llama_yarn", "LlamaForCausalLM", GROUPED | {"head_dim": 32} | rope(
        "yarn", factor=4.0, original_max_position_embeddings=16)),
    ("mistral", "MistralForCausalLM", GROUPED | {"head_dim": 12, "sliding_window": 20}),
    ("qwen2", "Qwen2ForCausalLM", GROUPED),
    ("qwen2_sliding", "Qwen2ForCausalLM", GROUPED | {"use_sliding_window": True, "sliding_window": 16,
                                                     "max_window_layers": 1}),
    ("qwen3", "Qwen3ForCausalLM", GROUPED | {"head_dim": 16}),
    ("gemma", "GemmaForCausalLM", TEXT | {"num_key_value_heads": 1, "head_dim": 16}),
    ("gemma2", "Gemma2ForCausalLM", GROUPED | {"head_dim": 16, "sliding_window": 24, "query_pre_attn_scalar": 16}),
    ("phi3", "Phi3ForCausalLM", GROUPED),
]
PROMPTS, WRITTEN = 20, 256


def main():
    rng = random.Random(3)
    records = []
    for name, cls, options in MODELS:
        torch.manual_seed(0)
        model = getattr(T, cls)(getattr(T, cls).config_class(**options)).eval().requires_grad_(False)
        weights = zoo_weights.Weights(model, {})
        model.generation_config.eos_token_id = None
        runs = []
        for i in range(PROMPTS):
            prompt = [rng.randrange(3, 200) for _ in range(1 + (i * 11) % 90)]
            out = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
                                 max_new_tokens=WRITTEN, do_sample=False, output_logits=True, return_dict_in_generate=True)
            tokens = out.sequences[0, len(prompt):].tolist()
            assert len(tokens) == WRITTEN
            # How near the second most likely token ever was: rounding cannot choose another one.
            top = torch.stack([x[0] for x in out.logits]).topk(2).values
            gap = float((top[:, 0] - top[:, 1]).min())
            runs.append({"prompt": prompt, "tokens": tokens, "gap": float(f"{gap:.2g}"),
                         "largest": [round(float(out.logits[k].max()), 6) for k in (0, -1)]})
        model.config.use_cache = False
        records.append({"name": name, "config": config_text(model), "runs": runs,
                        "reference": {"weights": weights.entries, "torch": torch.__version__.split("+")[0]}})
        print(name, min(r["gap"] for r in runs))
    with gzip.GzipFile(os.path.join(OUT, "text.json.gz"), "wb", mtime=0) as f:
        f.write(json.dumps(records).encode())


if __name__ == "__main__":
    main()
