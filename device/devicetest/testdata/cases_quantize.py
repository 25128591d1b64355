"""Rounding to integers on a scale, and back."""

import torch
from torch.ao.quantization.fx._decomposed import quantized_decomposed_lib  # noqa: F401, defines the ops

from recorder import aten, case, ints, rand, save

quantized = torch.ops.quantized_decomposed
x = rand(2, 3, 8, scale=3.0)
halves = (torch.arange(24).reshape(2, 3, 4) - 12) * 0.25  # ties
scales, zeros = torch.tensor([0.02, 0.1, 0.5]), torch.tensor([0, -3, 100])

for v in (x, halves, x.to(torch.bfloat16), x.permute(2, 0, 1)):
    for scale, zero, low, high, dtype in ((0.5, 0, -128, 127, torch.int8), (0.0173, 3, 0, 255, torch.uint8),
                                          (0.25, -1, -7, 8, torch.int8), (0.001, 17, -32768, 32767, torch.int16)):
        case(quantized.quantize_per_tensor.default, v, scale, zero, low, high, dtype)
        q = quantized.quantize_per_tensor.default(v, scale, zero, low, high, dtype)
        case(quantized.dequantize_per_tensor.default, q, scale, zero, low, high, dtype)
        case(quantized.dequantize_per_tensor.default, q, scale, zero, low, high, dtype, out_dtype=torch.bfloat16)
for scale in (torch.tensor([0.3], dtype=torch.float64), torch.tensor(0.3), torch.tensor([0.7])):
    zero = torch.tensor([5] if scale.ndim else 5)
    case(quantized.quantize_per_tensor.tensor, x, scale, zero, -128, 127, torch.int8)
    case(quantized.dequantize_per_tensor.tensor, ints(-128, 128, 3, 4, dtype=torch.int8), scale, zero, -128, 127, torch.int8)
for axis in (1, -2):
    case(quantized.quantize_per_channel.default, x, scales, zeros, axis, -128, 127, torch.int8)
    case(quantized.dequantize_per_channel.default, ints(-128, 128, 2, 3, 4, dtype=torch.int8), scales, zeros, axis, -128,
         127, torch.int8)
case(quantized.dequantize_per_channel.default, ints(0, 255, 3, 4, dtype=torch.uint8), scales, None, 0, 0, 255, torch.uint8)
for v in (x, x.abs() + 1, -x.abs() - 1, x * 0):
    case(quantized.choose_qparams.tensor, v, -128, 127, 2.0 ** -23, torch.int8)
    case(quantized.choose_qparams.tensor, v, 0, 255, 2.0 ** -23, torch.uint8)

for v in (x, halves, x.t() if x.ndim == 2 else x.mT):
    for scale, zero in ((0.1, 0), (0.5, 1), (0.013, -20)):
        case(aten.fake_quantize_per_tensor_affine.default, v, scale, zero, -128, 127)
        case(aten.fake_quantize_per_tensor_affine_cachemask.default, v, scale, max(zero, -8), -8, 7)
        case(aten.fake_quantize_per_tensor_affine.tensor_qparams, v, torch.tensor([scale]),
             torch.tensor([zero], dtype=torch.int32), -128, 127)
for z in (zeros.int(), zeros.float() * 0.0):
    case(aten.fake_quantize_per_channel_affine.default, x, scales, z, 1, -128, 127)
    case(aten.fake_quantize_per_channel_affine_cachemask.default, x, scales, z, 1, -128, 127)
save("quantize")
