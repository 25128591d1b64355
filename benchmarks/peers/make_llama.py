"""Write a Hugging Face folder with the first layers of a model in Llama-2-7B's sizes, with random weights in float32.

    python make_llama.py FOLDER LAYERS [DEVICE [HIDDEN INNER VOCABULARY]]

Each layer is 0.8 GB, what precedes them 0.5 GB, if no other sizes are given. There is no head: the folder is a
LlamaModel. DEVICE is what draws the numbers, "cpu" or "cuda"; each draws others.
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig

folder, layers = pathlib.Path(sys.argv[1]), int(sys.argv[2])
device = sys.argv[3] if len(sys.argv) > 3 else "cpu"
HIDDEN, INNER, VOCABULARY = (int(n) for n in sys.argv[4:]) if len(sys.argv) > 4 else (4096, 11008, 32000)
folder.mkdir(parents=True, exist_ok=True)
torch.manual_seed(0)


def weights(*shape):
    return (torch.randn(*shape, device=device) * 0.02).cpu()


names = {}  # of the files that tensors are in


def write(n, tensors):
    file = f"model-{n + 1:05}-of-{layers + 1:05}.safetensors"
    save_file(tensors, folder / file, metadata={"format": "pt"})
    names.update(dict.fromkeys(tensors, file))


write(0, {"embed_tokens.weight": weights(VOCABULARY, HIDDEN), "norm.weight": torch.ones(HIDDEN)})
for i in range(layers):
    p = f"layers.{i}."
    write(i + 1, {
        **{p + f"self_attn.{x}_proj.weight": weights(HIDDEN, HIDDEN) for x in "qkvo"},
        p + "mlp.gate_proj.weight": weights(INNER, HIDDEN),
        p + "mlp.up_proj.weight": weights(INNER, HIDDEN),
        p + "mlp.down_proj.weight": weights(HIDDEN, INNER),
        p + "input_layernorm.weight": torch.ones(HIDDEN),
        p + "post_attention_layernorm.weight": torch.ones(HIDDEN),
    })
total = sum((folder / f).stat().st_size for f in set(names.values()))
(folder / "model.safetensors.index.json").write_text(
    json.dumps({"metadata": {"total_size": total}, "weight_map": names}, indent=1))
config = LlamaConfig(hidden_size=HIDDEN, intermediate_size=INNER, vocab_size=VOCABULARY, num_hidden_layers=layers,
                     num_attention_heads=HIDDEN // 128, num_key_value_heads=HIDDEN // 128,
                     max_position_embeddings=4096, architectures=["LlamaModel"], dtype="float32")
(folder / "config.json").write_text(json.dumps(config.to_dict(), indent=1))
