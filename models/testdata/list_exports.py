"""Exports a tiny model of every family with torch.export and has optimem run it: families/hf/exports.json.

    OPTIMEM=bin/optimem python list_exports.py              all that make_decoders.py, make_recurrents.py and make_families_moe.py list
    OPTIMEM=bin/optimem python list_exports.py mpt olmo3    some, the others stay as they are

Of each model the largest difference of its logits from PyTorch's, or why there is none: `export` is what torch.export said,
`run` what optimem said. Programs are as large as models, so that CI has a third of these families (zoo/hf.zip); the others are
run here. FAMILIES.md says which.
"""

import json
import os
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import torch
import transformers as T

import make_decoders
import make_families_moe
import make_recurrents
import zoo_hash
from make_families_hf import OUT

PATH = os.path.join(OUT, "exports.json")
OPTIMEM = os.environ.get("OPTIMEM", "optimem")
TOKENS = 24


def made(cls, options):
    torch.manual_seed(0)
    model = getattr(T, cls)(getattr(T, cls).config_class(**options)).float().eval().requires_grad_(False)
    state = make_decoders.stored(model)
    for key, x in model.state_dict().items():
        if key in state:
            x.copy_(zoo_hash.floats(key, tuple(x.shape), x.dtype, *make_decoders.weight_rule(key, x.shape)))
    model.config.use_cache = False
    return model


class Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids, use_cache=False).logits


def reason(text):
    """The first line that says something, without addresses and places."""
    for line in text.strip().splitlines():
        line = line.strip().removeprefix("error: ")
        if line:
            return " ".join(line.split())[:140]
    return "nothing"


def tried(cls, options):
    model = Logits(made(cls, options))
    ids = (torch.arange(TOKENS) * 7 % 90 + 3)[None]
    make_decoders.forget(model.model)
    want = model(ids).numpy()
    with tempfile.TemporaryDirectory() as folder:
        at = lambda name: os.path.join(folder, name)  # noqa: E731
        try:
            torch.export.save(torch.export.export(model, (ids,), strict=False), at("m.pt2"))
        except Exception as e:  # whatever it is, it is what is recorded
            return {"export": reason(f"{type(e).__name__}: {e}")}
        np.save(at("ids.npy"), ids.numpy())
        done = subprocess.run([OPTIMEM, "run", at("m.pt2"), "--input", at("ids.npy"), "-o", at("out.npy"), "--quiet"],
                              capture_output=True, text=True)
        if done.returncode:
            return {"run": reason(done.stderr.replace(folder + "/", ""))}
        return {"err": float("%.1e" % np.abs(np.load(at("out.npy")).astype(np.float64) - want).max())}


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    have = {}
    if os.path.exists(PATH):
        with open(PATH) as f:
            have = json.load(f)["models"]
    some = sys.argv[1:]
    # Experts one after the other, as records are made with, have as many steps as rows name some: that does not export.
    exported = lambda options: {k: v for k, v in options.items() if k != "experts_implementation"}  # noqa: E731
    mixtures = [(kind, heads[0][1], exported(heads[0][2])) for kind, heads in make_families_moe.HEADS.items()]
    for name, cls, options in make_decoders.MODELS + make_recurrents.MODELS + mixtures:
        if some and name not in some:
            continue
        try:
            have[name] = tried(cls, options)
        except Exception as e:
            have[name] = {"export": reason(f"{type(e).__name__}: {e}")}
        print(name, have[name], flush=True)
        with open(PATH, "w") as f:
            json.dump({"torch": torch.__version__, "transformers": T.__version__, "models": dict(sorted(have.items()))}, f,
                      separators=(",", ":"))
            f.write("\n")


if __name__ == "__main__":
    main()
