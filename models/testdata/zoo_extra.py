"""Small programs for the mechanisms of exported programs, one each."""

import collections
from dataclasses import dataclass

import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

from zoo_spec import Case, In, Spec, ids, literal, model

AUTO = Dim.DYNAMIC


def extra(name, cls, *cases, dynamic=None, **kwargs):
    @model("extra", name)
    def spec():
        return Spec(cls(), list(cases), f"zoo_extra.{cls.__name__}", dynamic, **kwargs)


class Cond(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 6), nn.Linear(5, 6)

    def forward(self, x, gate):
        y = torch.cond(gate.sum() > 0, lambda t: self.a(t).relu(), lambda t: self.b(t).tanh() * 2, (x,))
        return y + 1


class Views(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x):
        y = self.fc(x).clone()
        y[:, 1] += 1
        y[1:, ::2][:, 1] *= 3
        part = y[2:4]
        part.view(-1)[3:9].sub_(0.5)
        y.t()[4].copy_(x[:, 0])
        z = torch.zeros(3, 1).expand(3, 4).clone()
        z[:, 1:3].copy_(torch.arange(2.0))
        z[0].fill_(7)
        y.unbind(1)[5].neg_()
        y.select(0, 0).narrow(0, 1, 3).zero_()
        y[:, 2:4].transpose(0, 1).add_(y[:2].mT[:2, :1])
        y.diagonal().clamp_(max=0.25)
        y.unsqueeze(0).squeeze(0).chunk(2, 1)[1].mul_(2)
        return y, part * 2, z


class BufferState(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("memory", torch.zeros(3, 4))
        self.register_buffer("scratch", torch.ones(4), persistent=False)

    def forward(self, x):
        y = self.fc(x)
        self.steps += 1
        self.memory[1:] = self.memory[:-1].clone()
        self.memory[0] = y.mean(0)
        self.scratch.mul_(0.5).add_(y[0])
        return y + self.memory.sum(0) + self.scratch * self.steps


class InputState(nn.Module):
    def forward(self, x, cache, position):
        cache.index_copy_(0, position, x)
        x.mul_(2)
        return cache.sum(0) + x[0]


Point = collections.namedtuple("Point", ["px", "py"])
torch.utils._pytree._register_namedtuple(Point, serialized_type_name="zoo.Point")


@dataclass
class Result:
    logits: torch.Tensor
    hidden: tuple
    missing: torch.Tensor | None = None


torch.export.register_dataclass(Result, serialized_type_name="zoo.Result")


class TupleOut(nn.Module):
    def forward(self, x):
        return x + 1, (x * 2, [x.sum(), x - 3]), x


class DictOut(nn.Module):
    def forward(self, x, pair, table):
        y = pair[0] + pair[1] * table["scale"]
        return {"sum": x + y, "parts": {"first": y, "rest": [y * 2, x]}, "point": Point(x - y, y - x)}


class DataclassOut(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        y = self.fc(x)
        return Result(logits=y, hidden=(x.relu(), y.tanh()))


class Keywords(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x, y=None, *, scale, shift=None, steps=2, flag=True):
        for _ in range(steps):
            x = self.fc(x) * scale
        return x + (y if y is not None else 0) + (shift if flag and shift is not None else 1)


class Constants(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.tensor([[0.5, -1.0, 2.0], [3.0, 0.25, -0.125]])
        self.fc = nn.Linear(3, 3)

    def forward(self, x, i):
        w = torch.tensor([1.0, 10.0, 100.0])
        return self.fc(x) * w + self.table[i] + torch.tensor(0.5) + torch.tensor([1, 2, 3])


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(30, 8), nn.Linear(8, 30, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(torch.tanh(self.embed(tokens)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(6), nn.Linear(6, 6)

    def forward(self, x):
        return x + F.gelu(self.fc(self.norm(x)))


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.act = Block(), nn.ReLU()

    def forward(self, x):
        return self.act(self.block(self.act(self.block(x))) - 0.5)


class Symbolic(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 4)

    def forward(self, x, y):
        b, s, _ = x.shape
        n = y.shape[0]
        h = self.fc(x).reshape(b * s, 2, 2).transpose(0, 1).reshape(2, -1)
        pad = F.pad(y, (0, 0, 0, (4 - n % 4) % 4))
        groups = pad.reshape(-1, 4, y.shape[1]).mean(1)
        half = x[:, : s // 2 + 1].flatten(0, 1)
        ramp = torch.arange(s * 2 - 1) + torch.sym_max(b, n)
        longer = torch.cat([half, half[:1]]).view(b * (s // 2 + 1) + 1, -1)
        return h, groups, half.new_full((b + n, 2), 0.5) * s, ramp, longer


class SymbolicOut(nn.Module):
    def forward(self, x):
        return x.sum(1), x.shape[0] * 2 + 1, x.shape[1] // 2


class IndexPut(nn.Module):
    def forward(self, x, i, mask, v):
        y = x.clone()
        y[i] = v
        y[i, 2] += 1
        y.index_put_((i, torch.tensor([1, 0, 3])), torch.tensor(2.5), accumulate=True)
        z = x.masked_fill(mask, -1.0)
        z[mask[:, 0].logical_not().long()] = 4.0
        w = torch.where(mask, y, z)
        return y, z, w, x[:, i], x[i, :, None].sum(-1), x.scatter(1, i[None].expand(5, 3), 9.0)


class AsStrided(nn.Module):
    def forward(self, x):
        y = x * 1
        w = y.as_strided((3, 4), (5, 2), 1)
        z = x.t().contiguous().as_strided((2, 2, 3), (1, 3, 2))
        y.as_strided((4,), (7,)).add_(10)
        return w + 0, z, y


class Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.out = nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x):
        with torch.no_grad():
            y = self.fc(x).sin()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            z = self.out(y)
        with torch.autocast("cpu", enabled=False):
            w = self.out(y + 1)
        return z.float(), w


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1, stride=2)
        self.norm, self.fc = nn.BatchNorm2d(8), nn.Linear(8, 5)
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        y = F.gelu(self.norm(self.conv(x))).flatten(2).mT
        y = y + self.attn(y, y, y, need_weights=False)[0]
        return self.fc(F.layer_norm(y, (8,)).mean(1)).softmax(-1)


class Integers(nn.Module):
    def forward(self, a, b, small):
        q = torch.div(a, b, rounding_mode="floor")
        return (a + b * 3, q, a % b, a // b, torch.div(a, b, rounding_mode="trunc"), (a << 2) ^ (b & 5) | 1, a > b,
                small + small, small.sum(), a.cumsum(1), torch.argmax(a, 1), a.sort(dim=1, stable=True)[1],
                small.to(torch.int64) * -1,
                a.abs().bitwise_not(), (a > 0).sum(), a.prod(1), torch.fmod(a, b), a.remainder(-3), a / b, a.amax(0),
                torch.bucketize(a, torch.tensor([-5, 0, 5])), a.float().to(torch.int8), a.gt(0) & b.lt(3))


class Empty(nn.Module):
    def forward(self, x):
        e = x[:, 3:3]
        return (e, e.sum(), e.sum(1), torch.cat([e, x], 1), e @ x.new_ones(0, 2), x[:0].t() @ x[:0], e.prod(),
                x.new_zeros(0, 4),
                torch.cat([torch.zeros(0), x[0]]), F.relu(x.new_empty(0)), e.any(), e.all(), x[:0].softmax(0))


class Scalars(nn.Module):
    def forward(self, x):
        return x.sum(), x.mean() * 2, x.argmax(), (x > 0).any(), x.norm(), x[0, 0], x.max(), x.std()


class Promote(nn.Module):
    def forward(self, i, h, f, b):
        one = f[0, 0]
        return (i + h, i * 1.5, h + one, h * f, b + i, b * 2.0, i / 2, i // 2, h.sum(), i.sum(dtype=torch.float32),
                b.sum(),
                torch.where(b, i, f), torch.cat([i, f]), f.double() + h, h.to(torch.bfloat16) + f.to(torch.bfloat16),
                i ** 2, 2 ** f,
                torch.maximum(i, f), i > 1.5, one + i, 1 - b.int(), i.mean(dtype=torch.float64),
                f.to(torch.float16) + one,
                h.matmul(h.mT), h.softmax(-1, dtype=torch.float32))


class Special(nn.Module):
    def forward(self, x):
        y = x / x.new_zeros(())
        return (y, x.log(), x.sqrt(), y.max(1)[0], y.clamp(-1, 1), y.relu(), torch.nan_to_num(y, 1.0, 2.0, -2.0),
                y.isnan(), y.isinf(),
                y.softmax(-1), y.sum(0), (-x).relu() * -0.0, 1 / (x.relu() * -0.0), y.sort(1)[0], y.sort(1)[1],
                y.amin(1), y.sign(),
                torch.maximum(x, y), torch.minimum(x, y), y.argmax(1), x.exp() ** 400, y.round(), torch.fmin(x, y),
                y.hypot(x))


class Int8Linear(nn.Module):
    """A linear layer whose weight is int8, with a scale for each output, in the ways in which programs write it."""

    def __init__(self, inputs, outputs, form, d):
        super().__init__()
        self.form = form
        weight = (torch.randn(outputs, inputs) * 40).round().clamp(-127, 127).to(torch.int8)
        self.register_buffer("weight", weight.t().contiguous() if form.endswith("in_out") else weight)
        self.register_buffer("scales", ((torch.rand(outputs) + 0.5) / 40 / inputs**0.5).to(d))
        self.bias = None if form in ("sums", "packed") else nn.Parameter(torch.zeros(outputs, dtype=d))

    def forward(self, x):
        if self.form == "sums":
            return F.linear(x, self.weight.to(x.dtype)) * self.scales
        if self.form == "sums_in_out":
            return x @ self.weight.to(x.dtype) * self.scales + self.bias
        if self.form == "weight":
            return F.linear(x, self.weight.to(x.dtype) * self.scales[:, None], self.bias)
        if self.form == "weight_in_out":
            flat = x.reshape(-1, x.shape[-1])
            return torch.addmm(self.bias, flat, self.weight.to(x.dtype) * self.scales).view(*x.shape[:-1], -1)
        return torch.ops.aten._weight_int8pack_mm(x.reshape(-1, x.shape[-1]), self.weight, self.scales).view(*x.shape[:-1], -1)


class Int8Weights(nn.Module):
    """A block of a transformer with weights of int8."""

    def __init__(self, d=torch.float32):
        super().__init__()
        self.norm = nn.LayerNorm(64, dtype=d)
        self.qkv = Int8Linear(64, 192, "weight_in_out", d)
        self.out = Int8Linear(64, 64, "sums", d)
        self.up = Int8Linear(64, 96, "weight", d)
        self.down = Int8Linear(96, 64, "sums_in_out", d)
        self.head = Int8Linear(64, 32, "packed", d)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return self.head(x + self.down(F.silu(self.up(x))))


class Complex(nn.Module):
    """Rotary embeddings of complex numbers, as Llama's first code has them, and filters of spectra."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        angles = torch.outer(torch.arange(10.0), 1 / 100 ** (torch.arange(0, 8, 2) / 8))
        self.register_buffer("freqs", torch.polar(torch.ones_like(angles), angles))
        self.register_buffer("filter", torch.polar(torch.linspace(1, 2, 4), torch.linspace(0, 3, 4)))
        self.register_buffer("gain", torch.full((4, 1), 1 + 2j))
        self.register_buffer("position", torch.tensor([3, 4, 5, 6, 7, 8, 9]))

    def rotated(self, x, freqs):
        z = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(z * freqs[None, :, None, :]).flatten(3).type_as(x)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 8)).unbind(2)
        freqs = self.freqs[self.position]
        q, k = self.rotated(q, freqs), self.rotated(k, freqs)
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        spectrum = torch.fft.rfft(y.transpose(1, 2).flatten(2), dim=1, norm="ortho") * self.filter[:, None]
        self.gain.mul_(0.5).add_(1j)
        z = torch.fft.irfft(spectrum, n=x.shape[1], dim=1, norm="ortho")
        return z, torch.view_as_real(spectrum * self.gain), spectrum.abs(), torch.fft.fft2(x).real


class Asserted(nn.Module):
    """Numbers that depend on data and are only asserted, as where pictures take the places of tokens."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x, picture):
        torch._check_tensor_all(picture.sum(1) > 0, lambda: "no picture")
        count = picture.sum().item()
        torch._check(count <= 8)
        torch._check(count * 2 >= 2)
        return x.masked_scatter(picture[..., None], self.fc(x)) + 1


class Unknown(nn.Module):
    """Two operators that are not provided, in two modules: the error lists both."""

    class Volume(nn.Module):
        def forward(self, x):
            return torch.linalg.det(x @ x.mT)

    class Solve(nn.Module):
        def forward(self, x):
            return torch.linalg.cholesky_ex(x @ x.mT + torch.eye(3))[0]

    def __init__(self):
        super().__init__()
        self.volume, self.solve = self.Volume(), self.Solve()

    def forward(self, x):
        return self.volume(x), self.solve(x).sum() + x.relu()


extra("cond", Cond, Case((In((3, 5)), In((3,), offset=2.0))), Case((In((3, 5)), In((3,), offset=-2.0))),
      calibrate=False)
extra("views", Views, Case((In((6, 6)),)))
extra("buffer_mutation", BufferState, Case((In((2, 4)),)), Case((In((2, 4), offset=1.0),), continues=True),
      Case((In((2, 4), scale=3.0),)))
extra("input_mutation", InputState, Case((In((2, 4)), In((5, 4)), literal([3, 1]))))
extra("tuple_out", TupleOut, Case((In((2, 3)),)))
extra("dict_out", DictOut, Case((In((2, 3)), (In((2, 3)), In((2, 3))), {"scale": In((3,))})))
extra("dataclass_out", DataclassOut, Case((In((2, 4)),)))
extra("kwargs", Keywords, Case((In((2, 4)),), {"scale": In((4,)), "shift": In((2, 1))}))
extra("constants", Constants, Case((In((2, 3)), literal([1, 0]))))
extra("tied", Tied, Case((ids(2, 5, high=30),)))
extra("twice", Twice, Case((In((3, 6)),)))
extra("symbolic", Symbolic, *[Case((In((b, s, 6)), In((n, 6)))) for b, s, n in ((2, 7, 5), (3, 4, 8), (2, 5, 9))],
      dynamic=({0: AUTO, 1: AUTO}, {0: AUTO}), calibrate=False)
extra("symbolic_out", SymbolicOut, *[Case((In(s),)) for s in ((3, 7), (5, 4))], dynamic=({0: AUTO, 1: AUTO},))
extra("index_put", IndexPut, Case((In((5, 6)), literal([4, 0, 2]), ids(5, 6, high=2, dtype=torch.bool), In((6,)))))
extra("as_strided", AsStrided, Case((In((5, 5)),)))
extra("wrapped", Wrapped, Case((In((4, 5)),)), double=False)


for d in (torch.float64, torch.bfloat16, torch.float16):
    n = str(d).removeprefix("torch.")

    @model("extra", n)
    def spec(d=d):
        # The halves round at every op, in the decomposed form at more of them.
        return Spec(Small().to(d), [Case((In((2, 3, 9, 9), d),))], f"zoo_extra.Small().to({d})",
                    agree=2e-5 if d == torch.float64 else 2e-2)

for d in (torch.float32, torch.bfloat16):
    @model("extra", "int8" + ("" if d == torch.float32 else "_" + str(d).removeprefix("torch.")))
    def spec(d=d):
        return Spec(Int8Weights(d), [Case((In((2, 5, 64), d),))], f"zoo_extra.Int8Weights({d})",
                    double=False, agree=2e-5 if d == torch.float32 else 2e-2)

extra("integers", Integers, Case((ids(3, 7, low=-50, high=50), ids(3, 7, low=1, high=9),
                                  ids(3, 7, low=0, high=256, dtype=torch.uint8))))
extra("empty", Empty, Case((In((2, 4)),)), calibrate=False)
extra("scalars", Scalars, Case((In((3, 4)),)))
extra("promote", Promote, Case((ids(2, 3, low=-4, high=5, dtype=torch.int32), In((2, 3), torch.float16), In((2, 3)),
                                ids(2, 3, high=2, dtype=torch.bool))), double=False, agree=1e-3)
extra("special", Special, Case((In((4, 5)),)), calibrate=False, double=False)
extra("complex", Complex, Case((In((2, 7, 16)),)), Case((In((2, 7, 16)),), continues=True), double=False)
extra("asserted", Asserted, Case((In((2, 4, 4)), literal([[0, 1, 1, 0], [1, 0, 0, 0]], torch.bool))))
extra("unknown", Unknown, Case((In((3, 5)),)), unsupported="ops", calibrate=False)
