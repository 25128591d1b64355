"""Pools: windows, ceil_mode, padding, dilation, indices, NaN; adaptive sizes; unpooling."""

import torch

from recorder import aten, case, ints, rand, save, special

F32, F64, F16, BF16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
NAN, INF = float("nan"), float("inf")

holes = rand(2, 3, 9, 8)
holes[0, 0, 2, 2], holes[0, 1, 0, 0], holes[1, 2, 5:7, 5:7] = NAN, INF, NAN
holes[1, 0] = -INF
holes[0, 2] = 0.25  # the first of equals

for op, one, two in ((aten.max_pool1d.default, None, None), (aten.max_pool1d_with_indices.default, None, None)):
    x = rand(2, 3, 13)
    x[0, 0, 4], x[1, 1, 3:6], x[1, 2] = NAN, NAN, -INF
    for args in (([2],), ([3], [2]), ([3], [2], [1]), ([3], [1], [1], [2]), ([3], [2], [1], [1], True), ([5], [3], [2], [2], True)):
        case(op, x, *args)
    case(op, rand(3, 10), [2], note="no batch")
    case(op, rand(3, 10, 2).permute(2, 0, 1)[:, :, 1:8:2], [2], [1], note="a view")
    case(op, rand(0, 3, 10), [2])

for op in (aten.max_pool2d.default, aten.max_pool2d_with_indices.default):
    for args in (([2, 2],), ([3, 3], [2, 2], [1, 1]), ([3, 2], [1, 2], [1, 0]), ([3, 3], [2, 2], [1, 1], [2, 1]),
                 ([2, 2], [2, 2], [0, 0], [1, 1], True), ([3, 3], [3, 3], [1, 1], [1, 1], True), ([3], [2]), ([2],),
                 ([3, 3], [2, 2], [0, 0], [1, 1], True), ([2, 2], [5, 5], [1, 1], [1, 1], True), ([9, 8],),
                 ([2, 3], [], [1, 1], [3, 2], True)):
        case(op, holes, *args)
    case(op, rand(3, 9, 8), [2, 2], note="no batch")
    case(op, rand(2, 7, 6, 3).permute(0, 3, 1, 2), [3, 3], [2, 2], [1, 1], note="a view")
    case(op, rand(1, 3, 6, 1).expand(2, 3, 6, 5), [2, 2])
    case(op, rand(2, 3, 16, 16)[:, :, 1:12, 2:14:3], [2, 2], [1, 1])
    case(op, rand(0, 3, 6, 6), [2, 2])
    for d in (F64, F16, BF16):
        case(op, holes.to(d), [3, 3], [2, 2], [1, 1])
    for d in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        case(op, ints(0, 100, 1, 2, 6, 5, dtype=d), [3, 3], [2, 2], [1, 1])
    case(op, ints(-128, 0, 1, 1, 6, 5, dtype=torch.int8), [3, 3], [2, 2], [1, 1])
case(aten.max_pool2d.default, rand(1, 1, 3, 90), [2, 80], [1, 1], note="a window longer than a segment")
case(aten.max_pool2d_with_indices.default, rand(1, 1, 3, 150), [2, 72], [1, 1], [0, 0], [1, 2])

for op in (aten.max_pool3d.default, aten.max_pool3d_with_indices.default):
    x = rand(2, 2, 5, 6, 4)
    x[0, 0, 1, 1, 1], x[1, 1] = NAN, -INF
    for args in (([2, 2, 2],), ([3, 3, 3], [2, 2, 2], [1, 1, 1]), ([1, 3, 3], [1, 2, 2], [0, 1, 1], [1, 1, 1], True),
                 ([2], [1], [1], [2], True), ([2, 3, 2], [2, 3, 1], [0, 1, 0], [1, 1, 2])):
        case(op, x, *args)
    case(op, rand(2, 4, 5, 4), [2, 2, 2], note="no batch")
    case(op, rand(1, 4, 5, 4, 2, dtype=BF16).permute(0, 4, 1, 2, 3), [2, 2, 2])
    case(op, ints(-50, 50, 1, 2, 4, 4, 4), [2, 2, 2])

case(aten.avg_pool1d.default, rand(2, 3, 13), [3])
for args in (([3], [2], [1]), ([3], [2], [1], True), ([3], [2], [1], True, False), ([4], [3], [2], False, False)):
    case(aten.avg_pool1d.default, rand(2, 3, 13), *args)
case(aten.avg_pool1d.default, rand(3, 12), [5], [1], note="no batch")
for d in (F64, F16, BF16):
    case(aten.avg_pool1d.default, rand(2, 3, 13, dtype=d), [3], [2], [1])
for args in (([2, 2],), ([3, 3], [2, 2], [1, 1]), ([3, 3], [2, 2], [1, 1], True), ([3, 3], [2, 2], [1, 1], True, False),
             ([3, 2], [2, 1], [1, 0], False, False), ([3, 3], [2, 2], [1, 1], False, True, 5), ([3, 3], [2, 2], [1, 1], True, False, -2),
             ([2], [2]), ([9, 8],), ([2, 2], [5, 5], [1, 1], True), ([4, 4], [3, 3], [2, 2], True, True), ([3, 3], [1, 1], [1, 1])):
    case(aten.avg_pool2d.default, holes, *args)
case(aten.avg_pool2d.default, rand(3, 9, 8), [2, 2], note="no batch")
case(aten.avg_pool2d.default, rand(2, 7, 6, 3).permute(0, 3, 1, 2), [3, 3], [2, 2], [1, 1], note="a view")
case(aten.avg_pool2d.default, rand(0, 3, 6, 6), [2, 2])
case(aten.avg_pool2d.default, rand(1, 1, 4, 100), [2, 90], [1, 3])
for d in (F64, F16, BF16):
    case(aten.avg_pool2d.default, rand(2, 3, 9, 8, dtype=d), [3, 3], [2, 2], [1, 1], True)
case(aten.avg_pool2d.default, ints(-100, 100, 1, 2, 7, 6), [3, 3], [2, 2], [1, 1])
for args in (([2, 2, 2],), ([3, 3, 3], [2, 2, 2], [1, 1, 1]), ([3, 3, 3], [2, 2, 2], [1, 1, 1], True, False),
             ([2, 3, 1], [1, 2, 1], [1, 1, 0], False, False), ([2, 2, 2], [2, 2, 2], [0, 0, 0], True, True, 3), ([2], [1], [1], True)):
    case(aten.avg_pool3d.default, rand(2, 2, 5, 6, 4), *args)
case(aten.avg_pool3d.default, rand(2, 4, 5, 4, dtype=F64), [2, 2, 2], note="no batch")

for size in (1, 3, 7, 20):
    case(aten.adaptive_avg_pool1d.default, rand(2, 3, 13), [size])
    case(aten.adaptive_max_pool1d.default, rand(2, 3, 13), [size])
case(aten.adaptive_avg_pool1d.default, rand(3, 12), [5], note="no batch")
case(aten.adaptive_max_pool1d.default, rand(3, 12), [5], note="no batch")
for op in (aten.adaptive_avg_pool2d.default, aten._adaptive_avg_pool2d.default, aten.adaptive_max_pool2d.default):
    for size in ([1, 1], [3, 5], [9, 8], [12, 1], [4, 11]):
        case(op, holes, size)
    case(op, rand(3, 9, 8), [2, 2], note="no batch")
    case(op, rand(2, 7, 6, 3).permute(0, 3, 1, 2), [3, 3], note="a view")
    case(op, rand(0, 3, 6, 6), [2, 2])
    case(op, rand(2, 3, 6, 6), [0, 2])
    case(op, rand(1, 2, 3, 100), [1, 1])
    for d in (F64, F16, BF16):
        case(op, rand(2, 3, 7, 8, dtype=d), [3, 3])
        case(op, rand(2, 3, 7, 8, dtype=d), [1, 1])
case(aten.adaptive_avg_pool2d.default, rand(1, 2, 33, 31, shift=3.0), [1, 1])
for op in (aten.adaptive_avg_pool3d.default, aten._adaptive_avg_pool3d.default, aten.adaptive_max_pool3d.default):
    for size in ([1, 1, 1], [2, 3, 4], [5, 1, 9]):
        case(op, rand(2, 2, 5, 6, 4), size)
    case(op, rand(2, 4, 5, 4), [2, 2, 2], note="no batch")
    for d in (F64, F16, BF16):
        case(op, rand(1, 2, 3, 4, 5, dtype=d), [2, 2, 2])

values, where = torch.max_pool2d_with_indices(rand(2, 3, 6, 8), [2, 2]) if hasattr(torch, "max_pool2d_with_indices") else \
    torch.nn.functional.max_pool2d(rand(2, 3, 6, 8), 2, return_indices=True)
case(aten.max_unpool2d.default, values, where, [6, 8])
case(aten.max_unpool2d.default, values, where, [7, 9])
case(aten.max_unpool2d.default, values[0], where[0], [6, 8], note="no batch")
case(aten.max_unpool2d.default, values.to(BF16).transpose(2, 3), where.transpose(2, 3), [6, 8])
values, where = torch.nn.functional.max_pool3d(rand(1, 2, 4, 6, 4), 2, return_indices=True)
case(aten.max_unpool3d.default, values, where, [4, 6, 4], [2, 2, 2], [0, 0, 0])
case(aten.max_unpool3d.default, values[0], where[0], [4, 6, 4], [2, 2, 2], [0, 0, 0])
x = special().reshape(1, 1, 4, 4)
case(aten.max_pool2d_with_indices.default, x, [2, 2], [1, 1])
case(aten.avg_pool2d.default, x, [2, 2], [1, 1])

save("pool")
