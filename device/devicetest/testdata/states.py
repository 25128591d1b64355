"""Records what ops with states give for sequences, as PyTorch computes them, in states.json.gz: python states.py

Operands are made of a recurrence that states.go has, too, so that only results are recorded. The convolution is PyTorch's, the
gated delta rule that of transformers (Qwen3-Next), and scans are a loop over tokens in PyTorch's ops, as the reference of Mamba
has it. All is computed in float64 and rounded once.
"""

import base64
import gzip
import json
import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from transformers.models.qwen3_next.modeling_qwen3_next import torch_recurrent_gated_delta_rule

HERE = pathlib.Path(__file__).parent


def operands(kind, shapes):
    state, made = 1, []
    for i, shape in enumerate(shapes):
        n = int(np.prod(shape))
        x = np.empty(n, dtype=np.float32)
        for k in range(n):
            state = (state * 1664525 + 1013904223) % 2**32
            x[k] = np.float32(np.int32(np.uint32(state))) / np.float32(2**31)
        if (kind, i) in {("selective_scan", 1), ("delta_rule", 4)}:  # steps and shares
            x = (x + np.float32(1)) / np.float32(2)
        elif (kind, i) in {("selective_scan", 2), ("delta_rule", 3)}:  # what decays
            x = (x - np.float32(1)) / np.float32(2)
        elif kind == "delta_rule" and i < 2:
            x = x / np.float32(4)
        made.append(torch.from_numpy(x.reshape(shape)).double())
    return made


def causal_conv(x, weight, bias=None):
    taps = weight.shape[1]
    y = F.conv1d(F.pad(x.transpose(1, 2), (taps - 1, 0)), weight[:, None], bias, groups=weight.shape[0])
    return y.transpose(1, 2)


def selective_scan(x, steps, a, b, c):
    heads = x.shape[2]
    b, c = (t.repeat_interleave(heads // t.shape[2], dim=2) for t in (b, c))
    state = torch.zeros(x.shape[0], heads, b.shape[3], x.shape[3], dtype=x.dtype)
    rows = []
    for t in range(x.shape[1]):
        decay = torch.exp(steps[:, t, :, None] * a)
        state = decay[..., None] * state + b[:, t, :, :, None] * (steps[:, t, :, None] * x[:, t])[:, :, None]
        rows.append(torch.einsum("bhn,bhnp->bhp", c[:, t], state))
    return torch.stack(rows, dim=1)


def delta_rule(query, key, value, decay, share):
    each = value.shape[2] // key.shape[2]
    query, key = (t.repeat_interleave(each, dim=2) for t in (query, key))
    if decay.dim() == 4:  # of each element of a key, which Qwen's rule does not have
        state = torch.zeros(value.shape[0], value.shape[2], key.shape[3], value.shape[3], dtype=value.dtype)
        rows = []
        for t in range(value.shape[1]):
            state = state * decay[:, t, :, :, None].exp()
            wrong = value[:, t] - torch.einsum("bhd,bhde->bhe", key[:, t], state)
            state = state + key[:, t, :, :, None] * (wrong * share[:, t, :, None])[:, :, None]
            rows.append(torch.einsum("bhd,bhde->bhe", query[:, t], state))
        return torch.stack(rows, dim=1)
    scaled = query * query.shape[-1] ** 0.5  # it divides by that
    float32 = torch.Tensor.to
    torch.Tensor.to = lambda t, *a, **k: t if a[:1] == (torch.float32,) else float32(t, *a, **k)  # it stays in float64
    try:
        return torch_recurrent_gated_delta_rule(scaled, key, value, decay, share, None, False)[0]
    finally:
        torch.Tensor.to = float32


CASES = [
    ("causal_conv", causal_conv, [(2, 7, 5), (5, 2), (5,)]),
    ("causal_conv", causal_conv, [(1, 9, 33), (33, 4)]),
    ("causal_conv", causal_conv, [(1, 5, 3), (3, 8), (3,)]),
    ("selective_scan", selective_scan, [(2, 6, 37, 1), (2, 6, 37), (37, 16), (2, 6, 1, 16), (2, 6, 1, 16)]),  # Mamba
    ("selective_scan", selective_scan, [(1, 8, 4, 9), (1, 8, 4), (4, 1), (1, 8, 2, 24), (1, 8, 2, 24)]),  # Mamba 2
    ("selective_scan", selective_scan, [(1, 4, 2, 3), (1, 4, 2), (2, 1), (1, 4, 1, 130), (1, 4, 1, 130)]),
    ("delta_rule", delta_rule, [(2, 7, 2, 9), (2, 7, 2, 9), (2, 7, 4, 7), (2, 7, 4), (2, 7, 4)]),
    ("delta_rule", delta_rule, [(1, 5, 2, 64), (1, 5, 2, 64), (1, 5, 2, 20), (1, 5, 2), (1, 5, 2)]),
    ("delta_rule", delta_rule, [(1, 6, 1, 32), (1, 6, 1, 32), (1, 6, 2, 10), (1, 6, 2, 32), (1, 6, 2)]),
]

recorded = []
for kind, compute, shapes in CASES:
    y = compute(*operands(kind, shapes)).contiguous()
    assert y.dtype == torch.float64 and list(y.shape) == list(shapes[2 if kind == "delta_rule" else 0]), (kind, y.dtype, y.shape)
    text = base64.b64encode(y.float().numpy().astype("<f4").tobytes()).decode()
    recorded.append({"kind": kind, "shapes": shapes, "result": text})
with open(HERE / "states.json.gz", "wb") as f:
    f.write(gzip.compress(json.dumps(recorded).encode(), mtime=0))
