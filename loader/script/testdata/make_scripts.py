"""Writes the code of TorchScript archives, as torch.jit.save writes it, beside this script.

    python make_scripts.py            # needs torch and torchvision

One file NAME.txt per model holds the files of its archive's code/ folder, each after a line "-- path --"; large models
are cut down to a few files. trees.txt holds, for every class and function, the start of the SHA-256 of its syntax tree
as Python's own parser sees it, written as an S-expression: the Go test builds the same expression from its tree.
"""

import ast
import hashlib
import io
import os
import struct
import warnings
import zipfile
from enum import Enum
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

import torch
import torchvision
from torch import Tensor, nn

HERE = os.path.dirname(os.path.abspath(__file__))
warnings.simplefilter("ignore")


# --- models ---------------------------------------------------------------------------------------------------------


class Color(Enum):
    RED = 1
    GREEN = 2


class Mode(Enum):
    FAST = "fast one"
    SLOW = "slow"


class Rate(Enum):
    HALF = 0.5
    FULL = 1.0


class Out(NamedTuple):
    logits: Tensor
    aux: Optional[Tensor]
    n: int = 3


@torch.jit.script
class Pair:
    def __init__(self, a: int, b: Tensor):
        self.a = a
        self.b = b

    def total(self) -> Tensor:
        return self.b + self.a


@torch.jit.interface
class Op(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


@torch.jit.script
class Context:
    def __init__(self):
        self.n = 0

    def __enter__(self) -> int:
        return 3

    def __exit__(self, a: Any, b: Any, c: Any) -> None:
        pass


class AddOne(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1


def scale(x: Tensor, k: int = 3, name: str = "tab\t back\\slash \"'\x01é") -> Tensor:
    return x * k


def forked(x: Tensor, y: Tensor) -> Tensor:
    return x @ y


class Everything(nn.Module):
    __constants__ = ["kc", "fc", "tup"]
    op: Op

    def __init__(self):
        super().__init__()
        self.kc, self.fc, self.tup = 3, 0.1, (1, 2.5, "x")
        self.op = AddOne()
        self.ml = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3, bias=False)])
        self.md = nn.ModuleDict({"a-b": nn.ReLU(), "c": nn.ReLU()})
        self.seq = nn.Sequential(nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3))
        self.register_buffer("buf", torch.ones(3))
        self.p = nn.Parameter(torch.ones(2))
        self.register_parameter("none_p", None)
        self.layers = torch.jit.Attribute({"a": 1}, Dict[str, int])
        self.lst = torch.jit.Attribute([], List[Tensor])
        self.opt = torch.jit.Attribute(None, Optional[Tensor])
        self.mode, self.rate = Mode.FAST, Rate.HALF
        self.dev, self.cplx, self.inf = torch.device("cpu"), 1 + 2j, float("inf")

    def forward(
        self,
        x: Tensor,
        flag: bool = True,
        eps: float = 1e-5,
        dims: Optional[List[int]] = None,
        kw: str = "é\n",
        c: Color = Color.RED,
    ) -> Out:
        y = x
        for i in range(x.size(0)):
            if i > 3:
                y = y + i
            elif i == 2:
                continue
            else:
                y = y * 2.0
            if y.sum() > 100:
                break
        while y.sum() < 10 and flag:
            y = y + 1
        z: List[Tensor] = []
        for m in self.ml:
            y = m(y)
        for _, v in self.md.items():
            y = v(y)
        z.append(y)
        d = {"a": y, "b": y}
        e: Dict[int, Optional[Tensor]] = {}
        e[1] = None
        for _, vv in d.items():
            y = y + vv
        w = [a + 1 for a in z]
        if dims is not None:
            y = y.sum(dims) + len(w) + len(e)
        assert y.dim() == 2, f"bad {y.dim()}"
        if c == Color.RED:
            y = y + c.value
        if self.mode == Mode.SLOW:
            y = y + len(self.mode.value) + len(self.mode.name)
        y = torch.jit.wait(torch.jit.fork(forked, y, y))
        p = Pair(1, y)
        p.a = 5
        y = p.total()
        with Context() as q:
            y = y + q
        with torch.no_grad():
            y = y * 2
        y = y[..., None, 1:2, ::2]
        y[0] = 1
        y = self.op.forward(y)
        h = y.to(torch.float16, non_blocking=True).to("cuda:0").to(torch.device("cuda", 1))
        txt = "{} {}".format(1, "x") + "\x01\t\"'\\"
        cc = complex(float("inf"), float("nan"))
        nums = [float("inf"), -float("inf"), float("nan"), 1e300, 1e-300, 0.1, -0.0, 3.0, 1e15, 1.5e16, 1e17, -1.5]
        ints = [9223372036854775807, -9223372036854775807 - 1, -1]
        print(txt, cc, nums, ints, h)
        self.buf = self.buf + 1
        self.opt = y
        opt = self.opt
        if opt is not None:
            y = y + opt
        y = scale(y)
        self.layers["b"] = 3
        del self.layers["b"]
        row: List[float] = y.sum(0).tolist()
        un: Union[int, str] = 3
        if isinstance(un, int):
            y = y + un + row[0]
        any_: Any = dims
        if isinstance(any_, (int, str)):
            y = y + 1
        t = (y, 1, "s")
        y = t[0] + len(ints[1:2]) + t[1:][0]
        a, b = torch.max(y, 0)
        y = a + b + int(y.sum()) + float(y.sum()) + int(bool(y.sum())) + len(str(ints[0]))
        if flag:
            raise ValueError("no {}".format(3))
        return Out(y, None, 3)


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(2, 2)

        def after(self, input: Tuple[Tensor], out: Tensor) -> Tensor:
            return out + 1

        def before(self, input: Tuple[Tensor]) -> Tensor:
            return input[0] * 2

        self.l.register_forward_hook(after)
        self.l.register_forward_pre_hook(before)

    def forward(self, x: Tensor) -> Dict[str, Tensor]:
        return {"logits": self.l(x), "b": x}


class TracedDict(nn.Module):
    def __init__(self):
        super().__init__()
        self.l, self.l2 = nn.Linear(2, 2), nn.LSTM(2, 2)

    def forward(self, x):
        y, _ = self.l2(self.l(x))
        return {"logits": y + torch.arange(y.shape[0])[:, None, None], "x": x.view(x.shape[0], -1)}


class Containers(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.ModuleDict({"0": AddOne(), "1": AddOne()})
        self.ml = nn.ModuleList([AddOne(), AddOne()])

    def forward(self, x: Tensor, k: str, i: int):
        a: Op = self.q[k]
        b: Op = self.ml[i]
        return a.forward(x) + b.forward(x)


class Reserved(nn.Module):
    """Submodules whose names are words of the importer."""

    def __init__(self):
        super().__init__()
        self.torch, self.ops, self.inf = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2)), nn.Linear(2, 2)

    def forward(self, x):
        return self.ops(self.torch(x)) @ self.torch.weight + self.ops[0].bias + self.inf.bias


def complexes(x: Tensor, a: complex = 1 - 2j, b: float = float("inf")):
    return x * a * b, [1j, complex(0, float("nan")), -1.5 + 2j, complex(1e16, -1)], ("one",), annotated(x)


def annotated(x: Optional[Tensor]) -> Tuple[List[int], Dict[str, List[Optional[int]]]]:
    if x is None:
        sizes: List[int] = []
        named: Dict[str, List[Optional[int]]] = {}
        return sizes, named
    some: Dict[str, List[Optional[int]]] = {"n": [x.dim(), None]}
    return [len(x)], some


class Quantized(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 4)

    def forward(self, x):
        return self.l(x)


def vision(name, **kw):
    return getattr(torchvision.models, name)(weights=None, **kw).eval()


def models():
    quantized = torch.ao.quantization.quantize_dynamic(Quantized(), {nn.Linear})
    script, trace = torch.jit.script, torch.jit.trace
    x = torch.zeros(1, 3, 224, 224)
    every = ""
    yield "everything", script(Everything()), every
    yield "hooked", script(Hooked()), every
    yield "traced_dict", trace(TracedDict(), torch.ones(2, 1, 2), strict=False), every
    yield "containers", script(Containers()), every
    yield "reserved", script(Reserved()), every
    yield "reserved_traced", trace(Reserved(), torch.ones(2, 2)), every
    yield "complexes", script(complexes), every
    yield "quantized", script(quantized), every
    yield "frozen_transformer", torch.jit.freeze(script(nn.TransformerEncoderLayer(8, 2, 16).eval())), every
    yield "resnet18_scripted", script(vision("resnet18")), every
    yield "resnet18_traced", trace(vision("resnet18"), x), every
    yield "googlenet_scripted", script(vision("googlenet", init_weights=False).train()), "models/googlenet.py"
    yield "inception_v3_traced", trace(vision("inception_v3", init_weights=False), x), "torchvision/models/inception.py"
    detector = torchvision.models.detection.retinanet_resnet50_fpn(weights=None, weights_backbone=None)
    yield "retinanet_scripted", script(detector), "models/detection/retinanet"


# --- trees ----------------------------------------------------------------------------------------------------------

WORDS = {"inf": float("inf"), "nan": float("nan"), "infj": complex(0, float("inf")), "nanj": complex(0, float("nan"))}


def bits(v):
    return "nan" if v != v else struct.pack(">d", v).hex()


def number(n):
    """The value of a numeric literal, signs and complex sums folded; None for anything else."""
    if isinstance(n, ast.Constant) and type(n.value) in (int, float, complex):
        return n.value
    if isinstance(n, ast.Name) and n.id in WORDS:
        return WORDS[n.id]
    if isinstance(n, ast.UnaryOp) and isinstance(n.op, ast.USub):
        v = number(n.operand)
        return complex(0, -v.imag) if isinstance(v, complex) else -v
    if isinstance(n, ast.BinOp):
        re, im = number(n.left), number(n.right).imag
        return complex(re, im if isinstance(n.op, ast.Add) else -im)
    return None


def sexp(n):
    if n is None:
        return "-"
    if isinstance(n, list):
        return "[" + " ".join(sexp(x) for x in n if not isinstance(x, ast.Pass)) + "]"
    v = number(n)
    if isinstance(v, complex):
        return "(complex %s %s)" % (bits(v.real), bits(v.imag))
    if isinstance(v, float):
        return "(float %s)" % bits(v)
    if isinstance(v, int) and not isinstance(v, bool):
        return "(int %d)" % v
    kind = type(n).__name__
    if kind == "Constant":
        if isinstance(n.value, str):
            return "(str %s)" % n.value.encode("latin1").hex()
        return "(%s)" % n.value
    if kind == "Name":
        return n.id
    if kind == "Attribute":
        return "(. %s %s)" % (sexp(n.value), n.attr)
    if kind == "Call":
        keywords = " ".join("%s=%s" % (k.arg, sexp(k.value)) for k in n.keywords)
        return "(call %s %s [%s])" % (sexp(n.func), sexp(n.args), keywords)
    if kind == "Subscript":
        return "(sub %s %s)" % (sexp(n.value), sexp(n.slice))
    if kind == "Slice":
        return "(slice %s %s %s)" % (sexp(n.lower), sexp(n.upper), sexp(n.step))
    if kind in ("Tuple", "List"):
        return "(%s %s)" % (kind.lower(), sexp(n.elts))
    if kind == "Dict":
        return "(dict %s %s)" % (sexp(n.keys), sexp(n.values))
    if kind == "Assign":
        return "(= %s %s)" % (sexp(n.targets[0]), sexp(n.value))
    if kind == "AnnAssign":
        target = n.target.id if isinstance(n.target, ast.Name) else sexp(n.target)  # an attribute may be named inf
        return "(: %s %s %s)" % (target, sexp(n.annotation), sexp(n.value))
    if kind == "Expr":
        return "(expr %s)" % sexp(n.value)
    if kind == "Return":
        return "(return %s)" % sexp(n.value)
    if kind in ("If", "While"):
        return "(%s %s %s %s)" % (kind.lower(), sexp(n.test), sexp(n.body), sexp(n.orelse))
    if kind == "For":
        return "(for %s %s %s)" % (sexp(n.target), sexp(n.iter), sexp(n.body))
    if kind == "With":
        item = n.items[0]
        return "(with %s %s %s)" % (sexp(item.context_expr), sexp(item.optional_vars), sexp(n.body))
    if kind == "FunctionDef":
        defaults = [None] * (len(n.args.args) - len(n.args.defaults)) + n.args.defaults
        args = " ".join("(%s %s %s)" % (a.arg, sexp(a.annotation), sexp(d)) for a, d in zip(n.args.args, defaults))
        return "(def %s [%s] %s %s)" % (n.name, args, sexp(n.returns), sexp(n.body))
    if kind == "ClassDef":
        return "(class %s %s %s)" % (n.name, sexp(n.bases), sexp(n.body))
    raise ValueError(kind)


def main():
    with open(os.path.join(HERE, "trees.txt"), "w") as trees:
        for name, module, under in models():
            buffer = io.BytesIO()
            torch.jit.save(module, buffer)
            archive = zipfile.ZipFile(buffer)
            with open(os.path.join(HERE, name + ".txt"), "wb") as out:
                for record in archive.namelist():
                    path = record.partition("/code/")[2]
                    if not path.endswith(".py") or under not in path:
                        continue
                    source = archive.read(record)
                    out.write(b"-- " + path.encode() + b" --\n" + source)
                    for n in ast.parse(source).body:
                        digest = hashlib.sha256(sexp(n).encode()).hexdigest()[:16]
                        trees.write("%s %s %s %s\n" % (name, path, n.name, digest))


if __name__ == "__main__":
    main()
