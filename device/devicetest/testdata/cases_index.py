"""Ops that choose, write, join and reorder elements by index."""

import torch

from recorder import CASES, aten, case, ints, rand, save

HALVES = (torch.float16, torch.bfloat16)
FLOATS = (torch.float32, torch.float64) + HALVES
INTS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
MOVED = (torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64, torch.complex128)
nan, inf = float("nan"), float("inf")


def short(*shape, dtype=torch.float32):
    """Numbers of eight bits, which take less room here."""
    return rand(*shape, dtype=torch.bfloat16).to(dtype)


def some(*shape, dtype):
    """Elements of any dtype."""
    return ints(0, 50, *shape).to(dtype) if dtype != torch.bool else ints(0, 2, *shape, dtype=dtype)


def first(op, *args, **kwargs):
    """Records the first result alone: the others are for training."""
    case(op, *args, **kwargs)
    CASES[-1]["outputs"] = CASES[-1]["outputs"][:1]


# Rows.
for w in (short(10, 4), short(4, 10).t(), short(20, 8)[::2, 1::2], short(10, 3, 2), short(10)):
    for i in (ints(0, 10, 5), ints(0, 10, 3, 4), ints(0, 10, 4, 3).t(), ints(0, 10, 3, dtype=torch.int32),
              ints(0, 10, 0),
              torch.tensor(7), ints(0, 10, 1).expand(4)):
        if w.dim() == 2:
            case(aten.embedding.default, w, i)
        if i.dim() <= 1:
            case(aten.index_select.default, w, 0, i)
for dtype in MOVED:
    case(aten.embedding.default, some(6, 3, dtype=dtype), ints(0, 6, 4))
    case(aten.index_select.default, some(3, 6, dtype=dtype), 1, ints(0, 6, 4))
x = short(3, 4, 5)
for d in (0, 1, 2, -1):
    case(aten.index_select.default, x, d, torch.tensor([2, 0, 2]))
    case(aten.index_select.default, x.transpose(0, 2), d, torch.tensor([1, 2], dtype=torch.int32))
case(aten.index_select.default, torch.tensor(2.0), 0, torch.tensor([0]))
case(aten.index_select.default, rand(3, 0), 0, torch.tensor([2, 1]))

# Bags.
W = short(10, 5)
I, O = torch.tensor([1, 2, 4, 5, 4, 3, 2, 9]), torch.tensor([0, 3, 3, 6])
for op in (aten.embedding_bag.default, aten._embedding_bag.default, aten._embedding_bag_forward_only.default):
    for mode in (0, 1, 2):
        for last in (False, True):
            first(op, W, I, torch.tensor([0, 3, 3, 8]) if last else O, False, mode, False, None, last)
    first(op, W, I, O, False, 0, False, short(8))
    first(op, short(5, 10).t(), I.int(), O.int())
    first(op, W.to(torch.float64), I, O)
    first(op, W, torch.empty(0, dtype=torch.int64), torch.tensor([0, 0]))
for mode in (0, 1, 2):
    first(aten.embedding_bag.padding_idx, W, I, O, False, mode, False, None, False, 4)
    first(aten.embedding_bag.padding_idx, W, I, O, False, mode, False, None, False, -6)
    first(aten.embedding_bag.padding_idx, W, I, torch.tensor([0, 8]), False, mode, False, None, True, None)
    first(aten._embedding_bag.default, W, I, O, False, mode, False, None, False, 2)
for dtype in HALVES:
    first(aten.embedding_bag.default, W.to(dtype), I, O)
first(aten.embedding_bag.default, short(6, 300), torch.tensor([5, 0, 1]), torch.tensor([0, 1]), False, 1)

# Gather and scatter.
x = short(3, 4, 5)
for d, shape in ((0, (2, 4, 5)), (0, (6, 3, 2)), (1, (3, 7, 5)), (2, (1, 2, 9)), (-1, (3, 4, 1))):
    i = ints(0, x.shape[d], *shape)
    case(aten.gather.default, x, d, i)
    case(aten.gather.default, x.contiguous().transpose(1, 2).contiguous().transpose(1, 2), d,
         i.transpose(0, 1).contiguous().transpose(0, 1))
    if all(n <= m for n, m, k in zip(shape, x.shape, range(3)) if k != d % 3):
        src = short(*shape)
        case(aten.scatter_add.default, x, d, i, src)
        case(aten.scatter_add.default, x, d, i[:1], src)
        case(aten.scatter.value, x, d, i, 2.5)
        for reduce in ("sum", "prod", "mean", "amax", "amin"):
            for include in (True, False):
                case(aten.scatter_reduce.two, x, d, i, src, reduce, include_self=include)
for dtype in MOVED:
    case(aten.gather.default, some(3, 6, dtype=dtype), 1, ints(0, 6, 3, 4))
    case(aten.scatter.src, some(3, 4, dtype=dtype), 1, torch.tensor([[0, 2], [3, 1], [1, 0]]), some(3, 2, dtype=dtype))
    case(aten.scatter.value, some(3, 4, dtype=dtype), 0, torch.tensor([[0, 2], [2, 1]]), 1)
case(aten.gather.default, torch.tensor(3.0), 0, torch.tensor([0, 0]))
case(aten.gather.default, torch.tensor(3.0), 0, torch.tensor(0))
case(aten.gather.default, rand(3, 4), 1, ints(0, 1, 3, 0))
case(aten.gather.default, rand(3, 4), 1, ints(0, 4, 3, 2, dtype=torch.int32))
case(aten.gather.default, short(3, 1, 4).expand(3, 4, 4), 1, ints(0, 4, 3, 2, 4))
i = torch.tensor([[0, 2, 1], [3, 1, 2]])
s = short(2, 3)
for op, inplace in [(aten.scatter, aten.scatter_)]:
    case(op.src, short(2, 4), 1, i, s)
    case(op.src, short(4, 2).t(), 1, i, s)
    case(op.src, short(2, 4), 1, i, short(3, 5))
    case(inplace.src, short(2, 4), 1, i, s)
    case(inplace.value, short(4, 2).t(), 1, i, -1.0)
    for how in ("add", "multiply"):
        case(op.reduce, short(2, 4), 1, i, s, reduce=how)
        case(op.value_reduce, short(2, 4), 1, i, 3.0, reduce=how)
        case(inplace.reduce, short(2, 4), 1, i, s, reduce=how)
        case(inplace.value_reduce, short(2, 4), 1, i, 3.0, reduce=how)
case(aten.scatter.src, rand(3, 4), 1, ints(0, 1, 3, 0), rand(3, 4))
case(aten.scatter.src, torch.tensor(1.0), 0, torch.tensor(0), torch.tensor(5.0))
case(aten.scatter_add_.default, short(2, 4), 1, i, s)
case(aten.scatter_add_.default, short(2, 8)[:, ::2], 1, i, s)
case(aten.scatter_reduce_.two, short(2, 4), 1, i, s, "amax")
D = torch.tensor([[0, 2, 2, 0], [1, 1, 1, 3]])
for reduce in ("sum", "prod", "mean", "amax", "amin"):
    for dtype in FLOATS + INTS:
        for include in (True, False):
            case(aten.scatter_reduce.two, ints(-9 if dtype != torch.uint8 else 0, 9, 2, 4).to(dtype), 1, D,
                 ints(-9 if dtype != torch.uint8 else 0, 9, 2, 4).to(dtype), reduce, include_self=include)
    x = torch.tensor([1.0, nan, 2, -inf])
    case(aten.scatter_reduce.two, x, 0, torch.tensor([0, 0, 2, 3]), torch.tensor([nan, 1, inf, 3]), reduce)
    for include in (True, False):
        case(aten.index_reduce.default, short(3, 4), 1, torch.tensor([1, 1, 3]), short(3, 3),
             reduce if reduce != "sum" else "prod", include_self=include)
case(aten.scatter_add.default, ints(0, 2, 2, 4, dtype=torch.bool), 1, D, ints(0, 2, 2, 4, dtype=torch.bool))
case(aten.index_reduce_.default, short(3, 4), 0, torch.tensor([1, 1, 2]), short(3, 4), "mean")
for args in ((short(3, 4), ints(0, 3, 2, 4), 0), (short(3, 4), ints(0, 4, 1, 2), 1),
             (short(1, 4), ints(0, 4, 3, 2), -1),
             (short(3, 4), ints(0, 12, 5)), (short(3, 4), ints(0, 12, 2, 2))):
    case(aten.take_along_dim.default, *args)

# x[…].
x = short(3, 4, 5, 6)
a, b, c, d = torch.tensor([2, 0, -1]), torch.tensor([1, -3, 3]), torch.tensor([0, 4, 2]), torch.tensor([5, -6, 1])
for x in (x, short(6, 5, 4, 3).permute(3, 2, 1, 0)):
    for index in ([a], [None, b], [None, None, None, d], [a, b], [None, b, c], [a, None, c], [a, None, None, d],
                  [None, b, None, d],
                  [a, b, c, d], [a[:, None], b], [a[:, None], None, c], [a[:1], b], [None, b[:, None],
                                                                                     c[None]], [a.reshape(3, 1, 1), None, c]):
        case(aten.index.Tensor, x, index)
for i in (torch.tensor(1), torch.tensor([[0, 1], [2, 0]]), ints(0, 3, 0), torch.tensor([2, 1], dtype=torch.int32)):
    case(aten.index.Tensor, short(3, 4), [i])
    case(aten.index.Tensor, short(4, 3), [None, i])
    case(aten._unsafe_index.Tensor, short(4, 3).t(), [i])
for dtype in MOVED:
    case(aten.index.Tensor, some(3, 4, dtype=dtype), [a, b])
    case(aten.index_put.default, some(3, 4, dtype=dtype), [a, b], some(3, dtype=dtype))
case(aten.index.Tensor, rand(3, 0), [a])
x = short(3, 4, 5)
for v in (short(3, 4, 5), torch.tensor(1.5), short(5), short(4, 1)):
    case(aten.index_put.default, x, [a], v)
    case(aten.index_put_.default, x.clone().transpose(0, 1).contiguous().transpose(0, 1), [a], v)
for accumulate in (False, True):
    case(aten.index_put.default, x, [None, b], short(3, 3, 5), accumulate)
    case(aten.index_put.default, x, [None, b, c], short(3, 3), accumulate)
    case(aten.index_put.default, x, [a, None, c], short(3, 4), accumulate)
    case(aten.index_put.default, x, [a[:, None], None, c], short(3, 3, 4), accumulate)
    case(aten.index_put.default, x.transpose(0, 2), [None, b], short(5, 3, 3), accumulate)
    case(aten.index_put.default, x, [a, b, c], short(1), accumulate)
    case(aten._unsafe_index_put.default, x, [a], short(3, 4, 5), accumulate)
    case(aten._index_put_impl_.default, x.clone(), [a], short(3, 4, 5), accumulate)
    case(aten.index_put.default, x, [ints(0, 3, 0)], rand(0, 4, 5), accumulate)
same = torch.tensor([1, 1, -2, 0])
for dtype in FLOATS + INTS:
    case(aten.index_put.default, some(3, 4, dtype=dtype), [same], some(4, 4, dtype=dtype), True)
case(aten.index_put.default, some(3, 4, dtype=torch.bool), [same], some(4, 4, dtype=torch.bool), True)
mask = torch.tensor([[True, False, True, False], [False, False, True, True], [True, True, False, False]])
case(aten.index_put.default, short(3, 4), [mask], torch.tensor(7.0))
case(aten.index_put_.default, short(3, 4, 2), [mask], torch.tensor([7.0]))
case(aten.index_put.default, short(3, 4), [mask[:, 0]], torch.tensor(-1.0))

for d in (0, 1, -1):
    for i in (torch.tensor([1, 0, 1]), torch.tensor([2, 1, 0], dtype=torch.int32)):
        shape = [4, 4, 4]
        shape[d] = 3
        case(aten.index_add.default, short(4, 4, 4), d, i, short(*shape))
        case(aten.index_add.default, short(4, 4, 4).transpose(0, 2), d, i, short(*shape), alpha=-2)
        case(aten.index_add_.default, short(4, 4, 4), d, i, short(*shape))
        if i[0] == 2:
            case(aten.index_copy.default, short(4, 4, 4), d, i.long(), short(*shape))
            case(aten.index_copy_.default, short(4, 4, 4).transpose(0, 2), d, i.long(), short(*shape))
            case(aten.index_fill.int_Scalar, short(4, 4, 4), d, i.long(), 3.5)
            case(aten.index_fill.int_Tensor, short(4, 4, 4), d, i.long(), torch.tensor(-1.0))
            case(aten.index_fill_.int_Scalar, short(4, 4, 4), d, i.long(), 0)
for dtype in FLOATS + INTS:
    case(aten.index_add.default, some(4, 2, dtype=dtype), 0, torch.tensor([1, 1, 3]), some(3, 2, dtype=dtype), alpha=2)
case(aten.index_fill.int_Scalar, ints(0, 9, 3, 4), 1, torch.tensor([-1, 0]), 7)
case(aten.index_fill.int_Scalar, torch.tensor(1.0), 0, torch.tensor([0]), 7)
case(aten.index_add.default, torch.tensor(1.0), 0, torch.tensor([0]), torch.tensor(2.0))
case(aten.index_copy.default, short(4), 0, torch.tensor(2), torch.tensor(5.0))
case(aten.take.default, short(3, 4), torch.tensor([[0, 11], [-1, 5]]))
case(aten.take.default, short(4, 3).t(), torch.tensor([1, 2, 3]))
for accumulate in (False, True):
    case(aten.put.default, short(3, 4), torch.tensor([[0, 11], [-2, 5]]), short(2, 2), accumulate)
    case(aten.put_.default, short(4, 3).t(), torch.tensor([1, 2, 1 if accumulate else 3]), short(3), accumulate)
m = ints(0, 2, 3, 4, dtype=torch.bool)
case(aten.masked_scatter.default, short(3, 4), m, short(12))
case(aten.masked_scatter.default, short(3, 4), m[:1], short(5, 4).t())
case(aten.masked_scatter_.default, short(4, 3).t(), m, short(3, 4))
case(aten.masked_scatter.default, ints(0, 9, 4), m, ints(10, 99, 12))

# Writing to views of a copy.
x = short(4, 5, 6)
case(aten.select_scatter.default, x, short(4, 6), 1, 2)
case(aten.select_scatter.default, x, short(4, 5), -1, -1)
case(aten.select_scatter.default, x.transpose(0, 1), short(4, 6), 0, 3)
case(aten.slice_scatter.default, x, short(2, 5, 6), 0, 1, 3)
case(aten.slice_scatter.default, x, short(4, 3, 6), 1, 0, 9223372036854775807, 2)
case(aten.slice_scatter.default, x, short(4, 5, 2), -1, -2)
case(aten.slice_scatter.default, x, x * 2)
case(aten.slice_scatter.default, x.permute(2, 1, 0), short(6, 5, 2), 2, 1, 3)
case(aten.diagonal_scatter.default, short(4, 5), short(4))
case(aten.diagonal_scatter.default, short(4, 5, 3), short(5, 3), -1, 0, 2)
case(aten.diagonal_scatter.default, short(4, 5), short(3), -1)
case(aten.diagonal_scatter.default, short(4, 5), short(3), 2)
case(aten.as_strided_scatter.default, short(4, 5), short(2, 3), [2, 3], [5, 2], 1)

# Order.
for x in (short(3, 4, 5), short(5, 4, 3).transpose(0, 2), short(3, 1, 5).expand(3, 4, 5)):
    for dims in ([0], [1], [2], [0, 2], [-1, -2], [0, 1, 2], []):
        case(aten.flip.default, x, dims)
    for shifts, dims in (([1], [0]), ([-1], [1]), ([7], [2]), ([1, 2], [0, 2]), ([1, -2, 3], [2, 1, 0]), ([3], []),
                         ([-61], []), ([0], [0])):
        case(aten.roll.default, x, shifts, dims)
    for k in (-1, 0, 1, 2, 3):
        case(aten.rot90.default, x, k)
        case(aten.rot90.default, x, k, [2, 1])
    case(aten.fliplr.default, x)
    case(aten.flipud.default, x)
for dtype in MOVED:
    case(aten.flip.default, some(3, 4, dtype=dtype), [0, 1])
    case(aten.roll.default, some(3, 4, dtype=dtype), [1, 1], [0, 1])
    case(aten.cat.default, [some(3, 4, dtype=dtype), some(2, 4, dtype=dtype)])
case(aten.flip.default, torch.tensor(1.0), [0])
case(aten.flip.default, rand(3, 0), [0])
case(aten.roll.default, rand(3, 0), [1], [1])
case(aten.roll.default, torch.tensor(2.0), [1])
case(aten.roll.default, short(2, 3), [1, 1], [0, 0])
for x in (short(3, 4), short(4, 3).t(), short(1, 4).expand(3, 4), torch.tensor(5.0), rand(0, 3)):
    case(aten.repeat_interleave.self_int, x, 2)
    if x.dim():
        case(aten.repeat_interleave.self_int, x, 3, 0)
    case(aten.repeat_interleave.self_int, x, 0)
case(aten.repeat_interleave.self_int, short(3, 4), 2, -1)
r = torch.tensor([2, 0, 3])
case(aten.repeat_interleave.self_Tensor, short(3, 4), r, 0, output_size=5)
case(aten.repeat_interleave.self_Tensor, short(4, 3), r.int(), -1, output_size=5)
case(aten.repeat_interleave.self_Tensor, short(3), r, output_size=5)
case(aten.repeat_interleave.self_Tensor, short(3, 2), torch.tensor([2]), 0, output_size=6)
case(aten.repeat_interleave.Tensor, r, output_size=5)
case(aten.one_hot.default, ints(0, 4, 3, 2), 4)
case(aten.one_hot.default, torch.tensor(2), 5)
case(aten.one_hot.default, ints(0, 4, 2, 3).t(), 6)
case(aten.nonzero_static.default, torch.tensor([[1.0, 0, nan], [0, -0.0, 2]]), size=5)
case(aten.nonzero_static.default, torch.tensor([[True, False], [False, True]]).t(), size=1, fill_value=9)
case(aten.nonzero_static.default, torch.tensor([0, 3, 4]), size=4, fill_value=-7)

# Places in sorted lists.
s = torch.tensor([-2.0, -1, 0, 0, 1, 1, 1, 5, inf])
v = torch.tensor([[-3.0, -2, -0.0, 0.5], [1, 7, inf, nan]])
for right in (False, True):
    for int32 in (False, True):
        case(aten.searchsorted.Tensor, s, v, out_int32=int32, right=right)
        case(aten.bucketize.Tensor, v, s, out_int32=int32, right=right)
    case(aten.searchsorted.Tensor, s, v.t(), right=right)
    case(aten.searchsorted.Scalar, s, 1.0, right=right)
    case(aten.searchsorted.Scalar, torch.tensor([1, 3, 5]), 3, right=right)
    case(aten.bucketize.Scalar, 1, s, right=right)
    case(aten.bucketize.Tensor, ints(0, 9, 3, 3), torch.tensor([2, 4, 4, 7]), right=right)
    case(aten.searchsorted.Tensor, short(3, 9).sort()[0], short(3, 4), right=right)
    case(aten.searchsorted.Tensor, short(2, 3, 9).sort()[0], short(2, 3, 1), right=right)
case(aten.searchsorted.Tensor, s, v, side="right")
case(aten.searchsorted.Tensor, s, v, side="left")
u = short(3, 9)
case(aten.searchsorted.Tensor, u, short(3, 4), sorter=u.argsort())
case(aten.searchsorted.Tensor, s, torch.tensor(1.0))
case(aten.searchsorted.Tensor, s.double(), v.double())
case(aten.searchsorted.Tensor, rand(0), v)
case(aten.bucketize.Tensor, v.bfloat16(), s.bfloat16())

# Joining.
for parts, d in (([short(3, 4), short(2, 4)], 0), ([short(3, 4), short(3, 1), short(3, 2)], 1),
                 ([short(3, 4), short(2, 3).t()], -1),
                 ([short(2, 3, 4), short(2, 5, 4)], 1), ([short(4, 3, 2).permute(2, 1, 0), short(2, 3, 8)[:, :, ::2]],
                                                         0),
                 ([short(3, 1, 2).expand(3, 4, 2), short(3, 4, 2)], 2), ([rand(0), short(2, 3)],
                                                                         0), ([rand(0), short(2, 3)], 1),
                 ([short(2, 3), rand(0, 3)], 0), ([short(3)], 0), ([rand(0), rand(0)],
                                                                   0), ([short(3, 4), ints(0, 9, 3, 4)], 0),
                 ([ints(0, 9, 3), ints(0, 9, 3, dtype=torch.uint8)],
                  0), ([ints(0, 2, 3, dtype=torch.bool), short(3, dtype=torch.float16)], 0),
                 ([short(2, dtype=torch.bfloat16), short(2, dtype=torch.float16)],
                  0), ([short(2), short(2, dtype=torch.float64)], 0),
                 ([short(1, 33, 17), short(1, 30, 17)], 1)):
    case(aten.cat.default, parts, d)
    case(aten.concat.default, parts, d)
case(aten.concatenate.default, [short(2), short(3)])
for parts in ([short(2, 3), short(2, 3)], [short(3, 2).t(), short(2, 3)], [torch.tensor(1.0), torch.tensor(2.0)],
              [short(2, 3), ints(0, 9, 2, 3)]):
    for d in range(-1, parts[0].dim() + 1):
        case(aten.stack.default, parts, d)
    case(aten.hstack.default, parts)
    case(aten.vstack.default, parts)
    case(aten.dstack.default, parts)
    case(aten.column_stack.default, parts)
case(aten.hstack.default, [short(3), short(2)])
case(aten.vstack.default, [short(3), short(2, 3)])
case(aten.dstack.default, [short(3), short(3)])
case(aten.column_stack.default, [short(3), short(3, 2)])

case(aten.block_diag.default, [short(2, 3), short(2), torch.tensor(7.0), short(3, 2).t()])
case(aten.block_diag.default, [ints(0, 9, 2, 1), short(1, 2)])
case(aten.cartesian_prod.default, [short(2), short(3), short(2)])
case(aten.cartesian_prod.default, [ints(0, 9, 3)])
for n in (0, 2, 3, 5):
    for again in (False, True):
        case(aten.combinations.default, short(n), 2, again)
        case(aten.combinations.default, short(n), 3, again)
for wrap in (False, True):
    case(aten.fill_diagonal_.default, short(7, 3), 9, wrap)
    case(aten.fill_diagonal_.default, short(3, 7).t(), 9, wrap)
    case(aten.fill_diagonal_.default, short(3, 5), -1.5, wrap)
    case(aten.fill_diagonal_.default, short(3, 3, 3), 2, wrap)
    case(aten.fill_diagonal_.default, short(4, 3), 2, wrap)
    case(aten.fill_diagonal_.default, short(5, 3), 2, wrap)
g = torch.tensor([[-1, 0, 2], [3, 1, 9]])
case(aten._unsafe_masked_index.default, short(4, 3), ((g >= 0) & (g < 4))[..., None], [g], 0.5)
case(aten._unsafe_masked_index.default, ints(0, 9, 4, 4), (g >= 0) & (g < 4), [g, g.flip(0).clamp(0, 3)], -1)

# One value, or one line, wherever a mask is true.
for mask, shape in ((torch.tensor([[True, False, True], [False, False, True]]), (2, 3, 4)),
                    (torch.tensor([True, False]), (2, 3, 4)), (torch.tensor([[True, False, True]]), (1, 3))):
    rest = shape[mask.dim():]
    for values in (rand(1)[0], rand(1)) + ((rand(*rest), rand(1, *rest), rand(*rest[-1:])) if rest else ()):
        case(aten.index_put.default, rand(*shape), [mask], values)
    case(aten.index_put_.default, rand(*shape).transpose(0, 1), [mask.t()] if mask.dim() > 1 else [mask[[0, 1, 1]]],
         rand(1))
save("index")
