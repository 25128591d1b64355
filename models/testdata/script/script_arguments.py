"""Models for make_script.py whose forward takes numbers, or keeps its state in attributes that are no buffers."""

from typing import Optional, Tuple

import torch
from torch import nn, Tensor


class Rates(nn.Module):
    """A number without default decides what runs, others with defaults what it computes, as in detectors of speech."""

    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(6, 4), nn.Linear(6, 4)

    def forward(self, x: Tensor, sr: int, gain: float = 0.5, flip: bool = False, window: Optional[int] = None) -> Tuple[Tensor, int]:
        if sr not in [8000, 16000]:
            raise ValueError("sampling rates are 8000 and 16000")
        y = self.wide(x) if sr == 16000 else self.narrow(x)
        if window is not None:
            y = y[:, :window]
        if flip:
            y = y.flip(1)
        return y * gain, sr // 2


class Remembers(nn.Module):
    """A recurrent cell that keeps its state between calls in attributes, not buffers."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(3, 4)
        self._h, self._c = torch.zeros(2, 4), torch.full((2, 4), 0.25)

    def forward(self, x: Tensor) -> Tensor:
        h, c = self.cell(x, (self._h, self._c))
        self._h, self._c = h, c
        return h * 2


class Whitened(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            x = x + torch.linalg.svdvals(x).sum()
        return self.fc(torch.linalg.cholesky(x)) + torch.linalg.eigvalsh(x)


class Lacking(nn.Module):
    """Needs several ops that optimem lacks, in modules and functions of several depths; one only in training."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(3, 3), Whitened())
        self.rest = nn.ModuleList([Whitened(), nn.ReLU()])

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for m in self.rest:
            x = m(x)
        return scattered(x) + torch.linalg.eigvalsh(x)


def scattered(x: Tensor) -> Tensor:
    return torch.bincount(x.to(torch.int64).flatten()) + torch.geqrf(x)[0].sum()


class Looping(nn.Module):
    """Runs until what it computes is small, which only data tells."""

    def forward(self, x: Tensor) -> Tensor:
        while bool(x.abs().max() > 1e-3):
            x = x * 0.5
        return x
