"""Records what compressed-tensors makes of folders that optimem quantised: golden.json.

    go build -o optimem ./cmd/optimem
    python quantize/testdata/make_golden.py ./optimem generate/testdata/chat

Of each dtype and scheme it has the SHA-256 of all dequantised weights as float32, in the order of their modules' names, their
relative error, that of compressed-tensors' own scales (of the least and the greatest number), and, of bfloat16, what transformers
answers greedily. Python's packages: torch, transformers, safetensors, compressed-tensors.
"""

import hashlib, json, shutil, subprocess, sys, tempfile
from pathlib import Path

import compressed_tensors
import torch
import transformers
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig
from compressed_tensors.quantization.lifecycle.forward import fake_quantize
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors.torch import load_file, save_file

SCHEMES = [["int8"], ["int8:32", "--minimum"], ["int4:32"], ["int4:32", "--minimum"], ["fp8"]]
QUESTION = [{"role": "user", "content": "What is the capital of Peru?"}]


def relative(pairs):
    lost = sum(((a.double() - b.double()) ** 2).sum() for a, b in pairs)
    return float((lost / sum((a.double() ** 2).sum() for a, _ in pairs)) ** 0.5)


def plain(weight, args):
    """What compressed-tensors makes of a weight with scales of the least and the greatest number."""
    size = args.group_size or weight.shape[1]
    groups = weight.reshape(weight.shape[0], -1, size)
    scale, zero = calculate_qparams(groups.amin(-1), groups.amax(-1), args)
    return fake_quantize(weight, scale, zero, args)


def answer(folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    x = tokenizer.apply_chat_template(QUESTION, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    y = model.generate(**x, max_new_tokens=16, do_sample=False)
    return tokenizer.decode(y[0, x["input_ids"].shape[1]:], skip_special_tokens=True)


def main(optimem, chat):
    golden = {"compressed_tensors": compressed_tensors.__version__, "transformers": transformers.__version__, "cases": []}
    for dtype in [torch.bfloat16, torch.float16, torch.float32]:
        with tempfile.TemporaryDirectory() as work:
            source = Path(work, "chat")
            shutil.copytree(chat, source)
            whole = {k: v.to(dtype) for k, v in load_file(Path(chat, "model.safetensors")).items()}
            save_file(whole, source / "model.safetensors", {"format": "pt"})
            config = json.loads((source / "config.json").read_text())
            config["dtype"] = str(dtype).removeprefix("torch.")
            (source / "config.json").write_text(json.dumps(config))
            for scheme in SCHEMES:
                to = Path(work, "-".join(scheme).replace(":", "-"))
                said = subprocess.run([optimem, "quantize", source, "-o", to, "--json", "--to", *scheme], check=True, capture_output=True)
                said = json.loads(said.stdout)
                config = QuantizationConfig(**json.loads((to / "config.json").read_text())["quantization_config"])
                group = config.config_groups["group_0"]
                tensors = load_file(to / "model.safetensors")
                digest, pairs, others = hashlib.sha256(), [], []
                for layer in sorted(said["layers"], key=lambda x: x["name"]):
                    name = layer["name"]
                    parts = {k.removeprefix(name + "."): v for k, v in tensors.items() if k.startswith(name + ".")}
                    weight = BaseCompressor.get_value_from_registry(config.format).decompress(parts, group)["weight"]
                    assert weight.dtype == dtype
                    digest.update(weight.float().contiguous().numpy().tobytes())
                    before = whole[name + ".weight"]
                    pairs.append((before, weight))
                    others.append((before, plain(before, group.weights)))
                    assert abs(relative(pairs[-1:]) - layer["relative_error"]) < 1e-9, name
                case = {"dtype": config and str(dtype).removeprefix("torch."), "scheme": scheme[0], "minimum": len(scheme) > 1,
                        "sha256": digest.hexdigest(), "error": relative(pairs), "plain_error": relative(others)}
                # transformers 5.24 with compressed-tensors 0.20 expects zero points that are not packed, unlike what the latter writes.
                if dtype == torch.bfloat16 and len(scheme) == 1:
                    case["answer"] = answer(to)
                golden["cases"].append(case)
                print(case)
    Path(__file__).with_name("golden.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
