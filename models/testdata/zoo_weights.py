"""Gives a model weights by hash, scaled so that activations stay near one all the way through."""

import base64
import gzip
import math
import re

import torch

import zoo_hash

LITERAL_BYTES = 4096
FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INDEXED = re.compile(r"(pos|position|cls|class|dist|mask|token|query|queries|embed\w*|rel_\w+|_table|memory)$"
                     r"|pos_emb|position_emb|rel_pos|relative_position_bias_table|absolute_pos|(cls|dist|mask)_token")


def dtype_name(dtype):
    return str(dtype).removeprefix("torch.")


def round3(x):
    return float(f"{x:.3g}")


def literal(t):
    """The exact values, little-endian and row-major, in base64."""
    raw = t.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""
    if len(raw) <= LITERAL_BYTES:
        return {"data": base64.b64encode(raw).decode()}
    return {"gzip": base64.b64encode(gzip.compress(raw, 9, mtime=0)).decode()}


class Weights:
    """The table of a model's parameters and buffers: name -> entry, as in the .ref.json."""

    def __init__(self, model, overrides):
        self.entries, self.tensors, self.owner = {}, {}, {}
        seen = {}
        for prefix, module in model.named_modules(remove_duplicate=False):
            for kind, table in (("parameter", module._parameters), ("buffer", module._buffers)):
                for leaf, t in table.items():
                    if t is None:
                        continue
                    name = f"{prefix}.{leaf}" if prefix else leaf
                    if name in self.entries:
                        continue
                    e = {"dtype": dtype_name(t.dtype), "shape": list(t.shape), "kind": kind}
                    self.entries[name], self.tensors[name] = e, t
                    if id(t) in seen:
                        e["tied_to"] = seen[id(t)]
                        continue
                    seen[id(t)] = name
                    self.owner[id(t)] = name
                    e["offset"], e["scale"] = rule(module, leaf, t, kind, name, overrides)
                    if e["scale"] is None:
                        del e["offset"], e["scale"]
                        e.update(literal(t))
                    else:
                        self.fill(name)

    def fill(self, name):
        e, t = self.entries[name], self.tensors[name]
        with torch.no_grad():
            t.copy_(zoo_hash.floats(name, tuple(t.shape), t.dtype, e["offset"], e["scale"]))

    def set(self, t, offset, scale):
        name = self.owner.get(id(t))
        if name is None or "scale" not in self.entries[name]:
            return
        self.entries[name].update(offset=round3(offset), scale=round3(scale))
        self.fill(name)


def fan_in(module, t):
    if isinstance(module, (torch.nn.ConvTranspose1d, torch.nn.ConvTranspose2d, torch.nn.ConvTranspose3d)):
        return t.shape[0] * math.prod(t.shape[2:]) / math.prod(module.stride)
    if type(module).__name__ == "Conv1D":
        return t.shape[0]
    if t.ndim == 3 and not isinstance(module, torch.nn.modules.conv._ConvNd):
        return t.shape[-1]
    return math.prod(t.shape[1:])


def rule(module, leaf, t, kind, name, overrides):
    """The offset and scale of a tensor's values, a scale of None for one whose own values are kept."""
    for pattern, values in overrides.items():
        if re.search(pattern, name):
            return values
    norm = re.search(r"Norm|GroupNorm|BatchNorm", type(module).__name__) is not None
    if t.dtype not in FLOATING:
        return None, None
    if kind == "buffer" and not hasattr(module, "running_var"):
        return None, None
    if leaf == "running_mean":
        return 0.0, round3(0.1)
    if leaf == "running_var":
        return round3(1.1), round3(0.1)
    if "bias" in leaf and t.ndim <= 2 and "table" not in leaf or leaf.startswith("b_"):
        return 0.0, round3(0.1)
    if norm or (t.ndim <= 1 and re.search(r"weight|gamma|scale|lambda", leaf)):
        return 1.0, round3(0.1)
    if re.search(r"layer_?scale|gamma", name) and t.ndim in (1, 3, 4) and max(t.shape) == t.numel():
        return 1.0, round3(0.1)
    if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)) or INDEXED.search(leaf):
        return 0.0, round3(0.5)
    if t.ndim <= 1:
        return 0.0, round3(0.1)
    return 0.0, round3(math.sqrt(3 / fan_in(module, t)))


def calibrate(model, weights, args, kwargs):
    """Makes batch norms fit what reaches them, and rescales layers whose output leaves the middle."""
    done = set()

    def before(module, inputs):
        if id(module) in done:
            return
        done.add(id(module))
        x = inputs[0].float()
        m = x.mean()
        v = max(float(((x - m) ** 2).mean()), 1e-4)
        weights.set(module.running_mean, float(m), 0.1 * math.sqrt(v))
        weights.set(module.running_var, 1.1 * v, 0.1 * v)

    def after(module, inputs, output):
        if id(module) in done or not isinstance(output, torch.Tensor):
            return None
        done.add(id(module))
        name = weights.owner.get(id(module.weight))
        std = float(output.float().std()) if output.numel() > 1 else 1.0
        if name is None or not math.isfinite(std) or std == 0 or 0.3 <= std <= 3:
            return None
        e = weights.entries[name]
        if "scale" not in e or e["offset"] != 0:
            return None
        weights.set(module.weight, 0.0, e["scale"] / std)
        return module.forward(*inputs)

    handles = []
    layers = (torch.nn.Linear, torch.nn.modules.conv._ConvNd)
    for m in model.modules():
        if getattr(m, "running_var", None) is not None:
            handles.append(m.register_forward_pre_hook(before))
        elif isinstance(m, layers) and isinstance(getattr(m, "weight", None), torch.nn.Parameter):
            handles.append(m.register_forward_hook(after))
    try:
        with torch.no_grad():
            model(*args, **kwargs)
    finally:
        for h in handles:
            h.remove()
