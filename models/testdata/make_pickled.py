"""Pickles a small BERT whole, as torch.save(model) does, and records its configuration and what PyTorch computes with it.

    python make_pickled.py

needs torch and transformers; the files are by torch 2.11 and transformers 5.23.
"""

import json
import pathlib

import torch
from transformers import BertConfig, BertModel

HERE = pathlib.Path(__file__).parent


def main():
    torch.manual_seed(0)
    config = BertConfig(vocab_size=16, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=12,
                        max_position_embeddings=6, architectures=["BertModel"])
    model = BertModel(config).eval()
    torch.save(model, HERE / "pickled_bert.pt")
    (HERE / "pickled_bert.config.json").write_text(config.to_json_string())
    ids = torch.tensor([[1, 5, 9, 2], [3, 3, 7, 15]])
    with torch.no_grad():
        outputs = model(ids)
    recorded = {"input_ids": ids.tolist(), "outputs": {k: v.flatten().tolist() for k, v in outputs.items()}}
    (HERE / "pickled_bert.json").write_text(json.dumps(recorded) + "\n")


if __name__ == "__main__":
    main()
