"""Prints what every node of a program of the zoo computes in PyTorch, to find where another runtime parts from it.

    python zoo_trace.py hf/llama                 the aten form, the first case
    python zoo_trace.py hf/llama core 1          the decomposed form, the second case

One line per value: name, target, dtype, shape, the largest magnitude, the first, middle and last element.
"""

import base64
import gzip
import importlib
import os
import sys
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import torch  # noqa: E402

import make_zoo  # noqa: E402
import zoo_build  # noqa: E402
import zoo_hash  # noqa: E402
import zoo_program  # noqa: E402
import zoo_reference  # noqa: E402
from zoo_spec import MODELS  # noqa: E402


class Tracer(torch.fx.Interpreter):
    def run_node(self, n):
        out = super().run_node(n)
        if n.op == "call_function":
            for i, t in enumerate(out if isinstance(out, (tuple, list)) else [out]):
                show(n.name + (f"[{i}]" if isinstance(out, (tuple, list)) else ""), str(n.target), t)
        return out


def show(name, target, t):
    if not isinstance(t, torch.Tensor):
        return print(name, target, t)
    v = zoo_reference.samples(t)
    ends = [v[0], v[len(v) // 2], v[-1]] if v else []
    print(name, target, zoo_reference.dtype_name(t.dtype), list(t.shape), f"max {zoo_reference.largest(t):.9g}", *ends)


def fill(model, entries):
    """Gives the model the weights of its reference."""
    with torch.no_grad():
        for name, t in list(model.named_parameters()) + list(model.named_buffers()):
            e = entries[name]
            if "scale" in e:
                t.copy_(zoo_hash.floats(name, tuple(t.shape), t.dtype, e["offset"], e["scale"]))
            elif "data" in e or "gzip" in e:
                raw = base64.b64decode(e.get("data") or e.get("gzip") or "")
                raw = gzip.decompress(raw) if "gzip" in e else raw
                if raw:
                    t.copy_(torch.frombuffer(bytearray(raw), dtype=t.dtype).reshape(t.shape))


def main():
    warnings.simplefilter("ignore")
    family, name = sys.argv[1].split("/")
    form = sys.argv[2] if len(sys.argv) > 2 else "aten"
    number = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    importlib.import_module("zoo_" + family.split(".")[0])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    spec = MODELS[family, name]()
    model = spec.model.eval().requires_grad_(False)
    fill(model, make_zoo.load(family, name + ".ref")["weights"])
    args, kwargs, _, _ = zoo_build.materialize(model, spec.cases[0])
    ep = zoo_program.export(model, args, kwargs, spec.dynamic)
    if form == "core":
        ep = ep.run_decompositions()
    args, kwargs, _, values = zoo_build.materialize(model, spec.cases[number])
    for n, v in values.items():
        show(n, "input", v)
    with torch.no_grad():
        Tracer(ep.graph_module).run(*ep._graph_module_flat_inputs(args, kwargs))


if __name__ == "__main__":
    main()
