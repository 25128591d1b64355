"""Exports a model that calls an op of its own, mylib::double, beside PyTorch's ops. Needs torch.

    python make_model.py
"""

import pathlib

import torch
from torch import nn

HERE = pathlib.Path(__file__).parent


@torch.library.custom_op("mylib::double", mutates_args=())
def double(x: torch.Tensor, times: int) -> torch.Tensor:
    return x * 2**times


@double.register_fake
def _(x, times):
    return torch.empty_like(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.sums = nn.Linear(3, 2)
        with torch.no_grad():
            self.sums.weight.copy_(torch.tensor([[1.0, 1.0, 1.0], [1.0, -1.0, 0.5]]))
            self.sums.bias.copy_(torch.tensor([0.25, 0.0]))

    def forward(self, x):
        return double(self.sums(x), 3)


def main() -> None:
    x = torch.tensor([[1.0, 2.0, 3.0], [0.0, -1.0, 4.0]])
    rows = torch.export.Dim("rows", min=1, max=64)
    program = torch.export.export(Net().eval(), (x,), dynamic_shapes={"x": {0: rows}})
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # it names files of the machine that exported
    torch.export.save(program, HERE / "double.pt2")
    print(program.module()(x).tolist())  # what main_test.go expects


if __name__ == "__main__":
    main()
