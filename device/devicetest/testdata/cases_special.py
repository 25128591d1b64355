"""Records the functions of torch.special that are kinds of their own or made of others."""

import math

import torch

from recorder import aten, case, rand, save, special

WIDE = torch.tensor([-30.0, -7.25, -3.5, -1.0, -0.75, -1e-3, 0.0, 1e-8, 0.1, 0.5, 1.0, 1.5, 2.0, 3.25, 8.0, 9.5, 31.0, 45.5])
UNIT = torch.tensor([0.0, 1e-30, 1e-9, 1e-4, 0.01, 0.135, 0.3, 0.5, 0.625, 0.99, 1 - 1e-6, 1.0, -0.5, 1.5, math.nan])
POSITIVE = torch.tensor([0.01, 0.25, 0.5, 1.0, 1.75, 3.0, 9.5, 10.0, 11.25, 80.0, 1e4])
# PyTorch's own approximations are not exact to the last place in float64.
NEAR = {torch.float32: 8e-6, torch.float64: 2e-12}


def both(op, x, note="", **kwargs):
    for d in (torch.float32, torch.float64):
        case(op, x.to(d), bound=NEAR[d], note=note, **kwargs)


for name in ("i0", "special_i0", "special_i0e", "special_i1", "special_i1e", "special_modified_bessel_i0",
             "special_modified_bessel_i1", "special_entr", "special_log_ndtr"):
    both(getattr(aten, name).default, WIDE)
both(aten.special_erfcx.default, WIDE[1:])
both(aten.special_ndtri.default, UNIT)
for name in ("j0", "j1", "y0", "y1"):
    for d in (torch.float32, torch.float64):
        case(getattr(aten, "special_bessel_" + name).default, torch.cat([POSITIVE[:-1], WIDE[6:]]).to(d),
             bound=8e-6 if d == torch.float32 else 2e-8, note="PyTorch's is off by 6e-9")
both(aten.special_spherical_bessel_j0.default, WIDE)
for name in ("special_entr", "special_i0e", "special_i1e", "special_erfcx", "special_log_ndtr"):
    op = getattr(aten, name).default
    case(op, torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0]))
    case(op, (rand(4, 3).t() * 8).round() / 8)
    case(op, torch.tensor([[3, 1, 2]]))
    if name not in ("special_erfcx", "special_log_ndtr"):
        case(op, (rand(6) * 4).round().to(torch.bfloat16))
case(aten.i0_.default, POSITIVE[:8].clone(), bound=NEAR[torch.float32])

grid = torch.tensor([-1.0, 0.0, 0.5, 2.0, math.nan, math.inf])
case(aten.special_xlog1py.default, grid[:, None], grid)
case(aten.special_xlog1py.default, grid[:, None].double(), grid)
case(aten.special_xlog1py.other_scalar, grid, 1.5)
case(aten.special_xlog1py.self_scalar, 2, grid)
case(aten.special_xlog1py.default, torch.tensor([0, 1, 2]), torch.tensor([3, 0, 5]))

orders = torch.tensor([0.5, 1.0, 1.5, 2.0, 3.0, 7.25, 30.0])
both_q = torch.tensor([0.25, 1.0, 2.5, 9.0, 12.0, 300.0])
for d in (torch.float32, torch.float64):
    case(aten.special_zeta.default, orders[:, None].to(d), both_q.to(d), bound=NEAR[d])
    case(aten.special_zeta.default, torch.tensor([2.0, 3.0, 2.5], dtype=d)[:, None],
         torch.tensor([-0.5, -1.0, -3.25, 0.0], dtype=d), bound=NEAR[d])
case(aten.special_zeta.other_scalar, orders, 1.25, bound=NEAR[torch.float32])
case(aten.special_zeta.self_scalar, 2.0, both_q, bound=NEAR[torch.float32])

for p in (1, 2, 5):
    both(aten.special_multigammaln.default, POSITIVE[4:] + 2, p=p)
    both(aten.mvlgamma.default, POSITIVE[4:] + 2, p=p)
case(aten.mvlgamma_.default, POSITIVE[4:] + 2, 3, bound=NEAR[torch.float32])
for n in (0, 1, 2, 3, 6):
    for d in (torch.float32, torch.float64):
        case(aten.polygamma.default, n, POSITIVE.to(d), bound=NEAR[d])
        case(aten.special_polygamma.default, n, POSITIVE[2:].to(d), bound=max(NEAR[d], 1e-9),
             note="PyTorch's trigamma is off by 4e-10: of 1/2 it is π²/2")
case(aten.polygamma.default, 1, torch.tensor([-0.5, -1.25, -3.75]), bound=NEAR[torch.float32])
case(aten.polygamma_.default, POSITIVE[1:7].clone(), 2, bound=NEAR[torch.float32])
save("special")
