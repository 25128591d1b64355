"""Interpolation, sampling at points, windows as columns, shuffles and padding."""

import torch

from recorder import aten, case, ints, save
from recorder import rand as full

F32, F64, F16, BF16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
NAN, INF = float("nan"), float("inf")


def rand(*shape, dtype=F32):
    """Multiples of 1/32, which take less room than numbers of full precision."""
    return (full(*shape) * 32).round().div(32).to(dtype)


# Nearest elements: where scales are not whole, rounding decides.
exact = {1: aten._upsample_nearest_exact1d, 2: aten._upsample_nearest_exact2d, 3: aten._upsample_nearest_exact3d}
floor = {1: aten.upsample_nearest1d, 2: aten.upsample_nearest2d, 3: aten.upsample_nearest3d}
for ops in (floor, exact):
    for n, size, scale in ((7, 7, None), (7, 14, None), (7, 21, None), (7, 10, None), (7, 10, 1.5), (7, 3, None), (10, 3, 0.37),
                           (5, 28, 5.7), (33, 100, None), (3, 100, None), (100, 49, 0.49), (1, 5, None), (9, 1, None)):
        case(ops[1].default, torch.arange(2.0 * n).reshape(1, 2, n), [size], scale)
    for factor in (2.0, 1.5, 0.5, 3.7, 0.3):
        case(ops[1].vec, rand(2, 3, 7), None, [factor])
        case(ops[2].vec, rand(1, 2, 7, 5), None, [factor, 1.2])
    case(ops[1].vec, rand(2, 3, 7), [11], None)
    case(ops[2].vec, rand(2, 3, 7, 5), [11, 3], None)
    case(ops[2].default, rand(2, 3, 7, 5), [14, 10])
    case(ops[2].default, rand(2, 3, 7, 5), [14, 10], 2.0, 2.0)
    case(ops[2].default, rand(2, 3, 7, 5), [10, 7], 1.5, None)
    case(ops[2].default, rand(2, 7, 5, 3).permute(0, 3, 2, 1), [9, 8])
    case(ops[2].default, rand(0, 3, 4, 4), [8, 8])
    case(ops[3].default, rand(1, 2, 3, 4, 5), [6, 5, 7])
    case(ops[3].default, rand(1, 2, 3, 4, 5), [6, 5, 7], 2.0, 1.3, 1.5)
    case(ops[3].vec, rand(1, 2, 3, 4, 5), None, [2.0, 1.3, 1.5])
    case(ops[3].vec, rand(1, 2, 3, 4, 5), [2, 9, 3], None)
    for d in (F64, F16, BF16):
        case(ops[2].default, rand(1, 2, 5, 4, dtype=d), [8, 9])
    case(ops[2].default, ints(0, 255, 1, 2, 5, 4, dtype=torch.uint8), [8, 9])

# Linear and cubic.
for align in (False, True):
    for n, size, scale in ((7, 14, None), (7, 10, None), (7, 10, 1.5), (7, 3, None), (10, 3, 0.37), (1, 5, None), (9, 1, None),
                           (7, 7, None), (3, 40, None)):
        case(aten.upsample_linear1d.default, rand(1, 2, n), [size], align, scale)
    case(aten.upsample_linear1d.vec, rand(1, 2, 9), None, align, [1.7])
    case(aten.upsample_linear1d.vec, rand(1, 2, 9), [4], align, None)
    for op in (aten.upsample_bilinear2d, aten.upsample_bicubic2d, aten._upsample_bilinear2d_aa, aten._upsample_bicubic2d_aa,
               aten._upsample_lanczos2d_aa):
        case(op.default, rand(1, 2, 7, 5), [14, 10], align)
        case(op.default, rand(1, 2, 7, 5), [14, 10], align, 2.0, 2.0)
        case(op.default, rand(1, 1, 17, 23), [5, 9], align)
        case(op.default, rand(1, 2, 7, 5), [10, 7], align, 1.5, 1.5)
        case(op.default, rand(1, 2, 9, 8), [4, 8], align, 0.5, None)
        case(op.default, rand(1, 2, 6, 5), [6, 5], align)
        case(op.default, rand(1, 2, 1, 9), [4, 1], align)
        case(op.default, rand(1, 7, 5, 2).permute(0, 3, 2, 1), [9, 8], align)
        case(op.vec, rand(1, 2, 7, 5), None, align, [1.9, 0.6])
        case(op.vec, rand(1, 2, 7, 5), [13, 11], align, None)
        case(op.default, rand(1, 2, 5, 4, dtype=F64), [8, 3], align)
    case(aten.upsample_bilinear2d.default, rand(0, 2, 6, 5), [3, 3], align)
    for d in (F16, BF16):
        case(aten.upsample_bilinear2d.default, rand(1, 2, 5, 4, dtype=d), [8, 3], align)
        case(aten.upsample_bicubic2d.default, rand(1, 2, 5, 4, dtype=d), [8, 3], align)
        case(aten.upsample_linear1d.default, rand(1, 2, 5, dtype=d), [8], align)
    case(aten.upsample_trilinear3d.default, rand(1, 2, 3, 4, 5), [6, 5, 7], align)
    case(aten.upsample_trilinear3d.default, rand(1, 2, 3, 4, 5), [6, 5, 7], align, 2.0, 1.3, 1.5)
    case(aten.upsample_trilinear3d.vec, rand(1, 2, 3, 4, 5), None, align, [2.0, 1.3, 0.5])
    case(aten.upsample_trilinear3d.vec, rand(1, 2, 3, 4, 5), [2, 9, 3], align, None)
x = rand(1, 1, 5, 5)
x[0, 0, 1, 1], x[0, 0, 3, 3] = NAN, INF
case(aten.upsample_bilinear2d.default, x, [9, 9], True)
case(aten.upsample_bicubic2d.default, x, [8, 8], False)
case(aten.upsample_nearest2d.default, x, [8, 8])

# Sampling at points, some outside.
outside = (torch.rand(2, 6, 5, 2, generator=torch.Generator().manual_seed(3)) * 3 - 1.5)
outside[0, 0, 0] = torch.tensor([-1.0, 1.0])
outside[0, 0, 1] = torch.tensor([1.0, -1.0])
outside[0, 0, 2] = torch.tensor([7.3, -9.1])
outside[0, 0, 3] = torch.tensor([0.0, 0.0])
for mode in (0, 1, 2):
    for padding in (0, 1, 2):
        for align in (False, True):
            case(aten.grid_sampler_2d.default, rand(2, 2, 7, 8), outside, mode, padding, align)
    case(aten.grid_sampler.default, rand(2, 3, 7, 8), outside, mode, 0, False)
    case(aten.grid_sampler_2d.default, rand(2, 8, 7, 3).permute(0, 3, 1, 2), outside.transpose(1, 2), mode, 1, True)
    case(aten.grid_sampler_2d.default, rand(2, 1, 1, 1), outside, mode, 2, True)
    case(aten.grid_sampler_2d.default, rand(2, 2, 1, 4), outside, mode, 2, False)
    case(aten.grid_sampler_2d.default, rand(2, 2, 5, 4, dtype=F64), outside.to(F64), mode, 0, False)
case(aten.grid_sampler_2d.default, rand(0, 3, 7, 8), outside[:0], 0, 0, False)
nans = outside.clone()
nans[1, 2, 2, 0], nans[1, 3, 3, 1], nans[1, 4, 4, 0] = NAN, NAN, INF
for padding in (1, 2):
    case(aten.grid_sampler_2d.default, rand(2, 3, 7, 8), nans if padding == 1 else nans[:, :4], 0, padding, False)
outside3 = torch.rand(2, 2, 4, 3, 3, generator=torch.Generator().manual_seed(4)) * 3 - 1.5
for mode in (0, 1):
    for padding in (0, 1, 2):
        for align in (False, True):
            case(aten.grid_sampler_3d.default, rand(2, 2, 4, 5, 3), outside3, mode, padding, align)
    case(aten.grid_sampler.default, rand(2, 2, 4, 5, 3, dtype=F64), outside3.to(F64), mode, 0, False)
for align in (False, True):
    for size in ([2, 3, 4, 5], [2, 1, 1, 6]):
        case(aten.affine_grid_generator.default, full(2, 2, 3), size, align)
    case(aten.affine_grid_generator.default, full(2, 3, 4), [2, 3, 3, 4, 5], align)
    case(aten.affine_grid_generator.default, full(2, 2, 3, dtype=F64), [2, 3, 4, 5], align)

# Shuffles.
for d in (F32, F16, torch.int64, torch.bool):
    case(aten.pixel_shuffle.default, rand(2, 8, 3, 2).to(d), 2)
    case(aten.pixel_unshuffle.default, rand(2, 2, 6, 4).to(d), 2)
    case(aten.channel_shuffle.default, rand(2, 6, 3, 2).to(d), 3)
case(aten.pixel_shuffle.default, rand(9, 3, 2), 3)
case(aten.pixel_shuffle.default, rand(2, 3, 4, 3, 2), 2)
case(aten.pixel_shuffle.default, rand(2, 3, 2, 8).permute(0, 3, 1, 2), 2)
case(aten.pixel_shuffle.default, rand(0, 8, 3, 2), 2)
case(aten.pixel_unshuffle.default, rand(2, 6, 9), 3)
case(aten.channel_shuffle.default, rand(2, 6, 5), 2)
case(aten.native_channel_shuffle.default, rand(2, 6, 3, 2), 2)
case(aten.channel_shuffle.default, rand(3, 2, 6, 2).transpose(1, 2), 2)

# Windows as columns and back.
for kernel, dilation, padding, stride in (([2, 2], [1, 1], [0, 0], [1, 1]), ([3, 2], [1, 2], [1, 0], [2, 1]),
                                          ([3, 3], [1, 1], [1, 1], [2, 2]), ([4, 4], [1, 1], [0, 0], [4, 4]), ([1, 5], [1, 1], [0, 4], [1, 3])):
    x = rand(2, 3, 8, 8)
    columns = aten.im2col.default(x, kernel, dilation, padding, stride)
    case(aten.im2col.default, x, kernel, dilation, padding, stride)
    case(aten.col2im.default, (columns * 2).round(), [8, 8], kernel, dilation, padding, stride)
case(aten.im2col.default, rand(3, 6, 5), [2, 2], [1, 1], [0, 0], [1, 1], note="no batch")
case(aten.col2im.default, rand(12, 20), [6, 5], [2, 2], [1, 1], [0, 0], [1, 1], note="no batch")
case(aten.im2col.default, rand(2, 6, 5, 3).permute(0, 3, 1, 2), [2, 2], [1, 1], [1, 1], [1, 1])
case(aten.col2im.default, rand(2, 20, 12).transpose(1, 2), [6, 5], [2, 2], [1, 1], [0, 0], [1, 1])
for d in (F64, F16, BF16):
    case(aten.im2col.default, rand(1, 2, 5, 5, dtype=d), [2, 2], [1, 1], [1, 1], [1, 1])
    case(aten.col2im.default, rand(1, 8, 16, dtype=d), [5, 5], [2, 2], [1, 1], [0, 0], [1, 1])
case(aten.im2col.default, rand(1, 2, 5, 5) > 0, [2, 2], [1, 1], [1, 1], [1, 1])

# Padding.
for pad in ([1, 2], [1, 2, 3, 0], [0, 0, 0, 0, 1, 1], [-1, 2], [-1, -2, 2, -1], [0, 0], [], [-2, -2], [1, 1, 1, 1, 1, 1, 1, 1], [-3, -2]):
    case(aten.constant_pad_nd.default, rand(2, 3, 4, 5), pad)
    case(aten.pad.default, rand(2, 3, 4, 5), pad, "constant", 1.5)
case(aten.constant_pad_nd.default, rand(2, 3), [1, 1], -INF)
case(aten.constant_pad_nd.default, rand(2, 0), [1, 1], 2)
case(aten.constant_pad_nd.default, rand(4, 3).t(), [1, 1, 2, 0], NAN)
case(aten.constant_pad_nd.default, rand(3, 1).expand(3, 4), [1, 1, 2, 0])
case(aten.pad.default, rand(2, 3, 4), [1, 1])
for d in (F64, F16, BF16, torch.int64, torch.int32, torch.uint8, torch.int8, torch.bool, torch.complex64):
    case(aten.constant_pad_nd.default, ints(0, 3, 2, 3, dtype=d), [1, 1, 0, 2], 1)
case(aten.constant_pad_nd.default, ints(0, 3, 2, 3), [1, 1], 2.7)
case(aten.pad.default, ints(0, 3, 2, 3), [1, 1], "constant", None)
for mode in ("reflect", "replicate", "circular"):
    case(aten.pad.default, rand(2, 3, 6), [2, 1], mode)
    case(aten.pad.default, rand(3, 6), [0, 3], mode)
    case(aten.pad.default, rand(2, 3, 4, 5), [2, 1, 0, 3], mode)
    case(aten.pad.default, rand(3, 4, 5), [1, 4, 3, 2], mode)
    case(aten.pad.default, rand(2, 2, 3, 4, 5), [2, 1, 0, 3, 1, 2], mode)
    case(aten.pad.default, rand(2, 5, 4, 3).permute(0, 3, 2, 1), [2, 1, 3, 3], mode)
    case(aten.pad.default, rand(2, 3, 8, 5)[:, :, 1:8:2], [2, 1, 0, 3], mode)
    for d in (F64, F16, BF16, torch.int64):
        case(aten.pad.default, rand(2, 3, 6).to(d), [2, 1], mode)
    case(aten.pad.default, rand(2, 3, 4, 5), [-1, 2, 1, -2], mode)
case(aten.pad.default, rand(2, 3, 4), [4, 4], "circular")
case(aten.pad.default, rand(2, 3, 4), [9, 11], "replicate")
case(aten._pad_circular.default, rand(2, 3, 4), [2, 3])
for mode in range(4):
    case(aten._pad_enum.default, rand(2, 3, 4, 5), [1, 2, 3, 0], mode)
case(aten.reflection_pad1d.default, rand(2, 3, 6), [2, 5])
case(aten.reflection_pad1d.default, rand(3, 6), [0, 1])
case(aten.reflection_pad2d.default, rand(2, 3, 4, 5), [1, 2, 3, 0])
case(aten.reflection_pad2d.default, rand(3, 4, 5), [1, 2, 3, 0])
case(aten.reflection_pad3d.default, rand(2, 3, 4, 5, 3), [1, 2, 3, 0, 1, 1])
case(aten.replication_pad1d.default, rand(2, 3, 6), [2, 7])
case(aten.replication_pad2d.default, rand(2, 3, 4, 5), [1, 9, 3, 0])
case(aten.replication_pad3d.default, rand(2, 3, 4, 5, 3), [1, 2, 3, 0, 1, 5])

# A size that stays or doubles by a factor that says otherwise: small images, 2d, have ways of their own, nearest and exact.
# The last five are where it shows how places are rounded.
for ops in (floor, exact):
    for n, size, factor in ((9, 9, 1.1), (9, 18, 2.1), (9, 10, 1.2), (10, 10, 1.05)):
        line = torch.arange(float(n))
        case(ops[1].vec, line.reshape(1, 1, n), None, [factor])
        case(ops[1].default, line.to(F64).reshape(1, 1, n), [size], factor)
        case(ops[3].default, line.reshape(1, 1, 1, 1, n), [1, 1, size], None, None, factor)
        for lines in (1, 110, 128):
            case(ops[2].default, line.reshape(1, 1, 1, n), [lines, size], None, factor)
        case(ops[2].default, line.reshape(1, 1, n, 1), [size, 3], factor, None)
        for d in (F64, BF16, torch.uint8):
            case(ops[2].default, line.to(d).reshape(1, 1, 1, n), [1, size], None, factor)
        for channels in (3, 4):
            last = line.reshape(1, 1, n, 1).expand(1, 2, n, channels).contiguous().permute(0, 3, 1, 2)
            case(ops[2].default, last, [127, size], None, factor)
            case(ops[3].default, last.unsqueeze(3), [2, 1, size], None, None, factor)
    for n, size, factor in ((2, 47, None), (2, 49, None), (114, 21, None), (116, 91, 0.79), (110, 51, 0.47)):
        case(ops[1].default, torch.arange(float(n)).reshape(1, 1, n), [size], factor)
        for lines in (1, 128):
            for d in (F32, F64):
                case(ops[2].default, torch.arange(float(n), dtype=d).reshape(1, 1, 1, n), [lines, size], None, factor)
x = rand(1, 1, 5, 5)
x[0, 0, 1, 1], x[0, 0, 3, 3] = NAN, INF
for op in (aten.upsample_bilinear2d, aten.upsample_bicubic2d, aten._upsample_bilinear2d_aa, aten._upsample_bicubic2d_aa,
           aten._upsample_lanczos2d_aa):
    for align in (False, True):
        case(op.vec, rand(1, 2, 9, 7), None, align, [1.1, 1.05])
        case(op.default, rand(1, 1, 9, 7), [4, 7], align, 0.5, 1.1)
        case(op.default, rand(1, 1, 9, 7), [9, 12], align, 1.1, 1.8)
    case(op.default, x, [5, 5], False)
    case(op.default, x, [5, 8], False, 1.1, None)
case(aten.upsample_linear1d.vec, rand(1, 2, 9), None, False, [1.1])
case(aten.upsample_trilinear3d.vec, rand(1, 1, 9, 5, 3), None, False, [1.1, 1.1, 1.3])
# Coordinates of halves are halves.
points = torch.rand(1, 12, 9, 2, generator=torch.Generator().manual_seed(6)) * 2.6 - 1.3
for d in (F16, BF16):
    for mode in (0, 1):
        for padding in (0, 1, 2):
            for align in (False, True):
                case(aten.grid_sampler_2d.default, rand(1, 1, 21, 37, dtype=d), points.to(d), mode, padding, align)

save("resample")
