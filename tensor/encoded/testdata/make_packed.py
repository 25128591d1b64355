"""Writes packed.json: what libraries beside ggml make of pseudo-random codes, scales and zeros.

    pip install torch compressed-tensors && python make_packed.py

AWQ's and GPTQ's formulas are those of AutoAWQ (awq/utils/packing_utils.py: dequantize_gemm) and AutoGPTQ (qlinear_cuda_old.py),
float8's that of transformers (integrations/finegrained_fp8.py: Fp8Dequantize), bitsandbytes' that of its CPU backend; words of
compressed-tensors are unpacked and dequantised by itself. The tensors are not in it: Go's test makes the same ones.
"""

import hashlib
import json

import torch
from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
from compressed_tensors.quantization.lifecycle.forward_helpers import _dequantize

ROWS, COLUMNS = 32, 256


def stream(seed, size, mask=None):
    state, out = seed, bytearray()
    for _ in range(size):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        out.append(state >> 24)
    return out


def words(seed, *shape):
    n = 1
    for d in shape:
        n *= d
    return torch.frombuffer(stream(seed, 4 * n), dtype=torch.int32).reshape(shape)


def scales(dtype, *shape):
    n = 1
    for d in shape:
        n *= d
    width = torch.tensor([], dtype=dtype).element_size()
    raw = stream(2, width * n)
    for i in range(n):
        raw[width * i + width - 1] &= 0xBF  # neither infinite nor no number
    return torch.frombuffer(raw, dtype=dtype).reshape(shape)


def awq(group):
    q, z, s = words(1, COLUMNS, ROWS // 8), words(3, COLUMNS // group, ROWS // 8), scales(torch.float16, COLUMNS // group, ROWS)
    shifts = torch.arange(0, 32, 4)
    order = torch.arange(ROWS).view(-1, 8)[:, [0, 4, 1, 5, 2, 6, 3, 7]].reshape(-1)

    def unpack(x):
        x = torch.bitwise_right_shift(x[:, :, None], shifts[None, None, :]).to(torch.int8).view(x.shape[0], -1)
        return torch.bitwise_and(x[:, order], 15)

    s, z = s.repeat_interleave(group, dim=0), unpack(z).repeat_interleave(group, dim=0)
    return ((unpack(q) - z) * s).T


def gptq(bits, group, v2=False, order=False):
    each = 32 // bits
    q, z = words(1, COLUMNS // each, ROWS), words(3, COLUMNS // group, ROWS // each)
    s = scales(torch.float16, COLUMNS // group, ROWS)
    shifts = torch.arange(0, 32, bits, dtype=torch.int32).unsqueeze(0)
    kind = torch.int16 if bits == 8 else torch.int8
    z = torch.bitwise_right_shift(z.unsqueeze(2).expand(-1, -1, each), shifts.unsqueeze(0)).to(kind)
    if not v2:
        z = z + 1
    z = torch.bitwise_and(z, 2**bits - 1).reshape(COLUMNS // group, ROWS)
    q = torch.bitwise_right_shift(q.unsqueeze(1).expand(-1, each, -1), shifts.unsqueeze(-1)).to(kind)
    q = torch.bitwise_and(q, 2**bits - 1).reshape(COLUMNS, ROWS)
    index = torch.arange(COLUMNS) // group
    if order:
        index = torch.arange(COLUMNS) * 7 % (COLUMNS // group)
    return (s[index] * (q - z[index])).T


def ct(bits, group, dtype, zeros):
    s = scales(dtype, ROWS, COLUMNS // group)
    q = unpack_from_int32(words(1, ROWS, COLUMNS * bits // 32), bits, torch.Size([ROWS, COLUMNS]))
    z = None
    if zeros:
        z = unpack_from_int32(words(3, ROWS * bits // 32, COLUMNS // group), bits, torch.Size([ROWS, COLUMNS // group]), packed_dim=0)
        z = z.repeat_interleave(group, dim=1)
    return _dequantize(q, s.repeat_interleave(group, dim=1), z)


def int8(dtype):
    q = torch.frombuffer(stream(1, ROWS * COLUMNS), dtype=torch.int8).reshape(ROWS, COLUMNS)
    return _dequantize(q, scales(dtype, ROWS, 1))


def fp8(rows, columns, block_rows, block_columns, scale, dtype):
    raw = bytearray(b & 0xFE for b in stream(1, rows * columns))  # no number is NaN
    q = torch.frombuffer(raw, dtype=torch.uint8).view(torch.float8_e4m3fn).reshape(rows, columns).to(torch.float32)
    s = scales(scale, -(-rows // block_rows), -(-columns // block_columns)).to(torch.float32)
    s = s.repeat_interleave(block_rows, 0)[:rows].repeat_interleave(block_columns, 1)[:, :columns]
    return (q * s).to(dtype)


result = {}
for name, w in {
    "awq 128": awq(128), "awq 32": awq(32),
    "gptq 4 64": gptq(4, 64), "gptq 8 128": gptq(8, 128), "gptq 2 32": gptq(2, 32), "gptq 4 128 v2": gptq(4, 128, v2=True),
    "gptq 4 32 act order": gptq(4, 32, order=True), "gptq 4 16": gptq(4, 16),
    "ct 4 128": ct(4, 128, torch.bfloat16, False), "ct 4 32 zeros": ct(4, 32, torch.float16, True),
    "ct 8 256": ct(8, 256, torch.float32, False), "ct int8": int8(torch.bfloat16),
    "fp8 blocks": fp8(24, 256, 8, 128, torch.float32, torch.bfloat16), "fp8 edges": fp8(20, 200, 16, 128, torch.float32, torch.bfloat16),
    "fp8 rows": fp8(24, 256, 1, 256, torch.bfloat16, torch.bfloat16), "fp8 whole": fp8(24, 96, 24, 96, torch.float32, torch.float32),
}.items():
    numbers = w.to(torch.float32).contiguous()
    result[name] = {
        "first": [float(x) for x in numbers.reshape(-1)[:4]],
        "sha256": hashlib.sha256(numbers.numpy().astype("<f4").tobytes()).hexdigest(),
    }
with open("packed.json", "w") as f:
    json.dump(result, f, indent=1)
    f.write("\n")
