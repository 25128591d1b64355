"""Fixtures that only old releases write: the layouts of 1.5, 1.6, 1.13 and 2.6.

Each group runs under its own release. What a release lacks (a dtype, a module) is left out by feature, so one set of
objects serves them all.
"""

import collections
import os

import torch
from torch import nn

import fixtures_models as models
import fixtures_save
from fixtures_save import save
from make_fixtures import group


def prefix():
    return "t" + "".join(torch.__version__.split("+")[0].split(".")[:2]) + "_"


def dtypes():
    out = collections.OrderedDict()
    for name in "float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 bool complex64 complex128".split():
        try:
            t = torch.tensor([[0, 1, 2], [3, 4, 100]], dtype=torch.float32).to(getattr(torch, name))
            torch.save(t, os.devnull)
            out[name] = t
        except (RuntimeError, AttributeError, KeyError, TypeError) as e:
            print("  not storable:", name, "-", str(e).split("\n")[0])
    return out


def views():
    base = torch.arange(24, dtype=torch.float32)
    return collections.OrderedDict([
        ("base", base), ("slice", base[5:17]), ("transpose", base.reshape(4, 6).t()),
        ("expand", torch.tensor([[1.0], [2.0]]).expand(2, 3)), ("scalar", base[3]), ("empty", torch.empty(0, 2)),
    ])


def quantized():
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    scales, points = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64), torch.tensor([0, 1, 2])
    return {"tensor": torch.quantize_per_tensor(x, 0.02, 128, torch.quint8),
            "channel": torch.quantize_per_channel(x, scales, points, 0, torch.qint8)}


def training():
    m = models.MLP()
    torch.manual_seed(2)
    opt = torch.optim.Adam(m.parameters(), lr=1e-3)
    m(torch.ones(1, 4)).sum().backward()
    opt.step()
    return {"epoch": 3, "state_dict": collections.OrderedDict(("module." + k, v) for k, v in m.state_dict().items()),
            "optimizer": opt.state_dict(), "best": 0.5}


def common(suffix, legacy, **kwargs):
    """The same objects in the layout of the release at hand."""
    start = prefix() + suffix
    save(start + "mlp.pt", models.MLP().state_dict(), legacy=legacy, **kwargs)
    save(start + "dtypes.pt", dtypes(), legacy=legacy, **kwargs)
    save(start + "views.pt", views(), legacy=legacy, **kwargs)
    save(start + "tied.pt", models.Tied().state_dict(), legacy=legacy, **kwargs)
    save(start + "quantized.pt", quantized(), legacy=legacy, **kwargs)
    save(start + "module.pt", models.CNN().eval(), legacy=legacy, **kwargs)
    save(start + "training.pt", training(), legacy=legacy, **kwargs)
    save(start + "net.pt", models.Net(), legacy=legacy, **kwargs)


@group("legacy15", needs="1.5")
def torch_1_5():
    """Legacy files by the release whose default they were, and its zip layout, not yet the default."""
    patch_sources()
    common("legacy_", legacy=True)
    common("zip_", legacy=False, _use_new_zipfile_serialization=True)


@group("zip16", needs="1.6")
def torch_1_6():
    """The first release whose torch.save writes zip files."""
    patch_sources()
    common("zip_", legacy=False)
    save(prefix() + "legacy_mlp.pt", models.MLP().state_dict(), legacy=True)


@group("zip113", needs="1.13")
def torch_1_13():
    """Typed storages, parameters with state, lazy conjugates as 1.13 writes them."""
    patch_sources()
    common("zip_", legacy=False)
    fancy = nn.Parameter(torch.ones(2))
    fancy.tag = "x"
    tagged = torch.arange(3.0).as_subclass(models.TaggedTensor)
    tagged.note = "hello"
    c = torch.complex(torch.ones(2), torch.ones(2))
    save(prefix() + "zip_wrapped.pt", {"parameter": fancy, "tagged": tagged, "conj": c.conj(), "plain": c})
    save(prefix() + "legacy_views.pt", views(), legacy=True)


@group("zip26", needs="2.6")
def torch_2_6():
    """Zip files of a release with the byteorder record and without the alignment record."""
    common("zip_", legacy=False)


def patch_sources():
    """As fixtures_save.patch_sources, for releases that ask inspect themselves."""
    if hasattr(torch.serialization, "get_source_lines_and_file"):
        fixtures_save.patch_sources()
        return
    raise RuntimeError("this release stores paths of source files that this script does not know how to shorten")
