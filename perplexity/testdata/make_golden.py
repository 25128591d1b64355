"""Records the perplexity of text.txt by transformers' model, before and after int8: golden.json.

    go build -o optimem ./cmd/optimem
    python perplexity/testdata/make_golden.py ./optimem generate/testdata/chat

The loop is that of transformers' guide to perplexity, with a stride of half a window. `guide` is its number, which counts one token
fewer of each window after the first than it has losses of; `perplexity` counts all of them. Both are computed in float32 from the
folder's weights, those of int8 as compressed-tensors decompresses them. Python's packages: torch, transformers, safetensors,
compressed-tensors.
"""

import json, subprocess, sys, tempfile
from pathlib import Path

import torch
import transformers
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig
from safetensors.torch import load_file

HERE = Path(__file__).parent


def perplexity(model, ids, length):
    total, tokens, guide_total, guide_tokens, previous = 0.0, 0, 0.0, 0, 0
    for begin in range(0, ids.size(1), length // 2):
        end = min(begin + length, ids.size(1))
        window = ids[:, begin:end]
        labels = window.clone()
        labels[:, : -(end - previous)] = -100
        with torch.no_grad():
            loss = model(window, labels=labels).loss.double().item()
        losses = (labels[:, 1:] != -100).sum().item()
        total, tokens = total + loss * losses, tokens + losses
        counted = (labels != -100).sum().item() - 1
        guide_total, guide_tokens = guide_total + loss * counted, guide_tokens + counted
        previous = end
        if end == ids.size(1):
            break
    exp = lambda x: torch.tensor(x, dtype=torch.float64).exp().item()
    return {"context": length, "tokens": tokens, "perplexity": exp(total / tokens), "guide": exp(guide_total / guide_tokens)}


def decompress(folder, model):
    config = QuantizationConfig(**json.loads((folder / "config.json").read_text())["quantization_config"])
    tensors = load_file(folder / "model.safetensors")
    compressor = BaseCompressor.get_value_from_registry(config.format)
    for name, module in model.named_modules():
        parts = {k.removeprefix(name + "."): v for k, v in tensors.items() if k.startswith(name + ".weight_")}
        if parts:
            weight = compressor.decompress(parts, config.config_groups["group_0"])["weight"]
            module.weight.data = weight.float()


def main(optimem, chat):
    tokenizer = transformers.AutoTokenizer.from_pretrained(chat)
    text = (HERE / "text.txt").read_bytes().decode()
    ids = tokenizer(text, return_tensors="pt").input_ids
    golden = {"transformers": transformers.__version__, "ids": ids[0].tolist(), "before": [], "after": []}
    model = transformers.AutoModelForCausalLM.from_pretrained(chat, dtype=torch.float32)
    for when in ["before", "after"]:
        for length in [16, 63, 256]:
            golden[when].append(perplexity(model, ids, length))
        with tempfile.TemporaryDirectory() as work:
            to = Path(work, "int8")
            subprocess.run([optimem, "quantize", chat, "-o", to, "--to", "int8", "--quiet"], check=True, capture_output=True)
            decompress(to, model)
    (HERE / "golden.json").write_text(json.dumps(golden) + "\n")
    print(len(golden["ids"]), golden["before"], golden["after"])


if __name__ == "__main__":
    main(*sys.argv[1:])
