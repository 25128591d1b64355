"""Writes packed.json: what libraries beside ggml make of pseudo-random codes, scales and zeros.

    pip install torch compressed-tensors bitsandbytes torchao && python make_packed.py

AWQ's and GPTQ's formulas are those of AutoAWQ (awq/utils/packing_utils.py: dequantize_gemm) and AutoGPTQ (qlinear_cuda_old.py),
float8's that of transformers (integrations/finegrained_fp8.py: Fp8Dequantize); words of compressed-tensors and codes of bitsandbytes are dequantised by the packages. The tensors are not in it: Go's test makes the same ones.
"""

import hashlib
import json

import torch
from bitsandbytes.backends.default.ops import _dequantize_4bit_compute, _dequantize_blockwise_compute
from bitsandbytes.functional import get_4bit_type, int8_vectorwise_dequant
from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
from compressed_tensors.quantization.lifecycle.forward_helpers import _dequantize
from torchao.quantization.quant_primitives import dequantize_affine

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


def gptq3(group, v2=False):
    """AutoGPTQ's forward for 3 bits, which does not mask zeros and one."""
    q, z = words(1, COLUMNS // 32 * 3, ROWS), words(3, COLUMNS // group, ROWS // 32 * 3)
    s = scales(torch.float16, COLUMNS // group, ROWS)
    wf = torch.tensor([
        [0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 0], [0, 1, 4, 7, 10, 13, 16, 19, 22, 25, 28, 31],
        [0, 2, 5, 8, 11, 14, 17, 20, 23, 26, 29, 0],
    ], dtype=torch.int32).reshape(1, 3, 12)
    z = z.reshape(z.shape[0], z.shape[1] // 3, 3, 1).expand(-1, -1, -1, 12) >> wf.unsqueeze(0)
    z[:, :, 0, 10] = (z[:, :, 0, 10] & 0x3) | ((z[:, :, 1, 0] << 2) & 0x4)
    z[:, :, 1, 11] = (z[:, :, 1, 11] & 0x1) | ((z[:, :, 2, 0] << 1) & 0x6)
    z = z & 0x7
    z = torch.cat([z[:, :, 0, :11], z[:, :, 1, 1:12], z[:, :, 2, 1:11]], dim=2)
    if not v2:
        z = z + 1
    z = z.reshape(COLUMNS // group, ROWS)
    q = q.reshape(q.shape[0] // 3, 3, 1, ROWS).expand(-1, -1, 12, -1)
    q = (q >> wf.unsqueeze(-1)) & 0x7
    q[:, 0, 10] = (q[:, 0, 10] & 0x3) | ((q[:, 1, 0] << 2) & 0x4)
    q[:, 1, 11] = (q[:, 1, 11] & 0x1) | ((q[:, 2, 0] << 1) & 0x6)
    q = q & 0x7
    q = torch.cat([q[:, 0, :11], q[:, 1, 1:12], q[:, 2, 1:11]], dim=1).reshape(COLUMNS, ROWS)
    index = torch.arange(COLUMNS) // group
    return (s[index] * (q - z[index])).T


def llm_int8(columns, dtype):
    q = torch.frombuffer(stream(1, ROWS * columns), dtype=torch.int8).reshape(ROWS, columns)
    return int8_vectorwise_dequant(q, scales(torch.float32, ROWS)).to(dtype)


def ao_int8(columns, group, dtype):
    q = torch.frombuffer(stream(1, ROWS * columns), dtype=torch.int8).reshape(ROWS, columns)
    s = scales(torch.float32, ROWS, columns // group)
    zeros = torch.zeros(s.shape, dtype=torch.int8)
    return dequantize_affine(q, (1, group), s, zeros, torch.int8, -128, 127, output_dtype=dtype)


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


def bnb(kind, dtype, nested):
    codes = torch.frombuffer(stream(1, ROWS * COLUMNS // 2), dtype=torch.uint8)
    absmax = scales(torch.float32, ROWS * COLUMNS // 64)
    if nested:
        codes8 = torch.frombuffer(stream(4, ROWS * COLUMNS // 64), dtype=torch.uint8)
        absmax = _dequantize_blockwise_compute(codes8, scales(torch.float32, 2), scales(torch.float32, 256), 64, torch.float32) + torch.tensor(0.3)
    return _dequantize_4bit_compute(codes, absmax, get_4bit_type(kind, device="cpu"), 64, (ROWS, COLUMNS), dtype)


result = {}
for name, w in {
    "awq 128": awq(128), "awq 32": awq(32),
    "gptq 4 64": gptq(4, 64), "gptq 8 128": gptq(8, 128), "gptq 2 32": gptq(2, 32), "gptq 4 128 v2": gptq(4, 128, v2=True),
    "gptq 4 32 act order": gptq(4, 32, order=True), "gptq 4 16": gptq(4, 16),
    "gptq 3 32": gptq3(32), "gptq 3 128 v2": gptq3(128, v2=True), "gptq 3 16": gptq3(16),
    "bnb int8": llm_int8(COLUMNS, torch.float16), "bnb int8 short": llm_int8(40, torch.bfloat16),
    "ao int8 rows": ao_int8(COLUMNS, COLUMNS, torch.bfloat16), "ao int8 64": ao_int8(COLUMNS, 64, torch.float16),
    "ao int8 short": ao_int8(40, 20, torch.bfloat16),
    "ct 4 128": ct(4, 128, torch.bfloat16, False), "ct 4 32 zeros": ct(4, 32, torch.float16, True),
    "ct 8 256": ct(8, 256, torch.float32, False), "ct int8": int8(torch.bfloat16),
    "fp8 blocks": fp8(24, 256, 8, 128, torch.float32, torch.bfloat16), "fp8 edges": fp8(20, 200, 16, 128, torch.float32, torch.bfloat16),
    "bnb nf4": bnb("nf4", torch.bfloat16, False), "bnb fp4 nested": bnb("fp4", torch.float16, True),
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
