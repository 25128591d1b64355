"""Writes skips.pt, a small network with long skips as TorchScript, and picture.json: what PyTorch makes of a picture.

    python make_model.py

What each stage makes waits for a sum at the end, the first for the longest. Stages widen what they get in between.
"""

import json
import pathlib

import torch
from torch import nn

STAGES, NARROW, WIDE = 3, 16, 32
SIDE = 16


class Conv(nn.Module):
    def __init__(self, inputs: int, outputs: int, size: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs, size, size) / (inputs * size * size) ** 0.5)

    def forward(self, x):
        return torch.conv2d(x, self.weight, None, padding=[self.weight.size(2) // 2, self.weight.size(3) // 2])


class Skips(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = Conv(1, NARROW, 3)
        self.widen = nn.ModuleList([Conv(NARROW, WIDE, 1) for _ in range(STAGES)])
        self.narrow = nn.ModuleList([Conv(WIDE, NARROW, 1) for _ in range(STAGES)])
        self.last = Conv(NARROW, 1, 1)

    def forward(self, picture):
        h = torch.relu(self.head(picture))
        skips = [h]
        for widen, narrow in zip(self.widen, self.narrow):
            h = torch.relu(narrow(torch.relu(widen(h))))
            skips.append(h)
        while len(skips) > 1:
            h = h + skips.pop()
        return self.last(h + skips[0])


def main():
    here = pathlib.Path(__file__).parent
    torch.manual_seed(0)
    model = Skips().eval()
    torch.jit.save(torch.jit.script(model), here / "skips.pt")
    picture = (torch.arange(SIDE * SIDE) * 37 % 101 / 101).reshape(1, 1, SIDE, SIDE)
    with torch.no_grad():
        out = model(picture).flatten()
    (here / "picture.json").write_text(json.dumps({"side": SIDE, "first": out[:8].tolist(), "sum": float(out.double().sum())}) + "\n")


if __name__ == "__main__":
    main()
