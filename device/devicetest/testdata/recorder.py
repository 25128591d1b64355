"""Records calls of PyTorch's ops, with their arguments and results, for the compliance suite of devices.

A family's script (cases_<family>.py) imports this module, calls `case` for each call worth checking, and `save`:

    from recorder import aten, case, save, rand
    case(aten.softmax.int, rand(2, 3), -1)
    save("reduction")

which writes <family>.zst (calls.py). Tensors are recorded with their memory and strides, so views (transposed, expanded,
sliced) are tested as views. A case's bound is on |ours − PyTorch's| ≤ bound × max(|PyTorch's|, 1e-30) for floats; other
dtypes are exact. NaN and infinities must be in the same places. Ops that write in place record what their first argument
holds afterwards.
"""

import pathlib

import torch

import calls

aten = torch.ops.aten
HERE = pathlib.Path(__file__).parent
CASES = []

# Relative to the largest magnitude of the result: a few units in the last place of sums of some hundred terms.
BOUNDS = {torch.float32: 4e-6, torch.float64: 1e-13, torch.float16: 2e-3, torch.bfloat16: 1.6e-2,
          torch.complex64: 4e-6, torch.complex128: 1e-13}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


_stream = generator(12345)


def rand(*shape, dtype=torch.float32, scale=1.0, shift=0.0):
    """Normal numbers, from one stream in the order of the script."""
    return (torch.randn(*shape, generator=_stream, dtype=torch.float64) * scale + shift).to(dtype)


def ints(low, high, *shape, dtype=torch.int64):
    return torch.randint(low, high, shape, generator=_stream).to(dtype)


def special(dtype=torch.float32):
    """NaN, infinities, both zeros and a few more."""
    return torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1e-30, -1e30, 3.7,
                         -2.5, 2.5, 88.0, -88.0], dtype=dtype)


def _bytes(t):
    return bytes(t.untyped_storage().tolist()) if t.numel() or t.untyped_storage().nbytes() else b""


def _name(dtype):
    return str(dtype).replace("torch.", "")


class _Memory:
    def __init__(self):
        self.inputs, self.index = [], {}

    def tensor(self, t):
        key = (t.untyped_storage().data_ptr(), t.dtype)
        if key not in self.index or not t.untyped_storage().nbytes():
            self.index[key] = len(self.inputs)
            self.inputs.append({"dtype": _name(t.dtype), "data": _bytes(t)})
        return {"tensor": self.index[key], "dtype": _name(t.dtype), "shape": list(t.shape), "strides": list(t.stride()),
                "offset": t.storage_offset()}

    def argument(self, a):
        if isinstance(a, torch.Tensor):
            return self.tensor(a)
        if isinstance(a, (list, tuple)):
            if any(isinstance(x, torch.Tensor) for x in a):
                return {"tensors": [None if x is None else self.tensor(x) for x in a]}
            return {"list": [self.scalar(x) for x in a]}
        return self.scalar(a)

    def scalar(self, a):
        if isinstance(a, torch.dtype):
            return {"dtype": _name(a)}
        if isinstance(a, bool):
            return {"bool": a}
        if isinstance(a, int):
            return {"int": a}
        if isinstance(a, float):
            return {"float": a.hex() if a == a and abs(a) != float("inf") else str(a)}
        if isinstance(a, complex):
            return {"complex": [a.real, a.imag]}
        if isinstance(a, str):
            return {"str": a}
        if isinstance(a, (torch.device, torch.layout, torch.memory_format)) or a is None:
            return None
        raise TypeError(repr(a))


def case(op, *args, bound=None, note="", **kwargs):
    """Records op(*args, **kwargs)."""
    schema = op._schema
    memory = _Memory()
    named = {}
    for param, a in zip(schema.arguments, args):
        named[param.name] = memory.argument(a)
    for name, a in kwargs.items():
        named[name] = memory.argument(a)
    target = "torch.ops." + schema.name.replace("::", ".") + "." + (schema.overload_name or "default")
    # The arguments are recorded before the call, which may write to them.
    with torch.no_grad():
        out = op(*args, **kwargs)
    outputs = []

    def add(o):
        if isinstance(o, torch.Tensor):
            o = o.detach().resolve_conj().resolve_neg()
            flat = torch.empty(o.shape, dtype=o.dtype).copy_(o)
            outputs.append({"dtype": _name(o.dtype), "shape": list(o.shape), "data": _bytes(flat)})
        elif isinstance(o, (list, tuple)):
            for x in o:
                add(x)
    add(out)
    first = next((torch.empty(0, dtype=getattr(torch, o["dtype"])).dtype for o in outputs
                  if getattr(torch, o["dtype"]).is_floating_point or getattr(torch, o["dtype"]).is_complex), None)
    entry = {"target": target, "args": {k: v for k, v in named.items() if v is not None}, "inputs": memory.inputs,
             "outputs": outputs}
    if first is not None or bound is not None:
        entry["bound"] = bound if bound is not None else BOUNDS[first]
    if note:
        entry["note"] = note
    CASES.append(entry)


def save(family):
    size = calls.write(HERE / (family + ".zst"), CASES)
    print(family, len(CASES), "cases of", len({c["target"] for c in CASES}), "ops,", size, "bytes")
