"""Exports the programs that the tests of sessions run, and records in programs.json what PyTorch computes with them,
pass after pass; in fixtures.json what it computes with the exported programs among the loader's fixtures. Needs torch.

    python make_programs.py
"""

import json
import math
import pathlib
import sys

import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_unflatten

HERE = pathlib.Path(__file__).parent
sys.path.append(str(HERE.resolve().parent.parent / "loader" / "testdata"))

import fixtures_archive  # noqa: E402: it lies in that folder

FIXTURES = pathlib.Path(fixtures_archive.FOLDER)


@torch.library.custom_op("test::gate", mutates_args=())
def gate(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@gate.register_fake
def _(x):
    return torch.empty_like(x)


# Not by custom_op, which takes no tensors by keyword alone.
LIBRARY = torch.library.Library("test", "FRAGMENT")
LIBRARY.define("mix(Tensor x, Tensor[] parts, int times, *, Tensor scale, float shift=0.5) -> Tensor[]")


@torch.library.impl("test::mix", "CompositeExplicitAutograd", lib=LIBRARY)
def mix(x, parts, times, *, scale, shift=0.5):
    return [times * x + p * scale + shift for p in parts]


@torch.library.register_fake("test::mix", lib=LIBRARY)
def _(x, parts, times, *, scale, shift=0.5):
    return [torch.empty_like(p) for p in parts]


class Mix(nn.Module):
    """A call of an op of the test's with every way to pass an argument."""

    def forward(self, x):
        a, b = torch.ops.test.mix(x, [x + 1.0, x.sin()], 3, scale=x.sum(0), shift=0.25)
        return {"a": a, "b": b}


class Selected(nn.Module):
    """What masks select, changed and put back: elements, rows and columns."""

    def forward(self, x):
        elements, rows, columns = x > 0, x.sum(1) > 0, x.sum(0) > 0
        a = x.clone()
        a[elements] += 1.5
        b = x.clone()
        b[rows] = b[rows].sigmoid() * 2 + x.mean(0)
        c = x.clone()
        c[:, columns] = (c[:, columns] * x[:, columns].abs()).clamp(max=3.0)
        d = x.clone()
        picked = d[elements]
        d[elements] = 0.0
        picked.add_(x[elements]).neg_()
        d[elements] = picked
        e = x.index_put((x < 0,), torch.tensor(2.0), accumulate=True)
        f = x.clone()
        f[:, columns] = x.sum(1, keepdim=True)
        g = x.index_put((rows,), x[rows] + 1.0, accumulate=True)
        return {"a": a, "b": b, "c": c, "d": d, "e": e, "f": f, "g": g}


class Shift(nn.Module):
    """Inputs that do not show which of them has rows, and a scalar."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 4)
        with torch.no_grad():
            self.linear.weight.copy_(torch.arange(12.0).reshape(4, 3) / 8)
            self.linear.bias.zero_()

    def forward(self, x, w, t):
        return self.linear(x) * t + w


class Rows(nn.Module):
    """Rows in the first dimension and in the second, and what has no rows."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)
        with torch.no_grad():
            self.linear.weight.copy_(torch.arange(12.0).reshape(3, 4) / 8 - 0.5)
            self.linear.bias.copy_(torch.tensor([1.0, -2.0, 0.25]))

    def forward(self, x, z, w):
        y = self.linear(x) * w
        return {"y": y, "turned": y.t() + z, "across": y.t(), "shared": w * 3.0, "input": z}


class Power(nn.Module):
    def forward(self, x):
        return torch.matrix_power(x, -2)


class Lacking(nn.Module):
    """A module within calls an op with arguments that optimem refuses."""

    def __init__(self):
        super().__init__()
        self.inner = Power()

    def forward(self, x):
        return self.inner(x) + 1.0


class Gate(nn.Module):
    """An op in the middle that the test computes, and so can wait in."""

    def __init__(self):
        super().__init__()
        self.before = nn.Linear(4, 4)
        self.after = nn.Linear(4, 2)

    def forward(self, x):
        return self.after(gate(self.before(x)))


class States(nn.Module):
    """Buffers that change, by way of each other, and one that is returned."""

    def __init__(self):
        super().__init__()
        self.register_buffer("a", torch.tensor([1.0, 2.0]))
        self.register_buffer("b", torch.tensor([10.0, 20.0]))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        old = self.a.clone()
        self.a.copy_(self.b)
        self.b.copy_(old + x.sum(0))
        self.count.add_(1)
        return {"sum": self.a + self.b, "a": self.a.clone(), "count": self.count.clone()}


class Resets(nn.Module):
    """Buffers that become the input, a number, a part of what they were, a parameter and each other."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([[0.5, -0.25]]), requires_grad=False)
        for name, value in (("seen", 1.0), ("sum", 2.0), ("part", 3.0), ("copied", 4.0), ("left", 5.0), ("right", 6.0)):
            self.register_buffer(name, torch.full((1, 2), value))

    def forward(self, x):
        result = {name: getattr(self, name) * 2.0 for name in ("seen", "sum", "part", "copied", "left", "right")}
        self.seen.copy_(x)
        self.sum.fill_(0.5)
        self.part[:, 1] += 1.0
        self.copied.copy_(self.weight)
        left = self.left.clone()
        self.left.copy_(self.right)
        self.right.copy_(left)
        return result | {"weight": self.weight.clone(), "ones": torch.ones(2, 3)}


class Odd(nn.Module):
    """Results that are one another, views, the input itself, a scalar, nothing, bools and integers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.arange(6.0).reshape(2, 3))

    def forward(self, x):
        y = x * 2.0
        return {
            "y": y, "again": y, "input": x, "turned": y.t(), "row": y[1], "none": y[:, :0], "scalar": y.sum(),
            "positive": x > 0, "index": (x * 10.0).to(torch.int32), "half": y.to(torch.bfloat16),
            "table": self.table.t(),
        }


class Permuted(nn.Module):
    """Writes through reshapes and memory formats of results that PyTorch keeps permuted: into copies, and into views."""

    def forward(self, x):
        images = x.reshape(-1, 3, 2, 2)
        pixels = images.permute(0, 2, 3, 1)
        base = pixels + 1.0
        copied = base.reshape(-1, 12)
        copied.mul_(10.0)
        origin = pixels * 2.0
        lines = origin.permute(0, 3, 1, 2).view(-1, 12)
        pairs = lines[:, 2:10].reshape(-1, 2, 4)
        pairs.add_(100.0)
        origin[:, 0].mul_(-1.0)
        kept = pixels.clone()
        ordered = kept.contiguous()
        ordered.neg_()
        same = kept.permute(0, 3, 1, 2).contiguous()
        same.mul_(3.0)
        first = images.sin()
        last = first.to(memory_format=torch.channels_last)
        last.sub_(5.0)
        itself = last.to(memory_format=torch.channels_last).contiguous(memory_format=torch.channels_last)
        itself.mul_(0.5)
        other = itself.to(memory_format=torch.contiguous_format)
        other.fill_(7.0)
        return {
            "base": base, "copied": copied, "origin": origin, "lines": lines, "pairs": pairs, "kept": kept, "ordered": ordered,
            "same": same, "first": first, "last": last, "itself": itself, "other": other,
        }


class Conjugated(nn.Module):
    """Conjugates, which are views in PyTorch: written to, by parts, and through each other; and copies of them."""

    def forward(self, x):
        z = torch.view_as_complex(x.reshape(-1, 3, 2) + 1.0)
        bar = z.conj()
        bar.mul_(2.0 + 1.0j)
        bar.imag.add_(3.0)
        bar[0, 1] = 5.0j
        both = bar.conj()
        z[:, 2] += 0.5j
        both.imag.mul_(-3.0)
        kept = bar.resolve_conj()
        kept.add_(100.0j)
        same = both.resolve_conj()
        same.real.sub_(7.0)
        below = bar.imag.resolve_neg()
        below.fill_(9.0)
        turned = z.mH
        turned[0] += 11.0j
        lines = (z.t() * 1.0j).conj()
        pairs = lines.reshape(-1)
        pairs[1:].neg_()
        after = lines.contiguous()
        after.mul_(2.0j)
        results = {
            "z": z, "bar": bar, "both": both, "kept": kept, "same": same, "turned": turned, "lines": lines, "pairs": pairs,
            "after": after,
        }
        return {name: torch.view_as_real(t.resolve_conj()) for name, t in results.items()} | {"below": below}


class Strided(nn.Module):
    """Views of memory by strides, where PyTorch keeps the dimensions in another order, and of the memory of parts."""

    def forward(self, x):
        turned = x.reshape(-1, 3, 2, 2).permute(3, 1, 0, 2) * 2.0
        lines = turned.as_strided((2, 3), (1, 4))
        lines.mul_(10.0)
        turned[1].add_(100.0)
        part = turned[1:, 1:].as_strided((3,), (2,))
        first = turned[:, 2, 1].as_strided((2, 2), (3, 1), 1)
        first.sub_(1000.0)
        square = x[:, :4].reshape(-1, 2, 2).transpose(1, 2).sin()
        across = square.diagonal(dim1=1, dim2=2).as_strided((2, 3), (4, 1), 1)
        across.fill_(7.0)
        put = torch.as_strided_scatter(turned, x[0, :4], (4,), (3,), 1)
        return {
            "turned": turned, "lines": lines, "part": part, "first": first, "square": square, "across": across, "put": put,
        }


class Branches(nn.Module):
    """Conditionals, one within a branch of the other; the op that the test computes is in two of the three branches."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)

    def forward(self, x):
        def small(t):
            return torch.cond(t.amax() > 2.0, lambda u: gate(u) * 3.0, lambda u: u.sin(), (t,))

        y = torch.cond(x.sum() > 0, lambda t: gate(self.a(t)) + 1.0, lambda t: small(self.b(t)), (x,))
        return y - x


def record(program, passes):
    module = program.module()
    runs = []
    for x in passes:
        outputs = module(torch.tensor(x))
        if not isinstance(outputs, dict):
            outputs = {program.graph_signature.user_outputs[0]: outputs}
        runs.append({
            "x": x,
            "outputs": {
                name: {"dtype": str(t.dtype).removeprefix("torch."), "shape": list(t.shape),
                       "data": t.double().flatten().tolist()}
                for name, t in outputs.items()
            },
        })
    return runs


def flat(t):
    """The elements of a tensor as numbers, complex ones as two."""
    if not isinstance(t, torch.Tensor):
        t = torch.tensor(t)
    dtype = str(t.dtype).removeprefix("torch.")
    t = t.detach()
    elements = torch.view_as_real(t.to(torch.complex128)) if t.is_complex() else t.to(torch.float64)
    return {"dtype": dtype, "shape": list(t.shape), "data": elements.flatten().tolist()}


def two_passes(program):
    """Two passes, so that what a program remembers shows, over inputs of its example's shapes."""
    args, kwargs = program.example_inputs
    module = program.module()
    inputs, spec = tree_flatten((args, kwargs))
    runs = []
    for step in range(2):
        values = []
        for v in inputs:
            if isinstance(v, torch.Tensor) and v.is_floating_point():
                v = ((torch.arange(v.numel()) * 37 % 23).reshape(v.shape) / 8.0 - 1.0 + step).to(v.dtype)
            values.append(v)
        args, kwargs = tree_unflatten(values, spec)
        with torch.no_grad():
            outputs = tree_flatten(module(*args, **kwargs))[0]
        runs.append({"inputs": [flat(v) for v in values if isinstance(v, torch.Tensor)],
                     "outputs": [flat(v) for v in outputs if isinstance(v, (torch.Tensor, int, float))]})
    return runs


def record_fixtures():
    """What PyTorch computes with each fixture that is one program over plain tensors."""
    fixtures_archive.unpack()
    recorded = {}
    for path in sorted(FIXTURES.glob("*pt2_*.pt2")):
        try:
            recorded[path.name] = two_passes(torch.export.load(path))
        except Exception as e:
            print("not recorded:", path.name, "-", type(e).__name__, str(e).strip().split("\n")[0])
    return recorded


class Scaled(nn.Module):
    """Numbers of the program, one of them without a default."""

    def forward(self, x: torch.Tensor, times: int, gain: float = 2.5):
        return x[:, :times] * gain


def scaled():
    torch.jit.save(torch.jit.script(Scaled().eval()), HERE / "scaled.pt")


def shift():
    example = torch.ones(2, 3), torch.ones(4), torch.tensor(2, dtype=torch.int64)
    program = torch.export.export(Shift().eval(), example)
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
    torch.export.save(program, HERE / "shift.pt2")


def rows():
    """Exports Rows, and records in rows.json what PyTorch computes with it, for numbers that no op rounds."""
    n = torch.export.Dim("rows", min=1, max=1000)
    example = torch.ones(2, 4), torch.ones(3, 2), torch.ones(3)
    program = torch.export.export(Rows().eval(), example, dynamic_shapes=({0: n}, {1: n}, None))
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
    torch.export.save(program, HERE / "rows.pt2")
    module, runs = program.module(), []
    for size in (1, 5):
        shapes = (size, 4), (3, size), (3,)
        inputs = [(torch.arange(math.prod(shape)) * 37 % 23).reshape(shape) / 8.0 - 1.0 for shape in shapes]
        with torch.no_grad():
            outputs = module(*inputs)
        runs.append({"inputs": [flat(v) for v in inputs], "outputs": {name: flat(v) for name, v in outputs.items()}})
    (HERE / "rows.json").write_text("[\n" + ",\n".join(json.dumps(run) for run in runs) + "\n]\n")


def main() -> None:
    torch.manual_seed(5)
    rows = {"x": {0: torch.export.Dim("rows", min=1, max=100)}}
    wide = torch.export.Dim("rows", min=1, max=1 << 45)
    recorded = {}
    for name, module, example, passes, dynamic in (
        ("gate", Gate(), torch.ones(2, 4),
         [[[1.0, -1.0, 0.5, 2.0]], [[0.0, 1.0, 2.0, 3.0], [4.0, 3.0, 2.0, 1.0], [-1.0, 0.25, 8.0, 0.0]]],
         {"x": {0: wide}}),
        ("states", States(), torch.ones(2, 2), [[[1.0, 2.0]], [[0.5, -1.0], [3.0, 4.0]], [[1.0, 1.0]]], rows),
        ("cond", Branches(), torch.ones(2, 4),
         [[[1.0, -1.0, 0.5, 2.0]], [[-9.0, 1.0, 2.0, -30.0]], [[0.0, -1.0, -0.25, 0.5], [0.0, 0.0, 0.0, 0.0]],
          [[1.0, 1.0, 0.5, 2.0]]],
         {"x": {0: wide}}),
        ("mix", Mix(), torch.ones(2, 4), [[[1.0, -1.0, 0.5, 2.0], [0.0, 3.0, -0.25, 1.0]]], None),
        ("resets", Resets(), torch.ones(1, 2), [[[1.0, 2.0]], [[3.0, 4.0]], [[5.0, 6.0]]], None),
        ("odd", Odd(), torch.ones(3, 2), [[[1.0, -2.0], [0.25, 4.0], [-0.5, 0.0]]],
         {"x": {0: wide}}),
        ("permuted", Permuted(), torch.ones(2, 12),
         [[[float(10 * i + k) for k in range(12)] for i in range(rows)] for rows in (2, 3)], rows),
        ("conjugated", Conjugated(), torch.ones(2, 12), [[[float(k % 7 - 3) for k in range(12)] for _ in range(2)]], None),
        ("strided", Strided(), torch.ones(2, 12), [[[float(k + 12 * i) for k in range(12)] for i in range(2)]], None),
        ("selected", Selected(), torch.ones(3, 4),
         [[[1.0, -2.0, 3.0, -0.5], [-1.0, 0.5, -4.0, 0.25], [0.5, 0.0, 2.0, -1.0]],
          [[-1.0, 2.0, -0.0, -5.0], [7.0, -3.0, 0.5, 1.0]]], {"x": {0: wide}}),
    ):
        program = torch.export.export(module.eval(), (example,), dynamic_shapes=dynamic)
        for graph in program.graph_module.modules():  # the branches of conditionals are graphs of their own
            for node in graph.graph.nodes if isinstance(graph, torch.fx.GraphModule) else ():
                node.meta.pop("stack_trace", None)  # it names files of the machine that exported
        torch.export.save(program, HERE / f"{name}.pt2")
        recorded[name] = record(program, passes)
    program = torch.export.export(Lacking(), (torch.eye(2) * 2,))
    for node in program.graph.nodes:
        node.meta["stack_trace"] = '  File "power.py", line 7, in forward'
    torch.export.save(program, HERE / "lacking.pt2")
    shift()
    scaled()
    rows()
    (HERE / "programs.json").write_text(json.dumps(recorded) + "\n")
    lines = (f"{json.dumps(name)}: {json.dumps(runs)}" for name, runs in record_fixtures().items())
    (HERE / "fixtures.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
