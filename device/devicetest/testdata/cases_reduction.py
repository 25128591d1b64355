"""Reductions, scans, softmax, sorting and distances."""

import torch

from recorder import aten, case, generator, ints, rand, save, special

inf, nan = float("inf"), float("nan")
HALVES = (torch.float16, torch.bfloat16)
FLOATS = (torch.float32, torch.float64) + HALVES
INTS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def distinct(*shape, dtype=torch.float32):
    """Numbers of which no two are equal, in any order."""
    n = 1
    for d in shape:
        n *= d
    return (torch.randperm(n, generator=generator(n)) - n // 2).reshape(shape).to(dtype)


def specials(dtype=torch.float32):
    """Rows with NaN, with infinities, with zeros of both signs, and plain ones."""
    return torch.tensor([[nan, 1, 2, 3], [inf, -inf, 1, 0], [0.0, -0.0, 0.0, -0.0], [1, inf, nan, -inf], [-inf] * 4,
                         [inf] * 4,
                         [1, 2, 2, 1], [nan] * 4], dtype=dtype)


def views():
    """Views of all kinds, three-dimensional."""
    x = short(3, 4, 5)
    return [x, x.transpose(0, 2), short(3, 1, 5).expand(3, 4, 5), short(5, 4, 6)[::2, 1:, 1:5], x.permute(2, 0, 1)]


def short(*shape, dtype=torch.float32):
    """Numbers of eight bits, which take less room here."""
    return rand(*shape, dtype=torch.bfloat16).to(dtype)


def tiled(*shape, dtype=torch.float32):
    """A short pattern over and over, which takes little room here."""
    n = 1
    for d in shape:
        n *= d
    return PATTERN.repeat(n // 61 + 1)[:n].reshape(shape).to(dtype)


PATTERN = rand(61)
VIEWS = views()


# Sums, products, means.
for op in (aten.sum.dim_IntList, aten.mean.dim, aten.amax.default, aten.amin.default):
    for x in VIEWS:
        for dims in ([0], [1], [2], [-1], [0, 2], [1, 2], [2, 0, 1]):
            case(op, x, dims)
    case(op, short(3, 4, 5), [1], True)
    case(op, short(3, 4, 5), [-1, 0], True)
    case(op, short(3, 4, 5), [])
    case(op, rand(3), [0], True)
    case(op, torch.tensor(2.5), [])
    case(op, torch.tensor(2.5), [0])
    case(op, torch.tensor(2.5), [-1], True)
    for dtype in FLOATS:
        case(op, rand(7, 9, dtype=dtype), [1])
        case(op, rand(7, 9, dtype=dtype), [0])
        case(op, specials(dtype), [1])
        case(op, specials(dtype), [0])
    case(op, rand(3, 0, 2), [2])
    case(op, rand(0, 3), [1])
for op in (aten.sum.dim_IntList, aten.mean.dim):
    case(op, rand(3, 0, 2), [1])
    case(op, rand(3, 0, 2), [1], True)
    case(op, rand(4, 5), None)
    case(op, rand(4, 5), None, True)
    case(op, tiled(65, 67, 3), [0])
    case(op, tiled(5, 67, 3), [1])
    case(op, tiled(3, 1100), [1])
    case(op, tiled(300, 67), [0])
    case(op, tiled(300, 9, dtype=torch.bfloat16), [0])
    case(op, rand(2, 6, 7, 7), [2, 3], True)
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        case(op, rand(5, 6), [1], dtype=dtype)
    case(op, rand(5, 6, dtype=torch.bfloat16), [1], dtype=torch.float32)
    case(op, rand(5, 6, dtype=torch.float16), [1], dtype=torch.float64)
    case(op, rand(5, 6, dtype=torch.float64), [1], dtype=torch.float32)
    case(op, ints(-9, 9, 5, 6), [1], dtype=torch.float32)
for op in (aten.sum.default, aten.mean.default, aten.max.default, aten.min.default, aten.prod.default):
    for x in VIEWS:
        case(op, x)
    case(op, special())
    case(op, torch.tensor(1.5))
    case(op, torch.tensor([1.5, -2.5]))
for op in (aten.sum.default, aten.mean.default, aten.prod.default):
    case(op, rand(0))
    case(op, rand(3, 4), dtype=torch.float64)
    case(op, tiled(20, 300) * 0.01 + 1)
case(aten.sum.default, tiled(100, 300), bound=1e-5, note="a large part of the sum cancels")
for dtype in INTS:
    x = ints(0, 100, 4, 5, dtype=dtype)
    case(aten.sum.default, x)
    case(aten.sum.dim_IntList, x.t(), [1])
    case(aten.sum.dim_IntList, x, [1], dtype=torch.int32)
    case(aten.prod.default, x)
    case(aten.prod.dim_int, x, 0)
    case(aten.prod.dim_int, x, 1, True)
    case(aten.amax.default, x, [0])
    case(aten.amin.default, x, [1])
    case(aten.max.default, x)
    case(aten.min.default, x)
    case(aten.max.dim, x, 0)
    case(aten.min.dim, x, 1)
case(aten.sum.dim_IntList, ints(100, 120, 9, 9, dtype=torch.uint8), [0], dtype=torch.uint8)
case(aten.sum.dim_IntList, ints(100, 120, 9, 9, dtype=torch.int8), [0], dtype=torch.int8)
case(aten.sum.default, ints(0, 2, 7, 8, dtype=torch.bool))
case(aten.sum.dim_IntList, ints(0, 2, 7, 8, dtype=torch.bool), [0])
case(aten.prod.default, ints(0, 2, 7, 8, dtype=torch.bool))
case(aten.amax.default, ints(0, 2, 7, 8, dtype=torch.bool), [0])
case(aten.amin.default, ints(0, 2, 7, 8, dtype=torch.bool), [1])
case(aten.prod.default, ints(-9, 9, 4, 5), dtype=torch.float32)
for dtype in FLOATS:
    case(aten.prod.dim_int, rand(4, 5, dtype=dtype), 0)
    case(aten.prod.dim_int, rand(4, 5, dtype=dtype), -1, True)
    case(aten.prod.dim_int, specials(dtype), 1)
case(aten.prod.dim_int, rand(4, 0), 1)
case(aten.prod.dim_int, rand(4, 5), 1, dtype=torch.float64)

for dim in (None, [0], [1], [0, 1]):
    x = specials()
    case(aten.nansum.default, x[:1], dim)
    case(aten.nanmean.default, x[::7], dim)
    case(aten.nansum.default, x[6:7], dim, True)
case(aten.nansum.default, specials(torch.float64)[::3], [1], dtype=torch.float32)
case(aten.nansum.default, ints(0, 9, 3, 4), [1])
case(aten.nanmean.default, specials(torch.float64)[::6], [0], True)

# Extremes and their places.
for op in (aten.max.dim, aten.min.dim, aten.argmax.default, aten.argmin.default):
    for x in VIEWS:
        for dim in (0, 1, -1):
            case(op, x, dim)
    case(op, short(3, 4, 5), 1, True)
    case(op, torch.tensor(3.0), 0)
    case(op, torch.tensor(3.0), -1, True)
    case(op, torch.tensor([[1.0, 3, 3, 1], [0.0, -0.0, 0.0, -0.0]]), 1)
    for dtype in FLOATS:
        case(op, specials(dtype), 1)
        case(op, specials(dtype), 0)
    case(op, ints(-3, 3, 6, 7), 1)
    case(op, ints(0, 3, 6, 7, dtype=torch.uint8), 0)
    case(op, rand(0, 3), 1)
    case(op, tiled(5, 700), 1)
    case(op, tiled(700, 5), 0)
for op in (aten.argmax.default, aten.argmin.default):
    case(op, short(3, 4, 5))
    case(op, short(3, 4, 5).transpose(0, 2))
    case(op, rand(4, 5), None, True)
    case(op, special())
    case(op, torch.tensor(1.0))
for x in (rand(3, 4), rand(4, 3).t(), ints(-5, 5, 3, 4), specials()):
    case(aten.aminmax.default, x)
    case(aten.aminmax.default, x, dim=0)
    case(aten.aminmax.default, x, dim=1, keepdim=True)

# Truth.
for op in (aten.any, aten.all):
    for x in (ints(0, 2, 3, 4, 5, dtype=torch.bool), ints(-1, 1, 3, 4, 5), specials(),
              ints(0, 2, 3, 4, dtype=torch.uint8),
              torch.ones(3, 4), torch.zeros(3, 4), rand(3, 4, dtype=torch.bfloat16)):
        case(op.default, x)
        case(op.dim, x, 0)
        case(op.dim, x.transpose(0, 1), -1, True)
        case(op.dims, x, [0, 1])
        case(op.dims, x, [1], True)
        case(op.dims, x)
    case(op.default, torch.ones(0, 3))
    case(op.dim, torch.ones(0, 3), 0)
    case(op.dim, torch.ones(0, 3), 1)
    case(op.default, torch.tensor(True))
    case(op.dim, torch.tensor(True), 0)
for x in (specials(), ints(0, 2, 3, 8, dtype=torch.bool), ints(-1, 2, 3, 8), rand(0, 3)):
    case(aten.count_nonzero.default, x)
    case(aten.count_nonzero.default, x, 0)
    case(aten.count_nonzero.dim_IntList, x, [0, 1])

# Variance.
for op in (aten.var, aten.std, aten.var_mean, aten.std_mean):
    case(op.default, rand(4, 5))
    case(op.default, rand(4, 5), False)
    case(op.dim, short(3, 4, 5), [1])
    case(op.dim, short(3, 4, 5).transpose(0, 2), [0, 2], False, True)
    case(op.dim, rand(4, 5), None)
    case(op.correction, rand(4, 5))
    for correction in (0, 1, 2, 1.5, 7, None):
        case(op.correction, short(3, 4, 5), [1], correction=correction)
    case(op.correction, short(3, 4, 5), [0, 2], correction=1, keepdim=True)
    case(op.correction, tiled(300, 5) + 1000, [0], bound=1e-5, note="PyTorch's own error for a large mean")
    case(op.correction, rand(5, 1), [1])
    case(op.correction, rand(5, 0), [1])
    case(op.correction, torch.tensor(2.0), correction=0)
    case(op.correction, specials()[6:], [1], correction=0)
    for dtype in FLOATS:
        case(op.correction, tiled(5, 40, dtype=dtype), [1])
        case(op.correction, tiled(40, 5, dtype=dtype), [0])

# Norms.
for p in (2, 1, 0, inf, -inf, 3, 0.5, -1, 2.5, -2):
    x = short(3, 4, 5)
    case(aten.linalg_vector_norm.default, x, p)
    case(aten.linalg_vector_norm.default, x.transpose(0, 1), p, [1])
    case(aten.linalg_vector_norm.default, x, p, [0, 2], True)
    case(aten.linalg_vector_norm.default, specials(), p, [1])
    case(aten.linalg_vector_norm.default, rand(5, 6, dtype=torch.bfloat16), p, [0])
    case(aten.norm.ScalarOpt_dim, x, p, [1])
    case(aten.norm.Scalar, x, p)
for p in (2, 1, 0, 3):
    case(aten.linalg_vector_norm.default, rand(3, 0), p, [1])
for dtype in FLOATS:
    case(aten.linalg_vector_norm.default, rand(5, 6, dtype=dtype), 2, [1])
    case(aten.linalg_vector_norm.default, tiled(500, dtype=dtype), 3)
case(aten.linalg_vector_norm.default, rand(5, 6, dtype=torch.float16), 2, [1], dtype=torch.float32)
case(aten.linalg_vector_norm.default, rand(5, 6), 2, [1], dtype=torch.float64)
case(aten.norm.ScalarOpt_dim, rand(4, 5), None, [0], True)
case(aten.norm.ScalarOpt_dim_dtype, rand(4, 5), 2, [0], True, dtype=torch.float64)
case(aten.norm.ScalarOpt_dtype, rand(4, 5), 1, dtype=torch.float64)
case(aten.frobenius_norm.dim, short(3, 4, 5), [1, 2])
case(aten.frobenius_norm.dim, short(3, 4, 5), [2], True)
for x in (rand(4, 5), rand(3, 4, 5)):
    case(aten.linalg_norm.default, x)
    case(aten.linalg_norm.default, x, 3, [-1])
    case(aten.linalg_norm.default, x, None, [-1], True)
    for ord in (1, -1, inf, -inf):
        case(aten.linalg_norm.default, x, ord, [-2, -1])
        case(aten.linalg_norm.default, x, ord, [-1, -2], True)
        case(aten.linalg_matrix_norm.default, x, ord)
    case(aten.linalg_norm.ord_str, x, "fro", [-2, -1])
    case(aten.linalg_matrix_norm.str_ord, x)
case(aten.linalg_norm.default, rand(4, 5), 1)

for op in (aten.logsumexp.default, aten.special_logsumexp.default):
    for x in VIEWS[:2]:
        case(op, x, [1])
        case(op, x, [0, 2], True)
    case(op, specials(), [1])
    case(op, rand(3, 4, scale=100), [1])
    case(op, rand(3, 0), [1])
    case(op, ints(-3, 3, 3, 4), [0])
    case(op, rand(3, 4, dtype=torch.bfloat16), [0])
    case(op, rand(3, 4, dtype=torch.float64), [0])

# Scans.
for op in (aten.cumsum.default, aten.cumprod.default, aten.logcumsumexp.default, aten.cummax.default,
           aten.cummin.default):
    for x in VIEWS:
        for dim in (0, 1, -1):
            case(op, x, dim)
    case(op, torch.tensor(2.0), 0)
    case(op, rand(0, 3), 0)
    case(op, rand(3, 0), 0)
    for dtype in FLOATS:
        case(op, rand(4, 33, dtype=dtype), 1)
        case(op, specials(dtype), 1)
        case(op, specials(dtype), 0)
    case(op, tiled(1, 600) * 0.1, 1)
for op in (aten.cumsum.default, aten.cumprod.default, aten.cumsum_.default, aten.cumprod_.default):
    case(op, ints(-5, 5, 4, 6), 1)
    case(op, rand(4, 6).t(), 0)
for op in (aten.cumsum.default, aten.cumprod.default):
    case(op, ints(-5, 5, 4, 6, dtype=torch.int32), 1)
    case(op, ints(0, 2, 4, 6, dtype=torch.bool), 1)
    case(op, ints(-5, 5, 4, 6), 1, dtype=torch.float32)
    case(op, ints(-5, 5, 4, 6), 0, dtype=torch.int32)
    case(op, rand(4, 6), 0, dtype=torch.float64)
for op in (aten.cummax.default, aten.cummin.default):
    case(op, torch.tensor([[1.0, 3, 3, 1, 3], [2, 2, 1, 1, 2]]), 1)
    case(op, ints(-3, 3, 6, 7), 1)
    case(op, ints(0, 2, 6, 7, dtype=torch.bool), 1)

# Softmax.
for op in (aten._safe_softmax.default, aten.special_softmax.default, aten.special_log_softmax.default):
    case(op, specials(), 1)
    case(op, VIEWS[1], 1, dtype=torch.float64)
    case(op, specials(torch.bfloat16).t(), 0)
for op in (aten.softmax.int, aten.log_softmax.int):
    for x in VIEWS:
        for dim in (0, 1, -1):
            case(op, x, dim)
    case(op, rand(3, 5, scale=50), 1)
    case(op, tiled(33, 65), 1)
    case(op, tiled(1, 600), 1)
    case(op, tiled(300, 2), 0)
    case(op, specials(), 1)
    case(op, specials(), 0)
    case(op, torch.tensor(1.0), 0)
    case(op, rand(3, 0), 1)
    case(op, rand(0, 3), 1)
    case(op, torch.tensor([[0.0, -1e30, -87.0, -88.0, -100.0, -104.0], [3e38, 3e38, -3e38, 0, 1, 2]]), 1)
    for dtype in (torch.float64,) + HALVES:
        case(op, rand(5, 7, dtype=dtype), 1)
        case(op, rand(5, 7, dtype=dtype), 0)
        case(op, specials(dtype), 1)
        case(op, rand(5, 7, dtype=dtype), 1, dtype=torch.float32)
    case(op, ints(-3, 3, 4, 5), 1, dtype=torch.float32)
for op in (aten._softmax.default, aten._log_softmax.default):
    for x in VIEWS[:3]:
        for dim in (0, -1):
            case(op, x, dim, False)
    for dtype in HALVES:
        case(op, rand(5, 7, dtype=dtype), 1, False)

for op in [aten.diff.default]:
    x = rand(4, 5)
    case(op, x)
    case(op, x.t(), 2, 0)
    case(op, x, 9, 1)
    case(op, x, 0)
    case(op, x, 1, 1, rand(4, 1))
    case(op, x, 1, 0, rand(1, 5), rand(2, 5))
    case(op, ints(0, 2, 4, 5, dtype=torch.bool))
    case(op, ints(0, 9, 4, 5))
    case(op, ints(0, 9, 6), 1, -1, torch.tensor([3]))
case(aten.trace.default, rand(4, 6))
case(aten.trace.default, rand(6, 4).t())
case(aten.trace.default, ints(0, 9, 4, 3, dtype=torch.int32))
case(aten.histc.default, rand(200), 10)
case(aten.histc.default, rand(20, 10).t(), 7, -1, 1)
case(aten.histc.default, torch.tensor([0.0, 0.5, 1.0, 1.0, 2.0, -1.0, nan]), 4, 0, 1)
case(aten.histc.default, torch.ones(5), 3)
case(aten.histc.default, rand(50, dtype=torch.float64), 5, -2, 2.5)
case(aten.histc.default, ints(0, 8, 100).float(), 8, 0, 7)
case(aten.histc.default, ints(0, 5, 50).float(), 4, 0, 4)

# Sorting.
for op in (aten.sort.default, aten.argsort.default):
    for descending in (False, True):
        for x in (distinct(3, 4, 5), distinct(3, 4, 5).transpose(0, 2), distinct(8, 10)[::2, 1::3]):
            for dim in (0, -1):
                case(op, x, dim, descending)
        case(op, torch.tensor(1.0), 0, descending)
        case(op, rand(0, 3), 1, descending)
        case(op, rand(3, 0), 1, descending)
        case(op, distinct(1, 300), 1, descending)
        case(op, torch.tensor([nan, inf, 1, -inf, -3, 2.5]), 0, descending)
        for dtype in FLOATS + INTS + (torch.int8,):
            case(op, distinct(3, 9, dtype=dtype), 1, descending)
for descending in (False, True):
    for x in (specials(), ints(-2, 3, 4, 9), ints(0, 2, 4, 9, dtype=torch.bool), ints(-3, 3, 5, 7).t(),
              torch.tensor([2**63 - 1, -2**63, 0, -1, 2**63 - 1])):
        case(aten.sort.stable, x, stable=True, dim=-1, descending=descending)
        case(aten.sort.stable, x, stable=True, dim=0, descending=descending)
        case(aten.argsort.stable, x, stable=True, dim=-1, descending=descending)
    case(aten.sort.stable, rand(3, 4), stable=None, dim=0, descending=descending)
case(aten.msort.default, distinct(5, 4))
for largest in (True, False):
    for x in (distinct(2, 3, 9), distinct(9, 3, 2).transpose(0, 2), distinct(2, 2, 18)[:, :, ::2]):
        case(aten.topk.default, x, 3, -1, largest)
        case(aten.topk.default, x, 2, 0, largest)
        case(aten.topk.default, x, 9, 2, largest)
    case(aten.topk.default, distinct(1, 300), 7, 1, largest)
    case(aten.topk.default, distinct(1, 300), 0, 1, largest)
    case(aten.topk.default, torch.tensor([1.0, nan, 3, inf, -inf]), 3, 0, largest)
    case(aten.topk.default, torch.tensor(4.0), 1, 0, largest)
    for dtype in FLOATS + INTS:
        case(aten.topk.default, distinct(3, 9, dtype=dtype), 4, 1, largest)
case(aten.topk.default, distinct(3, 9), 4)
for x in (distinct(3, 4, 5), distinct(3, 4, 5).transpose(0, 2), distinct(3, 7, dtype=torch.int32),
          distinct(3, 8, dtype=torch.float16)):
    case(aten.kthvalue.default, x, 1)
    case(aten.kthvalue.default, x, 3, 0)
    case(aten.kthvalue.default, x, 2, 1, True)
    for op in (aten.median, aten.nanmedian):
        case(op.default, x)
        case(op.dim, x, 0)
        case(op.dim, x, -1, True)
for op in (aten.median, aten.nanmedian):
    case(op.dim, torch.tensor([[1.0, nan, 3, 2], [5, 4, 3, 2]]), 1)
    case(op.default, torch.tensor([1.0, nan, 3, 2]))
    case(op.default, torch.tensor([nan, nan]))
    case(op.default, torch.tensor(7.0))
    case(op.dim, torch.tensor(7.0), 0)
for x in (ints(0, 3, 5, 9), ints(0, 3, 5, 9).t(), ints(0, 3, 5, 9).float(), ints(0, 3, 5, 8, dtype=torch.bool)):
    case(aten.mode.default, x)
    case(aten.mode.default, x, 0, True)

# Distances.
for p in (2.0, 1.0, 0.0, inf, 3.0, 0.5):
    case(aten.cdist.default, rand(3, 4), rand(5, 4), p)
    case(aten._cdist_forward.default, rand(2, 1, 3, 4), rand(3, 5, 4), p, None)
    case(aten.cdist.default, rand(4, 3).t(), rand(5, 8)[:, ::2], p)
    case(aten.pairwise_distance.default, rand(3, 4), rand(3, 4), p)
    case(aten.dist.default, rand(3, 4), rand(4), p)
    case(aten.pdist.default, rand(5, 3), p)
    case(aten._pdist_forward.default, rand(4, 3), p)
case(aten.cdist.default, tiled(30, 30), short(26, 30), 2.0)
case(aten.cdist.default, tiled(30, 30), short(26, 30), 2.0, 1)
case(aten.cdist.default, rand(3, 4), rand(0, 4))
case(aten.cdist.default, rand(3, 0), rand(2, 0))
case(aten.cdist.default, rand(3, 4, dtype=torch.float64), rand(5, 4, dtype=torch.float64))
case(aten._euclidean_dist.default, rand(3, 4), rand(5, 4))
case(aten.pdist.default, rand(1, 3))
case(aten.pairwise_distance.default, rand(3, 4), rand(4), 2.0, 1e-3, True)
case(aten.cosine_similarity.default, rand(3, 4), rand(3, 4))
case(aten.cosine_similarity.default, rand(3, 4, 5), rand(4, 1), -1)
case(aten.cosine_similarity.default, torch.zeros(3, 4), rand(3, 4), 1)
case(aten.cosine_similarity.default, rand(3, 4, dtype=torch.bfloat16), rand(3, 4, dtype=torch.bfloat16), 0)

# Made of sorting and searching.
for how in ("linear", "lower", "higher", "nearest", "midpoint"):
    for q in (0.0, 0.25, 0.3, 0.5, 0.77, 1.0):
        case(aten.quantile.scalar, short(4, 6), q, 1, interpolation=how)
    case(aten.quantile.scalar, short(4, 5).t(), 0.4, None, True, interpolation=how)
    case(aten.quantile.scalar, short(4, 5, dtype=torch.float64), 0.6, 0, True, interpolation=how)
case(aten.quantile.scalar, torch.tensor([[1.0, nan, 2], [3, 1, 2]]), 0.5, 1)
case(aten.quantile.scalar, torch.tensor(2.0), 0.3)
for invert in (False, True):
    case(aten.isin.Tensor_Tensor, ints(0, 9, 3, 4), ints(0, 9, 2, 2), invert=invert)
    case(aten.isin.Tensor_Tensor, torch.tensor([nan, 1.0, -0.0, inf]), torch.tensor([nan, 0.0, inf]), invert=invert)
    case(aten.isin.Tensor_Tensor, ints(0, 9, 3), torch.tensor([2.0, 3.0]), invert=invert)
    case(aten.isin.Tensor_Tensor, ints(0, 9, 3), ints(0, 9, 0), invert=invert)
    case(aten.isin.Tensor_Scalar, ints(0, 4, 3, 4).t(), 2, invert=invert)
    case(aten.isin.Scalar_Tensor, 2, ints(0, 4, 3, 4), invert=invert)
for p in (1, 2, 3):
    case(aten.renorm.default, short(4, 5), p, 0, 2.0)
    case(aten.renorm.default, short(4, 5, 3).transpose(0, 1), p, -1, 3.0)
for d in (0, 1):
    case(aten.trapezoid.dx, short(4, 5), dim=d)
    case(aten.trapezoid.dx, short(4, 5), dx=0.5, dim=d)
    case(aten.trapezoid.x, short(4, 4), short(4), dim=d)
    case(aten.trapz.x, short(4, 5), short(4, 5), dim=d)
    case(aten.trapz.dx, short(4, 5).t(), dx=2.0, dim=d)

for reduction in range(3):
    for op in (aten.mse_loss, aten.l1_loss):
        case(op.default, rand(2, 3), rand(2, 3), reduction)
        case(op.default, rand(4, 3).t(), rand(3, 4, dtype=torch.bfloat16), reduction)
for v in (torch.tensor([True, True]), torch.tensor([[True], [False]]), torch.zeros(2, dtype=torch.bool)):
    case(aten._is_all_true.default, v)
    case(aten._is_any_true.default, v)
save("reduction")
