"""Writing where a mask is true what is the same for all that it selects: no size depends on data there. Made with torch 2.11."""

import torch

from recorder import aten, case, ints, rand, save

elements = torch.tensor([[True, False, False, True], [False, True, False, False], [True, True, True, False]])
rows, columns = torch.tensor([True, False, True]), torch.tensor([False, True, True, False])
for dtype in (torch.float32, torch.float64, torch.int64):
    x = rand(3, 4, dtype=torch.float64, scale=4).to(dtype)
    for accumulate in (False, True):
        for op in (aten.index_put.default, aten.index_put_.default):
            case(op, x.clone(), [elements], torch.tensor(3, dtype=dtype), accumulate)
            case(op, x.clone(), [rows], rand(4, dtype=torch.float64, scale=4).to(dtype), accumulate)
            case(op, x.clone(), [rows, None], rand(1, 4, dtype=torch.float64, scale=4).to(dtype), accumulate)
            case(op, x.clone(), [None, columns], rand(3, 1, dtype=torch.float64, scale=4).to(dtype), accumulate)
            case(op, x.clone(), [None, columns], torch.tensor([2], dtype=dtype), accumulate)
for accumulate in (False, True):
    x = rand(2, 3, 4, 5)
    case(aten.index_put.default, x, [None, elements], rand(5), accumulate)
    case(aten.index_put.default, x, [None, elements], rand(2, 1, 5), accumulate)
    case(aten.index_put.default, x, [None, elements], rand(1, 1, 1), accumulate)
    case(aten.index_put.default, x, [None, elements.to(torch.uint8)], rand(1, 5), accumulate)
    case(aten.index_put.default, x.transpose(0, 2), [None, rows], rand(4, 1, 2, 5), accumulate)
    case(aten.index_put.default, x.mT, [None, None, None, columns], rand(2, 3, 5, 1), accumulate)
    case(aten.index_put.default, torch.zeros(2, 0), [torch.zeros(2, 0, dtype=torch.bool)], torch.tensor(1.0), accumulate)
case(aten.index_put.default, ints(0, 2, 3, 4, dtype=torch.bool), [elements], torch.tensor(True))
save("mask")
