"""Writes the archives beside it, each by the program that writes its like: PyTorch 2.15 and Python's zipfile.

    python make.py
"""
import collections
import hashlib
import io
import os
import sys
import warnings
import zipfile

import torch
from torch.package import PackageExporter
from torch.utils.serialization import config

warnings.simplefilter("ignore")
os.chdir(os.path.dirname(os.path.abspath(__file__)))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.l = torch.nn.Linear(3, 2)

    def forward(self, x):
        return torch.relu(self.l(x))


class Sparse:
    """A file-like object that keeps what comes before and after one long run of zeros."""

    def __init__(self):
        self.head, self.tail, self.zeros = b"", b"", 0

    def write(self, b):
        b = bytes(b)
        if len(b) >= 1 << 16:
            assert not b.strip(b"\0") and not self.tail
            self.zeros += len(b)
        elif self.zeros:
            self.tail += b
        else:
            self.head += b
        return len(b)

    def flush(self):
        pass


def ordered(**kw):
    return collections.OrderedDict(kw)


torch.manual_seed(0)
net = Net()

# One tensor per dtype that WriteTorchZip writes, element i of storage k holding the bytes k+1, k+2, ...; with a scalar,
# an empty tensor and four dimensions among them.
dtypes = ["float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool", "complex64",
          "complex128", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
          "float8_e5m2fnuz", "float8_e8m0fnu", "complex32"]
state = collections.OrderedDict()
shapes = [(2, 3), (), (0, 4), (1, 2, 1, 3)]
for k, name in enumerate(dtypes):
    dtype, shape = getattr(torch, name), shapes[k % 4]
    n = torch.empty(shape, dtype=dtype).nbytes
    data = bytes((k + 1 + i) % 2 if name == "bool" else (k + 1 + i) % 64 for i in range(n))
    t = torch.frombuffer(bytearray(data), dtype=dtype) if n else torch.empty(0, dtype=dtype)
    state[f"layer.{name}"] = t.reshape(shape)
torch.save(state, "statedict.pt")

torch.jit.save(torch.jit.script(net), "script.pt")
torch.export.save(torch.export.export(net, (torch.randn(4, 3),)), "exported.pt2")
with PackageExporter("package.pt") as p:
    p.save_pickle("model", "model.pkl", torch.arange(4.0))
    p.save_source_string("mod", "x = 1\n" * 100)

torch.serialization.set_crc32_options(False)
torch.save(ordered(c=torch.ones(7), d=torch.zeros(3)), "nochecksum.pt")
torch.serialization.set_crc32_options(True)

config.save.storage_alignment = 256
torch.save(ordered(c=torch.ones(7), d=torch.zeros(3)), "aligned256.pt")
config.save.storage_alignment = 64

# 4 GiB and a little of zeros, then small records whose places need 64 bits. Only what is around the zeros is kept.
w = Sparse()
torch.save(ordered(big=torch.zeros((4 << 30) + 16, dtype=torch.uint8), c=torch.ones(7), d=torch.zeros(3)), w)
assert w.zeros == (4 << 30) + 16, w.zeros
open("large.head", "wb").write(w.head)
open("large.tail", "wb").write(w.tail)

# As torch.export wrote before 2.8: Python's zipfile, archives within the archive, no alignment.
inner = io.BytesIO()
torch.save(ordered(w=torch.arange(3.0)), inner)
when = (2024, 1, 1, 0, 0, 0)
with zipfile.ZipFile("zipfile.zip", "w") as z:
    z.writestr(zipfile.ZipInfo("serialized_exported_program.json", when), '{"graph_module": {}}')
    z.writestr(zipfile.ZipInfo("serialized_state_dict.pt", when), inner.getvalue())
    z.writestr(zipfile.ZipInfo("version", when), "8.2")
    deflated = zipfile.ZipInfo("extra_files/größe.txt", when)
    deflated.compress_type = zipfile.ZIP_DEFLATED
    z.writestr(deflated, "abc" * 1000)
    z.writestr(zipfile.ZipInfo("extra_files/folder/", when), "")
    with z.open(zipfile.ZipInfo("wide", when), "w", force_zip64=True) as f:
        f.write(b"0123456789")


class Pipe(io.RawIOBase):
    def __init__(self, f):
        self.f = f

    def writable(self):
        return True

    def write(self, b):
        return self.f.write(b)


with open("zipfile_streamed.zip", "wb") as f, zipfile.ZipFile(Pipe(f), "w") as z:
    for name, method in [("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED)]:
        info = zipfile.ZipInfo(name, when)
        info.compress_type = method
        z.writestr(info, "data " * 50)
    with z.open(zipfile.ZipInfo("wide", when), "w", force_zip64=True) as f:
        f.write(b"0123456789")

# Python's pickler writes dictionaries a thousand entries at a time.
for n in [1, 255, 1000, 1001]:
    b = io.BytesIO()
    torch.save(collections.OrderedDict((f"t{i}", torch.zeros(i % 3, 70000)) for i in range(n)), b)
    pkl = zipfile.ZipFile(b).read("archive/data.pkl")
    print(n, len(pkl), hashlib.sha256(pkl).hexdigest(), file=sys.stderr)
