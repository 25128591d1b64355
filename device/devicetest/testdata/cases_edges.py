"""What is easily taken for something else: places counted from the end, views of parts of a memory, numbers that are rounded
to half precision or not. Where a bound would hide the difference, there is none. Made with torch 2.11."""

import torch

from recorder import CASES, aten, case, ints, rand, save

HALVES = (torch.float16, torch.bfloat16)

# Complex numbers beside doubles and halves.
for dtype in (torch.float64, torch.float32):
    for op in (aten.add.Scalar, aten.mul.Scalar):
        case(op, rand(3, dtype=dtype), 0.5 - 2j)
case(aten.mul.Tensor, rand(3, dtype=torch.float64), torch.tensor(1 + 1j))
case(aten.add.Tensor, ints(0, 9, 3), torch.tensor(2.5))
case(aten.add.Tensor, torch.tensor(True), torch.tensor(2, dtype=torch.uint8))
case(aten.mul.Tensor, ints(0, 9, 3, dtype=torch.uint8), torch.tensor(300))
case(aten.where.self, torch.tensor([True, False]), torch.tensor(1.5, dtype=torch.float64), torch.tensor([1, 2]))

# Factors, weights and limits of halves.
for dtype in HALVES:
    x, y = rand(9, dtype=dtype), rand(9, dtype=dtype)
    for alpha in (0.1, 3, 1 / 3):
        case(aten.add.Tensor, x, y, alpha=alpha)
        case(aten.sub.Tensor, x, y, alpha=alpha)
        case(aten.rsub.Scalar, x, 0.7, alpha)
    for w in (0.1, 0.7):
        case(aten.lerp.Scalar, x, y, w, bound=0)
    for limit in (0.1, 0.3, 0.7):
        at = torch.tensor([limit, -limit], dtype=dtype)
        near = torch.cat([at, torch.nextafter(at, at * 2), torch.nextafter(at, at * 0)])
        case(aten.hardshrink.default, near, limit, bound=0)
        case(aten.softshrink.default, near, limit, bound=0)
        case(aten.threshold.default, near, limit, 5.0, bound=0)
        case(aten.clamp.default, near, -limit, limit, bound=0)
        case(aten.leaky_relu.default, near, limit, bound=0)
        case(aten.mul.Scalar, x, limit, bound=0)
        case(aten.div.Tensor, x, torch.tensor(limit), bound=0)
    case(aten.addcmul.default, x, y, x, value=0.3, bound=0)
for bounds in ((-1.5, 2.5), (-2, 2), (0.9, 3.1)):
    case(aten.hardtanh.default, ints(-5, 6, 9), *bounds)
case(aten.relu6.default, ints(-5, 9, 9))
case(aten.clamp.default, ints(-5, 6, 9), -1.5, 2.5)
case(aten.clamp.default, ints(-5, 6, 9), 3, 1)
case(aten.clamp.default, rand(9), 0.3, -0.3)
case(aten.clamp.Tensor, rand(9), torch.tensor(0.3), torch.tensor(-0.3))

# Places from the end.
x = rand(4, 5, 6)
case(aten.narrow.default, x, 1, -3, 2)
case(aten.narrow.default, x, -1, -6, 6)
case(aten.slice.Tensor, x, -1, -5, -1, 3)
case(aten.slice.Tensor, x, 1, -9, -1)
case(aten.slice.Tensor, x, 0, 3, -3)
for dim in (0, 1, 2):
    case(aten.unfold.default, x, dim, 2, 3)
    case(aten.unfold.default, x, dim - 3, 3, 2)
case(aten.flatten.using_ints, x, -2, -1)
case(aten.unflatten.int, x, -1, [-1, 3])
case(aten.squeeze.dims, rand(1, 2, 1), [-1, 0])
case(aten.index_select.default, x, -2, torch.tensor([4, 0]))
case(aten.cumsum.default, x, -2)
case(aten.stack.default, [x[0], x[1]], -2)
case(aten.movedim.intlist, rand(2, 3, 4, 5), [-1, 0], [0, -2])
case(aten.diagonal.default, rand(3, 6), -2)
case(aten.diagonal.default, rand(6, 3), 2)
case(aten.diagonal.default, rand(3, 6), 7)

# Parts of a memory.
part = rand(60)[7:].as_strided((3, 4), (9, 2), 11)
case(aten.as_strided.default, part, [2, 2], [3, 1])
case(aten.as_strided.default, part, [4], [1], None)
case(aten.as_strided.default, part, [2, 3], [0, 2], 5)
case(aten.reshape.default, part, [2, 6])
case(aten.reshape.default, part.t(), [3, 4])
case(aten.copy_.default, part, rand(4))
case(aten.add_.Tensor, rand(8, 6)[1::3, -3:], rand(3))

# Indices.
w, b, d = rand(3, 4, 5, 6), torch.tensor([1, -3, 3]), torch.tensor([5, -6, 1])
for accumulate in (False, True):
    case(aten.index_put.default, w, [None, b, None, d], rand(3, 3, 5), accumulate)
    case(aten.index_put.default, w, [b[:1] - 1, None, None, d], rand(3, 4, 5), accumulate)
case(aten.index.Tensor, w, [None, b, None, d[:, None]])
for value in (2.5, 3, 3.0, -1.0):
    for right in (False, True):
        case(aten.bucketize.Scalar, value, torch.tensor([1, 2, 3, 3, 5]), right=right)
        case(aten.searchsorted.Scalar, torch.tensor([1, 2, 3, 3, 5]), value, right=right)
for padding in (-1, -10, 0, 9):
    case(aten.embedding_bag.padding_idx, rand(10, 3), torch.tensor([9, 1, 0, 9]), torch.tensor([0, 2]), False, 1, False, None, False,
         padding)
    CASES[-1]["outputs"] = CASES[-1]["outputs"][:1]

# Differences, integrals, norms.
for n in (1, 2):
    case(aten.diff.default, ints(0, 2, 3, 6, dtype=torch.bool), n)
    case(aten.diff.default, rand(3, 6), n, 0, rand(2, 6), rand(1, 6))
for dtype in HALVES:
    case(aten.rms_norm.default, rand(2, 8, dtype=dtype, scale=1e-3), [8])
    case(aten.layer_norm.default, rand(2, 8, dtype=dtype, scale=1e-3), [8])
case(aten.var.correction, rand(3, 4), [-1], correction=0.5)
case(aten.logsumexp.default, ints(0, 9, 2, 3), [-1, 0])

# Which of two operands something is relative to, and what counts for nothing.
case(aten.isclose.default, torch.tensor([1.0, 100.0, 0.0]), torch.tensor([100.0, 1.0, 1e-9]), 0.995, 1e-8)
case(aten.isclose.default, torch.tensor([10, 9]), torch.tensor([9, 10]), 0.105, 0.0)

# Quotients of doubles and complex numbers.
for dtype in (torch.float64, torch.float32):
    case(aten.div.Scalar, rand(3, dtype=dtype), 0.5 - 2j)
case(aten.div.Tensor, rand(3, dtype=torch.float64), torch.tensor(1 + 1j))
save("edges")
