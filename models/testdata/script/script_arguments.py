"""Models for make_script.py whose forward takes numbers, or keeps its state in attributes that are no buffers."""

from typing import List, Optional, Tuple

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


class Voice(nn.Module):
    """A network for one sampling rate: pieces of sound and a recurrent cell."""

    def __init__(self, context: int):
        super().__init__()
        self.context = context
        self.conv = nn.Conv1d(1, 4, 4, stride=2)
        self.cell = nn.LSTMCell(4, 3)

    def forward(self, x: Tensor, state: Tensor) -> Tuple[Tensor, Tensor]:
        y = torch.relu(self.conv(x.unsqueeze(1))).mean(2)
        if len(state):
            h, c = self.cell(y, (state[0], state[1]))
        else:
            h, c = self.cell(y)
        return h.mean(1), torch.stack([h, c])


class Speech(nn.Module):
    """Keeps the end of what it heard, and a state, and begins again when the rate or the batch is another, as detectors of speech
    do: tensors that are empty before the first call, and numbers."""

    def __init__(self):
        super().__init__()
        self.wide, self.narrow = Voice(4), Voice(2)
        self.reset_states()

    def reset_states(self):
        self._state, self._context = torch.zeros(0), torch.zeros(0)
        self._last_sr, self._last_batch_size = 0, 0

    def forward(self, x: Tensor, sr: int) -> Tensor:
        batch = x.shape[0]
        context = self.wide.context if sr == 16000 else self.narrow.context
        if self._last_sr and self._last_sr != sr:
            self.reset_states()
        if self._last_batch_size and self._last_batch_size != batch:
            self.reset_states()
        if not len(self._context):
            self._context = torch.zeros(batch, context)
        x = torch.cat([self._context, x], dim=1)
        if sr == 16000:
            out, self._state = self.wide(x, self._state)
        else:
            out, self._state = self.narrow(x, self._state)
        self._context = x[..., -context:]
        self._last_sr = sr
        self._last_batch_size = batch
        return out


class Recalls(nn.Module):
    """Attributes of many types that live from call to call: None before the first, tuples, lists, texts, floats; two that change
    places, one that only another way through the code reads, one that nobody does."""

    hidden: Optional[Tuple[Tensor, Tensor]]
    recent: List[Tensor]
    last: Optional[Tensor]
    seen: Optional[Tensor]
    first: Optional[Tensor]
    fading: Optional[Tensor]

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(3, 4)
        self.hidden, self.recent, self.last, self.seen = None, [], None, None
        self.first, self.fading = None, None
        self.mode, self.gain = "first", 1.0
        self.register_buffer("a", torch.zeros(3))
        self.register_buffer("b", torch.zeros(3))

    def forward(self, x: Tensor, start: bool) -> Tuple[Tensor, Tensor, Tensor]:
        self.a, self.b = self.b + x[0], self.a
        if start:
            self.hidden, self.last = None, None
        h, c = self.cell(x, self.hidden)
        last = self.last
        if last is not None:
            h = h + last
        y = h * self.gain
        first, fading = self.first, self.fading
        if first is None:
            self.first = h * 2
        else:
            y = y + first
        if fading is None:
            self.fading = h
        else:
            fading = fading * 0.5
            y = y - fading
            self.fading = fading
        if self.mode == "first":
            self.mode, self.gain = "then", 0.5
        elif self.mode == "then":
            self.mode = "always"
        if len(self.recent) == 2:
            y = y - self.recent.pop(0)
        self.recent.append(h)
        self.hidden, self.last, self.seen = (h, c), c, x
        return y, self.a * 1, self.b * 1


class Counts(nn.Module):
    """Counts its calls in a number, of which each value is another program."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.calls


class Grows(nn.Module):
    """Appends what it is given to all that it was given before."""

    def __init__(self):
        super().__init__()
        self.all = torch.zeros(1, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.all = torch.cat([self.all, x])
        return self.all.sum(0)


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
