"""Writes the three models that pytorch_memlab's README reports on, small, and what PyTorch says of their storages."""

import json
import pathlib

import torch

here = pathlib.Path(__file__).parent


class Shared(torch.nn.Module):
    """Two layers with one weight."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(24, 24)
        self.linear2 = torch.nn.Linear(24, 24)
        self.linear2.weight = self.linear.weight

    def forward(self, x):
        return self.linear2(self.linear(x))


def main():
    torch.manual_seed(0)
    expected = {}
    for name, model, shape in [
        ("linear", torch.nn.Sequential(torch.nn.Linear(24, 20)), (2, 24)),
        ("shared", Shared(), (2, 24)),
        ("lstm", torch.nn.LSTM(12, 8), (3, 2, 12)),
    ]:
        model.eval()
        if name == "lstm":  # of which torch.export 2.11 records a shape that it does not have
            torch.save(model, here / f"{name}.pt")
        else:
            torch.export.save(torch.export.export(model, (torch.zeros(shape),)), here / f"{name}.pt2")
        first = {}
        expected[name] = {
            "file": "lstm.pt" if name == "lstm" else f"{name}.pt2",
            "input": list(shape),
            "storages": [
                {
                    "name": path,
                    "shape": list(p.shape),
                    "dtype": str(p.dtype).removeprefix("torch."),
                    "bytes": p.untyped_storage().nbytes(),
                    "shared_with": first.setdefault(p.untyped_storage().data_ptr(), path),
                }
                for path, p in model.named_parameters(remove_duplicate=False)
            ],
        }
    (here / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
