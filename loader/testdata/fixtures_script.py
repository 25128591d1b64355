"""Fixtures of TorchScript, for every release that has it."""

import collections
import ctypes
import io
import pickle
import zipfile

import torch
from torch import nn

import fixtures_golden as golden
import fixtures_models as models
from make_fixtures import group, load, record_scan, valid


class Object(object):
    """An object of a TorchScript class: its qualified name and its state, and nothing else."""

    def __init__(self, cls):
        self.cls = cls
        self.state = None

    def __setstate__(self, state):
        self.state = state


class Unpickler(pickle._Unpickler):
    """Reads data.pkl and constants.pkl: tensors become tensors, objects stay inert."""

    def __init__(self, archive, top, name):
        super().__init__(io.BytesIO(archive.read(top + "/" + name + ".pkl")), encoding="utf-8")
        self.archive, self.folder, self.storages = archive, top + "/" + name + "/", {}

    def find_class(self, module, name):
        if module.startswith("__torch__"):
            qualified = module + "." + name

            class Inert(Object):
                def __new__(cls, *args):
                    o = object.__new__(Object)
                    o.cls, o.state = qualified, None
                    return o
            return Inert
        if module == "torch.jit._pickle":
            if name == "restore_type_tag":
                return lambda value, type_str: value
            return lambda value: value
        if module == "collections" and name == "OrderedDict":
            return collections.OrderedDict
        if module == "torch._utils" and name.startswith("_rebuild"):
            return getattr(torch._utils, name)
        if module == "torch":
            return getattr(torch, name)
        raise pickle.UnpicklingError("unexpected global " + module + " " + name)

    def persistent_load(self, pid):
        _, cls, key, _, count = pid
        if key not in self.storages:
            data = self.archive.read(self.folder + key)
            storage = cls(count)
            if data:
                ctypes.memmove(storage.data_ptr(), data, len(data))
            self.storages[key] = storage
        return self.storages[key]

    def load_build(self):
        state = self.stack.pop()
        inst = self.stack[-1]
        if isinstance(inst, Object):
            inst.state = state
        else:
            inst.__setstate__(state) if hasattr(inst, "__setstate__") else inst.update(state)

    dispatch = dict(pickle._Unpickler.dispatch)
    dispatch[pickle.BUILD[0]] = load_build


class Walk(golden.Walk):
    """The walk of a TorchScript object tree; kinds come from the module that PyTorch loaded."""

    def __init__(self, kinds):
        golden.Walk.__init__(self)
        self.kinds = kinds

    def visit(self, obj, path, kind=None, stack=()):
        if isinstance(obj, torch.Tensor):
            self.tensor(obj, path, self.kinds.get(path, "attribute"))
        elif isinstance(obj, Object):
            self.keep.append(obj)
            if isinstance(obj.state, dict):
                for k, v in obj.state.items():
                    self.visit(v, self.join(path, k), kind, stack)
            else:
                self.visit(obj.state, path, kind, stack)
        else:
            golden.Walk.visit(self, obj, path, kind, stack)


def tree(o, path=""):
    """Objects of the program's classes below o, with their plain attributes."""
    state = o.state if isinstance(o.state, dict) else {}
    children = [(k, v) for k, v in state.items() if isinstance(v, Object)]
    plain = [(k, v) for k, v in state.items() if not isinstance(v, (Object, torch.Tensor))]
    join = golden.Walk().join
    return collections.OrderedDict([
        ("class", o.cls), ("path", path), ("training", state.get("training")),
        ("tensors", [k for k, v in state.items() if isinstance(v, torch.Tensor)]),
        ("attrs", collections.OrderedDict((k, attr(v)) for k, v in plain if k != "training")),
        ("children", [tree(v, join(path, k)) for k, v in children]),
    ])


def attr(v):
    if isinstance(v, Object):
        return {"class": v.cls}
    if isinstance(v, torch.Tensor):
        return {"class": "tensor"}
    if isinstance(v, dict):
        return {"map": [[str(k), attr(x)] for k, x in v.items()]}
    if isinstance(v, (list, tuple)):
        return [attr(x) for x in v]
    return golden.plain(v)


def save(name, module, extra=None, writer=None):
    path = valid(name)
    if writer is not None:
        writer(module, path)
    elif extra:
        torch.jit.save(module, path, _extra_files=extra)
    else:
        torch.jit.save(module, path)
    describe(name, extra)


def describe(name, extra=None):
    path = valid(name)
    loaded = torch.jit.load(path)
    kinds = {}
    for n, b in loaded.named_buffers():
        kinds[n] = "buffer"
    for n, p in loaded.named_parameters():
        kinds[n] = "parameter"
    state = loaded.state_dict()
    with zipfile.ZipFile(path) as z:
        names = z.namelist()
        top = names[0].split("/")[0]
        root = Unpickler(z, top, "data").load()
        constants = Unpickler(z, top, "constants").load() if top + "/constants.pkl" in names else ()
        code = [n[len(top) + 6:] for n in names if n.startswith(top + "/code/") and n.endswith(".py")]
        sources = {n: golden.sha256(z.read(top + "/code/" + n)) for n in code}
        extras = sorted(n[len(top) + 7:] for n in names if n.startswith(top + "/extra/"))
    w = Walk(kinds)
    w.visit(root, "")
    for t in w.tensors:
        if t["name"] in state and golden.sha256(golden.raw_bytes(state[t["name"]])) != t["sha256"]:
            raise AssertionError("the object tree and PyTorch disagree about " + t["name"])
        if t["name"] in state and t["name"] not in kinds:
            t["kind"] = kinds.get(t["shares_with"], "attribute")
    missing = set(kinds) - {t["name"] for t in w.tensors}
    c = Walk({})
    for i, t in enumerate(constants):
        c.visit(t, "c%d" % i, "constant")
    for t in c.tensors:
        t["kind"] = "constant"
    methods = collections.OrderedDict()
    for m in sorted(loaded._c._method_names()) if hasattr(loaded._c, "_method_names") else ["forward"]:
        schema = loaded._c._get_method(m).schema
        methods[m] = {
            "args": [argument(a) for a in schema.arguments],
            "returns": [str(r.type) for r in schema.returns],
        }
    g = collections.OrderedDict(format="torchscript", torch=torch.__version__.split("+")[0], top=top)
    g["tensors"] = w.tensors
    if w.unsupported:
        g["unsupported"] = w.unsupported
    g["parameters"] = [n for n, _ in loaded.named_parameters()]
    g["buffers"] = [n for n, _ in loaded.named_buffers()]
    if missing:
        g["not_in_tree"] = sorted(missing)
    g["constants"] = c.tensors
    g["code"] = sources
    g["methods"] = methods
    g["extra_files"] = extras
    g["modules"] = tree(root)
    golden.dump(g, path + ".golden.json")
    record_scan(name, {"verdict": "data"})


def argument(a):
    out = collections.OrderedDict([("name", a.name), ("type", str(a.type))])
    if hasattr(a, "has_default_value") and a.has_default_value():
        out["default"] = attr(a.default_value)
    return out


def attempt(name, make, **kwargs):
    """Saves what make returns; what a release cannot make is said and left out."""
    try:
        module = make()
    except Exception as e:
        print("  not made:", name, "-", str(e).strip().split("\n")[0])
        return
    save(name, module, **kwargs)


def scripts():
    return load("fixtures_script_models")


def through_buffer(module, path):
    f = io.BytesIO()
    torch.jit.save(module, f)
    with open(path, "wb") as out:
        out.write(f.getvalue())


def bits(dtype):
    m = nn.Linear(2, 3)
    return torch.jit.trace(m.to(dtype), torch.ones(1, 2, dtype=dtype))


def common(prefix):
    s = scripts()
    x4, image = torch.ones(2, 4), torch.ones(1, 2, 4, 4)
    attempt(prefix + "traced_mlp.pt", lambda: torch.jit.trace(models.MLP(), x4))
    attempt(prefix + "traced_cnn.pt", lambda: torch.jit.trace(models.CNN().eval(), image))
    attempt(prefix + "scripted_cnn.pt", lambda: torch.jit.script(models.CNN()))
    attempt(prefix + "control.pt", lambda: torch.jit.script(s.Control()))
    attempt(prefix + "outputs.pt", lambda: torch.jit.script(s.Outputs()))
    attempt(prefix + "holders.pt", lambda: torch.jit.script(s.Holders()))
    attempt(prefix + "constants.pt", lambda: torch.jit.trace(s.Constants(), torch.ones(1, 2)))
    attempt(prefix + "tied.pt", lambda: torch.jit.trace(models.Tied(), torch.tensor([1, 2])))


@group("script")
def script_files():
    """TorchScript archives: traced, scripted, frozen, with extra files, for mobile."""
    common("ts_")
    s = scripts()
    x4, image = torch.ones(2, 4), torch.ones(1, 2, 4, 4)
    attempt("ts_frozen.pt", lambda: torch.jit.freeze(torch.jit.script(models.CNN().eval())))
    attempt("ts_extra.pt", lambda: torch.jit.trace(models.MLP(), x4),
            extra={"notes.txt": "made by hand", "dir/config.json": "{}"})
    attempt("ts_buffer.pt", lambda: torch.jit.trace(models.MLP(), x4), writer=through_buffer)
    attempt("ts_lstm.pt", lambda: torch.jit.script(nn.LSTM(3, 4, bidirectional=True)))
    attempt("ts_encoder.pt", lambda: torch.jit.trace(nn.TransformerEncoderLayer(8, 2, 16).eval(), torch.ones(3, 1, 8)))
    attempt("ts_bfloat16.pt", lambda: bits(torch.bfloat16))
    attempt("ts_float16.pt", lambda: bits(torch.float16))
    attempt("ts_float64.pt", lambda: bits(torch.float64))
    attempt("ts_complex.pt", lambda: bits(torch.complex64))
    attempt("ts_quantized.pt", quantized)
    attempt("ts_function_free.pt", lambda: torch.jit.script(nn.Sequential(nn.ReLU(), nn.Flatten())))
    attempt("ts_mobile.ptl", lambda: torch.jit.script(models.MLP()),
            writer=lambda m, path: m._save_for_lite_interpreter(path))


def quantized():
    torch.backends.quantized.engine = "fbgemm"
    m = torch.ao.quantization.quantize_dynamic(models.MLP().eval(), {nn.Linear}, dtype=torch.qint8)
    return torch.jit.trace(m, torch.ones(1, 4))


@group("script15", needs="1.5")
def script_1_5():
    """TorchScript of 1.5."""
    common("t15_ts_")


@group("script16", needs="1.6")
def script_1_6():
    """TorchScript of 1.6."""
    common("t16_ts_")


@group("script113", needs="1.13")
def script_1_13():
    """TorchScript of 1.13."""
    common("t113_ts_")
