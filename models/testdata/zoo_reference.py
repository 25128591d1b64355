"""Runs the original model with hashed weights and records what comes out."""

import copy
import math

import torch
from torch.utils import _pytree as pytree

from zoo_weights import dtype_name

SAMPLES = 256


def number(v):
    if math.isnan(v):
        return "NaN"
    if math.isinf(v):
        return "Infinity" if v > 0 else "-Infinity"
    return v


def samples(t):
    """256 values at the flat indices i·n//256 of the row-major tensor; all of it where it has no more."""
    flat = t.detach().contiguous().reshape(-1)
    n = flat.numel()
    if n > SAMPLES:
        flat = flat[torch.arange(SAMPLES) * n // SAMPLES]
    if flat.dtype in (torch.float16, torch.bfloat16):
        flat = flat.float()
    if flat.dtype == torch.float32:
        return [number(float(str(v))) for v in flat.numpy()]
    if flat.dtype == torch.bool:
        return [int(v) for v in flat]
    return [number(v) if flat.is_floating_point() else v for v in flat.tolist()]


def largest(t):
    if not t.numel():
        return 0.0
    if not t.is_floating_point():
        return float(t.to(torch.float64).abs().max())
    finite = t[torch.isfinite(t)].double().abs()
    return float(finite.max()) if finite.numel() else 0.0


def describe(name, v):
    if isinstance(v, torch.Tensor):
        if v.is_complex():
            v = torch.view_as_real(v)
        return {"name": name, "dtype": dtype_name(v.dtype), "shape": list(v.shape), "max_abs": largest(v),
                "values": samples(v)}
    return {"name": name, "value": v}


def relative(a, b):
    """The largest difference, as a part of the largest value; infinite where NaNs or infinities differ."""
    if not isinstance(a, torch.Tensor):
        return 0.0 if a == b else math.inf
    if a.shape != b.shape:
        return math.inf
    if not a.numel():
        return 0.0
    a, b = a.double(), b.double()
    same = (a == b) | (a.isnan() & b.isnan())
    if bool(same.all()):
        return 0.0
    diff = torch.where(same, torch.zeros_like(a), (a - b).abs())
    if not bool(torch.isfinite(diff).all()):
        return math.inf
    return float(diff.max()) / (largest(a) or 1.0)


def flatten(out):
    return pytree.tree_leaves(out, is_leaf=lambda o: o is None)


def fresh(model):
    """A copy of the model's state, to begin each case with."""
    return {n: b.clone() for n, b in model.named_buffers()}


def restore(model, state):
    with torch.no_grad():
        for n, b in model.named_buffers():
            if n in state:
                b.copy_(state[n])


def widen(tree):
    return pytree.tree_map_only(torch.Tensor, lambda t: t.double() if t.is_floating_point() else t, tree)


def doubled(model):
    """The model in float64, the same weights."""
    m = copy.deepcopy(model).double()
    for sub in m.modules():
        if getattr(sub, "dtype", None) is torch.float32:
            try:
                sub.dtype = torch.float64
            except AttributeError:
                pass
    return m


def run(model, args, kwargs):
    with torch.no_grad():
        return model(*args, **kwargs)
