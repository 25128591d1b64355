"""Perplexity of four bits: AWQ by llm-compressor, and optimem quantize, of one model, with one text to calibrate and one to foresee.

    python benchmarks/run_awq.py OPTIMEM MODEL --calibrate FILE --text FILE [--group 64] [--context 512] [--skip-awq]

Every result is a folder in compressed-tensors' format. What it stands for is computed by compressed-tensors' own decompression,
and read by transformers' model in float32, all in the same windows, which do not overlap: no number is a program's own. AWQ is
llm-compressor's AWQModifier as its authors set it (20 ratios, both scalings), then asymmetric codes of 4 bits with
scales from the least number to the greatest.
"""

import argparse
import json
import math
import os
import shutil
import subprocess
import tempfile

import torch
import transformers
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig
from safetensors.torch import load_file


def windows(tokenizer, path, context):
    ids = tokenizer(open(path, encoding="utf-8").read(), return_tensors="pt").input_ids[0]
    return [ids[i:i + context] for i in range(0, len(ids), context) if len(ids[i:i + context]) > 1]


def awq(model_path, folder, calibrate, group, context):
    from llmcompressor import oneshot
    from llmcompressor.modifiers.transform.awq import AWQModifier
    from llmcompressor.modifiers.quantization import QuantizationModifier

    if not torch.cuda.is_available():
        torch.Tensor.pin_memory = lambda tensor, *_: tensor  # llm-compressor 0.14 asks for it without a GPU, too
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32)
    parts = [w for w in windows(tokenizer, calibrate, context) if len(w) == context]
    data = torch.utils.data.DataLoader([{"input_ids": w, "attention_mask": torch.ones_like(w)} for w in parts], batch_size=1)
    weights = {"num_bits": 4, "type": "int", "symmetric": False, "strategy": "group", "group_size": group}
    scheme = {"group_0": {"targets": ["Linear"], "weights": weights}}
    recipe = [AWQModifier(duo_scaling="both"), QuantizationModifier(config_groups=scheme, ignore=["lm_head"])]
    oneshot(model=model, dataset=data, recipe=recipe, num_calibration_samples=len(parts))
    model.save_pretrained(folder, save_compressed=True)


def decoded(folder):
    """The tensors of a folder, with the weights that its codes stand for."""
    tensors = load_file(os.path.join(folder, "model.safetensors"))
    config = json.load(open(os.path.join(folder, "config.json"))).get("quantization_config")
    if not config:
        return tensors
    scheme = next(iter(QuantizationConfig.model_validate({**config, "ignore": []}).config_groups.values()))
    compressor = BaseCompressor.get_value_from_registry(config["format"])
    modules = [name.removesuffix(".weight_packed") for name in tensors if name.endswith(".weight_packed")]
    for module in modules:
        parts = {name.removeprefix(module + "."): tensors.pop(name) for name in list(tensors) if name.startswith(module + ".weight_")}
        tensors[module + ".weight"] = compressor.decompress(parts, scheme)["weight"]
    return tensors


def perplexity(model_path, folder, text, context):
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32)
    missing, unexpected = model.load_state_dict({k: v.float() for k, v in decoded(folder).items()}, strict=False)
    assert not unexpected and all(name == "lm_head.weight" for name in missing), (missing, unexpected)
    lost, count = 0.0, 0
    with torch.no_grad():
        for w in windows(tokenizer, text, context):
            logits = model(w[None]).logits[0, :-1].double()
            lost += torch.nn.functional.cross_entropy(logits, w[1:], reduction="sum").item()
            count += len(w) - 1
    return math.exp(lost / count), count


def main():
    p = argparse.ArgumentParser()
    p.add_argument("optimem"), p.add_argument("model")
    p.add_argument("--calibrate", required=True), p.add_argument("--text", required=True)
    p.add_argument("--group", type=int, default=64), p.add_argument("--context", type=int, default=512)
    p.add_argument("--skip-awq", action="store_true")
    a = p.parse_args()
    before, count = perplexity(a.model, a.model, a.text, a.context)
    print(f"perplexity of {count} tokens: {before:.4f} before", flush=True)
    calibrated = ["--calibrate", a.calibrate, "--context", str(a.context)]
    runs = {
        "int4 --minimum --calibrate --channels": ["--minimum", *calibrated, "--channels"],
        "int4 --minimum --calibrate": ["--minimum", *calibrated], "int4 --minimum": ["--minimum"], "int4": [],
        "int4 --calibrate --channels": [*calibrated, "--channels"], "int4 --calibrate": calibrated,
        "int4 --minimum --calibrate --act-order": ["--minimum", *calibrated, "--act-order"],
    }
    with tempfile.TemporaryDirectory() as at:
        folder = os.path.join(at, "q")
        if not a.skip_awq:
            awq(a.model, folder, a.calibrate, a.group, a.context)
            print(f"AWQ, llm-compressor: {perplexity(a.model, folder, a.text, a.context)[0]:.4f}", flush=True)
            shutil.rmtree(folder)
        for name, flags in runs.items():
            subprocess.run([a.optimem, "quantize", a.model, "-o", folder, "--to", f"int4:{a.group}", "--quiet", *flags], check=True,
                           capture_output=True)
            print(f"{name}: {perplexity(a.model, folder, a.text, a.context)[0]:.4f}", flush=True)
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
