"""Records the ops that create tensors from numbers, and the conversions between dtypes."""

import itertools

import torch

from recorder import aten, case, ints, rand, save, special

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
ALL = FLOATS + INTEGERS + [torch.bool]
RARE = [torch.uint16, torch.uint32, torch.uint64]


def attempt(op, *args, **kwargs):
    """Records a call that PyTorch may refuse."""
    try:
        case(op, *args, **kwargs)
    except (RuntimeError, NotImplementedError, TypeError):
        pass


def some(dtype, *shape):
    if dtype == torch.bool:
        return ints(0, 2, *shape, dtype=dtype)
    return rand(*shape, dtype=dtype, scale=9) if dtype.is_floating_point else ints(0, 120, *shape).to(dtype)


# Conversions. What floats become that integers cannot hold is undefined in C++: PyTorch's loops differ in it, so only
# what a 32-bit conversion holds is recorded for narrow integers.
EDGES = torch.tensor([0.0, -0.0, 0.49, -0.49, 0.51, 1.5, 2.5, -1.5, 127.9, -128.9, 255.5, 256.0, 300.25, -1.0, -300.0,
                      65504.0, 65536.5, -70000.0, 1e9, -1e9])
for a, b in itertools.product(ALL, ALL):
    case(aten.to.dtype, some(a, 2, 3), b)
    if a.is_floating_point and b.is_floating_point:
        case(aten.to.dtype, special(a), b)
        case(aten.to.dtype, torch.tensor([1.0009765625, 1.00048828125, 1.0014648437500002, 65519.9, 65520.0, 5.9e-8,
                                          2.98e-8, 2.99e-8, 6.1e-5, 1e-40, 3.4e38, 1.00390625, 1.01171875,
                                          1.0117187500001], dtype=a), b)
    elif a.is_floating_point:
        edges = EDGES if b != torch.uint8 else EDGES[:11].abs()
        if a == torch.float16:
            edges = edges[edges.abs() <= 65504]
        case(aten.to.dtype, edges.to(a), b)
        if b in (torch.int64, torch.int32, torch.bool):
            case(aten.to.dtype, special(a), b)
    else:
        case(aten.to.dtype, ints(-(2**40), 2**40, 9).to(a), b)
case(aten.to.dtype, torch.tensor([2**53 + 1, 2**62 + 2**38, 2**24 + 1, 16777219, -(2**63), 2**63 - 1]), torch.float32)
case(aten.to.dtype, torch.tensor([2**53 + 1, 2**62 + 2**38, -(2**63), 2**63 - 1]), torch.float64)
for a in RARE:
    for b in ALL + RARE:
        case(aten.to.dtype, some(a, 5), b)
        if b not in RARE:
            case(aten.to.dtype, ints(0, 99, 5).to(b), a)
for x in (rand(4, 3).t(), rand(5, 1).expand(5, 4), rand(6, 7)[1:5:2, 2:6], rand(0, 3), rand(1)[0],
          rand(2, 3, 4).permute(2, 0, 1), ints(-9, 9, 45, 33).float().t()):
    for b in (torch.float32, torch.float16, torch.int64, torch.bool):
        case(aten.to.dtype, x, b)
    case(aten._to_copy.default, x, dtype=torch.float64)
    case(aten._to_copy.default, x)
    case(aten.clone.default, x)
    case(aten.contiguous.default, x)
    case(aten.lift_fresh_copy.default, x)
    case(aten.type_as.default, x, ints(0, 3, 2))
    case(aten.to.other, x, rand(2, dtype=torch.bfloat16))
    case(aten.to.dtype_layout, x, dtype=torch.bfloat16)
    case(aten.to.dtype_layout, x, copy=True)
    case(aten.to.dtype, x, torch.float32, False, True)
    case(aten.lift.default, x)
    case(aten.to_dense.default, x)
    case(aten.resolve_conj.default, x)
    case(aten.resolve_neg.default, x)
case(aten.clone.default, torch.complex(rand(3, 2), rand(3, 2)).t())
case(aten.to.device, rand(3), torch.device("cpu"), torch.float64)

# Filled tensors.

for dtype in [None] + ALL:
    for n in (3, -2, 1.5, True):
        attempt(aten.full.default, [2, 3], n, dtype=dtype)
    attempt(aten.scalar_tensor.default, 2.5, dtype=dtype)
    attempt(aten.scalar_tensor.default, 7, dtype=dtype)
    case(aten.zeros.default, [2, 3], dtype=dtype)
    case(aten.ones.default, [3], dtype=dtype)
    for like in (rand(2, 3).bfloat16(), ints(0, 5, 3, 2).t()):
        case(aten.zeros_like.default, like, dtype=dtype)
        case(aten.ones_like.default, like, dtype=dtype)
        case(aten.full_like.default, like, 2.5, dtype=dtype)
        case(aten.new_zeros.default, like, [2, 2], dtype=dtype)
        case(aten.new_ones.default, like, [2, 2], dtype=dtype)
        case(aten.new_full.default, like, [2, 2], 3, dtype=dtype)
for shape in ([], [0, 2], [1], [2, 0, 3]):
    case(aten.full.default, shape, 2.5)
    case(aten.zeros.default, shape)
case(aten.full.default, [2], float("-inf"))
case(aten.full.default, [2], float("nan"), dtype=torch.float16)
for dtype in ALL:
    case(aten.fill.Scalar, some(dtype, 2, 3), 1)
    case(aten.fill_.Scalar, some(dtype, 3, 2).t(), 1.0)
    case(aten.fill.Tensor, some(dtype, 2, 3), torch.tensor(1.0))
    case(aten.fill_.Tensor, some(dtype, 4, 3)[::2, 1:], torch.tensor(1))
    case(aten.zero.default, some(dtype, 2, 3))
    case(aten.zero_.default, some(dtype, 4, 6)[1:3, ::2])

# Ranges.

for dtype in [None] + FLOATS + INTEGERS:
    for args in ((5,), (0,), (4.5,), (2, 7), (1.5, 6), (-3, 3)):
        attempt(aten.arange.default if len(args) == 1 else aten.arange.start, *args, dtype=dtype)
    for args in ((0, 10, 3), (10, 0, -3), (0, 1, 0.1), (1, 1, 2), (0.5, 7.2, 1.7), (5, -5, -2.5), (-9, 9, 4)):
        attempt(aten.arange.start_step, *args, dtype=dtype)
    for args in ((0, 1, 5), (3, -3, 7), (2.5, 9.5, 1), (0, 10, 0), (-1, 1, 24), (0.1, 0.9, 13)):
        attempt(aten.linspace.default, *args, dtype=dtype)
case(aten.arange.default, 1500)
case(aten.arange.default, 1500, dtype=torch.float32)
case(aten.arange.start_step, 0, 3, 0.002)
case(aten.arange.default, 2**31 // 2**20, dtype=torch.int32)
case(aten.linspace.default, -1, 1, 1300)
for dtype in [None] + ALL:
    case(aten.eye.default, 3, dtype=dtype)
    case(aten.eye.m, 2, 4, dtype=dtype)
case(aten.eye.m, 4, 2)
case(aten.eye.m, 0, 2)

# Triangles.

for diagonal in (0, 1, -1, 2, -3, 9, -9):
    for op in (aten.tril, aten.triu):
        case(op.default, rand(3, 5), diagonal)
        case(op.default, rand(5, 3).t(), diagonal)
        case(op.default, ints(0, 9, 2, 4, 3), diagonal)
    for row, col in ((4, 4), (2, 5), (5, 2), (0, 3), (3, 0), (1, 1)):
        case(aten.tril_indices.default, row, col, diagonal)
        case(aten.triu_indices.default, row, col, diagonal)
for dtype in ALL:
    case(aten.tril.default, some(dtype, 3, 3))
    case(aten.triu.default, some(dtype, 3, 3), 1)
    case(aten.triu_.default, some(dtype, 3, 4))
    case(aten.tril_.default, some(dtype, 4, 3).t())
case(aten.tril.default, torch.full((2, 2, 3), float("nan")), -1)
case(aten.tril.default, rand(2, 0, 3))
case(aten.tril.default, rand(1, 4).expand(4, 4))
case(aten.tril.default, ints(0, 2, 130, 140, dtype=torch.bool))
case(aten.tril_indices.default, 3, 3, dtype=torch.int32)

save("create")
