"""Convolutions: windows, groups, depthwise, transposed, padding by name; sizes that cross the blocks of a product."""

import torch

from recorder import aten, case, ints, save
from recorder import rand as full

F32, F64, F16, BF16 = torch.float32, torch.float64, torch.float16, torch.bfloat16


def rand(*shape, dtype=F32):
    """Multiples of 1/32, which take less room than numbers of full precision."""
    return (full(*shape) * 32).round().div(32).to(dtype)


def coarse(*shape):
    """-1, 0 and 1, for large cases: they take little room."""
    return rand(*shape).round().clamp(-1, 1)


# One dimension.
case(aten.conv1d.default, full(2, 3, 11), full(4, 3, 3), full(4))
case(aten.conv1d.default, rand(2, 3, 11), rand(4, 3, 3), None, [2], [1], [2])
case(aten.conv1d.default, rand(3, 11), rand(4, 3, 3), rand(4), note="no batch")
case(aten.conv1d.default, rand(2, 4, 9), rand(6, 2, 3), rand(6), [1], [2], [1], 2)
case(aten.conv1d.default, rand(1, 5, 21), rand(5, 1, 4), rand(5), [1], [3], [1], 5, note="depthwise, as in mamba")
case(aten.conv1d.default, rand(0, 3, 8), rand(4, 3, 3), rand(4), note="an empty batch")
case(aten.conv1d.default, coarse(1, 1, 400), coarse(8, 1, 10), None, [5], note="the first layer of wav2vec2")
case(aten.conv1d.padding, rand(2, 3, 10), rand(4, 3, 4), rand(4), [1], "same", [1], note="one more at the end")
case(aten.conv1d.padding, rand(2, 3, 10), rand(4, 3, 4), rand(4), [1], "same", [3])
case(aten.conv1d.padding, rand(2, 4, 10), rand(4, 2, 3), None, [2], "valid", [1], 2)

# Two dimensions.
case(aten.conv2d.default, full(2, 3, 9, 8), full(4, 3, 3, 3), full(4), [1, 1], [1, 1])
case(aten.conv2d.default, rand(2, 3, 9, 8), rand(4, 3, 3, 2), rand(4), [2, 1], [1, 0], [1, 2])
case(aten.conv2d.default, coarse(1, 3, 23, 21), coarse(5, 3, 7, 7), None, [2, 2], [3, 3], note="a stem")
case(aten.conv2d.default, coarse(1, 3, 16, 16), coarse(7, 3, 4, 4), rand(7), [4, 4], note="patches")
case(aten.conv2d.default, full(2, 5, 7, 6), full(8, 5, 1, 1), full(8), note="1×1")
case(aten.conv2d.default, rand(2, 5, 7, 6), rand(8, 5, 1, 1), None, [2, 2], note="1×1 with a stride")
case(aten.conv2d.default, rand(2, 5, 7, 6), rand(8, 5, 1, 1), None, [1, 1], [1, 1], note="1×1 with padding")
case(aten.conv2d.default, rand(3, 9, 8), rand(4, 3, 3, 3), rand(4), note="no batch")
case(aten.conv2d.default, rand(0, 3, 9, 8), rand(4, 3, 3, 3), rand(4), note="an empty batch")
case(aten.conv2d.default, coarse(1, 65, 9, 7), coarse(67, 65, 1, 1), coarse(67), note="sizes beside those of blocks")
case(aten.conv2d.default, coarse(1, 33, 6, 7), coarse(35, 33, 3, 3), coarse(35), [1, 1], [1, 1], note="a depth of 297")
case(aten.conv2d.default, coarse(1, 2, 37, 31), coarse(3, 2, 3, 3), coarse(3), [1, 1], [1, 1], note="1147 pixels: two blocks")
case(aten.conv2d.default, rand(1, 3, 5, 5), rand(2, 3, 5, 5), rand(2), note="one pixel")
case(aten.conv2d.default, rand(1, 2, 3, 3), rand(2, 2, 3, 3), rand(2), [1, 1], [4, 4], note="windows of padding alone")
case(aten.conv2d.default, rand(1, 2, 9, 9), rand(2, 2, 3, 3), rand(2), [3, 3], [0, 0], [4, 4])
case(aten.conv2d.default, full(1, 70, 3, 3), full(2, 70, 3, 3), full(2), note="a depth of 630")
for groups in (2, 4):
    case(aten.conv2d.default, rand(2, 8, 6, 5), rand(12, 8 // groups, 3, 3), rand(12), [1, 1], [1, 1], [1, 1], groups)
for size, stride, pad, dil in ((3, 1, 1, 1), (3, 2, 1, 1), (5, 1, 2, 1), (5, 2, 2, 1), (7, 1, 3, 1), (3, 1, 2, 2),
                               (2, 1, 0, 1), (1, 1, 0, 1), (9, 1, 4, 1), (3, 3, 5, 1), (5, 1, 6, 3)):
    case(aten.conv2d.default, rand(2, 5, 8, 7), rand(5, 1, size, size), rand(5), [stride] * 2, [pad] * 2, [dil] * 2, 5,
         note="depthwise")
case(aten.conv2d.default, full(1, 3, 6, 5), full(6, 1, 3, 3), full(6), [1, 1], [1, 1], [1, 1], 3, note="depthwise × 2")
case(aten.conv2d.default, rand(1, 3, 6, 2), rand(3, 1, 3, 7), None, [1, 1], [1, 3], [1, 1], 3, note="wider than the input")
case(aten.conv2d.padding, rand(2, 3, 8, 7), rand(4, 3, 3, 3), rand(4), [1, 1], "same")
case(aten.conv2d.padding, rand(2, 3, 8, 7), rand(4, 3, 2, 4), rand(4), [1, 1], "same", [3, 1])
case(aten.conv2d.padding, rand(2, 4, 8, 7), rand(4, 1, 4, 4), rand(4), [1, 1], "same", [1, 1], 4, note="depthwise")
case(aten.conv2d.padding, rand(2, 3, 8, 7), rand(4, 3, 3, 3), rand(4), [2, 2], "valid")
case(aten.conv2d.padding, rand(3, 8, 7), rand(4, 3, 3, 3), None, [1, 1], "same", note="no batch")

# Views as operands.
channels_last = rand(2, 7, 6, 5).permute(0, 3, 1, 2)
case(aten.conv2d.default, channels_last, rand(4, 5, 3, 3), rand(4), [1, 1], [1, 1])
case(aten.conv2d.default, channels_last, rand(4, 5, 1, 1), rand(4))
case(aten.conv2d.default, channels_last, rand(5, 1, 3, 3), rand(5), [1, 1], [1, 1], [1, 1], 5)
case(aten.conv2d.default, coarse(1, 3, 20, 20)[:, :, 3:12, 5:17:2], rand(4, 3, 3, 3), rand(4))
case(aten.conv2d.default, coarse(1, 3, 20, 20)[:, :, 3:12, 5:17], rand(4, 3, 1, 1), rand(4))
case(aten.conv2d.default, rand(1, 1, 1, 6).expand(2, 4, 5, 6), rand(4, 4, 3, 3), rand(4, 2)[:, 1])
case(aten.conv2d.default, rand(2, 3, 6, 6).transpose(2, 3), rand(3, 4, 3, 3).transpose(0, 1), rand(1).expand(4))
case(aten.conv2d.default, rand(2, 4, 6, 6), rand(2, 4, 3, 3).permute(1, 0, 3, 2), None, [1, 1], [0, 0], [1, 1], 2)
case(aten.conv2d.default, rand(2, 4, 6, 6), rand(3, 3, 1, 4).permute(3, 2, 1, 0), None, [1, 1], [0, 0], [1, 1], 4)

# Three dimensions.
case(aten.conv3d.default, full(2, 3, 5, 6, 4), full(4, 3, 3, 3, 3), full(4), [1, 1, 1], [1, 1, 1])
case(aten.conv3d.default, rand(1, 2, 7, 8, 9), rand(3, 2, 1, 3, 2), rand(3), [2, 1, 2], [0, 1, 1], [1, 2, 1])
case(aten.conv3d.default, rand(1, 3, 4, 7, 7), rand(4, 3, 3, 1, 1), None, [1, 1, 1], [1, 0, 0], note="r2plus1d")
case(aten.conv3d.default, coarse(1, 3, 4, 8, 8), coarse(6, 3, 2, 4, 4), rand(6), [2, 4, 4], note="patches")
case(aten.conv3d.default, rand(3, 4, 5, 6), rand(6, 1, 3, 3, 3), rand(6), [1, 2, 2], [1, 1, 1], [1, 1, 1], 3, note="no batch")
case(aten.conv3d.default, rand(1, 4, 4, 5, 5), rand(4, 2, 2, 2, 2), None, [1, 1, 1], [1, 0, 1], [2, 1, 1], 2)
case(aten.conv3d.padding, rand(1, 2, 4, 5, 6), rand(3, 2, 2, 3, 4), rand(3), [1, 1, 1], "same")
case(aten.conv3d.padding, rand(1, 2, 4, 5, 6), rand(3, 2, 2, 3, 4), rand(3), [1, 2, 1], "valid")

# Transposed.
case(aten.conv_transpose1d.default, full(2, 3, 7), full(3, 4, 3), full(4))
case(aten.conv_transpose1d.default, rand(2, 4, 7), rand(4, 3, 5), None, [2], [2], [1], 2, [2])
case(aten.conv_transpose1d.default, rand(3, 7), rand(3, 4, 3), rand(4), [3], [0], [2], note="no batch")
case(aten.conv_transpose2d.input, rand(2, 3, 5, 4), rand(3, 4, 2, 2), rand(4), [2, 2])
case(aten.conv_transpose2d.input, full(2, 3, 5, 4), full(3, 4, 4, 4), full(4), [2, 2], [1, 1])
case(aten.conv_transpose2d.input, rand(2, 3, 5, 4), rand(3, 4, 3, 3), rand(4), [2, 2], [1, 1], [1, 1])
case(aten.conv_transpose2d.input, rand(1, 4, 5, 4), rand(4, 3, 3, 2), None, [2, 3], [1, 0], [1, 2], 2, [1, 2])
case(aten.conv_transpose2d.input, rand(2, 6, 5, 4), rand(6, 1, 3, 3), rand(6), [2, 2], [1, 1], [1, 1], 6)
case(aten.conv_transpose2d.input, rand(3, 5, 4), rand(3, 4, 2, 2), rand(4), note="no batch")
case(aten.conv_transpose2d.input, rand(0, 3, 5, 4), rand(3, 4, 2, 2), rand(4), note="an empty batch")
case(aten.conv_transpose2d.input, coarse(1, 20, 9, 8), coarse(20, 33, 3, 3), coarse(33), [1, 1], [1, 1])
case(aten.conv_transpose2d.input, rand(2, 5, 4, 3).permute(0, 3, 1, 2), rand(4, 3, 2, 2).transpose(0, 1), rand(4), [2, 2])
case(aten.conv_transpose2d.input, rand(1, 3, 9, 4)[:, :, ::2], rand(2, 2, 4, 3).permute(3, 2, 0, 1), rand(4), [2, 2])
case(aten.conv_transpose3d.input, rand(1, 3, 3, 4, 2), rand(3, 2, 2, 3, 2), rand(2), [2, 1, 2], [0, 1, 0], [1, 0, 1])
case(aten.conv_transpose3d.input, rand(4, 3, 4, 2), rand(4, 2, 3, 3, 3), None, [1, 2, 1], [1, 1, 1], [0, 1, 0], 2)

# What all become when a program is decomposed.
for groups, transposed, w in ((1, False, (4, 4, 3, 3)), (2, False, (4, 2, 3, 3)), (1, True, (4, 3, 3, 3)),
                              (2, True, (4, 3, 3, 3))):
    outputs = w[1] * groups if transposed else w[0]
    case(aten.convolution.default, rand(2, 4, 6, 5), rand(*w), rand(outputs), [2, 1], [1, 0], [1, 1], transposed,
         [1, 0] if transposed else [0, 0], groups)
case(aten.convolution.default, rand(2, 4, 9), rand(3, 4, 3), None, [1], [1], [1], False, [0], 1)
case(aten.convolution.default, rand(2, 4, 9, 8), rand(3, 4, 3, 3), None, [1], [1], [1], False, [0], 1, note="lists of one")
case(aten.convolution.default, rand(1, 2, 3, 5, 4), rand(3, 2, 2, 2, 2), rand(3), [1] * 3, [0] * 3, [1] * 3, False, [0] * 3, 1)
case(aten._convolution.default, rand(2, 4, 6, 5), rand(3, 4, 3, 3), rand(3), [1, 1], [1, 1], [1, 1], False, [0, 0], 1,
     False, False, True, True)
case(aten._convolution.deprecated, rand(2, 4, 6, 5), rand(4, 3, 3, 3), rand(3), [2, 2], [1, 1], [1, 1], True, [1, 1], 1,
     False, False, True)
case(aten.conv_tbc.default, rand(9, 2, 3), rand(3, 3, 4), rand(4), 1)
case(aten.conv_tbc.default, rand(9, 2, 3), rand(2, 3, 4), rand(4))

# Other dtypes.
for d in (F64, F16, BF16):
    case(aten.conv2d.default, rand(2, 3, 7, 8, dtype=d), rand(5, 3, 3, 3, dtype=d), rand(5, dtype=d), [1, 1], [1, 1])
    case(aten.conv2d.default, full(2, 6, 7, 8, dtype=d), full(9, 6, 1, 1, dtype=d), full(9, dtype=d))
    case(aten.conv2d.default, rand(2, 6, 7, 8, dtype=d), rand(6, 1, 3, 3, dtype=d), None, [2, 2], [1, 1], [1, 1], 6)
    case(aten.conv2d.default, rand(1, 6, 7, 8, dtype=d), rand(4, 3, 3, 3, dtype=d), rand(4, dtype=d), [2, 2], [1, 1], [1, 1], 2)
    case(aten.conv1d.default, rand(2, 3, 12, dtype=d), rand(4, 3, 3, dtype=d), rand(4, dtype=d))
    case(aten.conv3d.default, rand(1, 3, 4, 5, 4, dtype=d), rand(2, 3, 3, 3, 2, dtype=d), rand(2, dtype=d))
    case(aten.conv_transpose2d.input, rand(1, 3, 5, 4, dtype=d), rand(3, 4, 3, 3, dtype=d), rand(4, dtype=d), [2, 2], [1, 1])
    case(aten.conv2d.default, rand(1, 9, 7, 3, dtype=d).transpose(1, 3), rand(3, 4, 3, 3, dtype=d).transpose(0, 1), None)
case(aten.conv2d.default, coarse(1, 1, 70, 66).to(BF16), coarse(1, 1, 2, 2).to(BF16), None, note="4485 pixels: two blocks")
for d in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
    case(aten.conv2d.default, ints(0, 100, 2, 4, 5, 4, dtype=d), ints(0, 100, 6, 2, 3, 3, dtype=d), ints(0, 9, 6, dtype=d),
         [2, 1], [1, 1], [1, 1], 2)
case(aten.conv_transpose2d.input, ints(-9, 9, 1, 4, 4, 3), ints(-9, 9, 4, 2, 3, 3), ints(-9, 9, 4), [2, 1], [1, 0], [1, 0], 2)
case(aten.conv1d.default, ints(-9, 9, 1, 3, 8), ints(-9, 9, 2, 3, 3), None)

# NaN and infinities reach the outputs whose windows hold them.
x = rand(1, 2, 6, 6)
x[0, 0, 1, 1], x[0, 1, 4, 4] = float("nan"), float("inf")
case(aten.conv2d.default, x, rand(3, 2, 2, 2), rand(3))
case(aten.conv2d.default, x, rand(2, 1, 3, 3), rand(2), [1, 1], [1, 1], [1, 1], 2)

save("conv")
