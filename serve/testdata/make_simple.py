"""Makes the model that Triton's own examples ask for: INPUT0 and INPUT1, INT32 of 1 × 16, their sum and their difference.

    python make_simple.py simple.pt2
"""

import sys

import torch


class Simple(torch.nn.Module):
    def forward(self, INPUT0, INPUT1):
        return {"OUTPUT0": INPUT0 + INPUT1, "OUTPUT1": INPUT0 - INPUT1}


def some():
    return torch.zeros(1, 16, dtype=torch.int32)


torch.export.save(torch.export.export(Simple().eval(), (some(), some())), sys.argv[1])
