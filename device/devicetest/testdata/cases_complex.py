"""Complex numbers: their parts, arithmetic, views and writes through them."""

import torch

from recorder import aten, case, ints, rand, save


def comp(*shape, dtype=torch.complex64):
    return torch.complex(rand(*shape, dtype=torch.float64), rand(*shape, dtype=torch.float64)).to(dtype)


x, y = comp(2, 3, 4), comp(3, 4)
t = comp(4, 3, 2).permute(2, 1, 0)
s = comp(4, 6, 8)[::2, 1:6:2, 2:6]
e = comp(1, 3, 1).expand(2, 3, 4)
wide = comp(2, 3, dtype=torch.complex128)
scalar = comp(1)[0]
real = rand(2, 3, 4)

case(aten.complex.default, real, rand(3, 1))
case(aten.complex.default, real.double(), rand(2, 3, 4).double())
case(aten.polar.default, real.abs(), rand(2, 3, 4, scale=3.0))
case(aten.polar.default, real.double().abs(), rand(2, 3, 4).double())
pairs = rand(2, 3, 4, 2)
for v in (pairs, pairs[:, 1:], pairs.permute(2, 0, 1, 3), rand(4, 6, 2)[::2, 1::2], rand(2, 3, 2, dtype=torch.float64),
          rand(2), rand(3, 0, 2)):
    case(aten.view_as_complex.default, v)
for v in (x, t, s, e, wide, scalar, comp(2, 0)):
    case(aten.view_as_real.default, v)
    for op in (aten.real, aten.imag, aten.abs, aten.angle, aten.conj_physical, aten._conj, aten.neg, aten.clone,
               aten.exp, aten.log, aten.sqrt, aten.reciprocal, aten.square, aten.sgn, aten.isnan, aten.isfinite):
        case(op.default, v)
case(aten.sgn.default, torch.tensor([0j, 3 + 4j, -2j]))
case(aten.angle.default, torch.tensor([0j, -1 + 0j, 1j, -1j, complex(-1, -0.0)]))
case(aten.angle.default, torch.tensor([0.0, -0.0, -2.0, 3.0, float("nan"), float("-inf")]))
case(aten.angle.default, torch.tensor([3, -3, 0]))
case(aten.abs.default, torch.tensor([3e30 + 4e30j, 3e-30 + 4e-30j, complex("inf"), complex("nan")]))
case(aten.isinf.default, torch.tensor([1j, complex("inf"), complex("nan")]))
for op in (aten.real, aten.conj_physical, aten.conj):
    case(op.default, real)

# Arithmetic with complex and real tensors and with numbers, and what dtype comes of it.
others = (x, y, t, scalar, real, real[0], rand(2, 3, 4, dtype=torch.float64), rand(1, dtype=torch.float64)[0],
          ints(1, 9, 3, 4), comp(4, dtype=torch.complex128))
for other in others:
    for op in (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor):
        case(op, s, other)
        case(op, other, s)
for op in (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor):
    for n in (2, 0.5, 1j, 2 - 3j):
        case(op, x, n)
        case(op, wide, n)
    case(op, real, 1 - 2j)
    case(op, ints(1, 9, 3), 2j)
case(aten.add.Tensor, x, y, alpha=2)
case(aten.sub.Tensor, x, real, alpha=0.5)
case(aten.rsub.Scalar, x, 1)
case(aten.pow.Tensor_Scalar, x, 2)
case(aten.eq.Tensor, x, torch.where(ints(0, 2, 2, 3, 4).bool(), x, 0j))
case(aten.ne.Scalar, torch.tensor([1j, 0j, 2 + 0j]), 2)
case(aten.add_.Tensor, comp(2, 3), comp(3))
case(aten.mul_.Tensor, comp(2, 3), comp(3))
case(aten.mul_.Tensor, comp(4, 3).t(), rand(3, 4))
case(aten.div_.Tensor, comp(2, 3), 2.0)
case(aten.conj_physical_.default, comp(2, 3)[:, 1:])
case(aten.copy_.default, comp(2, 3)[:, 1:], comp(2, 1))
case(aten.copy_.default, comp(2, 3).t(), rand(3, 2))
case(aten.zero_.default, comp(4, 6)[1:3, ::2])
case(aten.fill_.Scalar, comp(4, 6)[1:3, ::2], 2 - 1j)

# Products of matrices.
case(aten.matmul.default, comp(2, 3, 4), comp(4, 5))
case(aten.mm.default, comp(3, 4), comp(5, 4).t())
case(aten.bmm.default, comp(2, 3, 4), comp(2, 4, 5))
case(aten.mv.default, comp(3, 4), comp(4))
case(aten.dot.default, comp(4), comp(4))
case(aten.vdot.default, comp(4), comp(4))
case(aten.linalg_vecdot.default, comp(2, 4), comp(2, 4))
case(aten.linear.default, comp(2, 3, 4), comp(5, 4), comp(5))
case(aten.linear.default, comp(2, 3, 4), comp(5, 4))
case(aten.einsum.default, "bij,jk->bik", [comp(2, 3, 4), comp(4, 5)])
case(aten.einsum.default, "bixy,ioxy->boxy", [comp(2, 3, 2, 2), comp(3, 4, 2, 2)])
case(aten.einsum.default, "bi,ij,bj->b", [comp(2, 3), comp(3, 4), comp(2, 4)])
case(aten.outer.default, comp(3), comp(2))

# Views, and what moves elements.
for v in (x, t, s, e):
    case(aten.view.default, x, [6, -1])
    case(aten.reshape.default, v, [4, 6])
    case(aten.flatten.using_ints, v, 1)
    case(aten.permute.default, v, [2, 0, 1])
    case(aten.transpose.int, v, 0, -1)
    case(aten.adjoint.default, v)
    case(aten.unsqueeze.default, v, -1)
    case(aten.select.int, v, 1, -1)
    case(aten.slice.Tensor, v, 2, 1, 3)
    case(aten.expand.default, v, [5, -1, 3, -1])
    case(aten.repeat.default, v, [2, 1, 1, 2])
    case(aten.unbind.int, v, 1)
    case(aten.chunk.default, v, 2, 2)
    case(aten.diagonal.default, v)
    case(aten.contiguous.default, v)
    case(aten.flip.default, v, [0, -1])
    case(aten.roll.default, v, [1, -2], [0, 2])
    case(aten.index.Tensor, v, [None, ints(0, 3, 5)])
    case(aten.index_select.default, v, 2, ints(0, 4, 3))
    case(aten.gather.default, v, 2, ints(0, 4, 2, 3, 2))
    case(aten.sum.default, v)
    case(aten.sum.dim_IntList, v, [1], True)
    case(aten.mean.dim, v, [0, 2])
    case(aten.cumsum.default, v, 1)
    case(aten.cat.default, [v, real, s], -1)
    case(aten.stack.default, [v, x], 1)
    case(aten.constant_pad_nd.default, v, [1, 2, 0, 1])
    case(aten.constant_pad_nd.default, v, [1, 0], 2.0)
    case(aten.where.self, real > 0, v, x)
    case(aten.where.self, real > 0, v, real)
    case(aten.masked_fill.Scalar, v, real > 0, 0)
    case(aten.masked_fill.Scalar, v, real > 0, 1j)
    case(aten.index_put.default, v, [ints(0, 2, 2), ints(0, 3, 2)], comp(4))
    case(aten.slice_scatter.default, v, comp(2, 3, 2), 2, 1, 3)
    case(aten.tril.default, v)
case(aten.embedding.default, comp(5, 3), ints(0, 5, 2, 2))

# Dtypes and numbers.
case(aten._to_copy.default, x, dtype=torch.complex128)
case(aten._to_copy.default, real, dtype=torch.complex64)
case(aten._to_copy.default, ints(0, 9, 3), dtype=torch.complex64)
case(aten._to_copy.default, x, dtype=torch.float32, note="drops the imaginary parts")
case(aten.to.dtype, wide, torch.complex64)
case(aten.zeros.default, [2, 3], dtype=torch.complex64)
case(aten.ones.default, [2, 3], dtype=torch.complex128)
case(aten.full.default, [2, 3], 1 - 2j)
case(aten.full_like.default, x, 3)
case(aten.zeros_like.default, x)
case(aten.new_ones.default, wide, [2])
case(aten.scalar_tensor.default, 2j, dtype=torch.complex64)
save("complex")
