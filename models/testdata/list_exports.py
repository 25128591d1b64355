"""Exports a tiny model of every family with torch.export and has optimem run it: families/hf/exports.json.

    OPTIMEM=bin/optimem python list_exports.py              all that make_{decoders,recurrents,seq2seq}.py list, and the first model of
                                                            each type in make_families_{moe,hf,hf2,speech,seeing}.py
    OPTIMEM=bin/optimem python list_exports.py mpt olmo3    some, the others stay as they are

Of each model the largest difference of its outputs from PyTorch's, or why there is none: `export` is what torch.export said,
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
from safetensors.numpy import load_file

import make_decoders
import make_families_hf
import make_families_hf2
import make_families_moe
import make_families_seeing
import make_families_speech
import make_recurrents
import make_seq2seq
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


def exported(model, args, inputs):
    """Exports a model and has optimem run it: its outputs beside PyTorch's, by position, or what went wrong."""
    want = model(*args, **inputs)
    want = [x.numpy() for x in (want if isinstance(want, tuple) else (want,))]
    with tempfile.TemporaryDirectory() as folder:
        at = lambda name: os.path.join(folder, name)  # noqa: E731
        try:
            torch.export.save(torch.export.export(model, args, inputs, strict=False), at("m.pt2"))
        except Exception as e:  # whatever it is, it is what is recorded
            return {"export": reason(f"{type(e).__name__}: {e}")}
        files = []
        for k, x in (inputs or {"ids": args[0]}).items():
            np.save(at(k + ".npy"), x.numpy())
            files += ["--input", f"{k}={at(k + '.npy')}" if inputs else at(k + ".npy")]
        done = subprocess.run([OPTIMEM, "run", at("m.pt2"), *files, "-o", at("out.safetensors"), "--quiet"],
                              capture_output=True, text=True)
        if done.returncode:
            return {"run": reason(done.stderr.replace(folder + "/", ""))}
        # Outputs of a program are named by its nodes; those of a safetensors file are sorted by name, and told apart by shape.
        got = list(load_file(at("out.safetensors")).values())
        err = 0.0
        for w in want:
            alike = [np.abs(g.astype(np.float64) - w).max() for g in got if g.shape == w.shape]
            err = max(err, float(min(alike)))
        return {"err": float("%.1e" % err)}


def tried(cls, options):
    model = Logits(made(cls, options))
    ids = (torch.arange(TOKENS) * 7 % 90 + 3)[None]
    make_decoders.forget(model.model)
    return exported(model, (ids,), {})


class Outputs(torch.nn.Module):
    """A model that returns some of its outputs."""

    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, **inputs):
        out = self.model(**inputs)
        return tuple(out[name] for name in self.names)


def seen(cls, options, case):
    """As tried, of a model with inputs of its own."""
    torch.manual_seed(0)
    model = getattr(T, cls)(getattr(T, cls).config_class(**options)).float().eval().requires_grad_(False)
    model.config.use_cache = False
    inputs = make_families_hf.tensors(case)
    names = list(make_families_hf.fields(model(**inputs)))
    return exported(Outputs(model, names), (), inputs)


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
    models = [(name, lambda c=cls, o=options: tried(c, o)) for name, cls, options in make_decoders.MODELS + make_recurrents.MODELS + mixtures]
    for heads in make_families_hf.HEADS, make_families_hf2.HEADS, make_families_speech.HEADS, make_families_seeing.HEADS:
        models += [(kind, lambda h=h: seen(h[0][1], h[0][2], h[0][3][0])) for kind, h in heads.items()]
    ids = (torch.arange(TOKENS) * 7 % 90 + 3)[None]
    models += [(name, lambda c=cls, o=options: seen(c, o, {"input_ids": ids, "decoder_input_ids": ids[:, :9]}))
               for name, cls, options in make_seq2seq.MODELS if name != "whisper"]
    for name, try_ in models:
        if some and name not in some:
            continue
        try:
            have[name] = try_()
        except Exception as e:
            have[name] = {"export": reason(f"{type(e).__name__}: {e}")}
        print(name, have[name], flush=True)
        with open(PATH, "w") as f:
            json.dump({"torch": torch.__version__, "transformers": T.__version__, "models": dict(sorted(have.items()))}, f,
                      separators=(",", ":"))
            f.write("\n")


if __name__ == "__main__":
    main()
