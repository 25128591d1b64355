"""Writes models/testdata/script: TorchScript archives, traced and scripted, and what PyTorch computes with them.

    python make_script.py              # all
    python make_script.py resnet lstm  # some

The forms of a model are t, traced, and s, scripted; with + each call goes on from where the one before left the module.

NAME.trace.pt.gz and NAME.script.pt.gz are archives whose parameters and buffers are zeros: their values come from the
hash of the zoo (../README.md), as NAME.ref.json.gz says, which has the zoo's form. Constants of the code are in the
archives. Made with torch 2.15, torchvision 0.29, transformers 5.23, where a reference names no other torch."""

import base64
import gzip
import io
import json
import math
import os
import sys
import warnings
from enum import Enum
from typing import Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import nn, Tensor

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import make_families_tv  # noqa: E402
import script_arguments  # noqa: E402
import script_einops  # noqa: E402
import script_masks  # noqa: E402
import zoo_hash  # noqa: E402
import zoo_reference as ref  # noqa: E402
import zoo_weights  # noqa: E402

warnings.filterwarnings("ignore")
torch.set_grad_enabled(False)
torch.set_num_threads(1)


class ListLoop(nn.Module):
    """Loops over lists of modules and tensors, with appends, slices and an early end."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(4)])

    def forward(self, x: Tensor) -> List[Tensor]:
        seen: List[Tensor] = []
        for i, layer in enumerate(self.layers):
            x = torch.relu(layer(x)) if i % 2 == 0 else layer(x)
            seen.append(x)
        for i in range(10):
            if len(seen) == 3:
                break
            seen.pop()
        total = seen[0]
        for t in seen[1:]:
            total = total + t
        sizes = [t.size(-1) for t in seen]
        sizes.insert(0, sum(sizes))
        sizes.sort()
        return [total * float(sizes[-1]), seen.pop(), torch.cat(seen[::-1], dim=0)]


class DictOut(nn.Module):
    """Builds and walks a dictionary."""

    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleDict({"a": nn.Linear(6, 3), "b": nn.Linear(6, 4)})

    def forward(self, x: Tensor) -> Dict[str, Tensor]:
        out: Dict[str, Tensor] = {}
        for name, head in self.heads.items():
            out[name] = head(x)
        widths: Dict[str, int] = {"pad": 1}
        for k, v in out.items():
            widths[k] = v.size(1)
        if "pad" in widths:
            del widths["pad"]
        joined = torch.cat([out[k] for k in widths.keys()], 1)
        out["joined" + str(widths["a"])] = joined * widths.get("zzz", 2)
        return out


class Pair(NamedTuple):
    logits: Tensor
    scale: float
    hidden: Optional[Tensor]


class NamedOut(nn.Module):
    """A named tuple with a number and None."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 5)

    def forward(self, x: Tensor, keep: Optional[Tensor] = None) -> Pair:
        y = self.fc(x)
        if keep is not None:
            y = y + keep
        n = y.numel() / 4
        return Pair(y, n, keep)


class While(nn.Module):
    """A while loop over sizes, a nested break and continue, an early return."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        steps = 0
        while x.size(2) > 4:
            steps += 1
            if steps > 5:
                break
            if steps % 2 == 0:
                x = nn.functional.avg_pool2d(x, 2)
                continue
            x = torch.tanh(self.conv(x))
        if x.dim() == 4 and x.shape[3] != x.shape[2]:
            return x.flatten(1)
        return x * steps


class SliceAssign(nn.Module):
    """Writes through views: slices, indices, masks, in-place arithmetic."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.zeros(4, 6))

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
        y = x.clone()
        y[:, 1:3] = 2.0
        y[0, ::2] += self.table[0, ::2]
        y[:, -1] = y[:, 0] * 3
        row = y[1]
        row.mul_(0.5).add_(1)
        z = y.t().contiguous()
        z[torch.tensor([0, 2])] = 0.25
        z.masked_fill_(z > 1.5, -1.0)
        return y, z


class Formats(nn.Module):
    """Texts: f-strings, comparisons, methods, keys made of numbers."""

    def __init__(self):
        super().__init__()
        self.mode = "scale-2"
        self.rates: Dict[str, float] = {"r0": 0.5, "r1": 2.0}
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor, activation: str = "relu") -> Tensor:
        x = self.fc(x)
        for i in range(2):
            x = x * self.rates[f"r{i}"]
        kind, amount = self.mode.split("-")
        if kind == "scale" and activation.upper() == "RELU":
            x = torch.relu(x) * int(amount)
        message = "{} of {}".format(x.size(0), list(x.shape))
        if message.startswith("3") and "[3, 4]" in message:
            x = x - len(message)
        assert x.dim() == 2, f"rank {x.dim()}"
        return x


@torch.jit.interface
class Stage(nn.Module):
    def forward(self, input: Tensor) -> Tensor:
        pass


class Double(nn.Module):
    def forward(self, input: Tensor) -> Tensor:
        return input * 2


class Interfaces(nn.Module):
    """Modules chosen by an index that is computed, through an interface."""

    def __init__(self):
        super().__init__()
        self.stages = nn.ModuleList([nn.Linear(6, 6), Double(), nn.Linear(6, 6)])

    def forward(self, x: Tensor) -> Tensor:
        for i in [2, 1, 0]:
            stage: Stage = self.stages[i]
            x = stage.forward(x)
        return x


class Mode(Enum):
    FAST = 1
    SLOW = 2


class Enums(nn.Module):
    """Enums as attributes, arguments of functions and numbers."""

    def __init__(self):
        super().__init__()
        self.mode = Mode.SLOW
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.fc(x)
        if self.mode == Mode.FAST:
            return x
        return x * self.mode.value + len(self.mode.name)


@torch.jit.script
class Accumulator:
    def __init__(self, start: Tensor, decay: float):
        self.value = start
        self.decay = decay
        self.count = 0

    def push(self, x: Tensor) -> "Accumulator":
        self.value = self.value * self.decay + x
        self.count += 1
        return self


class Objects(nn.Module):
    """Objects of a class of the program's own, shared by two names."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tuple[Tensor, int]:
        a = Accumulator(x, 0.5)
        b = a
        for i in range(3):
            b.push(self.fc(a.value))
        return a.value, a.count


class Shapes(nn.Module):
    """The arithmetic of sizes that traces record: products, quotients, ranges, expand and view."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x):
        b, n, d = x.shape
        h = self.fc(x).view(b, n, 2, d // 2).transpose(1, 2)
        h = h.reshape(b * 2, n, d // 2)
        scale = (d // 2) ** -0.5
        w = torch.softmax(h @ h.transpose(1, 2) * scale, -1)
        position = torch.arange(n, dtype=torch.float32) / n
        y = (w @ h).view(b, 2, n, -1).transpose(1, 2).reshape(b, n, d)
        pad = torch.zeros(b, (-n) % 4, d)
        return torch.cat([y + position[None, :, None], pad], 1)


class Branches(nn.Module):
    """Control flow on shapes and dtypes, a default that is None, a list with a type and nothing in it."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 3, 3)

    def forward(self, x: Tensor, dims: Optional[List[int]] = None, eps: float = 1e-3) -> Tensor:
        if x.size(-1) < 8:
            x = nn.functional.pad(x, [0, 8 - x.size(-1)])
        x = self.conv(x)
        if dims is None:
            dims = [-1]
        if len(dims) == 1 and x.is_floating_point():
            x = x.mean(dims) + eps
        empty: List[Tensor] = []
        for e in empty:
            x = x + e
        return x.to(torch.float16) if x.dtype == torch.float32 else x


class Pixels(nn.Module):
    """Numbers beside whole numbers and scalars, which a trace keeps as tensors: loaded again they are numbers."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: Tensor):
        n = x.to(torch.int32)
        h = x.to(torch.float16).amax()
        return (self.conv(x / 255.), n * 2.5, n + 0.5, n - 0.5, n / 2.5, 1.5 - n, 2.5 * n, (x > 100) * 1.5, x.float().sum() * 2.5,
                h * 2.5, h + 1, n.amax() * 2, n + torch.tensor(0.5), n % 3, n // 2, n > 2.5)


class Padded(nn.Module):
    """What is called by other names in traces than in exported programs: padding by name, the parts of a gated cell."""

    def __init__(self):
        super().__init__()
        self.same = nn.Conv2d(3, 4, (3, 4), padding="same", dilation=2)
        self.valid = nn.Conv2d(4, 5, 3, padding="valid", stride=2)
        self.line = nn.Conv1d(5, 6, 4, padding="same")
        self.cell = nn.GRUCell(6, 7)

    def forward(self, x: Tensor):
        y = self.line(self.valid(self.same(x)).flatten(2))
        return y, self.cell(y.mean(2))


class Counter(nn.Module):
    """Buffers that a pass changes, in place and by assignment."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(x.sum(0))
        before = self.steps
        self.steps = self.steps + x.size(0)
        return x * self.seen + before


class Cached(nn.Module):
    """Keeps what it made of weights for the next time, by size; what it keeps from inputs is read by nobody."""

    rows: Dict[int, Tensor]
    last: List[Tensor]

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(5, 3))
        self.rows = {}
        self.last = []
        self.register_buffer("index", torch.zeros(1, 1))

    def forward(self, x: Tensor) -> Tensor:
        n = x.size(0)
        if n not in self.rows:
            self.rows[n] = self.bias[:n] * 2
        if self.index.size(0) != n:
            self.index = torch.arange(n).view(n, 1) * 0.5
        self.last = [x]
        self.last.append(x + 1)
        return self.last[1] + self.rows[n] + self.index


class Masked(nn.Module):
    """Arguments whose dtypes nothing tells but what is given."""

    def __init__(self):
        super().__init__()
        self.fill = -1.5

    def forward(self, x: Tensor, mask: Tensor) -> Tuple[Tensor, Tensor]:
        return x.masked_fill(mask, self.fill), mask.to(torch.int64).sum(1)


class Nested(nn.Module):
    """Tensors within tuples among the arguments, and an optional one."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(3, 4)

    def forward(self, x: Tensor, state: Tuple[Tensor, Tensor], mask: Optional[Tensor] = None) -> Tuple[
            Tensor, Tuple[Tensor, Tensor]]:
        h, c = self.cell(x, state)
        if mask is not None:
            h = h * mask
        return h.sum(1), (h, c)


class Hooked(nn.Module):
    """A hook before forward and one behind it, on the module and on one inside."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.fc.register_forward_hook(after)
        self.register_forward_pre_hook(before)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x)


def before(self, input: Tuple[Tensor]) -> Tensor:
    return input[0] * 2


def after(self, input: Tuple[Tensor], output: Tensor) -> Tensor:
    return output + input[0]


class Forked(nn.Module):
    """Work given to fork, and a context that switches gradients off."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        left = torch.jit.fork(self.a, x)
        with torch.no_grad():
            right = self.b(x)
        return torch.jit.wait(left) + right


class Embedded(nn.Module):
    """Tokens: integers, as only the table that they index tells."""

    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(20, 8, padding_idx=0)
        self.gru = nn.GRU(8, 6, batch_first=True, bidirectional=True)

    def forward(self, ids: Tensor) -> Tuple[Tensor, Tensor]:
        y, h = self.gru(self.emb(ids))
        return y, h


class Numbers(nn.Module):
    """Arithmetic of Python's numbers, and math."""

    def __init__(self):
        super().__init__()
        self.base = 7

    def forward(self, x: Tensor) -> Tensor:
        n = x.size(0)
        a = [n // 2, -n // 2, n % 3, -n % 3, int(n / 2), int(-n / 2), int(round(n * 0.3)), math.floor(-0.5 * n),
             math.ceil(n / 3), abs(-n), min(n, 3), max(n, 3), n << 2, n >> 1, n ^ 5, n & 3, n | 8,
             int(n ** 2), int(math.sqrt(n * 100)), int(math.pow(2, n)), math.gcd(n, 12), int("12"), ord("a")]
        b = [n / 3, 2.0 ** n, math.log(n), math.exp(0.5), math.sin(float(n)), math.fmod(n, 3.0), float("1.5"),
             7.5 // 2.0, -7.5 % 2.0, math.pi * n]
        flags = [n > 2, not (n == 4), n >= self.base, 2 < n < 9, bool(n), any([n > 3, n > 9]), all([n > 3, n > 9])]
        t = torch.tensor(a).to(x.dtype).sum() + torch.tensor(b).sum()
        return x * t + torch.tensor(flags).sum() + torch.tensor([[a[0], a[1]], [1, 2]]).sum()


class Recurrent(nn.Module):
    """Recurrent modules have several forwards in TorchScript, of which callers take one."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor):
        y, h = self.inner(x)
        return y, h


class Started(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.GRU(5, 6, batch_first=True)

    def forward(self, x: Tensor, start: Tensor) -> Tuple[Tensor, Tensor]:
        y, h = self.inner(x, start)
        return y, h


def tiny_bert():
    import transformers
    return transformers.BertForSequenceClassification(transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        max_position_embeddings=32, num_labels=3, torchscript=True, return_dict=False))


class Wrapped(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, ids, mask):
        return self.inner(input_ids=ids, attention_mask=mask)[0]


def floats(*shape, scale=1.0):
    return {"dtype": "float32", "shape": list(shape), "kind": "hash", "offset": 0.0, "scale": scale}


def ints(*shape, high, dtype="int64", low=0):
    return {"dtype": dtype, "shape": list(shape), "kind": "ints", "low": low, "high": high}


def number(v):
    """A number that forward takes, as the input without dimensions that stands for it."""
    dtype = {bool: "bool", int: "int64", float: "float64"}[type(v)]
    data = base64.b64encode(torch.tensor(v, dtype=getattr(torch, dtype)).numpy().tobytes()).decode()
    return {"dtype": dtype, "shape": [], "kind": "number", "value": v, "data": data}


def tensor(name, d):
    if d["kind"] == "number":
        return d["value"]
    if d["kind"] == "ints":
        return zoo_hash.integers("input:" + name, tuple(d["shape"]), getattr(torch, d["dtype"]), d["low"], d["high"])
    return zoo_hash.floats("input:" + name, tuple(d["shape"]), torch.float32, d["offset"], d["scale"])


def vision():
    import torchvision.models as m
    from torchvision.models.mobilenetv3 import _mobilenet_v3_conf, MobileNetV3
    settings, last = _mobilenet_v3_conf("mobilenet_v3_small", width_mult=0.25)
    x = {"x": floats(1, 3, 64, 64)}
    exported = {  # what families/tv has as exported programs
        name: (make_families_tv.MODELS[name][0], [{"x": floats(*make_families_tv.MODELS[name][1])}], "ts")
        for name in ("densenet_small", "shufflenet_v2_small", "convnext_small", "efficientnet_v2_small")}
    return {
        **exported,
        "resnet": (lambda: m.ResNet(m.resnet.BasicBlock, [1, 1, 1, 1], num_classes=10), [x], "ts"),
        "mobilenet_v3": (lambda: MobileNetV3(settings, last, num_classes=10), [x], "ts"),
        "googlenet": (lambda: m.GoogLeNet(10, True, True, False), [{"x": floats(1, 3, 96, 96)}], "s"),
        "squeezenet": (lambda: m.squeezenet1_1(num_classes=10), [x], "ts"),
        "swin": (lambda: m.SwinTransformer([4, 4], 16, [2, 2], [1, 2], [4, 4], num_classes=10), [x], "ts"),
        "vit": (lambda: m.VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=10), [{"x": floats(2, 3, 32, 32)}], "ts"),
        "lraspp": (lambda: m.segmentation.lraspp_mobilenet_v3_large(weights_backbone=None, num_classes=4),
                   [{"input": floats(1, 3, 64, 64)}], "s"),
        "maxvit": (lambda: m.MaxVit(input_size=(64, 64), stem_channels=16, partition_size=4, block_channels=[16, 32],
                                    block_layers=[1, 1], head_dim=16, stochastic_depth_prob=0.0, num_classes=10),
                   [x], "s"),
    }


def sequences():
    layer = dict(d_model=16, nhead=2, dim_feedforward=24, batch_first=True)
    return {
        "lstm": (lambda: Recurrent(nn.LSTM(5, 6, 2, bidirectional=True)), [{"x": floats(7, 2, 5)}], "ts"),
        "gru": (Started, [{"x": floats(2, 7, 5), "start": floats(1, 2, 6)}], "s"),
        "rnn": (lambda: Recurrent(nn.RNN(5, 6)), [{"x": floats(7, 2, 5)}], "s"),
        "transformer": (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(**layer), 2, enable_nested_tensor=False),
                        [{"src": floats(2, 5, 16)}], "ts"),
        "decoder": (lambda: nn.TransformerDecoderLayer(**layer),
                    [{"tgt": floats(2, 5, 16), "memory": floats(2, 3, 16)}], "s"),
        "attention": (lambda: nn.MultiheadAttention(16, 4, batch_first=True),
                      [{"query": floats(2, 5, 16), "key": floats(2, 6, 16), "value": floats(2, 6, 16)}], "s"),
        "bert": (lambda: Wrapped(tiny_bert()), [{"ids": ints(2, 9, high=50), "mask": ints(2, 9, low=1, high=2)}], "t"),
        "embedded": (Embedded, [{"ids": ints(2, 5, high=20)}], "ts"),
    }


def language():
    x = {"x": floats(3, 4)}
    return {
        "list_loop": (ListLoop, [{"x": floats(2, 8)}], "ts"),
        "dict_out": (DictOut, [{"x": floats(2, 6)}], "s"),
        "named_out": (NamedOut, [{"x": floats(2, 5)}, {"x": floats(2, 5), "keep": floats(2, 5)}], "s"),
        "while": (While, [{"x": floats(1, 2, 16, 16)}, {"x": floats(1, 2, 6, 8)}, {"x": floats(1, 2, 3, 3)}], "s"),
        "slice_assign": (SliceAssign, [{"x": floats(4, 6)}], "ts"),
        "formats": (Formats, [x], "s"),
        "interfaces": (Interfaces, [{"x": floats(2, 6)}], "s"),
        "enums": (Enums, [{"x": floats(2, 4)}], "s"),
        "objects": (Objects, [x], "s"),
        "shapes": (Shapes, [{"x": floats(2, 5, 6)}, {"x": floats(3, 8, 6)}], "ts"),
        "branches": (Branches, [{"x": floats(2, 3, 5)}, {"x": floats(2, 3, 12)}], "s"),
        "pixels": (Pixels, [{"x": ints(1, 3, 8, 8, high=255, dtype="uint8")}], "t"),
        "padded": (Padded, [{"x": floats(2, 3, 11, 9)}], "t"),
        "counter": (Counter, [x, x], "s"),
        "cached": (Cached, [{"x": floats(2, 3)}, {"x": floats(4, 3)}], "s"),
        "masked": (Masked, [{"x": floats(2, 3), "mask": ints(2, 3, high=2, dtype="bool")}], "s"),
        "nested": (Nested, [{"x": floats(2, 3), "state.0": floats(2, 4), "state.1": floats(2, 4)}], "s"),
        "hooked": (Hooked, [x], "s"),
        "forked": (Forked, [x], "s"),
        "numbers": (Numbers, [{"x": floats(5, 2)}, {"x": floats(8, 2)}], "s"),
    }


def sizes():
    picture = {"x": floats(2, 3, 8, 12)}
    return {
        "einops_patches": (script_einops.Patches, [picture], "t"),
        "einops_shuffles": (script_einops.Shuffles, [picture], "t"),
        "einops_mixes": (script_einops.Mixes, [{"x": floats(2, 6, 6)}], "t"),
        "in_place": (script_einops.InPlace, [{"x": floats(3, 5)}, {"x": floats(4, 7)}], "s"),
        "selected": (script_masks.Selected,
                     [{"x": floats(6, 5), "bias": floats(5), "mask": ints(6, 5, high=2, dtype="bool")}], "ts"),
    }


def given():
    x = {"x": floats(2, 6)}
    step = {"x": floats(2, 3)}
    return {
        "rates": (script_arguments.Rates, [
            {**x, "sr": number(16000)}, {**x, "sr": number(8000)}, {**x, "sr": number(8000), "gain": number(-3.0)},
            {**x, "sr": number(16000), "gain": number(0.25), "flip": number(True), "window": number(3)}], "s"),
        "remembers": (script_arguments.Remembers, [step, step, step], "s"),
        "speech": (script_arguments.Speech, [
            {"x": floats(batch, 16 if sr == 16000 else 8, scale=scale), "sr": number(sr)} for batch, sr, scale in [
                (1, 16000, 1.0), (1, 16000, 0.5), (1, 16000, 2.0), (1, 8000, 1.0), (1, 8000, 3.0), (2, 8000, 1.0), (2, 8000, 2.0),
                (1, 16000, 1.0), (1, 16000, 0.5)]], "s+"),
        "recalls": (script_arguments.Recalls, [
            {"x": floats(2, 3, scale=scale), "start": number(start)} for scale, start in [
                (1.0, False), (2.0, False), (3.0, False), (1.0, False), (2.0, True), (1.0, False), (3.0, False)]], "s+"),
    }


def refused():
    """Programs that need what optimem lacks: NAME.refused.gz, without a reference."""
    return {"lacking": script_arguments.Lacking, "looping": script_arguments.Looping, "counts": script_arguments.Counts,
            "grows": script_arguments.Grows}


def arguments(case):
    """Positional arguments of named tensors: "state.0" and "state.1" are a tuple."""
    args, last = {}, None
    for name, d in case.items():
        top, _, rest = name.partition(".")
        if rest:
            args[top] = args.get(top, ()) + (tensor(name, d),)
        else:
            args[top] = tensor(name, d)
    return args


def named(v, name, out):
    """The tensors and numbers of a result by the names that outputs have."""
    if hasattr(v, "_fields"):
        for f in v._fields:
            named(getattr(v, f), f, out)
    elif isinstance(v, dict):
        for k, x in v.items():
            named(x, k, out)
    elif isinstance(v, (list, tuple)):
        for x in v:
            named(x, "", out)
    else:
        if not name or any(o["name"] == name for o in out):
            name = f"output_{len(out)}"
        if isinstance(v, (int, float)) and not isinstance(v, bool):
            v = torch.tensor(v, dtype=torch.float64 if isinstance(v, float) else torch.int64)
        out.append(ref.describe(name, v))
    return out


def zipped(path, data):
    with open(path, "wb") as f:
        f.write(gzip.compress(data, 9, mtime=0))


def tensors(module):
    return {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers(remove_duplicate=False))}


def restore(module, values):
    for n, t in tensors(module).items():
        if t.shape == values[n].shape:
            t.copy_(values[n])
        else:
            setattr(module, n, values[n].clone())


def archive(program):
    """The archive without what only debuggers read, which is most of it."""
    saved, out = io.BytesIO(), io.BytesIO()
    torch.jit.save(program, saved)
    reader = torch._C.PyTorchFileReader(io.BytesIO(saved.getvalue()))
    writer = torch._C.PyTorchFileWriter(out)
    for record in reader.get_all_records():
        if record != "version" and not record.endswith((".debug_pkl", "serialization_id")):
            data = reader.get_record(record)
            writer.write_record(record, data, len(data))
    writer.write_end_of_file()
    return out.getvalue()


def make(name, build, cases, forms):
    torch.manual_seed(0)
    model = build().eval().requires_grad_(False)
    overrides = {r"\.table$|^table$|^seen$|^steps$": (0.0, 0.5)}
    weights = zoo_weights.Weights(model, overrides)
    first = arguments(cases[0])
    zoo_weights.calibrate(model, weights, tuple(first.values()), {})
    torch.manual_seed(0)
    model = build().eval().requires_grad_(False)  # that run may have changed buffers
    start = {n: t.clone() for n, t in tensors(model).items()}
    for n, entry in weights.entries.items():
        if "scale" in entry:
            weights.fill(n)
            start[n].copy_(weights.tensors[n])
    for n, entry in weights.entries.items():
        start[n] = start[entry.get("tied_to", n)]
    restore(model, start)
    programs = {}
    if "t" in forms:
        programs["trace"] = torch.jit.trace(model, tuple(first.values()), strict=False, check_trace=False)
        restore(model, start)
    if "s" in forms:
        programs["script"] = torch.jit.script(model)
    for form, p in programs.items():
        for t in [*p.parameters(), *p.buffers()]:
            t.zero_()
        zipped(os.path.join(HERE, f"{name}.{form}.pt.gz"), archive(p))
    if forms == "t":  # what is traced differs from the model in places: the archive counts
        runner = torch.jit.load(io.BytesIO(archive(programs["trace"])))
    else:
        runner = programs["script"] if forms in ("s", "s+") else model
    records = []
    continues = "+" in forms or len(cases) > 1 and cases[0] is cases[1]
    for i, c in enumerate(cases):
        if not (continues and i > 0):
            restore(runner, start)
        out = named(runner(**arguments(c)), "", [])
        outs = [o for o in out if not ("value" in o and o["value"] is None)]
        records.append({"inputs": c, "outputs": outs, "continues": continues and i > 0})
    record = {"torch": torch.__version__.split("+")[0], "weights": weights.entries, "cases": records}
    zipped(os.path.join(HERE, f"{name}.ref.json.gz"), json.dumps(record, separators=(",", ":")).encode())
    print(name, *programs, flush=True)


def main():
    for name, (build, cases, forms) in {**language(), **sizes(), **given(), **sequences(), **vision()}.items():
        if len(sys.argv) < 2 or name in sys.argv[1:]:
            make(name, build, cases, forms)
    for name, build in refused().items():
        if len(sys.argv) < 2 or name in sys.argv[1:]:
            zipped(os.path.join(HERE, f"{name}.refused.gz"), archive(torch.jit.script(build().eval())))


if __name__ == "__main__":
    main()
