"""Makes the gzipped programs in this folder and golden.json, what PyTorch itself says of them.

    python programs.py

Every program is a small random model exported by torch.export; only the JSON is kept, no weights.
"""

import collections
import gzip
import json
import os
from dataclasses import dataclass

import torch
from torch import nn
from torch._export.serde.serialize import serialize
from torch.export import Dim, export

HERE = os.path.dirname(os.path.abspath(__file__))
torch.manual_seed(0)


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2))
        self.head = nn.Linear(8 * 7 * 7, 5)

    def forward(self, image):
        return self.head(torch.flatten(self.features(image), 1))


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.attn = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, ids, mask):
        x = self.embed(ids) * mask.unsqueeze(-1)
        y, w = self.attn(x, x, x)
        return y + x, w


class Keywords(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, *, scale, shift=None):
        return {"sum": self.a(x) * scale, "parts": (self.b(x), [x + 1, x - 1])}


class Nested(nn.Module):
    def forward(self, pair, table, flag: bool, n: int):
        y = pair[0] + pair[1]["left"] * n
        return [y, table["k"] if flag else y]


Point = collections.namedtuple("Point", ["px", "py"])
torch.utils._pytree._register_namedtuple(Point, serialized_type_name="testdata.Point")


class Tuples(nn.Module):
    def forward(self, p):
        return Point(p.py, p.px), collections.OrderedDict(second=p.px + p.py)


@dataclass
class Pair:
    first: torch.Tensor
    second: torch.Tensor
    third: torch.Tensor | None = None


torch.export.register_dataclass(Pair, serialized_type_name="testdata.Pair")


class Dataclass(nn.Module):
    def forward(self, x):
        return Pair(x + 1, x * 2)


class Mutation(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(3))
        self.register_buffer("scratch", torch.ones(3), persistent=False)
        self.constant = torch.arange(3.0)

    def forward(self, x):
        self.count.add_(1)
        x.mul_(2)
        return x + self.count + self.scratch + self.constant + torch.tensor([1.0, 2.0, 3.0])


class Control(nn.Module):
    def forward(self, x, n):
        y = torch.cond(x.sum() > 0, lambda x: (x.sin(), x + 1), lambda x: (x.cos(), x - 1), (x,))
        z = torch._higher_order_ops.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2), (n, x))
        m = torch._higher_order_ops.map(lambda row, b: row + b, x, y[0][0])
        with torch.no_grad():
            k = x * 3
        return y[0], y[1], z[1], m, k


class Arithmetic(nn.Module):
    def forward(self, x, y):
        b, s = x.shape
        half = x[:, : s // 2]
        padded = torch.nn.functional.pad(x, (0, (8 - s % 8) % 8))
        return half, padded, torch.cat([x, y], 1), x.new_zeros(b * s + 1), x.new_ones(max(b, s)), x.reshape(-1)


class Unbacked(nn.Module):
    def forward(self, x):
        found = torch.nonzero(x)
        n = x.sum().to(torch.int64).item()
        torch._check(n >= 1)
        torch._check(n <= 100)
        return found.float().mean(0), torch.zeros(n), float(2.5) * x


class Kinds(nn.Module):
    def forward(self, x):
        a, b = x.split([1, 2])
        top, _ = torch.topk(x, 2)
        c = torch.full((2,), float("inf"), dtype=torch.bfloat16)
        d = x.to(torch.complex64) * (1 + 2j)
        e = torch.empty((1, 2, 3, 4), memory_format=torch.channels_last).zero_()
        f = torch.nn.functional.interpolate(x[None, None], scale_factor=2.0, mode="bilinear")
        i = torch.stack([a[0], b[0]])[torch.tensor([0, 1])]
        g = x.new_zeros(2, dtype=torch.float8_e4m3fn)
        return top, c, d, e, f, i, g, 7, None, True


def programs():
    x = torch.randn
    batch, seq = Dim("batch", min=1, max=64), Dim("seq", min=2, max=128)
    cnn = CNN().eval()
    yield "cnn", export(cnn, (x(2, 3, 16, 16),))
    yield "cnn_training", export(CNN(), (x(2, 3, 16, 16),))
    yield "cnn_dynamic", export(cnn, (x(2, 3, 16, 16),), dynamic_shapes={"image": {0: batch}})
    yield "cnn_decomposed", export(cnn, (x(2, 3, 16, 16),)).run_decompositions()
    ids, mask = torch.zeros(3, 7, dtype=torch.int64), torch.ones(3, 7)
    shapes = {"ids": {0: batch, 1: seq}, "mask": {0: batch, 1: seq}}
    yield "sequence", export(Sequence().eval(), (ids, mask), dynamic_shapes=shapes)
    yield "keywords", export(Keywords(), (x(2, 4),), {"scale": torch.tensor(2.0)})
    yield "nested", export(Nested(), ((x(2), {"left": x(2)}), {"k": x(2)}, True, 3))
    yield "tuples", export(Tuples(), (Point(x(2), x(2)),))
    yield "dataclass", export(Dataclass(), (x(2),))
    yield "mutation", export(Mutation(), (x(3),))
    yield "mutation_decomposed", export(Mutation(), (x(3),)).run_decompositions()
    yield "control", export(Control(), (x(3, 4), torch.tensor(0)))
    shapes = ({0: Dim.AUTO, 1: Dim.AUTO}, {0: Dim.AUTO, 1: Dim.AUTO})
    yield "arithmetic", export(Arithmetic(), (x(3, 12), x(3, 5)), dynamic_shapes=shapes)
    yield "unbacked", export(Unbacked(), (torch.ones(4),))
    yield "kinds", export(Kinds(), (x(3, 3),))
    import transformers

    config = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, vocab_size=50,
        max_position_embeddings=64, attn_implementation="eager",
    )
    yield "bert", export(
        transformers.BertModel(config).eval(), (), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    )


def view(program):
    """What the test compares, from PyTorch's objects and not from the JSON."""
    targets = collections.Counter()
    nodes = 0
    for node in program.graph.nodes:
        if node.op != "call_function" or node.target.__name__ == "getitem":
            continue
        nodes += 1
        name = getattr(node.target, "__module__", "").replace("torch._ops", "torch.ops") + "." + node.target.__name__
        targets[name] += 1
    values = {}
    for node in program.graph.nodes:
        val = node.meta.get("val")
        if isinstance(val, torch.Tensor):
            values[node.name] = [str(val.dtype).removeprefix("torch."), [str(s) for s in val.shape]]
    signature = program.graph_signature
    return {
        "nodes": nodes,
        "targets": dict(sorted(targets.items())),
        "values": values,
        "inputs": [[s.kind.name, getattr(s.arg, "name", None), s.target] for s in signature.input_specs],
        "outputs": [[s.kind.name, getattr(s.arg, "name", None), s.target] for s in signature.output_specs],
        "ranges": {str(k): [str(v.lower), str(v.upper)] for k, v in program.range_constraints.items()},
        "verifiers": [v.dialect for v in program.verifiers],
    }


def portable(text):
    """Takes the paths of this machine out of the stack traces."""
    packages = os.path.dirname(os.path.dirname(torch.__file__))
    return text.replace(HERE.encode(), b"/home/user").replace(packages.encode(), b"/usr/lib/python3/site-packages")


def main():
    golden = {}
    for name, program in programs():
        text = portable(serialize(program).exported_program)
        with open(os.path.join(HERE, name + ".json.gz"), "wb") as raw:
            with gzip.GzipFile("", "wb", 9, raw, mtime=0) as f:
                f.write(text)
        golden[name] = view(program)
        print(name, len(text), golden[name]["nodes"])
    with open(os.path.join(HERE, "golden.json"), "w") as f:
        json.dump(golden, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
