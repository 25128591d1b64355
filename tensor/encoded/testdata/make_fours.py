"""Writes fours.json: what compressed-tensors makes of pseudo-random NVFP4, MXFP4 and MXFP8. The tensors are not in it: Go's test makes the same ones.

    pip install torch compressed-tensors && python make_fours.py
"""

import hashlib
import json

import torch
from compressed_tensors.compressors.mxfp4.base import MXFP4PackedCompressor
from compressed_tensors.compressors.mxfp8.base import MXFP8QuantizationCompressor
from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

ROWS = 12


def stream(seed, size):
    state, out = seed, bytearray()
    for _ in range(size):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        out.append(state >> 24)
    return out


def u8(seed, mask, *shape):
    n = shape[0] * shape[1]
    return torch.frombuffer(bytearray(b & mask for b in stream(seed, n)), dtype=torch.uint8).reshape(shape)


def scheme(bits, group, strategy, scale):
    args = QuantizationArgs(num_bits=bits, type="float", symmetric=True, strategy=strategy, group_size=group, scale_dtype=scale)
    return QuantizationScheme(targets=["Linear"], weights=args)


def nvfp4(columns, divisor):
    tensors = {"weight_packed": u8(1, 255, ROWS, columns // 2), "weight_scale": u8(2, 0x7E, ROWS, columns // 16).view(torch.float8_e4m3fn)}
    if divisor:
        tensors["weight_global_scale"] = torch.tensor([divisor], dtype=torch.float32)
    return NVFP4PackedCompressor.decompress(tensors, scheme(4, 16, "tensor_group", torch.float8_e4m3fn))


def mxfp4(columns):
    tensors = {"weight_packed": u8(1, 255, ROWS, columns // 2), "weight_scale": u8(2, 0xFE, ROWS, columns // 32)}
    return MXFP4PackedCompressor.decompress(tensors, scheme(4, 32, "group", torch.uint8))


def mxfp8(columns):
    tensors = {"weight": u8(1, 0xFE, ROWS, columns).view(torch.float8_e4m3fn), "weight_scale": u8(2, 0xFE, ROWS, columns // 32)}
    return MXFP8QuantizationCompressor.decompress(tensors, scheme(8, 32, "group", torch.uint8))


result = {}
for name, made in {
    "nvfp4": nvfp4(256, 437.5), "nvfp4 plain": nvfp4(64, None), "nvfp4 odd": nvfp4(48, 3.0), "mxfp4": mxfp4(256), "mxfp8": mxfp8(96),
}.items():
    w = made["weight"]
    assert w.dtype == torch.bfloat16, w.dtype
    numbers = w.to(torch.float32).contiguous()
    result[name] = {
        "first": [float(x) for x in numbers.reshape(-1)[:4]],
        "sha256": hashlib.sha256(numbers.numpy().astype("<f4").tobytes()).hexdigest(),
    }
with open("fours.json", "w") as f:
    json.dump(result, f, indent=1)
    f.write("\n")
