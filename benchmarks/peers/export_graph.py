"""Write a torch.export archive of about NODES call_function nodes: python export_graph.py NODES OUT.pt2

Blocks of five operations each (layer norm, linear, gelu, linear, add), eight numbers wide, so that the file is graph
and hardly any weights.
"""

import sys

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def main():
    nodes, out = int(sys.argv[1]), sys.argv[2]
    torch.manual_seed(0)
    model = nn.Sequential(*[Block(8) for _ in range(nodes // 5)]).eval()
    program = torch.export.export(model, (torch.zeros(2, 8),))
    torch.export.save(program, out)
    calls = sum(n.op == "call_function" for n in program.graph.nodes)
    print(f"{out}: {calls} call_function nodes, {len(program.state_dict)} weights")


if __name__ == "__main__":
    main()
