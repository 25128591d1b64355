"""Writes wrapped.pt: a checkpoint as training scripts leave it, with a model, its moving average and an optimizer.

    python make_wrapped.py
"""

import pathlib

import torch
from torch import nn


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    average = {k: v / 2 for k, v in model.state_dict().items()}
    wrapped = {f"module.{k}": v.half() for k, v in model.state_dict().items()}
    torch.save(
        {"epoch": 3, "ema": average, "optimizer": optimizer.state_dict(), "model": wrapped},
        pathlib.Path(__file__).parent / "wrapped.pt",
    )


if __name__ == "__main__":
    main()
