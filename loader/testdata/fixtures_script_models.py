"""The classes that the TorchScript and torch.export fixtures compile; scripts of old releases read them too."""

from collections import namedtuple
from typing import Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import nn


class Detection(NamedTuple):
    boxes: torch.Tensor
    score: float


@torch.jit.script
class Accumulator(object):
    def __init__(self, start: int):
        self.total = start
        self.seen = torch.jit.annotate(List[int], [])

    def add(self, n: int) -> int:
        self.total += n
        self.seen.append(n)
        return self.total


class Control(nn.Module):
    """Branches, loops, lists, dictionaries, optional and tuple values."""

    def __init__(self):
        super(Control, self).__init__()
        self.fc = nn.Linear(3, 3)
        self.limit = 4
        self.names = ["a", "b\u00fc"]
        self.table = {"a": 1, "b": 2}
        self.scale = 0.5

    def forward(
        self, x: torch.Tensor, n: int = 2, flag: bool = False, y: Optional[torch.Tensor] = None
    ) -> torch.Tensor:
        total = 0
        sizes: List[int] = []
        for i in range(n):
            if i % 2 == 0:
                x = torch.relu(self.fc(x))
            else:
                x = x * self.scale
            sizes.append(x.size(0))
            total += i
        k = 0
        while k < self.limit:
            k += 1
            if k == 3 and flag:
                break
            x = x + float(k)
        if y is not None:
            x = x + y
        for name in self.names:
            if name in self.table:
                x = x + self.table[name]
        if flag and total > 3:
            return x[:, 0:2]
        elif not flag:
            return x.view(sizes[0], -1)
        return torch.cat([x, x], dim=1)


class Outputs(nn.Module):
    """Tuples, named tuples, dictionaries and lists come out; an exported method and a class of the program's own."""

    def __init__(self):
        super(Outputs, self).__init__()
        self.first = nn.Linear(2, 2)
        self.blocks = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])

    def forward(self, x: torch.Tensor) -> Tuple[Detection, Dict[str, torch.Tensor], List[torch.Tensor]]:
        acc = Accumulator(3)
        parts: List[torch.Tensor] = []
        for block in self.blocks:
            x = block(x)
            parts.append(x)
            acc.add(x.size(0))
        x = self.first(x)
        return Detection(x, 0.5), {"x": x, "total": torch.tensor(acc.total)}, parts

    @torch.jit.export
    def helper(self, x: torch.Tensor, label: str = "none") -> Dict[str, torch.Tensor]:
        assert x.dim() == 2, "two dimensions"
        print(label)
        return {label: self.first(x)}


class Holders(nn.Module):
    """Every kind of attribute that a script module can hold."""

    def __init__(self):
        super(Holders, self).__init__()
        self.embed = nn.Embedding(5, 2)
        self.out = nn.Linear(2, 5, bias=False)
        self.out.weight = self.embed.weight
        self.register_buffer("steps", torch.tensor([1, 2, 3]))
        self.register_parameter("absent", None)
        self.tensors: List[torch.Tensor] = [torch.ones(2), torch.zeros(1)]
        self.by_name: Dict[str, torch.Tensor] = {"k": torch.full((2,), 2.0)}
        self.loose = torch.full((2,), 3.0)
        self.maybe: Optional[int] = None
        self.pairs: List[Tuple[int, str]] = [(1, "x"), (2, "y")]
        self.ints: List[int] = [1, 2, 3]
        self.floats: List[float] = [0.5, float("inf")]
        self.flags: List[bool] = [True, False]
        self.empty: List[int] = []

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.out(self.embed(ids))
        for t in self.tensors:
            x = x + t.sum()
        return x + self.by_name["k"].sum() + self.loose.sum() + len(self.pairs) + self.ints[0] + self.floats[0]


class Constants(nn.Module):
    """Tensors that tracing turns into constants."""

    def __init__(self):
        super(Constants, self).__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, x):
        mask = torch.tensor([[1.0, 0.0]])
        index = torch.tensor([1, 0])
        return (self.fc(x) * mask)[:, index] + torch.arange(2) + torch.zeros(2, dtype=torch.float64)
