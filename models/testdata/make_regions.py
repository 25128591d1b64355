"""Exports a program with regions under autocast, nested and one after another, and records in autocast.json what PyTorch
computes with it.

    python make_regions.py

needs torch; the files are by torch 2.11.
"""

import json
import pathlib

import torch
from torch import nn

HERE = pathlib.Path(__file__).parent


class Regions(nn.Module):
    """A product before a region, in it, where it is off, where it is on again, of doubles, and behind it."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x, d):
        before = self.linear(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            within = self.linear(x)
            with torch.autocast("cpu", enabled=False):
                off = self.linear(x + 1.0)
            again = self.linear(x + 2.0)
            doubles = torch.mm(d, d)
        behind = self.linear(x + 3.0)
        return {"before": before, "within": within, "off": off, "again": again, "doubles": doubles, "behind": behind}


def main():
    torch.manual_seed(5)
    module = Regions().eval()
    inputs = {"x": torch.randn(2, 4), "d": torch.randn(3, 3, dtype=torch.float64)}
    with torch.no_grad():
        program = torch.export.export(module, tuple(inputs.values()))
        outputs = module(**inputs)
    for part in program.graph_module.modules():
        for node in part.graph.nodes:
            node.meta.pop("stack_trace", None)  # it names files of the machine that exported
    torch.export.save(program, HERE / "autocast.pt2")
    record = {
        part: {name: {"dtype": str(t.dtype).removeprefix("torch."), "shape": list(t.shape), "values": t.flatten().tolist()}
               for name, t in tensors.items()}
        for part, tensors in (("inputs", inputs), ("outputs", outputs))
    }
    lines = (f"{json.dumps(k)}: {json.dumps(v)}" for k, v in record.items())
    (HERE / "autocast.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
