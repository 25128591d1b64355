"""Records what the classes of torch.nn compute: for every class with various arguments, its attributes as they are
pickled, and outputs for weights and inputs that come from the hash of ../zoo_hash.py. Writes nn.json.gz.

    python make_nn.py                # all
    python make_nn.py --only LSTM    # prints the cases of a class, writes nothing

torch 2.15. The cases are in nn_cases.py.
"""

import argparse
import base64
import gzip
import json
import math
import pathlib
import sys
import warnings

import torch

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from zoo_hash import floats, integers  # noqa: E402
from zoo_reference import describe, flatten  # noqa: E402
from zoo_weights import dtype_name  # noqa: E402

import nn_cases  # noqa: E402

# The attributes that torch.nn.Module gives every module, which the loader keeps elsewhere or not at all.
HIDDEN = set(torch.nn.Module().__dict__) | {"_is_full_backward_hook", "_compiled_call_impl", "call_super_init"}

# Ops that exported programs record and that compute nothing.
SILENT = ("dropout", "sym_size", "_assert", "sym_constrain", "sym_numel")


def attribute(v):
    if v is None or isinstance(v, (bool, int, str)):
        return v
    if isinstance(v, float):
        return v if math.isfinite(v) else {"float": "NaN" if math.isnan(v) else "Infinity" if v > 0 else "-Infinity"}
    if isinstance(v, (list, tuple)):
        return [attribute(x) for x in v]
    if isinstance(v, dict):
        return {"dict": {k: attribute(x) for k, x in v.items()}}
    if isinstance(v, torch.Tensor):
        return {"class": "torch.Tensor"}
    if callable(v) and hasattr(v, "__qualname__"):
        return {"class": f"{v.__module__}.{v.__qualname__}"}
    return {"class": f"{type(v).__module__}.{type(v).__qualname__}"}


def tree(m):
    """A module as the loader reads it."""
    state = m.__getstate__() if "__getstate__" in type(m).__dict__ or isinstance(m, torch.nn.RNNBase) else m.__dict__
    members = [[n, p is not None, False, n in m._non_persistent_buffers_set]
               for n, p in m._parameters.items()]
    members += [[n, p is not None, True, n in m._non_persistent_buffers_set] for n, p in m._buffers.items()]
    out = {"class": f"{type(m).__module__}.{type(m).__qualname__}"}
    if attrs := {k: attribute(v) for k, v in state.items() if k not in HIDDEN}:
        out["attrs"] = attrs
    if members:
        out["members"] = members
    hooks = [attribute(h)["class"] for h in [*m._forward_pre_hooks.values(), *m._forward_hooks.values()]]
    if hooks:
        out["hooks"] = hooks
    if m._modules:
        out["children"] = [[n, c and tree(c)] for n, c in m._modules.items()]
    return out


def fill(model):
    """Gives the model hashed weights and returns how they were made."""
    made, seen = {}, {}
    for name, t in [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]:
        if id(t) in seen:
            made[name] = {"dtype": dtype_name(t.dtype), "shape": list(t.shape), "tied_to": seen[id(t)]}
            continue
        seen[id(t)] = name
        leaf = name.rpartition(".")[2]
        spec = {"dtype": dtype_name(t.dtype), "shape": list(t.shape)}
        if not t.is_floating_point():
            spec |= {"low": 0, "high": 1}
        elif leaf == "running_var":
            spec |= {"offset": 1.0, "scale": 0.5}
        elif t.dim() <= 1 and leaf.startswith("weight"):
            spec |= {"offset": 1.0, "scale": 0.25}
        else:
            fan = t[0].numel() if t.dim() > 1 else 4
            spec |= {"offset": 0.0, "scale": round(1.5 / math.sqrt(fan), 3)}
        made[name] = spec
        with torch.no_grad():
            t.copy_(tensor(name, spec))
    return made


def tensor(name, spec):
    dtype = getattr(torch, spec["dtype"])
    if "data" in spec:
        raw = bytearray(base64.b64decode(spec["data"]))
        return torch.frombuffer(raw, dtype=dtype).reshape(spec["shape"]).clone()
    if "low" in spec:
        return integers(name, spec["shape"], dtype, spec["low"], spec["high"])
    return floats(name, spec["shape"], dtype, spec["offset"], spec["scale"])


def exported_calls(case, model, args, kwargs):
    """The ops that an exported program calls, without overloads; None where it cannot be exported."""
    if not case.calls:
        return None
    try:
        program = torch.export.export(model, args, kwargs)
    except Exception as e:
        print(f"  {case.name}: not exported: {str(e).splitlines()[0][:100]}", file=sys.stderr)
        return None
    names = []
    for node in program.graph.nodes:
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
            name = node.target._schema.name.removeprefix("aten::")
            if not name.startswith(SILENT) and "dropout" not in name:
                names.append(name)
    return names


def record(case):
    model = case.model()
    training = model.training
    model.eval()
    weights = fill(model)
    inputs = {n: tensor("input:" + n, s) for n, s in case.inputs.items()}
    args, kwargs = case.arguments(inputs)
    out = {"name": case.name, "module": tree(model), "weights": weights, "inputs": case.inputs}
    if training:
        out["training"] = True
    if case.refused:
        out["refused"] = case.refused
        return out
    if case.text:
        out["text"] = str(model)
    if calls := exported_calls(case, model, args, kwargs):
        out["calls"] = calls
    # Gradients are enabled: without them attention takes another way, which exported programs do not.
    result = model(*args, **kwargs)
    outputs = [v for v in flatten(result) if v is not None]
    out["outputs"] = [describe(f"output_{i}", v) for i, v in enumerate(outputs)]
    return out


def classes():
    """The classes of torch.nn by their names there, and the names under which they are pickled."""
    found = {}
    for name, cls in vars(torch.nn).items():
        if isinstance(cls, type) and issubclass(cls, torch.nn.Module):
            found[name] = f"{cls.__module__}.{cls.__qualname__}"
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    records = []
    for case in nn_cases.cases():
        if args.only and args.only not in case.name:
            continue
        try:
            records.append(record(case))
        except Exception as e:
            sys.exit(f"{case.name}: {type(e).__name__}: {e}")
    if args.only:
        print(json.dumps(records, indent=1))
        return
    names = [r["name"] for r in records]
    assert len(set(names)) == len(names), sorted(n for n in names if names.count(n) > 1)
    data = {"torch": torch.__version__.split("+")[0], "classes": classes(), "cases": records}
    data = json.dumps(data, separators=(",", ":"))
    with open(HERE / "nn.json.gz", "wb") as f, gzip.GzipFile("", "wb", 9, f, mtime=0) as z:
        z.write(data.encode())
    print(len(records), "cases,", (HERE / "nn.json.gz").stat().st_size, "bytes")


if __name__ == "__main__":
    main()
