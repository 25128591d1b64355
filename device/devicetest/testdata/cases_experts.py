"""Cases of mixtures of experts, which are no op of PyTorch: what a loop over rows in PyTorch's ops gives."""

import itertools

import torch
import torch.nn.functional as F

from recorder import case, ints, rand, save

torch.library.define(
    "optimem::experts", "(Tensor self, Tensor ids, Tensor weights, Tensor[] gate, Tensor[] up, Tensor[] down, Tensor[]? biases=None, *, "
    "str act='silu', float alpha=0., float limit=0., bool weigh_input=False) -> Tensor")
ACTS = {"silu": F.silu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "relu": F.relu}


@torch.library.impl("optimem::experts", "CompositeExplicitAutograd")
def experts(x, ids, weights, gate, up, down, biases=None, act="silu", alpha=0.0, limit=0.0, weigh_input=False):
    out = torch.zeros_like(x, dtype=torch.float32)
    for row in itertools.product(*map(range, x.shape[:-1])):
        for k in range(ids.shape[-1]):
            e, w = int(ids[row + (k,)]), weights[row + (k,)]
            if e < 0:
                continue
            b = [t.float() for t in (biases or [])[3 * e:3 * e + 3]] or [None] * 3
            h = x[row] * w if weigh_input else x[row]
            g, u = F.linear(h, gate[e].float(), b[0]), F.linear(h, up[e].float(), b[1])
            if act == "clamped":
                g, u = g.clamp(max=limit), u.clamp(-limit, limit)
                h = (u + 1) * g * torch.sigmoid(alpha * g)
            else:
                h = ACTS[act](g) * u
            h = F.linear(h, down[e].float(), b[2])
            out[row] += h if weigh_input else h * w
    return out


op = torch.ops.optimem.experts.default


def coarse(*shape, dtype=torch.float32):
    return (ints(-8, 9, *shape) / 8).to(dtype)


def mixture(n, hidden, inner, dtype=torch.float32):
    return ([coarse(inner, hidden, dtype=dtype) for _ in range(n)], [coarse(inner, hidden, dtype=dtype) for _ in range(n)],
            [coarse(hidden, inner, dtype=dtype) for _ in range(n)])


def routed(n, k, *rows):
    scores = torch.rand(*rows, n, generator=torch.Generator().manual_seed(n * k + len(rows)))
    return torch.topk(scores, k, dim=-1).indices, coarse(*rows, k)


case(op, coarse(3, 8), *routed(4, 2, 3), *mixture(4, 8, 5))
case(op, coarse(2, 3, 8), *routed(4, 2, 2, 3), *mixture(4, 8, 5), note="rows of two dimensions")
case(op, coarse(8), *routed(4, 2), *mixture(4, 8, 5), note="one row without a dimension")
for act in ("gelu", "gelu_tanh", "relu"):
    case(op, coarse(3, 8), *routed(4, 1, 3), *mixture(4, 8, 5), act=act)
for d in (torch.bfloat16, torch.float16):
    case(op, coarse(4, 8), *routed(5, 3, 4), *mixture(5, 8, 6, dtype=d), note="halves beside float32")
    case(op, coarse(4, 8), *routed(2, 2, 4), *mixture(2, 8, 6, dtype=d), [coarse(n, dtype=d) for _ in range(2) for n in (6, 6, 8)])
case(op, coarse(5, 8) * 8, *routed(3, 2, 5), *mixture(3, 8, 6), [coarse(n) for _ in range(3) for n in (6, 6, 8)],
     act="clamped", alpha=1.702, limit=7.0)
case(op, coarse(4, 8), *routed(3, 1, 4), *mixture(3, 8, 6), weigh_input=True)
both, down = coarse(3, 12, 8), coarse(3, 8, 6)
case(op, coarse(4, 8), *routed(3, 2, 4), [m[:6] for m in both], [m[6:] for m in both], list(down), note="views of stacks")
both, down = coarse(3, 8, 12), coarse(3, 6, 8)
case(op, coarse(4, 8), *routed(3, 2, 4), [m.T[::2] for m in both], [m.T[1::2] for m in both], [m.T for m in down],
     note="turned and interleaved, as gpt-oss has them")
case(op, coarse(4, 8), torch.tensor([[1, -1], [-1, -1], [2, 0], [-1, 0]]), coarse(4, 2), *mixture(3, 8, 6), note="none")
case(op, coarse(4, 8), torch.tensor([[1, 1], [2, 2], [0, 1], [1, 0]]), coarse(4, 2), *mixture(3, 8, 6), note="twice the same")
case(op, coarse(0, 8), torch.zeros(0, 2, dtype=torch.int64), coarse(0, 2), *mixture(2, 8, 6), note="no rows")
case(op, coarse(70, 2), torch.zeros(70, 1, dtype=torch.int64), coarse(70, 1), *mixture(2, 2, 3), note="one expert has all rows")
case(op, coarse(9, 4), *routed(3, 2, 9), *mixture(3, 4, 37), note="more columns than a vector has lanes")
case(op, coarse(8, 6).T, *routed(3, 2, 6), *mixture(3, 8, 6), note="rows of a transposed matrix")
save("experts")
