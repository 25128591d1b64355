"""Fixtures of several files: sharded checkpoints and Hugging Face folders."""

import collections
import glob
import json
import os
import shutil

import torch

import fixtures_golden as golden
import fixtures_models as models
from make_fixtures import group, record_scan, valid


def folder(name):
    path = valid(name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    return path


def shards(path):
    """The state dict cut in two, as (file, part)."""
    state = models.CNN().state_dict()
    names = list(state)
    return [(path % 1, {n: state[n] for n in names[:5]}), (path % 2, {n: state[n] for n in names[5:]})]


def write_index(path, parts):
    total = sum(t.numel() * t.element_size() for _, part in parts for t in part.values())
    index = {"metadata": {"total_size": total}, "weight_map": {n: file for file, part in parts for n in part}}
    with open(path, "w") as f:
        json.dump(index, f, indent=2, sort_keys=True)
        f.write("\n")


def load(path):
    if path.endswith(".safetensors"):
        from safetensors.torch import load_file
        return load_file(path)
    return torch.load(path, map_location="cpu", weights_only=True)


def describe(name, fmt, files, **extra):
    """One golden for the folder or index: each tensor with its file."""
    g = collections.OrderedDict(format=fmt, torch=torch.__version__.split("+")[0])
    g.update(extra)
    g["tensors"] = []
    base = valid(name) if os.path.isdir(valid(name)) else os.path.dirname(valid(name))
    verdicts = []
    for file in files:
        full = os.path.join(base, file)
        w = golden.Walk()
        w.visit(load(full), "")
        for t in w.tensors:
            t["file"] = file
        g["tensors"] += w.tensors
        if not file.endswith(".safetensors"):
            with open(full, "rb") as f:
                verdicts.append(golden.scan_verdict(f.read()))
    golden.dump(g, valid(name) + ".golden.json")
    for v in verdicts:
        if v["verdict"] != "data":
            raise AssertionError("not data only: " + name)
    record_scan(name, {"verdict": "data"})


@group("folders")
def folders():
    """Sharded indexes of both kinds and what save_pretrained writes."""
    from safetensors.torch import save_file

    folder("sharded_bin")
    parts = shards("pytorch_model-%05d-of-00002.bin")
    for file, part in parts:
        torch.save(part, valid("sharded_bin", file))
    write_index(valid("sharded_bin", "pytorch_model.bin.index.json"), parts)
    describe("sharded_bin/pytorch_model.bin.index.json", "sharded", [f for f, _ in parts])

    folder("sharded_safetensors")
    parts = shards("model-%05d-of-00002.safetensors")
    for file, part in parts:
        save_file(part, valid("sharded_safetensors", file), metadata={"format": "pt"})
    write_index(valid("sharded_safetensors", "model.safetensors.index.json"), parts)
    describe("sharded_safetensors/model.safetensors.index.json", "sharded", [f for f, _ in parts])

    pretrained("hf_bert", bert())
    pretrained("hf_gpt2_sharded", gpt2(), max_shard_size="1KB")
    folder("hf_bin_only")
    config, model = bert()
    config.save_pretrained(valid("hf_bin_only"))
    torch.save(model.state_dict(), valid("hf_bin_only", "pytorch_model.bin"))
    describe("hf_bin_only", "huggingface", ["pytorch_model.bin"], model_type="bert")


def bert():
    from transformers import BertConfig, BertModel
    torch.manual_seed(3)
    config = BertConfig(vocab_size=11, hidden_size=4, num_hidden_layers=2, num_attention_heads=2, intermediate_size=6,
                        max_position_embeddings=8)
    return config, BertModel(config)


def gpt2():
    """The output layer is tied to the embedding and is not in the file."""
    from transformers import GPT2Config, GPT2LMHeadModel
    torch.manual_seed(4)
    config = GPT2Config(vocab_size=13, n_positions=8, n_embd=4, n_layer=2, n_head=2, bos_token_id=0,
                        eos_token_id=0)
    return config, GPT2LMHeadModel(config)


def pretrained(name, pair, **kwargs):
    config, model = pair
    path = folder(name)
    model.save_pretrained(path, **kwargs)
    files = sorted(os.path.basename(p) for p in glob.glob(os.path.join(path, "*.safetensors")))
    describe(name, "huggingface", files, model_type=config.model_type)
