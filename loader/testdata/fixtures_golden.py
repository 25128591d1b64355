"""What PyTorch itself sees in a file, as JSON: the goldens that the loader's tests compare with.

Everything here works from the object that PyTorch loaded back from the file, never from the object that was saved.
It runs under every torch since 1.5, so it uses nothing newer.
"""

import collections
import ctypes
import datetime
import hashlib
import io
import json
import pathlib
import pickle
import struct
import zipfile

import torch
from torch import nn

MODULE_INTERNALS = set(nn.Module().__dict__) | {"_compiled_call_impl"}

# Globals that stand for data: a scan of a file that names only these says "data". Everything else that is named is
# a class that a loader which unpickles would import.
DATA_GLOBALS = {
    "collections OrderedDict", "collections Counter", "torch Size", "torch device", "torch Tensor",
    "collections defaultdict", "builtins list", "__builtin__ list",
    "torch.nn.parameter Parameter", "torch.serialization _get_layout", "torch._tensor _rebuild_from_type_v2",
    "torch.tensor _rebuild_from_type", "_codecs encode",
    "builtins bytes", "__builtin__ bytes", "builtins bytearray", "builtins set", "builtins frozenset",
    "builtins complex",
    "__builtin__ bytearray", "__builtin__ set", "__builtin__ frozenset", "__builtin__ complex",
    "numpy ndarray", "numpy dtype",
    "numpy.core.multiarray _reconstruct", "numpy.core.multiarray scalar",
    "numpy._core.multiarray _reconstruct", "numpy._core.multiarray scalar",
    "numpy.core.numeric _frombuffer", "numpy._core.numeric _frombuffer",
    "torch.storage UntypedStorage", "torch.storage _UntypedStorage", "torch.storage TypedStorage",
    "torch.storage _load_from_bytes", "torch._C _UntypedStorage", "torch UntypedStorage",
    "torch.jit._pickle build_intlist", "torch.jit._pickle build_doublelist", "torch.jit._pickle build_boollist",
    "torch.jit._pickle build_tensorlist", "torch.jit._pickle build_tensor_from_id",
    "torch.jit._pickle restore_type_tag",
}
# Classes of the standard library whose pickles call them with plain values.
DATA_GLOBALS |= {"pathlib " + n for n in "Path PosixPath WindowsPath PurePosixPath PureWindowsPath".split()}
DATA_GLOBALS |= {"datetime " + n for n in "datetime date time timedelta timezone".split()}
# Roots that are refused even as names; a `getattr` in a pickle is one of them, however innocent its purpose.
UNSAFE_GLOBALS = {"builtins getattr", "__builtin__ getattr"}
# Data as long as it is a class of torch.nn that it holds, which is so in the files here.
PARTIAL = "functools partial"


def is_data_global(name):
    if name in DATA_GLOBALS or name == PARTIAL:
        return True
    module, _, attr = name.partition(" ")
    if module.startswith("__torch__"):
        return True
    if module == "torch._utils" and attr.startswith("_rebuild_"):
        return True
    if module in ("torch", "torch.cuda", "torch.storage"):
        return attr.endswith("Storage") or isinstance(getattr(torch, attr, None), (torch.dtype, torch.qscheme))
    return False


class _Inert(object):
    """Stands for any class; the globals of a pickle are recorded while nothing of it is imported."""

    def __new__(cls, *args, **kwargs):
        return object.__new__(cls)

    def __init__(self, *args, **kwargs):
        pass

    def __setstate__(self, state):
        pass

    def __call__(self, *args, **kwargs):
        return _Inert()

    def __setitem__(self, key, value):
        pass

    def __hash__(self):
        return id(self)

    def append(self, value):
        pass

    def extend(self, values):
        pass

    def add(self, value):
        pass

    def update(self, *args):
        pass


class _Recorder(pickle._Unpickler):
    """Records the globals that are named, and those of them that are called (REDUCE) and not merely instantiated."""

    def __init__(self, f, names, called):
        super().__init__(f, encoding="utf-8")
        self.names = names
        self.called = called

    def find_class(self, module, name):
        key = module + " " + name
        if key not in self.names:
            self.names.append(key)
        if key in ("builtins getattr", "__builtin__ getattr"):
            return lambda *a: _Inert
        called = self.called

        class Meta(type):
            def __call__(cls, *args, **kwargs):
                called.add(key)
                return cls.__new__(cls)

        return Meta(str(name.split(".")[-1]), (_Inert,), {})

    def persistent_load(self, pid):
        return pid[1] if isinstance(pid, tuple) and pid[0] == "module" else _Inert()


def pickle_globals(data, count=1):
    """The globals that the first count pickles of data name, in order, and the set of those that they call."""
    names, called = [], set()
    f = io.BytesIO(data)
    for _ in range(count):
        _Recorder(f, names, called).load()
    return names, called


def is_zip(data):
    return data[:4] == b"PK\x03\x04"


def stored(data, info):
    """The first bytes of a record as they lie in the file; torch.save(skip_data) writes checksums that are wrong."""
    name, extra = struct.unpack("<HH", data[info.header_offset + 26:info.header_offset + 30])
    start = info.header_offset + 30 + name + extra
    return data[start:start + 4]


def file_globals(data):
    """The same for all pickles of a file, those of archives inside it included."""
    if not is_zip(data):
        return pickle_globals(data, 5)
    names, called = [], set()
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        for info in z.infolist():
            base = info.filename.rsplit("/", 1)[-1]
            if base in ("data.pkl", "constants.pkl"):
                found = pickle_globals(unchecked(z, info))
            elif info.file_size >= 22 and is_zip(stored(data, info)):
                found = file_globals(z.read(info))
            else:
                continue
            names += [n for n in found[0] if n not in names]
            called |= found[1]
    return names, called


def unchecked(z, info):
    """The bytes of a record, whatever its checksum: torch can be told to write none."""
    with z.open(info) as f:
        f._expected_crc = None
        return f.read()


def scan_verdict(data):
    names, called = file_globals(data)
    refused = [n for n in names if n in UNSAFE_GLOBALS or n in called and not is_data_global(n)]
    if refused:
        return {"verdict": "unsafe", "globals": sorted(n.replace(" ", ".") for n in refused)}
    classes = sorted(n.replace(" ", ".") for n in names if not is_data_global(n))
    if classes:
        return {"verdict": "classes", "classes": classes}
    return {"verdict": "data"}


def dtype_name(dtype):
    return str(dtype).replace("torch.", "")


def storage_of(t):
    return t.untyped_storage() if hasattr(t, "untyped_storage") else t.storage()


def storage_bytes(s):
    return s.nbytes() if hasattr(s, "nbytes") else s.size() * s.element_size()


def has_data(t):
    """Whether the tensor has a storage of its own: subclasses that wrap others have none."""
    try:
        storage_of(t).data_ptr()
        return True
    except RuntimeError:
        return False


def is_conj(t):
    return hasattr(t, "is_conj") and t.dtype.is_complex and t.is_conj()


def is_neg(t):
    return hasattr(t, "is_neg") and t.is_neg()


def raw_bytes(t):
    """The values in row-major order as little-endian bytes; quantized ones are their integers."""
    t = t.detach()
    if type(t) is not torch.Tensor:
        t = t.as_subclass(torch.Tensor) if hasattr(t, "as_subclass") else t
    if t.is_quantized:
        t = t.int_repr()
    if is_conj(t):
        t = t.resolve_conj()
    if is_neg(t):
        t = t.resolve_neg()
    if t.numel() == 0:
        return b""
    if not t.is_contiguous():
        t = gather(t)
    return ctypes.string_at(t.data_ptr(), t.numel() * t.element_size())


def gather(t):
    """t.contiguous(), by its bit patterns where the dtype has no copy kernel."""
    try:
        return t.contiguous()
    except RuntimeError:
        bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[t.element_size()]
        return t.view(bits).contiguous().view(t.dtype)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def sha256_stored(t):
    """The same hash without applying the conjugate and negative bits."""
    if is_neg(t):
        t = torch._neg_view(t)
    if is_conj(t):
        t = torch._conj(t)
    return sha256(raw_bytes(t))


class Walk(object):
    """Collects the tensors, values, storages and modules below an object under their paths."""

    def __init__(self):
        self.tensors = []
        self.values = []
        self.unsupported = []
        self.storages = []
        self.arrays = []
        self.owners = []
        self.keep = []

    def join(self, path, name):
        return "%s.%s" % (path, name) if path else str(name)

    def visit(self, obj, path, kind=None, stack=()):
        if id(obj) in stack:
            return
        stack = stack + (id(obj),)
        self.keep.append(obj)
        if isinstance(obj, torch.Tensor):
            self.tensor(obj, path, kind)
        elif type(obj).__name__.endswith("Storage"):
            self.storage(obj, path)
        elif isinstance(obj, nn.Module):
            self.module_tensors(obj, path, stack)
        elif isinstance(obj, torch.Size):
            for i, v in enumerate(obj):
                self.visit(int(v), self.join(path, i), kind, stack)
        elif isinstance(obj, dict):
            for k in obj:
                self.visit(obj[k], self.join(path, k), kind, stack)
            self.attributes(obj, path, kind, stack)
        elif isinstance(obj, (list, tuple)):
            for i, v in enumerate(obj):
                self.visit(v, self.join(path, i), kind, stack)
        elif type(obj).__module__.split(".")[0] == "numpy" and hasattr(obj, "dtype"):
            self.arrays.append({"name": path, "dtype": str(obj.dtype), "shape": list(obj.shape),
                                "sha256": sha256(obj.tobytes()) if obj.dtype != object else None})
        elif obj is None or isinstance(obj, (bool, int, float, str, bytes, bytearray, complex)):
            self.value(obj, path)
        elif isinstance(obj, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
            self.values.append({"name": path, "type": type(obj).__name__, "value": str(obj)})
        elif isinstance(obj, (set, frozenset)):
            self.values.append({"name": path, "type": type(obj).__name__, "value": sorted(map(str, obj))})
        elif callable(obj) and hasattr(obj, "__qualname__"):
            self.values.append({"name": path, "type": "global", "value": obj.__module__ + "." + obj.__qualname__})
        elif isinstance(obj, (datetime.date, datetime.timedelta, pathlib.PurePath)):
            self.values.append({"name": path, "type": class_name(obj), "value": str(obj)})
        else:
            self.attributes(obj, path, kind, stack)
            for slot in getattr(type(obj), "__slots__", ()):
                self.visit(getattr(obj, slot), self.join(path, slot), kind, stack)

    def attributes(self, obj, path, kind, stack):
        for k, v in getattr(obj, "__dict__", {}).items():
            if isinstance(obj, dict) and k == "_metadata":
                continue
            self.visit(v, self.join(path, k), kind, stack)

    def value(self, obj, path):
        v = obj
        if isinstance(obj, (bytes, bytearray)):
            v = bytes(obj).hex()
        elif isinstance(obj, complex):
            v = str(obj)
        elif isinstance(obj, float) and (obj != obj or obj in (float("inf"), float("-inf"))):
            v = str(obj)
        elif isinstance(obj, int) and not isinstance(obj, bool) and abs(obj) >= 1 << 53:
            v = str(obj)
        self.values.append({"name": path, "type": type(obj).__name__, "value": v})

    def storage(self, s, path):
        u = getattr(s, "_untyped_storage", getattr(s, "_storage", s))
        n = storage_bytes(u)
        dtype = dtype_name(s.dtype) if hasattr(s, "dtype") else "uint8"
        self.storages.append({"name": path, "class": type(s).__name__, "dtype": dtype, "storage_bytes": n,
                              "sha256": sha256(ctypes.string_at(u.data_ptr(), n) if n else b"")})

    def tensor(self, t, path, kind=None):
        reason = None
        if t.layout != torch.strided:
            reason = "layout " + str(t.layout).replace("torch.", "")
        elif getattr(t, "is_nested", False):
            reason = "nested tensor"
        elif t.device.type == "meta":
            reason = "meta tensor, no data"
        elif not has_data(t):
            reason = "wrapper subclass " + class_name(t)
        elif t.dtype in UNKNOWN_DTYPES:
            reason = "dtype " + dtype_name(t.dtype)
        if reason:
            shape = [] if reason == "nested tensor" else list(t.shape)
            self.unsupported.append({"name": path, "dtype": dtype_name(t.dtype), "shape": shape, "reason": reason})
            self.state_tensors(t, path)
            return
        s = storage_of(t)
        self.keep.append(s)
        entry = collections.OrderedDict(
            name=path, dtype=dtype_name(t.dtype), shape=list(t.shape), stride=list(t.stride()),
            offset=t.storage_offset(), storage_bytes=storage_bytes(s), sha256=sha256(raw_bytes(t)),
            shares_with=self.owner(s, path), requires_grad=bool(t.requires_grad))
        if kind:
            entry["kind"] = kind
        if is_conj(t) or is_neg(t):
            entry["conj"], entry["neg"] = bool(is_conj(t)), bool(is_neg(t))
            entry["sha256_stored"] = sha256_stored(t)
        if t.is_quantized:
            entry["quant"] = quant(t)
        if type(t) not in (torch.Tensor, nn.Parameter):
            entry["class"] = class_name(t)
        self.tensors.append(entry)
        self.state_tensors(t, path)

    def state_tensors(self, t, path):
        for k, v in getattr(t, "__dict__", {}).items():
            if isinstance(v, torch.Tensor):
                self.tensor(v, self.join(path, k), "state")

    def owner(self, s, path):
        """The first tensor whose storage this is, or overlaps (the legacy format has storages that view others)."""
        begin, end = s.data_ptr(), s.data_ptr() + storage_bytes(s)
        found = None
        for cdata, first, last, name in self.owners:
            if cdata == s._cdata or (begin < last and first < end):
                found = name
                break
        self.owners.append((s._cdata, begin, end, path))
        return found

    def module_tensors(self, m, path, stack):
        """Parameters and buffers under their module path, then tensors that are plain attributes (kind "attribute")."""
        state = m.__dict__
        for name, p in state["_parameters"].items():
            if p is not None:
                self.tensor(p, self.join(path, name), "parameter")
        for name, b in state["_buffers"].items():
            if b is not None:
                self.tensor(b, self.join(path, name), "buffer")
        for name, v in state.items():
            if name not in MODULE_INTERNALS and name != "_flat_weight_refs":
                count = len(self.values)
                self.visit(v, self.join(path, name), "attribute", stack)
                del self.values[count:]
        for name, child in state["_modules"].items():
            if child is not None:
                self.visit(child, self.join(path, name), None, stack)


UNKNOWN_DTYPES = set(
    getattr(torch, n) for n in
    "quint4x2 quint2x4 float4_e2m1fn_x2 bits8 bits16 bits1x8 bits2x4 bits4x2 "
    "uint1 uint2 uint3 uint4 uint5 uint6 uint7 int1 int2 int3 int4 int5 int6 int7".split() if hasattr(torch, n))


def quant(t):
    scheme = str(t.qscheme()).replace("torch.", "")
    if scheme.startswith("per_tensor"):
        return {"scheme": scheme, "scale": t.q_scale(), "zero_point": t.q_zero_point()}
    scales, points = t.q_per_channel_scales(), t.q_per_channel_zero_points()
    return {"scheme": scheme, "axis": t.q_per_channel_axis(),
            "scales": {"dtype": dtype_name(scales.dtype), "values": scales.tolist(),
                       "sha256": sha256(raw_bytes(scales))},
            "zero_points": {"dtype": dtype_name(points.dtype), "values": points.tolist(),
                            "sha256": sha256(raw_bytes(points))}}


def class_name(obj):
    cls = obj if isinstance(obj, type) else type(obj)
    return cls.__module__ + "." + cls.__qualname__


def module_tree(m, path="", prefix=""):
    """The tree of a module; paths are relative to its root, members name tensors of the golden."""
    walk = Walk()

    def members(d):
        return [{"name": k, "weight": "" if v is None else walk.join(walk.join(prefix, path), k)} for k, v in d.items()]

    return collections.OrderedDict(
        [("class", class_name(m)), ("path", path), ("training", m.__dict__.get("training", False)),
         ("params", members(m._parameters)), ("buffers", members(m._buffers)),
         ("attrs", collections.OrderedDict((k, plain(v)) for k, v in m.__dict__.items()
                                           if k not in MODULE_INTERNALS and k != "_flat_weight_refs")),
         ("children", [module_tree(c, walk.join(path, k), prefix) for k, c in m._modules.items() if c is not None])])


def plain(v):
    """A plain attribute as JSON; what is not plain is {"class": its class or, for a class or function, itself}."""
    if v is None or isinstance(v, (bool, str)):
        return v
    if isinstance(v, int):
        return v if abs(v) < 1 << 53 else {"int": str(v)}
    if isinstance(v, float):
        return v if v == v and abs(v) != float("inf") else {"float": str(v)}
    if isinstance(v, (torch.dtype, torch.device)):
        return {"class": type(v).__module__ + "." + type(v).__name__, "text": str(v)}
    if isinstance(v, torch.Tensor):
        return {"class": "tensor"}
    if isinstance(v, dict):
        return {"map": [[str(k), plain(x)] for k, x in v.items()]}
    if isinstance(v, (list, tuple)):
        return [plain(x) for x in v]
    if isinstance(v, type) or (callable(v) and hasattr(v, "__qualname__")):
        return {"class": v.__module__ + "." + v.__qualname__}
    return {"class": class_name(v)}


def describe(obj, fmt, **extra):
    """The golden of a loaded object."""
    w = Walk()
    w.visit(obj, "")
    golden = collections.OrderedDict(format=fmt, torch=torch.__version__.split("+")[0])
    golden.update(extra)
    golden["tensors"] = w.tensors
    for name in ("unsupported", "storages", "arrays"):
        if getattr(w, name):
            golden[name] = getattr(w, name)
    if isinstance(obj, nn.Module):
        golden["modules"] = module_tree(obj)
    elif w.values:
        golden["values"] = w.values
    meta = getattr(obj, "_metadata", None)
    if isinstance(obj, dict) and meta is not None:
        golden["metadata"] = meta
    return golden


def dump(golden, path):
    """JSON with one tensor, value or node to a line, so that differences read well."""
    lines = []
    for key, value in golden.items():
        if isinstance(value, list) and value:
            body = ",\n".join("  " + json.dumps(v) for v in value)
            lines.append(" %s: [\n%s\n ]" % (json.dumps(key), body))
        elif isinstance(value, dict) and value and key not in ("metadata",):
            body = ",\n".join("  %s: %s" % (json.dumps(k), json.dumps(v)) for k, v in value.items())
            lines.append(" %s: {\n%s\n }" % (json.dumps(key), body))
        else:
            lines.append(" %s: %s" % (json.dumps(key), json.dumps(value)))
    with open(path, "w") as f:
        f.write("{\n" + ",\n".join(lines) + "\n}\n")
