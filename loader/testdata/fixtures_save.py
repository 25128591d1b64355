"""Fixtures of torch.save: the zip format, the legacy format, whole modules and training checkpoints."""

import collections
import inspect
import io
import os
import pickle
import struct
import tarfile
import warnings
import zipfile

import numpy as np
import torch
from torch import nn

import fixtures_golden as golden
import fixtures_models as models
from make_fixtures import group, record_scan, valid

warnings.filterwarnings("ignore")
ZIP, LEGACY = "torch-zip", "torch-legacy"


def save(name, obj, legacy=False, writer=None, **kwargs):
    """Saves obj, loads it back and writes the golden of what was loaded."""
    path = valid(name)
    if writer is not None:
        writer(path, obj)
    elif legacy:
        torch.save(obj, path, _use_new_zipfile_serialization=False, **kwargs)
    else:
        torch.save(obj, path, **kwargs)
    describe(name, LEGACY if legacy else ZIP)


def refused(name, hint, write, fmt=ZIP, error="unsupported"):
    """A well-formed file that must be refused; error is the class expected, "any" where two are as good."""
    write(valid(name))
    golden.dump({"format": fmt, "error": error, "hint": hint}, valid(name) + ".golden.json")
    record_scan(name, {"verdict": "refused", "class": error})


HAS_WEIGHTS_ONLY = "weights_only" in inspect.signature(torch.load).parameters


def load(path):
    return torch.load(path, map_location="cpu", **({"weights_only": False} if HAS_WEIGHTS_ONLY else {}))


def describe(name, fmt, **extra):
    path = valid(name)
    obj = load(path)
    if HAS_WEIGHTS_ONLY:
        try:
            torch.load(path, map_location="cpu", weights_only=True)
            extra["weights_only"] = True
        except Exception:
            extra["weights_only"] = False
    g = golden.describe(obj, fmt, **extra)
    g.update(layout(obj))
    with open(path, "rb") as f:
        data = f.read()
    if golden.is_zip(data):
        with zipfile.ZipFile(path) as z:
            g["top"] = z.namelist()[0].split("/")[0]
    verdict = golden.scan_verdict(data)
    if verdict["verdict"] == "unsafe":
        g["error"] = "unsafe"
    golden.dump(g, path + ".golden.json")
    record_scan(name, verdict)


STATE_KEYS = ("state_dict", "model_state_dict", "model", "ema", "ema_state_dict", "net", "module")


def layout(obj):
    """Where the state dict of a training checkpoint is, and its names without wrappers' prefixes."""
    if not isinstance(obj, dict):
        return {}
    for key in STATE_KEYS:
        sub = obj.get(key)
        path = key
        if isinstance(sub, dict) and not any(isinstance(v, torch.Tensor) for v in sub.values()):
            inner = [k for k in STATE_KEYS if isinstance(sub.get(k), dict)]
            if inner:
                path, sub = key + "." + inner[0], sub[inner[0]]
        if isinstance(sub, nn.Module):
            return {"state_dict": {"path": path, "names": [n for n, _ in sub.state_dict().items()]}}
        if isinstance(sub, dict) and any(isinstance(v, torch.Tensor) for v in sub.values()):
            return {"state_dict": stripped(path, sub)}
    if any(str(k).startswith(("module.", "_orig_mod.")) for k in obj):
        return {"state_dict": stripped("", obj)}
    return {}


def stripped(path, sub):
    names = [k for k, v in sub.items() if isinstance(v, torch.Tensor)]
    prefix = ""
    while True:
        for p in ("module.", "_orig_mod."):
            if names and all(n.startswith(prefix + p) for n in names):
                prefix += p
                break
        else:
            return {"path": path, "prefix": prefix, "names": [n[len(prefix):] for n in names]}


def values(dtype, n=6):
    """n distinct values of a dtype, as a tensor whose bits are known."""
    if dtype == torch.bool:
        return torch.arange(n) % 3 == 0
    if dtype.is_complex:
        pair = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}[dtype]
        return torch.view_as_complex(torch.arange(2 * n, dtype=torch.float64).reshape(n, 2).to(pair))
    size = torch.empty(0, dtype=dtype).element_size()
    if dtype.is_floating_point and size > 1:
        return torch.linspace(-2, 3, n, dtype=torch.float64).to(dtype)
    raw = bytes((37 * i + 11) % 251 for i in range(n * size))
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(dtype).clone() if size > 1 \
        else torch.frombuffer(bytearray(raw), dtype=torch.uint8).clone().view(dtype)


DTYPES = ("float32 float64 float16 bfloat16 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu "
          "int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex32 complex64 complex128").split()


def every_dtype():
    return collections.OrderedDict((n, values(getattr(torch, n)).reshape(2, 3)) for n in DTYPES)


def views():
    base = torch.arange(48, dtype=torch.float32)
    square = base.reshape(6, 8)
    return collections.OrderedDict([
        ("base", base), ("slice", base[5:17]), ("step", base[1:40:3]), ("transpose", square.t()),
        ("block", square[1:4, 2:6]), ("expand", torch.tensor([1.0, 2.0, 3.0]).reshape(3, 1).expand(3, 4)),
        ("expand_all", torch.tensor(4.0).expand(2, 2)), ("permute", base.reshape(2, 3, 8).permute(2, 0, 1)),
        ("scalar_of", base[7]), ("empty_of", base[9:9]), ("flat", square.reshape(-1)), ("row", square[5]),
        ("strided", torch.as_strided(base, (2, 3), (10, 2), 4)),
        ("overlap", torch.as_strided(base, (4, 4), (1, 1), 0)),
        ("channels_last", torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last)),
    ])


def sizes():
    return collections.OrderedDict([
        ("scalar", torch.tensor(3.25)), ("scalar_int", torch.tensor(-7)), ("one", torch.tensor([1.0])),
        ("empty", torch.empty(0)), ("empty_matrix", torch.empty(0, 4)), ("empty_middle", torch.empty(3, 0, 2)),
        ("five_dims", torch.arange(32, dtype=torch.int16).reshape(2, 2, 2, 2, 2)),
        ("none", None),
    ])


@group("zip")
def zip_files():
    """torch.save, zip format: state dicts, dtypes, views, protocols, alignments, wrappers."""
    save("zip_mlp.pt", models.MLP().state_dict())
    save("zip_cnn.pth", models.CNN().state_dict())
    save("zip_dtypes.pt", every_dtype())
    save("zip_views.pt", views())
    save("zip_sizes.pt", sizes())
    save("zip_tied.pt", models.Tied().state_dict())
    save("zip_parameters.pt", collections.OrderedDict(models.MLP().named_parameters()))
    save("zip_tensor.pt", torch.arange(5, dtype=torch.int32))
    save("zip_list.pt", [torch.ones(2), torch.zeros(3, dtype=torch.bool), torch.tensor(9)])
    save("zip_nested.pt", nested())
    save("zip_keys.pt", {"": torch.ones(1), "a.b": torch.ones(2), 3: torch.ones(3), "gr\u00fcn/\u6f22": torch.ones(4),
                         True: torch.ones(5), "sp ace": torch.ones(6), "emoji \U0001f600": torch.ones(7)})
    save("zip_storages.pt", storages())
    save("zip_memo.pt", shared_objects())
    save("zip_values.pt", plain_values())
    save("zip_bits.pt", conj_and_neg())
    save("zip_quantized.pt", quantized())
    save("zip_sparse.pt", sparse())
    save("zip_meta.pt", {"there": torch.ones(2), "gone": torch.empty(3, 4, dtype=torch.bfloat16, device="meta")})
    ragged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    save("zip_nested_tensor.pt", {"there": torch.ones(2), "ragged": ragged})
    save("zip_unknown_dtypes.pt", unknown_dtypes())
    save("zip_subclasses.pt", subclasses())
    save("zip_rebuilt.pt", rebuilt())
    save("zip_rebuilt_fortran.pt", fortran())
    save("zip_numpy.pt", arrays())
    save("zip_numpy_protocol4.pt", arrays(), pickle_protocol=4)
    for protocol in (1, 3, 4, 5):
        save("zip_protocol%d.pt" % protocol, models.MLP().state_dict(), pickle_protocol=protocol)
    refused("zip_protocol0.refused.pt", "persistent ids of pickle protocol 0 are text; torch.load refuses them too",
            lambda path: torch.save(models.MLP().state_dict(), path, pickle_protocol=0), error="any")
    save("zip_no_byteorder.pt", models.MLP().state_dict(), _disable_byteorder_record=True)
    save("zip_buffer.pt", models.MLP().state_dict(), writer=through_buffer)
    save("zip_bigendian.pt", every_dtype(), writer=big_endian)
    for alignment in (1, 8, 4096):
        save("zip_align%d.pt" % alignment, models.MLP().state_dict(), writer=aligned(alignment))
    save("zip_no_crc.pt", models.MLP().state_dict(), writer=without_crc)
    save("zip_skip_data.pt", models.MLP().state_dict(), writer=without_data)
    save("zip_zip64.pt", models.MLP().state_dict(), writer=zip64)
    save("zip_renamed.bin", models.MLP().state_dict(), writer=renamed)


def nested():
    w = torch.arange(6.0)
    return {
        "list": [w[:2], [w[2:4], {"deep": w[4:]}]],
        "tuple": (torch.ones(1), (), (torch.zeros(2),)),
        "ordered": collections.OrderedDict([("x", torch.tensor(1)), ("y", collections.OrderedDict(z=torch.tensor(2)))]),
        "empty": {}, "none": None,
        "pair": models.Pair(torch.ones(2), 5),
    }


def storages():
    s = torch.arange(4, dtype=torch.int16)
    return {"untyped": torch.UntypedStorage([1, 2, 3, 4, 5]), "typed": torch.FloatStorage([1.5, 2.5]),
            "half": torch.HalfStorage([0.5]), "shared": s.storage(), "of_shared": s[1:]}


def shared_objects():
    t = torch.arange(3.0)
    d = {"t": t}
    cyclic = {"t": t}
    cyclic["self"] = cyclic
    return {"a": t, "b": t, "d1": d, "d2": d, "cyclic": cyclic}


def plain_values():
    return {
        "int": 3, "negative": -5, "long": 1 << 40, "huge": 1 << 200, "minus_huge": -(1 << 200), "float": 0.1,
        "inf": float("inf"), "nan": float("nan"), "true": True, "none": None, "str": "text", "unicode": "\u00fc\u6f22",
        "long_str": "x" * 300, "bytes": b"\x00\xff", "bytearray": bytearray(b"ab"), "complex": 1 + 2j, "set": {3},
        "frozenset": frozenset([4]), "size": torch.Size([1, 2]), "dtype": torch.bfloat16,
        "device": torch.device("cuda", 1),
        "layout": torch.strided, "counter": collections.Counter("aab"), "weight": torch.ones(1),
    }


def conj_and_neg():
    """Lazy conjugates and negatives; imag is a float view of a complex storage, so each has one of its own."""
    def c():
        return torch.complex(torch.arange(4.0), torch.arange(4.0) + 1)

    shared = c()
    return {"plain": shared, "conj": shared.conj(), "conj_t": shared.reshape(2, 2).t().conj(), "neg": c().conj().imag,
            "imag": c().imag, "conj128": torch.complex(torch.ones(2).double(), torch.ones(2).double()).conj(),
            "conj_neg": torch._neg_view(c().conj())}


def quantized():
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    scales = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)
    points = torch.tensor([0, 1, 2])
    return collections.OrderedDict([
        ("quint8", torch.quantize_per_tensor(x, 0.02, 128, torch.quint8)),
        ("qint8", torch.quantize_per_tensor(x, 0.01, 0, torch.qint8)),
        ("qint32", torch.quantize_per_tensor(x, 1e-4, 3, torch.qint32)),
        ("channel", torch.quantize_per_channel(x, scales, points, 0, torch.qint8)),
        ("channel1", torch.quantize_per_channel(x.t().contiguous(), scales, points, 1, torch.quint8)),
        ("float_qparams", torch.quantize_per_channel(x, scales.float(), points.float(), 0, torch.quint8)),
        ("view", torch.quantize_per_tensor(x, 0.02, 128, torch.quint8)[1]),
        ("float", x),
    ])


def sparse():
    coo = torch.sparse_coo_tensor(torch.tensor([[0, 1], [2, 0]]), torch.tensor([3.0, 4.0]), (2, 3))
    dense = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    return {"coo": coo, "coalesced": coo.coalesce(), "csr": dense.to_sparse_csr(), "csc": dense.to_sparse_csc(),
            "bsr": dense.to_sparse_bsr((1, 1)), "bsc": dense.to_sparse_bsc((1, 1)), "dense": dense,
            "mkldnn_free": torch.ones(1)}


def unknown_dtypes():
    out = collections.OrderedDict(first=torch.ones(2))
    packed = torch.arange(4, dtype=torch.uint8)
    for n in "float4_e2m1fn_x2 uint1 uint2 uint3 uint4 uint5 uint6 uint7 int1 int4 bits8 bits16 quint4x2".split():
        try:
            if n == "quint4x2":
                t = torch.quantize_per_channel(torch.ones(2, 4), torch.ones(2), torch.zeros(2), 0, torch.quint4x2)
            else:
                t = packed.clone().view(getattr(torch, n))
            torch.save(t, io.BytesIO())
            torch.load(io_round(t), weights_only=False)
            out[n] = t
        except Exception as e:
            print("  not storable:", n, "-", str(e).split("\n")[0])
    out["last"] = torch.zeros(2)
    return out


def io_round(t):
    f = io.BytesIO()
    torch.save(t, f)
    f.seek(0)
    return f


def subclasses():
    tagged = torch.arange(4.0).as_subclass(models.TaggedTensor)
    with_state = torch.arange(3.0).as_subclass(models.TaggedTensor)
    with_state.note = "hello"
    with_state.extra = torch.ones(2)
    parameter = nn.Parameter(torch.ones(2, 2))
    parameter.is_expert = True
    attributed = torch.arange(2.0)
    attributed.origin = "a tensor with an attribute"
    return {"tagged": tagged, "with_state": with_state, "parameter_with_state": parameter,
            "tensor_with_state": attributed, "tagged_parameter": models.TaggedParameter(torch.ones(3)),
            "buffer": nn.Buffer(torch.ones(2)), "plain": torch.ones(1)}


class Rebuild(object):
    """Pickles as a call of a rebuild function, as the tensors of devices without storages do."""

    def __init__(self, function, *args):
        self.call = (function, args)

    def __reduce__(self):
        return self.call


def rebuilt():
    u = torch._utils
    ascii_floats = np.frombuffer(b"ABCD" * 6, dtype=np.float32).reshape(2, 3)
    w = torch.arange(6.0)
    return {
        "from_numpy": Rebuild(u._rebuild_device_tensor_from_numpy, np.arange(6, dtype=np.float32).reshape(2, 3),
                              torch.float32, "cpu", False),
        "from_numpy_half": Rebuild(u._rebuild_device_tensor_from_numpy, ascii_floats, torch.bfloat16, "cpu", True),
        "from_cpu": Rebuild(u._rebuild_device_tensor_from_cpu_tensor, w[2:], torch.float32, "cpu", False),
        "v1": Rebuild(u._rebuild_tensor, w.storage(), 1, (2, 2), (2, 1)),
        "v3": Rebuild(u._rebuild_tensor_v3, torch.arange(8.0).untyped_storage(), 2, (2,), (1,), False,
                      collections.OrderedDict(), torch.float32),
        "parameter": nn.Parameter(w),
        "frozen": nn.Parameter(w[1:3], requires_grad=False),
    }


def fortran():
    f = torch._utils._rebuild_device_tensor_from_numpy
    bfloats = torch.arange(6.0).reshape(3, 2).numpy().T  # as PyTorch widens bfloat16
    return {
        "two": Rebuild(f, np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)), torch.int16, "cpu", False),
        "three": Rebuild(f, np.asfortranarray(np.arange(24.0).reshape(2, 3, 4)), torch.float64, "cpu", False),
        "bfloat16": Rebuild(f, bfloats, torch.bfloat16, "cpu", False),
    }


def arrays():
    return {
        "weight": torch.ones(2), "array": np.arange(6, dtype=np.int32).reshape(2, 3), "scalar": np.float64(1.5),
        "int": np.int64(-3), "bool": np.bool_(True), "fortran": np.asfortranarray(np.arange(4.0).reshape(2, 2)),
        "text": np.array(["ab", "c"]), "empty": np.zeros((0, 2)), "big": np.arange(3, dtype=">i2"),
        "zero_d": np.array(2.5),
    }


def through_buffer(path, obj):
    f = io.BytesIO()
    torch.save(obj, f)
    with open(path, "wb") as out:
        out.write(f.getvalue())


def aligned(alignment):
    def write(path, obj):
        from torch.utils.serialization import config
        with config.patch({"save.storage_alignment": alignment}):
            torch.save(obj, path)
    return write


def without_crc(path, obj):
    """save.compute_crc32 = False writes zeros for the checksums of all records."""
    from torch.utils.serialization import config
    with config.patch({"save.compute_crc32": False}):
        torch.save(obj, path)


def without_data(path, obj):
    with torch.serialization.skip_data():
        torch.save(obj, path)


def records_of(path):
    reader = torch._C.PyTorchFileReader(path)
    names = [n for n in reader.get_all_records() if not n.startswith(".data/") and n != "version"]
    return [(n, reader.get_record(n)) for n in names]


def write_records(path, records):
    writer = torch._C.PyTorchFileWriter(path)
    for name, data in records:
        writer.write_record(name, data, len(data))
    writer.write_end_of_file()


def big_endian(path, obj):
    """The file that a big-endian machine writes: the storages swapped by element, the byteorder record "big"."""
    torch.save(obj, path)
    widths = [1 if isinstance(t, str) else element_width(t) for t in obj.values()]
    out = []
    for name, data in records_of(path):
        if name == "byteorder":
            data = b"big"
        elif name.startswith("data/"):
            w = widths[int(name[5:])]
            data = b"".join(data[i:i + w][::-1] for i in range(0, len(data), w))
        out.append((name, data))
    write_records(path, out)


def element_width(t):
    return t.element_size() // 2 if t.dtype.is_complex else t.element_size()


def renamed(path, obj):
    torch.save(obj, path + ".tmp")
    os.rename(path + ".tmp", path)


def zip64(path, obj):
    """An archive with zip64 fields although it is small, as writers that stream without knowing sizes make them."""
    torch.save(obj, path)
    records = []
    with zipfile.ZipFile(path) as z:
        for info in z.infolist():
            records.append((info.filename, z.read(info)))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        for name, data in records:
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            with z.open(info, "w", force_zip64=True) as f:
                f.write(data)
    add_zip64_end(path)


def add_zip64_end(path):
    """Rewrites the central directory with zip64 sizes and offsets and adds the zip64 end records."""
    with open(path, "rb") as f:
        data = f.read()
    end = data.rindex(b"PK\x05\x06")
    count, size, start = struct.unpack("<HII", data[end + 10:end + 20])
    out, pos = [], start
    for _ in range(count):
        head = bytearray(data[pos:pos + 46])
        nlen, elen, clen = struct.unpack("<HHH", head[28:34])
        csize, usize = struct.unpack("<II", head[20:28])
        offset, = struct.unpack("<I", head[42:46])
        extra = struct.pack("<HHQQQ", 1, 24, usize, csize, offset)
        head[20:28] = b"\xff" * 8
        head[42:46] = b"\xff" * 4
        head[30:32] = struct.pack("<H", len(extra))
        head[6:8] = struct.pack("<H", 45)
        out.append(bytes(head) + data[pos + 46:pos + 46 + nlen] + extra)
        pos += 46 + nlen + elen + clen
    directory = b"".join(out)
    end64 = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, len(directory), start)
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, start + len(directory), 1)
    eocd = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0xffff, 0xffff, 0xffff, 0xffff, 0xffffffff, 0xffffffff, 0)
    with open(path, "wb") as f:
        f.write(data[:start] + directory + end64 + locator + eocd)


@group("legacy")
def legacy_files():
    """torch.save before 1.6, as today's torch still writes it; and a tar that is refused."""
    patch_sources()
    save("legacy_mlp.pt", models.MLP().state_dict(), legacy=True)
    save("legacy_views.pt", views(), legacy=True)
    save("legacy_sizes.pt", sizes(), legacy=True)
    save("legacy_dtypes.pt", legacy_dtypes(), legacy=True)
    save("legacy_tied.pt", models.Tied().state_dict(), legacy=True)
    save("legacy_nested.pt", nested(), legacy=True)
    save("legacy_values.pt", plain_values(), legacy=True)
    save("legacy_storages.pt", {"typed": torch.FloatStorage([1.5, 2.5]), "bytes": torch.ByteStorage([1, 2])},
         legacy=True)
    save("legacy_quantized.pt", quantized(), legacy=True)
    save("legacy_tensor.pt", torch.arange(5, dtype=torch.int64), legacy=True)
    save("legacy_protocol4.pt", models.MLP().state_dict(), legacy=True, pickle_protocol=4)
    save("legacy_module.pt", models.CNN().eval(), legacy=True)
    save("legacy_empty.pt", {}, legacy=True)
    save("legacy_storage_views.pt", models.MLP().state_dict(), legacy=True, writer=storage_views)
    refused("legacy_tar.refused.pt", "tar format of torch 0.1.10 and before", tar, LEGACY)


class _Pid(object):
    """A storage as the persistent id says it, with the view that only releases before 0.4 wrote."""

    def __init__(self, *pid):
        self.pid = ("storage",) + pid


def storage_views(path, _):
    """Storages that are views of others: (root key, offset, size) in elements, as torch.load still reads them."""
    class Pickler(pickle.Pickler):
        def persistent_id(self, obj):
            return obj.pid if isinstance(obj, _Pid) else None

    def tensor(storage, offset, size):
        return Rebuild(torch._utils._rebuild_tensor_v2, storage, offset, (size,), (1,), False,
                       collections.OrderedDict())

    root = ("10", "cpu", 12)
    obj = collections.OrderedDict([
        ("view", tensor(_Pid(torch.FloatStorage, *root, ("11", 2, 5)), 1, 4)),
        ("whole", tensor(_Pid(torch.FloatStorage, *root, None), 0, 12)),
        ("same_view", tensor(_Pid(torch.FloatStorage, *root, ("11", 2, 5)), 0, 5)),
        ("other_view", tensor(_Pid(torch.FloatStorage, *root, ("12", 7, 5)), 2, 3)),
        ("apart", tensor(_Pid(torch.LongStorage, "13", "cpu", 2, None), 0, 2)),
    ])
    with open(path, "wb") as f:
        for head in (torch.serialization.MAGIC_NUMBER, torch.serialization.PROTOCOL_VERSION, SYS_INFO):
            pickle.dump(head, f, protocol=2)
        Pickler(f, protocol=2).dump(obj)
        pickle.dump(["10", "13"], f, protocol=2)
        f.write(struct.pack("<q12f", 12, *range(12)))
        f.write(struct.pack("<q2q", 2, -1, 5))


SYS_INFO = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}


def legacy_dtypes():
    """Dtypes newer than the format have no storage class of their own; torch writes them and cannot read them."""
    new = torch.storage._new_dtypes()
    return collections.OrderedDict((k, v) for k, v in every_dtype().items() if v.dtype not in new)


def patch_sources():
    """The legacy format stores the source of each module class and its path; keep this machine's paths out of it."""
    original = torch.serialization.get_source_lines_and_file

    def relative(obj, *args):
        lines, start, _ = original(obj, *args)
        return lines, start, obj.__module__.replace(".", "/") + ".py"

    torch.serialization.get_source_lines_and_file = relative


def tar(path):
    """The format of torch 0.1.10 and before: a tar of pickles. No kept torch writes it; it must be refused."""
    def member(t, filename, data):
        info = tarfile.TarInfo(filename)
        info.size = len(data)
        t.addfile(info, io.BytesIO(data))

    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as t:
        member(t, "sys_info", pickle.dumps(dict(SYS_INFO, protocol_version=1000), protocol=2))
        member(t, "pickle", pickle.dumps({"weight": 1}, protocol=2))
        member(t, "storages", pickle.dumps(0, protocol=2))
        member(t, "tensors", pickle.dumps(0, protocol=2))


SAFE_DTYPES = [n for n in DTYPES if n not in ("complex32", "complex128")]


@group("safetensors")
def safetensors_files():
    """Files of the safetensors library: every dtype it writes, metadata, sizes, order, alignment."""
    from safetensors.torch import save_file, save_model

    def write(name, tensors, metadata=None):
        save_file(tensors, valid(name), metadata=metadata)
        describe_safetensors(name)

    dtypes = collections.OrderedDict()
    for name in SAFE_DTYPES:
        t = values(getattr(torch, name)).reshape(2, 3)
        try:
            save_file({name: t}, valid("probe.safetensors"))
            dtypes[name] = t
        except Exception as e:
            print("  not storable:", name, "-", str(e).split("\n")[0])
    os.remove(valid("probe.safetensors"))
    write("safetensors_dtypes.safetensors", dtypes)
    write("safetensors_mlp.safetensors", models.MLP().state_dict(), {"format": "pt", "note": "gr\u00fcn \"x\""})
    write("safetensors_sizes.safetensors", {k: v for k, v in sizes().items() if v is not None})
    write("safetensors_empty.safetensors", {})
    write("safetensors_only_metadata.safetensors", {}, {"format": "pt"})
    write("safetensors_odd.safetensors", {"a": torch.ones(1, dtype=torch.uint8), "b": torch.ones(3, dtype=torch.bool),
                                          "c": torch.ones(1, dtype=torch.float64)})
    write("safetensors_names.safetensors", {"": torch.ones(1), "gr\u00fcn/\u6f22": torch.ones(2),
                                            "a.b c": torch.ones(3)})
    # save_model leaves out all names but one of a tensor that has several, and tells of them in the metadata.
    save_model(models.Tied(), valid("safetensors_tied.safetensors"), metadata={"format": "pt"})
    describe_safetensors("safetensors_tied.safetensors", models.Tied())


def describe_safetensors(name, model=None):
    """Tensors in the order of their bytes, as PyTorch's own bits; the header's text beside them. With a model, also those
    of its state dict that load_model finds in the file under another name."""
    import json
    from safetensors import safe_open
    path = valid(name)
    with open(path, "rb") as f:
        data = f.read()
    size, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    metadata = header.pop("__metadata__", None)
    tensors = []
    with safe_open(path, "pt") as f:
        for key in sorted(header, key=lambda k: header[k]["data_offsets"]):
            try:
                t = f.get_tensor(key)
            except Exception as e:
                print("  not readable by the library:", key, "-", e)
                t = None
            begin, end = header[key]["data_offsets"]
            raw = data[8 + size + begin:8 + size + end]
            if t is not None and golden.raw_bytes(t) != raw:
                raise AssertionError(key)
            shape = header[key]["shape"]
            tensors.append(collections.OrderedDict(
                name=key, dtype=key if t is None else golden.dtype_name(t.dtype), shape=shape,
                stride=list(torch.empty(shape, device="meta").stride()), offset=0, storage_bytes=len(raw),
                sha256=golden.sha256(raw), shares_with=None, requires_grad=False, stored_as=header[key]["dtype"],
                begin=8 + size + begin))
    if model is not None:
        from safetensors.torch import load_model
        with torch.no_grad():
            for p in model.parameters():
                p.zero_()
        load_model(model, path)
        state, stored = model.state_dict(), {t["name"]: t for t in tensors}
        for key in sorted(set(state) - set(stored)):
            kept = next(k for k in sorted(stored) if state[k].data_ptr() == state[key].data_ptr())
            if golden.sha256(golden.raw_bytes(state[key])) != stored[kept]["sha256"]:
                raise AssertionError(key)
            tensors.append(collections.OrderedDict(stored[kept], name=key, shares_with=kept))
    g = collections.OrderedDict(format="safetensors", torch=torch.__version__.split("+")[0], metadata=metadata,
                                tensors=tensors)
    golden.dump(g, path + ".golden.json")
    record_scan(name, {"verdict": "data"})
