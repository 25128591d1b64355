"""Writes aliases.json.gz: which results of the recorded calls share memory with an argument, and which arguments the calls change.

    python make_aliases.py  # a quarter of an hour: each call has a process of its own

The calls are those of device/devicetest/testdata. A call is listed by its family and number where something is shared or
changed; "unknown" are those that this PyTorch does not have. Made with torch 2.11 and torchvision 0.26."""

import ast
import gzip
import json
import os
import pathlib
import sys

import torch
import torchvision  # noqa: F401, which has ops of its own

torch.set_num_threads(1)  # a fork has no other threads

HERE = pathlib.Path(__file__).parent
CALLS = HERE.parent.parent.parent / "device" / "devicetest" / "testdata"
sys.path.insert(0, str(CALLS))

import calls  # noqa: E402

NAMED = {"nan": float("nan"), "inf": float("inf"), "-inf": -float("inf")}


def memory(m):
    raw = bytearray(m["data"])
    dtype = getattr(torch, m["dtype"])
    return torch.frombuffer(raw, dtype=dtype).clone() if raw else torch.empty(0, dtype=dtype)


def argument(a, memories):
    if a is None:
        return None
    if "tensor" in a:
        return memories[a["tensor"]].as_strided(a["shape"], a["strides"], a["offset"])
    if "tensors" in a:
        return [argument(t, memories) for t in a["tensors"]]
    if "list" in a:
        return [argument(x, memories) for x in a["list"]]
    if "dtype" in a:
        return getattr(torch, a["dtype"])
    if "float" in a:
        return NAMED.get(a["float"]) if a["float"] in NAMED else float.fromhex(a["float"])
    if "complex" in a:
        return complex(*a["complex"])
    return next(a[k] for k in ("bool", "int", "str") if k in a)


def tensors(v):
    if isinstance(v, torch.Tensor):
        return [v]
    return [t for x in v for t in tensors(x)] if isinstance(v, (list, tuple)) else []


def replay(call):
    """The memories that each result shares, by number, and those that the call changes."""
    memories = [memory(m) for m in call["inputs"]]
    before = [m.clone() for m in memories]
    space, name, overload = call["target"].removeprefix("torch.ops.").split(".")
    op = getattr(getattr(getattr(torch.ops, space), name), overload)
    args = {k: argument(a, memories) for k, a in call["args"].items()}
    schema = op._schema
    positional, keywords = [], {}
    for p in schema.arguments:
        if p.name in args and p.kwarg_only:
            keywords[p.name] = args[p.name]
        elif not p.kwarg_only:
            if p.name not in args and p.has_default_value():
                keywords.update({q.name: args[q.name] for q in schema.arguments[len(positional):] if q.name in args})
                break
            positional.append(args.get(p.name))
    with torch.no_grad():
        out = tensors(op(*positional, **keywords))
    places = {m.untyped_storage().data_ptr(): i for i, m in enumerate(memories) if m.numel()}
    shared = {i: places[t.untyped_storage().data_ptr()] for i, t in enumerate(out)
              if t.untyped_storage().data_ptr() in places}
    changed = [i for i, (m, b) in enumerate(zip(memories, before)) if m.numpy().tobytes() != b.numpy().tobytes()
               ] if all(m.dtype not in (torch.bfloat16, torch.complex32) for m in memories) else [
        i for i, (m, b) in enumerate(zip(memories, before))
        if m.view(torch.uint8).numpy().tobytes() != b.view(torch.uint8).numpy().tobytes()]
    return shared, changed


def apart(call):
    """What replay gives, None where PyTorch lacks the op or ends the process, as it does for some divisions of integers."""
    come, go = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(go, repr(replay(call)).encode())
        finally:
            os._exit(0)
    os.close(go)
    with os.fdopen(come, "rb") as f:
        answer = f.read()
    os.waitpid(child, 0)
    return ast.literal_eval(answer.decode()) if answer else None


def main():
    found, unknown = {}, []
    for path in sorted(CALLS.glob("*.zst")):
        family = path.name.split(".")[0]
        for n, call in enumerate(calls.read(path)):
            answer = apart(call)
            if answer is None:
                unknown.append(f"{family}/{n}")
                print("unknown:", family, n, call["target"])
                continue
            shared, changed = answer
            if shared or changed:
                found[f"{family}/{n}"] = [[[i, m] for i, m in shared.items()], changed]
    text = json.dumps({"calls": found, "unknown": unknown}, separators=(",", ":"))
    out = HERE / "aliases.json.gz"
    out.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(len(found), "calls,", len(unknown), "unknown,", out.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
