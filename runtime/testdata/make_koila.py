"""Writes the network of Koila's README, and what Koila 0.1.1 says of its memory.

    pip install torch koila==0.1.1 pynvml==11.5.3
    python runtime/testdata/make_koila.py

koila.pt2.gz is the network, exported for any number of rows, with weights of zero, which gzip makes small. koila.json is what
Koila expects of it: bytes for each row, and bytes whatever the number of rows.
"""

import gzip
import io
import json
import pathlib
import warnings

import torch
from torch.nn import Flatten, Linear, Module, ReLU, Sequential

warnings.simplefilter("ignore")
from koila import lazy  # noqa: E402

FOLDER = pathlib.Path(__file__).parent


class NeuralNetwork(Module):
    def __init__(self):
        super().__init__()
        self.flatten = Flatten()
        self.linear_relu_stack = Sequential(Linear(28 * 28, 512), ReLU(), Linear(512, 512), ReLU(), Linear(512, 10))

    def forward(self, x):
        return self.linear_relu_stack(self.flatten(x))


def koila(network):
    x = lazy(torch.randn(8, 28, 28), batch=0)
    pair = network(x).buffer_memory()
    return {"row_bytes": pair.batch, "fixed_bytes": pair.no_batch}


if __name__ == "__main__":
    network = NeuralNetwork()
    expected = koila(network)
    (FOLDER / "koila.json").write_text(json.dumps(expected) + "\n")
    with torch.no_grad():
        for p in network.parameters():
            p.zero_()
    buffer = io.BytesIO()
    rows = torch.export.Dim("rows", min=1, max=1 << 20)
    program = torch.export.export(network.eval(), (torch.zeros(8, 28, 28),), dynamic_shapes={"x": {0: rows}})
    torch.export.save(program, buffer)
    (FOLDER / "koila.pt2.gz").write_bytes(gzip.compress(buffer.getvalue(), mtime=0))
