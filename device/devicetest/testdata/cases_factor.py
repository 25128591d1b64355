"""Inverses, determinants and solutions of systems. The factors that come beside a result are not recorded: PyTorch gives those
of a matrix or of its transpose, as its memory lies. Made with torch 2.11."""

import torch

from recorder import CASES, aten, case, rand, save


def matrices(*shape, dtype=torch.float32):
    """Matrices that are far from singular, of which no pivot is a close choice, and most are not on the diagonal."""
    n = shape[-1]
    order = torch.randperm(n, generator=torch.Generator().manual_seed(n))
    return (rand(*shape, dtype=torch.float64) * 0.3 + 2 * torch.eye(n, dtype=torch.float64)[order]).to(dtype)


def keep(*outputs):
    CASES[-1]["outputs"] = [CASES[-1]["outputs"][i] for i in outputs]


for dtype, bound in ((torch.float32, 2e-5), (torch.float64, 1e-12)):
    for x in (matrices(4, 4, dtype=dtype), matrices(2, 2, 3, 3, dtype=dtype), matrices(3, 5, 5, dtype=dtype).mT,
              matrices(3, 4, 5, 5, dtype=dtype)[1:, ::2, 1:, 1:], torch.zeros(0, 0, dtype=dtype),
              torch.zeros(0, 3, 3, dtype=dtype), torch.zeros(2, 0, 0, dtype=dtype)):
        for op in (aten.linalg_inv.default, aten.linalg_inv_ex.default, aten.linalg_det.default,
                   aten.linalg_slogdet.default, aten.linalg_lu_factor_ex.default):
            case(op, x, bound=bound)
    x = matrices(2, 3, 3, dtype=dtype)
    for op in (aten.inverse.default, aten.det.default, aten.slogdet.default, aten.linalg_lu_factor.default):
        case(op, -x, bound=bound)
    case(aten.logdet.default, x @ x, bound=bound)
    case(aten._linalg_det.default, x, bound=bound)
    keep(0)
    case(aten._linalg_slogdet.default, x, bound=bound)
    keep(0, 1)
    case(aten.linalg_inv.default, matrices(37, 37, dtype=dtype), bound=bound)
    for a, b in (((4, 4), (4,)), ((4, 4), (4, 3)), ((2, 4, 4), (2, 4)), ((2, 4, 4), (4, 4)), ((2, 1, 3, 3), (4, 3, 2)),
                 ((3, 3), (2, 3, 40)), ((3, 4, 4), (4,)), ((3, 3), (3, 0)), ((0, 0), (0, 2))):
        a, b = matrices(*a, dtype=dtype), rand(*b, dtype=dtype)
        case(aten.linalg_solve.default, a, b, bound=bound)
        case(aten.linalg_solve_ex.default, a.mT, b, bound=bound)
        case(aten._linalg_solve_ex.default, a, b, bound=bound)
        keep(0, 3)
    for a, b in (((4, 4), (2, 4)), ((2, 4, 4), (3, 4)), ((2, 4, 4), (2, 5, 4))):
        a, b = matrices(*a, dtype=dtype), rand(*b, dtype=dtype)
        case(aten.linalg_solve.default, a, b, left=False, bound=bound)
        case(aten.linalg_solve_ex.default, a, b, left=False, check_errors=True, bound=bound)
    for a, b in (((4, 4), (4, 3)), ((2, 4, 4), (3, 1, 4, 2))):
        a = matrices(*a, dtype=dtype)
        case(aten.linalg_lu_solve.default, *aten.linalg_lu_factor(a), rand(*b, dtype=dtype), bound=bound)
    # Singular matrices: which pivot is zero, and no determinant.
    x = torch.tensor([[[1, 2, 3], [2, 4, 6], [1, 0, 1]], [[0, 0, 1], [0, 0, 2], [0, 0, 3]], [[0, 2, 0], [1, 0, 0], [0, 0, 4]]],
                     dtype=dtype)
    case(aten.linalg_lu_factor_ex.default, x, bound=bound)
    case(aten.linalg_det.default, x)
    case(aten.linalg_slogdet.default, x, bound=bound)
    case(aten.linalg_inv_ex.default, x[2:], bound=bound)
    case(aten.logdet.default, x, bound=bound)
    case(aten.logdet.default, torch.diag(torch.tensor([1.0, -2.0], dtype=dtype)))
save("factor")
