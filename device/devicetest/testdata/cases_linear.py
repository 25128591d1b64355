"""Cases of products of matrices."""

import torch
import transformers.integrations.moe  # noqa: F401  defines transformers::grouped_mm_fallback

from recorder import aten, case, ints, rand, save, special

F32, F64, F16, BF16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
FLOATS = (F32, F64, F16, BF16)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)


def integers(*shape, dtype=torch.int64):
    return ints(0 if dtype == torch.uint8 else -9, 9, *shape, dtype=dtype)


def coarse(*shape, dtype=F32):
    """Few different numbers, which are stored in little space."""
    return (ints(-4, 5, *shape) / 10).to(dtype)


# linear
for d in FLOATS:
    case(aten.linear.default, rand(2, 3, 5, dtype=d), rand(4, 5, dtype=d), rand(4, dtype=d))
    case(aten.linear.default, rand(3, 37, dtype=d), rand(18, 37, dtype=d))
    case(aten.linear.default, rand(9, 37, dtype=d), rand(18, 37, dtype=d), rand(18, dtype=d))
for d in INTEGERS:
    case(aten.linear.default, integers(3, 5, dtype=d), integers(4, 5, dtype=d), integers(4, dtype=d))
case(aten.linear.default, rand(5), rand(4, 5), rand(4))
case(aten.linear.default, rand(3, 5), rand(5))
case(aten.linear.default, rand(2, 3, 5), rand(4, 5), rand(1))
case(aten.linear.default, rand(3, 5), rand(4, 5), rand(3, 4))
case(aten.linear.default, rand(2, 5, 3).transpose(1, 2), rand(5, 4).t(), rand(8)[::2],
     note="transposed input and weight")
case(aten.linear.default, rand(4, 2, 3, 6).permute(1, 2, 0, 3), rand(4, 6), rand(4), note="rows that are not one run")
case(aten.linear.default, rand(3, 1, 5).expand(3, 2, 5), rand(4, 1).expand(4, 5), rand(1).expand(4), note="expanded")
case(aten.linear.default, rand(6, 10)[1::2, 3:8], rand(9, 9)[2:6, 1:6], note="sliced")
case(aten.linear.default, rand(0, 5), rand(4, 5), rand(4), note="no rows")
case(aten.linear.default, rand(3, 0), rand(4, 0), rand(4), note="nothing to sum")
case(aten.linear.default, rand(3, 5), rand(0, 5), rand(0), note="no columns")
case(aten.linear.default, special()[:12].reshape(3, 4), rand(2, 4), rand(2), note="NaN and infinities")
case(aten.linear.default, coarse(1, 600), coarse(39, 600), rand(39), note="one row")
case(aten.linear.default, coarse(35, 300), coarse(33, 300), rand(33), note="across blocks")
case(aten.linear.default, coarse(300, 3, dtype=BF16), coarse(5, 3, dtype=BF16), rand(5, dtype=BF16),
     note="across blocks of rows")
case(aten.linear.default, rand(2, 1, 4), rand(3, 4))

# mm
for d in FLOATS:
    case(aten.mm.default, rand(5, 7, dtype=d), rand(7, 6, dtype=d))
for d in INTEGERS:
    case(aten.mm.default, integers(3, 5, dtype=d), integers(5, 4, dtype=d))
case(aten.mm.default, coarse(65, 67), coarse(67, 33), note="across blocks")
case(aten.mm.default, coarse(3, 520), coarse(520, 5), note="across blocks")
case(aten.mm.default, rand(7, 5).t(), rand(6, 7).t())
case(aten.mm.default, rand(7, 5).t(), rand(7, 6))
case(aten.mm.default, rand(5, 7), rand(6, 7).t())
case(aten.mm.default, rand(3, 0), rand(0, 4))
case(aten.mm.default, rand(0, 3), rand(3, 4))
case(aten.mm.default, special().reshape(4, 4), special().flip(0).reshape(4, 4))
case(aten._int_mm.default, ints(-128, 127, 20, 8, dtype=torch.int8), ints(-128, 127, 8, 16, dtype=torch.int8))

# matmul: every combination of ranks
for d in (F32, F64, BF16, torch.int64):
    r = (lambda *s: rand(*s, dtype=d)) if d.is_floating_point else integers
    case(aten.matmul.default, r(5), r(5))
    case(aten.matmul.default, r(3, 5), r(5))
    case(aten.matmul.default, r(5), r(5, 4))
    case(aten.matmul.default, r(3, 5), r(5, 4))
    case(aten.matmul.default, r(2, 3, 5), r(5))
    case(aten.matmul.default, r(5), r(2, 5, 4))
    case(aten.matmul.default, r(2, 3, 5), r(5, 4))
    case(aten.matmul.default, r(3, 5), r(2, 5, 4))
    case(aten.matmul.default, r(2, 3, 5), r(2, 5, 4))
case(aten.matmul.default, rand(2, 1, 3, 5), rand(4, 5, 6))
case(aten.matmul.default, rand(2, 1, 3, 5), rand(1, 4, 5, 6))
case(aten.matmul.default, rand(4, 3, 5), rand(2, 1, 5, 6))
case(aten.matmul.default, rand(2, 4, 3, 5), rand(1, 1, 5, 6))
case(aten.matmul.default, rand(3, 5), rand(1, 5, 6))
case(aten.matmul.default, rand(5), rand(1, 1, 5, 6))
case(aten.matmul.default, rand(2, 4, 5, 3).transpose(2, 3), rand(2, 4, 6, 5).transpose(2, 3))
case(aten.matmul.default, rand(2, 3, 4, 5).transpose(1, 2), rand(2, 3, 4, 5).permute(0, 2, 3, 1))
case(aten.matmul.default, rand(1, 3, 5).expand(4, 3, 5), rand(1, 5, 2).expand(4, 5, 2))
case(aten.matmul.default, rand(2, 3, 0), rand(0, 4))
case(aten.matmul.default, rand(0, 3, 5), rand(5, 4))
case(aten.matmul.default, rand(0, 3, 5), rand(0, 5, 4))
case(aten.matmul.default, coarse(20, 3, 11), coarse(20, 11, 2), note="more products than parts")
case(aten.matmul.default, coarse(19, 2, 2, 6, dtype=F16), coarse(19, 2, 6, 3, dtype=F16))
case(aten.matmul.default, coarse(2, 86, 61), coarse(2, 61, 101), note="large products")
case(aten.linalg_matmul.default, rand(2, 3, 5), rand(5, 4))

# bmm, baddbmm, addbmm
for d in FLOATS:
    case(aten.bmm.default, rand(3, 4, 5, dtype=d), rand(3, 5, 2, dtype=d))
    case(aten.baddbmm.default, rand(3, 4, 2, dtype=d), rand(3, 4, 5, dtype=d), rand(3, 5, 2, dtype=d))
    case(aten.addbmm.default, rand(4, 2, dtype=d), rand(3, 4, 5, dtype=d), rand(3, 5, 2, dtype=d), beta=0.5, alpha=2)
case(aten.bmm.default, integers(3, 4, 5), integers(3, 5, 2))
case(aten.bmm.default, rand(0, 4, 5), rand(0, 5, 2))
case(aten.bmm.default, rand(4, 3, 5).transpose(0, 1), rand(2, 3, 5).permute(1, 2, 0))
case(aten.baddbmm.default, rand(2), rand(3, 4, 5), rand(3, 5, 2), beta=0.5, alpha=-2)
case(aten.baddbmm.default, rand(3, 1, 1), rand(3, 4, 5), rand(3, 5, 2), beta=3)
case(aten.baddbmm.default, special()[:4].reshape(4, 1), rand(3, 4, 5), rand(3, 5, 2), beta=0,
     note="NaN times 0 is left out")
case(aten.baddbmm.default, rand(1, 1, 2), rand(3, 4, 0), rand(3, 0, 2), beta=2)
case(aten.baddbmm.default, integers(3, 4, 2), integers(3, 4, 5), integers(3, 5, 2), beta=2, alpha=-3)
case(aten.baddbmm_.default, rand(3, 4, 2), rand(3, 4, 5), rand(3, 5, 2), beta=0.5, alpha=-2)
case(aten.baddbmm_.default, rand(2, 4, 3).transpose(0, 2), rand(3, 4, 5), rand(3, 5, 2))
case(aten.addbmm.default, rand(1), rand(3, 4, 5), rand(3, 5, 2))
case(aten.addbmm_.default, rand(4, 2), rand(3, 4, 5), rand(3, 5, 2))

# addmm, addmv, addr
for d in FLOATS:
    case(aten.addmm.default, rand(4, dtype=d), rand(3, 5, dtype=d), rand(5, 4, dtype=d))
    case(aten.addmm.default, rand(3, 4, dtype=d), rand(3, 5, dtype=d), rand(5, 4, dtype=d), beta=0.5, alpha=2)
    case(aten.addmv.default, rand(3, dtype=d), rand(3, 5, dtype=d), rand(5, dtype=d), beta=0.5, alpha=2)
    case(aten.mv.default, rand(3, 5, dtype=d), rand(5, dtype=d))
    case(aten.dot.default, rand(50, dtype=d), rand(50, dtype=d))
    case(aten.addr.default, rand(3, 4, dtype=d), rand(3, dtype=d), rand(4, dtype=d), beta=0.5, alpha=2)
case(aten.addmm.default, rand(4), rand(3, 5), rand(4, 5).t())
case(aten.addmm.default, rand(3, 1), rand(3, 5), rand(5, 4))
case(aten.addmm.default, rand(1, 4), rand(3, 5), rand(5, 4))
case(aten.addmm.default, rand(1)[0], rand(3, 5), rand(5, 4), beta=2)
case(aten.addmm.default, rand(1, 4), rand(1, 5), rand(5, 4))
case(aten.addmm.default, special()[:3].reshape(3, 1), rand(3, 5), rand(5, 4), beta=0)
case(aten.addmm.default, rand(3, 4), special()[:15].reshape(3, 5), rand(5, 4), alpha=0, note="NaN times 0 is left out")
case(aten.addmm.default, rand(3, 1), rand(3, 0), rand(0, 4), beta=3)
case(aten.addmm.default, integers(3, 4), integers(3, 5), integers(5, 4), beta=2, alpha=3)
case(aten.addmm.default, integers(3, 4, dtype=torch.int32), integers(3, 5, dtype=torch.int32),
     integers(5, 4, dtype=torch.int32), beta=2.5)
case(aten.addmm_.default, rand(3, 4), rand(3, 5), rand(5, 4))
case(aten.addmm_.default, rand(4, 3).t(), rand(3, 5), rand(5, 4), beta=0.5)
case(aten.addmv.default, rand(3), rand(3, 5), rand(5))
case(aten.addmv.default, rand(1), rand(3, 5), rand(5))
case(aten.addmv.default, rand(1)[0], rand(3, 5), rand(5))
case(aten.addmv_.default, rand(3), rand(3, 5), rand(5))
case(aten.mv.default, rand(5, 3).t(), rand(10)[::2])
case(aten.mv.default, integers(3, 5), integers(5))
case(aten.mv.default, rand(3, 0), rand(0))
case(aten.dot.default, rand(5), rand(10)[1::2])
case(aten.dot.default, rand(0), rand(0))
case(aten.dot.default, coarse(3000), coarse(3000), note="across blocks")
case(aten.vdot.default, rand(5), rand(5))
case(aten.addr.default, rand(1), rand(3), rand(4))
case(aten.addr_.default, rand(3, 4), rand(3), rand(4))
case(aten.addr.default, integers(3, 4), integers(3), integers(4), beta=2, alpha=3)

# chains
case(aten.chain_matmul.default, [rand(3, 4), rand(4, 5), rand(5, 2), rand(2, 6)])
case(aten.chain_matmul.default, [rand(3, 4)])
case(aten.linalg_multi_dot.default, [rand(4), rand(4, 5), rand(5, 2)])
case(aten.linalg_multi_dot.default, [rand(4), rand(4, 5), rand(5)])
case(aten.linalg_multi_dot.default, [rand(3, 4), rand(4, 5), rand(5)])
for n in (1, 2, 3, 5):
    case(aten.matrix_power.default, rand(2, 3, 3), n)
case(aten.linalg_matrix_power.default, rand(3, 3, dtype=F64), 4)

# grouped products
x, w = rand(6, 16), rand(3, 16, 8)
case(aten._grouped_mm.default, x, w, torch.tensor([2, 2, 6], dtype=torch.int32))
case(aten._grouped_mm.default, x.bfloat16(), w.transpose(1, 2).contiguous().bfloat16().transpose(1, 2),
     torch.tensor([1, 4, 6], dtype=torch.int32))
case(aten._grouped_mm.default, rand(3, 4, 16), w)
case(aten._grouped_mm.default, rand(2, 8, 16), rand(16, 8), torch.tensor([3, 8], dtype=torch.int32))

fallback = torch.ops.transformers.grouped_mm_fallback.default
for d in FLOATS:
    case(fallback, x.to(d), w.to(d), torch.tensor([2, 2, 5]), note="the last row is in no group")
case(fallback, rand(6, 5), rand(3, 8, 5).transpose(1, 2), torch.tensor([1, 6, 6], dtype=torch.int32))
case(fallback, rand(0, 5), rand(2, 5, 4), torch.tensor([0, 0]))

# cross
for d in (*FLOATS, torch.int64, torch.uint8):
    r = (lambda *s: rand(*s, dtype=d)) if d.is_floating_point else (lambda *s: integers(*s, dtype=d))
    case(aten.linalg_cross.default, r(4, 3), r(4, 3))
    case(aten.cross.default, r(3, 4), r(3, 4))
case(aten.linalg_cross.default, rand(3, 4), rand(3, 1), dim=0)
case(aten.linalg_cross.default, rand(2, 3, 4).transpose(1, 2), rand(1, 4, 3))
case(aten.cross.default, rand(2, 3, 3), rand(2, 3, 3), 1)
case(aten.cross.default, rand(2, 3, 3), rand(2, 3, 3))
case(aten.linalg_cross.default, rand(0, 3), rand(0, 3))
case(aten.matrix_power.default, rand(2, 3, 3), 0)
case(aten.linalg_matrix_power.default, rand(2, 2, dtype=F64), 0)

# weights of int8: PyTorch's kernel for the CPU takes only some sizes
for d in (F32, F16, BF16):
    for m, k, n in ((1, 32, 64), (3, 64, 32), (20, 48, 36)):
        case(aten._weight_int8pack_mm.default, coarse(m, k, dtype=d), ints(-128, 127, n, k, dtype=torch.int8),
             rand(n).abs().to(d))

save("linear")
