"""Writes hqq.json: what mobiusml's hqq makes of pseudo-random codes, scales and zeros.

    pip install torch hqq && python make_hqq.py

The numbers are those of hqq's Quantizer.dequantize. The tensors are not in it: Go's test makes the same ones.
"""

import hashlib
import json

import torch
from hqq.core.quantize import Quantizer


def stream(seed, size):
    state, out = seed, bytearray()
    for _ in range(size):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        out.append(state >> 24)
    return out


def floats(seed, dtype, n, by):
    """Multiples of by, exact in every dtype."""
    return (torch.frombuffer(stream(seed, n), dtype=torch.uint8).float() * by).to(dtype)


def hqq(rows, columns, bits, group, axis, dtype):
    groups = rows * columns // group
    shape = [groups, group] if axis == 1 else [group, groups]
    packing = Quantizer.bit_to_packing[bits]
    if bits == 3:
        units = -(-shape[0] // 10)
        q = torch.frombuffer(stream(1, 4 * units * shape[1]), dtype=torch.int32).reshape(units, shape[1])
    else:
        units = shape[0] * bits // 8
        q = torch.frombuffer(stream(1, units * shape[1]), dtype=torch.uint8).reshape(units, shape[1])
    each = [groups, 1] if axis == 1 else [1, groups]
    meta = {
        "nbits": bits, "group_size": group, "shape": torch.Size([rows, columns]), "axis": axis, "packing": packing, "view_as_float": False,
        "scale": floats(2, dtype, groups, 1 / 1024).reshape(each), "zero": floats(3, dtype, groups, 1 / 16).reshape(each),
        "compute_dtype": dtype,
    }
    return Quantizer.dequantize(q, meta)


CASES = [
    (32, 256, 4, 64, 1, "float16"), (32, 256, 8, 128, 1, "bfloat16"), (32, 256, 3, 32, 1, "float16"), (32, 256, 2, 64, 1, "bfloat16"),
    (32, 256, 1, 64, 1, "float16"), (32, 256, 4, 64, 0, "float16"), (32, 256, 3, 64, 0, "bfloat16"), (32, 256, 8, 32, 0, "float32"),
    (20, 48, 4, 16, 1, "float16"), (24, 40, 2, 20, 1, "bfloat16"), (20, 48, 4, 64, 0, "float32"), (30, 64, 4, 64, 1, "float32"),
]
result = []
for rows, columns, bits, group, axis, name in CASES:
    numbers = hqq(rows, columns, bits, group, axis, getattr(torch, name)).to(torch.float32).contiguous()
    result.append({
        "rows": rows, "columns": columns, "bits": bits, "group": group, "axis": axis, "dtype": name,
        "first": [float(x) for x in numbers.reshape(-1)[:3]],
        "sha256": hashlib.sha256(numbers.numpy().astype("<f4").tobytes()).hexdigest(),
    })
with open("hqq.json", "w") as f:
    f.write("[\n" + ",\n".join(json.dumps(x) for x in result) + "\n]\n")
