"""Ops whose results have sizes that depend on data. Made with torch 2.11 and torchvision 0.26."""

import torch
import torchvision  # noqa: F401

from recorder import aten, case, ints, rand, save, special

nms = torch.ops.torchvision.nms.default


def boxes(n, size, dtype=torch.float32):
    corners = rand(n, 2, 2, scale=size / 2, shift=size / 2)
    return torch.cat([corners.amin(1), corners.amax(1)], 1).to(dtype)


for dtype in (torch.float32, torch.float64):
    for n, size, threshold in ((20, 10, 0.3), (20, 10, 0.0), (1, 5, 0.5), (0, 5, 0.5), (40, 300, 0.9)):
        case(nms, boxes(n, size, dtype), rand(n, dtype=dtype), threshold)
tied = torch.tensor([[0, 0, 4, 4], [0, 0, 4, 4], [0, 2, 4, 6], [2, 2, 2, 2], [2, 2, 2, 2], [5, 5, 1, 1.0]])
case(nms, tied, torch.tensor([1.0, 1, 3, float("nan"), -float("inf"), float("inf")]), 1 / 3)
case(nms, tied * 3.3, torch.zeros(6), 0.5)
case(nms, torch.cat([tied, tied]).T.contiguous().T, rand(24)[::2], 0.1)

for x in (rand(3, 4).relu(), rand(2, 3, 4) > 0, ints(-1, 2, 7), torch.zeros(3, 2), torch.ones(2, 2, dtype=torch.uint8),
          torch.tensor(3.0), torch.tensor(False), torch.zeros(0, 3), special(), rand(4, 5).T > 0.5,
          rand(5, dtype=torch.bfloat16).relu()):
    case(aten.nonzero.default, x)
    case(aten.where.default, x)
case(aten.argwhere.default, rand(3, 4) > 0)

x, m = rand(4, 3), rand(4, 3) > 0
for mask in (m, m[:, :1], m[1], torch.zeros(4, 3, dtype=torch.bool), torch.ones(3, dtype=torch.bool), torch.tensor(True)):
    case(aten.masked_select.default, x, mask)
case(aten.masked_select.default, ints(0, 9, 3), m)
case(aten.masked_select.default, rand(6, 4, dtype=torch.float16)[::2].T, m)

cube = rand(2, 3, 4)
for x, index in ((cube, [rand(2) > 0]), (cube, [None, rand(3) > 0]), (cube, [None, None, torch.tensor([True, False, True, True])]),
                 (cube, [rand(2, 3) > 0]), (cube, [cube > 0.3]), (cube, [None, rand(3, 4) > 0]),
                 (cube.permute(2, 0, 1), [None, rand(2, 3) > 0]), (cube, [torch.zeros(2, dtype=torch.bool)]),
                 (cube, [torch.ones(2, dtype=torch.bool)]), (torch.zeros(0, 3), [torch.zeros(0, dtype=torch.bool)]),
                 (rand(4) > 0, [rand(4) > 0])):
    case(aten.index.Tensor, x, index)

for x in (ints(0, 5, 12), ints(-3, 3, 2, 7), torch.zeros(4, dtype=torch.int32), torch.zeros(0), rand(9) > 0, ints(0, 250, 9, dtype=torch.uint8),
          torch.tensor([2.0, float("nan"), 1, 2, float("nan"), float("inf"), 0.0, -0.0, 1]), torch.tensor(4), ints(0, 3, 6, 2)[:, 0]):
    case(aten._unique2.default, x, True, True, True)
    case(aten.unique_consecutive.default, x, True, True)
case(aten.unique_consecutive.default, ints(0, 2, 12), True, True, 0)
case(aten.unique_dim.default, ints(0, 4, 12), 0, True, True, True)

save("sized")
