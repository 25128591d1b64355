"""Writes torchao.json: what torchao, MLX's codes in transformers and bitnet make of pseudo-random tensors, and what torchao writes to safetensors.

    pip install torch torchao transformers && TORCH_COMPILE_DISABLE=1 python make_torchao.py

Recorded with torchao 0.18, transformers 5.24 and torch 2.15. The tensors are not in it: Go's test makes the same ones. torchao packs the tiles of
tinygemm on NVIDIA GPUs alone: tiles() does it here, as PyTorch's matrix_to_m16n8k16_Bint4_layout has it. Int4Tensor has no dequantisation: its numbers
are those of tinygemm's rule, scale and zero point being those of mslk's int4_row_quantize_zp.
"""

import hashlib
import json

import torch
from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
from torchao.quantization import Float8Tensor, Int4PlainInt32Tensor, Int4Tensor, Int4TilePackedTo4dTensor, Int8Tensor, IntxUnpackedToInt8Tensor
from torchao.quantization.quant_primitives import _dequantize_affine_tinygemm, dequantize_affine
from torchao.quantization.utils import pack_tinygemm_scales_and_zeros
from transformers.integrations.bitnet import unpack_weights
from transformers.integrations.metal_quantization import _affine_dequantize_tensor

ROWS, COLUMNS = 24, 256


def stream(seed, size):
    state, out = seed, bytearray()
    for _ in range(size):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        out.append(state >> 24)
    return out


def codes(seed, low, high, *shape):
    n = 1
    for d in shape:
        n *= d
    raw = torch.frombuffer(stream(seed, n), dtype=torch.uint8).to(torch.int32)
    return (raw % (high - low + 1) + low).reshape(shape)


def floats(seed, dtype, by, *shape):
    """Multiples of by, exact in every dtype."""
    n = 1
    for d in shape:
        n *= d
    return (torch.frombuffer(stream(seed, n), dtype=torch.uint8).float() * by).reshape(shape).to(dtype)


def tiles(q):
    """[n][k] codes to [n / 8][k / 128][32][4] words."""
    n, k = q.shape
    out = torch.zeros(n // 8, k // 128, 32, 4, dtype=torch.int64)
    order = [0, 8, 16, 24, 1, 9, 17, 25]
    for lane in range(32):
        for word in range(4):
            for c, place in enumerate(order):
                at = word * 32 + lane % 4 * 2 + place
                out[:, :, lane, word] |= q[lane // 4 :: 8, at::128].to(torch.int64) << (4 * c)
    return torch.where(out >= 2**31, out - 2**32, out).to(torch.int32)


def int8(dtype, group, zeros, whole=False):
    shape = [1, 1] if whole else [ROWS, COLUMNS // group]
    q = codes(1, -128, 127, ROWS, COLUMNS).to(torch.int8)
    zp = codes(3, -9, 9, *shape).to(torch.int8) if zeros else torch.zeros(shape, dtype=torch.int8)
    block = [ROWS, COLUMNS] if whole else [1, group]
    return Int8Tensor(q, floats(2, torch.float32, 1 / 1024, *shape), block, dtype, zero_point=zp)


def intx(dtype, group, bits, zero):
    shape = [ROWS, COLUMNS // group]
    q = codes(1, -(1 << bits - 1), (1 << bits - 1) - 1, ROWS, COLUMNS).to(torch.int8)
    zp = {"int8": codes(3, -4, 3, *shape).to(torch.int8), "float": floats(3, dtype, 1 / 64, *shape), "": torch.zeros(shape, dtype=torch.int8)}[zero]
    return IntxUnpackedToInt8Tensor(q, floats(2, dtype, 1 / 1024, *shape), zp, getattr(torch, f"int{bits}"), (1, group), dtype, None)


def tile(rows, columns, group):
    """A weight whose tiles have more rows and columns than it has."""
    high, wide = -(-rows // 8) * 8, -(-columns // 1024) * 1024
    q = codes(1, 0, 15, high, wide)
    s, z = floats(2, torch.bfloat16, 1 / 1024, high, wide // group), floats(3, torch.bfloat16, 1 / 64, high, wide // group)
    w = _dequantize_affine_tinygemm(q, (1, group), s, z, torch.int32, 0, 15, output_dtype=torch.bfloat16)[:rows, :columns]
    return w, Int4TilePackedTo4dTensor(tiles(q), pack_tinygemm_scales_and_zeros(s, z), [1, group], torch.Size([rows, columns]))


def int4(dtype, group):
    q = codes(1, 0, 15, ROWS, COLUMNS)
    s, z = floats(2, dtype, 1 / 1024, ROWS, COLUMNS // group), floats(3, dtype, 1 / 64, ROWS, COLUMNS // group)
    w = _dequantize_affine_tinygemm(q, (1, group), s, z, torch.int32, 0, 15, output_dtype=dtype)
    signed = (q - 8) & 15
    packed = (signed[:, 1::2] << 4 | signed[:, ::2]).to(torch.uint8).view(torch.int8)
    return w, Int4Tensor(packed, s.T.contiguous(), z.T.contiguous(), [1, group], torch.Size([ROWS, COLUMNS]))


def plain32(dtype, group):
    q = codes(1, 0, 15, ROWS, COLUMNS)
    s, z = floats(2, dtype, 1 / 1024, ROWS, COLUMNS // group), codes(3, 0, 15, ROWS, COLUMNS // group)
    w = dequantize_affine(q, (1, group), s, z, torch.int32, 0, 15, output_dtype=dtype)
    packed = (q[:, 1::2] << 4 | q[:, ::2]).to(torch.uint8).view(torch.int32)
    return w, Int4PlainInt32Tensor(packed, s.T.contiguous(), z.T.contiguous().to(torch.int8), [1, group], torch.Size([ROWS, COLUMNS]))


def metal(dtype, group, bits):
    words = torch.frombuffer(stream(1, ROWS * COLUMNS * bits // 8), dtype=torch.int32).reshape(ROWS, -1)
    s, z = floats(2, dtype, 1 / 1024, ROWS, COLUMNS // group), floats(3, dtype, 1 / 64, ROWS, COLUMNS // group)
    return _affine_dequantize_tensor(words, s, z, group, bits).to(dtype)


def bitnet(columns, divides):
    raw = codes(1, 0, 2, 4, ROWS // 4, columns)
    packed = sum(raw[i] << (2 * i) for i in range(4)).to(torch.uint8)
    w, scale = unpack_weights(packed, dtype=torch.float32), torch.tensor([0.71875])
    return w * (1 / scale) if divides else w * scale


bf, half = torch.bfloat16, torch.float16
result, written = {}, {}


def add(name, w):
    numbers = w.to(torch.float32).contiguous()
    result[name] = {
        "first": [float(x) for x in numbers.reshape(-1)[:3]],
        "sha256": hashlib.sha256(numbers.numpy().astype("<f4").tobytes()).hexdigest(),
    }


def write(name, t):
    tensors, meta = flatten_tensor_state_dict({"m.weight": t})
    written[name] = {"tensors": {k: [str(v.dtype)[6:], list(v.shape)] for k, v in sorted(tensors.items())}, "metadata": meta["m.weight"]}


for name, t in {
    "int8 rows": int8(bf, COLUMNS, False), "int8 64": int8(half, 64, False), "int8 zeros": int8(bf, 64, True), "int8 whole": int8(bf, COLUMNS, False, True),
    "intx 4 32": intx(bf, 32, 4, ""), "intx 4 32 zeros": intx(half, 32, 4, "int8"), "intx 8 rows": intx(bf, COLUMNS, 8, "int8"),
    "intx 3 floats": intx(bf, 64, 3, "float"), "intx 2 16": intx(half, 16, 2, "int8"),
}.items():
    add(name, t.dequantize())
    write(name, t)
for name, (w, t) in {
    "tiles": tile(24, 256, 64), "tiles cut": tile(20, 136, 32), "int4": int4(bf, 128), "int4 half": int4(half, 32), "int4 words": plain32(bf, 32),
    "int4 words half": plain32(half, 64),
}.items():
    add(name, w)
    write(name, t)
write("float8", Float8Tensor.from_hp(torch.randn(ROWS, COLUMNS, dtype=bf)))
for name, w in {
    "metal 4 64": metal(bf, 64, 4), "metal 8 128": metal(half, 128, 8), "metal 2 32": metal(bf, 32, 2), "metal 4 single": metal(torch.float32, 64, 4),
    "metal 4 16": metal(half, 16, 4), "bitnet": bitnet(256, True), "bitnet auto": bitnet(256, False), "bitnet odd": bitnet(40, True),
}.items():
    add(name, w)
with open("torchao.json", "w") as f:
    lines = [f" {json.dumps(k)}: {json.dumps(v)}" for k, v in result.items()]
    more = [f" {json.dumps(k)}: {json.dumps(v)}" for k, v in written.items()]
    f.write('{"numbers": {\n' + ",\n".join(lines) + '\n}, "written": {\n' + ",\n".join(more) + "\n}}\n")
