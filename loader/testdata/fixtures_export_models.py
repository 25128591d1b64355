"""The programs that the torch.export fixtures hold."""

import torch
from torch import nn


class Dynamic(nn.Module):
    """Sizes that are sums, products and quotients of the batch."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x, y):
        z = torch.cat([self.fc(x), y], dim=0)
        flat = z.reshape(z.shape[0] * 2, -1)
        return flat, z[: x.shape[0] // 2], z.sum(), x.shape[0]


class Constants(nn.Module):
    """Lifted constants, buffers in and out of the state dict, a buffer that the program changes."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mask", torch.tensor([True, False]), persistent=False)
        self.plain = torch.tensor([2.0, 3.0])

    def forward(self, x):
        self.count.add_(1)
        return self.fc(x) * self.mask + self.plain + torch.tensor([0.5, 1.5])


class Outputs(nn.Module):
    """Nested inputs, keyword arguments, plain numbers, dictionaries and None in and out."""

    def forward(self, x, pair, *, options, scale: int = 2, bias=None):
        a, b = pair
        return {"sum": x + a, "parts": [b["left"] * scale, options["k"]], "none": None, "number": 3, "same": x}


class Shared(nn.Module):
    """One module that is called twice, and one weight under two names."""

    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        self.alias = self.block
        self.out = nn.Linear(3, 3, bias=False)
        self.out.weight = self.block[0].weight

    def forward(self, x):
        return self.out(self.block(self.alias(x)))


class Control(nn.Module):
    """Higher-order operators: a branch on data, a region without gradients."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, x):
        x = torch.cond(x.sum() > 0, lambda t: self.fc(t), lambda t: t * 2.0, (x,))
        with torch.no_grad():
            y = x.relu()
        return x + y


class DTypes(nn.Module):
    """A parameter or buffer of every dtype that a program can hold."""

    NAMES = ("float64 float16 bfloat16 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz "
             "int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex64 complex128").split()

    def __init__(self, names=NAMES):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        for i, name in enumerate(names):
            t = torch.arange(i, i + 3, dtype=torch.float32).to(getattr(torch, name))
            self.register_buffer("b_" + name, t)

    def forward(self, x):
        return [x * self.weight] + [b.clone() for b in self.buffers()]


class Views(nn.Module):
    """Weights that are not contiguous, do not begin at their storage's first element, or are empty."""

    def __init__(self):
        super().__init__()
        base = torch.arange(12.0)
        self.register_buffer("whole", base)
        self.register_buffer("turned", base.reshape(3, 4).t())
        self.register_buffer("part", base[3:6])
        self.register_buffer("alone", torch.arange(10.0)[4:7])
        self.register_buffer("wide", torch.tensor([[1.0], [2.0]]).expand(2, 3))
        self.register_buffer("empty", torch.empty(0, 3))
        self.register_buffer("scalar", torch.tensor(2.5))

    def forward(self, x):
        total = self.wide.sum() + self.turned.sum() + self.empty.sum() + self.scalar
        return x + self.part + self.alone + total, self.whole * 2


class Many(nn.Module):
    """Operators with several results, lists of tensors, optional ones, scalars of every kind."""

    def forward(self, x):
        a, b = x.chunk(2, dim=1)
        values, indices = x.topk(2, dim=1)
        top, _ = x.max(dim=0)
        y = torch.stack([a, b]).to(torch.float64).to(memory_format=torch.contiguous_format)
        z = x[:, torch.tensor([1, 0])]
        return y, values, indices, top, z, torch.full((2,), True), torch.clamp(x, min=-1e30, max=float("inf")), \
            torch.zeros(2, dtype=torch.int8, device="cpu"), torch.arange(0, 6, 2)
