"""Fixtures of torch.export: today's archive layout, and the layout before 2.8 by torch 2.6."""

import collections
import io
import json
import zipfile

import torch
from torch import nn
from torch.export import Dim, export

import fixtures_golden as golden
import fixtures_models as models
from make_fixtures import group, load, record_scan, valid

MODELS = load("fixtures_export_models")


def size(v):
    """A size as a number, or as text where it is symbolic."""
    return v if isinstance(v, int) else str(v)


def argument(spec):
    """An argument of a signature as [kind, name or value]."""
    kind = type(spec).__name__.replace("Argument", "").lower()
    return [kind, spec.value if kind == "constant" and spec.name in ("", None) else spec.name]


def values(ep):
    """dtype and shape of each value of the graph that is one tensor."""
    out = {}
    for node in ep.graph.nodes:
        v = node.meta.get("val")
        if isinstance(v, torch.Tensor):
            out[node.name] = {"dtype": golden.dtype_name(v.dtype), "shape": [size(n) for n in v.shape]}
    return out


def program(ep, document):
    """What PyTorch sees in one program; nodes also as they are written, since loading splits multiple results."""
    vals = values(ep)
    inputs, outputs = [], []
    for s in ep.graph_signature.input_specs:
        kind, name = argument(s.arg)
        entry = collections.OrderedDict(kind=s.kind.name.lower(), arg=kind, name=name)
        if s.target is not None:
            entry["target"] = s.target
        if s.persistent is not None:
            entry["persistent"] = s.persistent
        entry.update(vals.get(name, {}))
        inputs.append(entry)
    for s in ep.graph_signature.output_specs:
        kind, name = argument(s.arg)
        entry = collections.OrderedDict(kind=s.kind.name.lower(), arg=kind, name=name)
        if s.target is not None:
            entry["target"] = s.target
        entry.update(vals.get(name, {}))
        outputs.append(entry)
    nodes = []
    for node in ep.graph.nodes:
        if node.op != "call_function" or getattr(node.target, "__name__", "") == "getitem":
            continue
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        path, cls = (stack[-1][0], stack[-1][1]) if stack else (None, None)
        if isinstance(cls, type):
            cls = cls.__module__ + "." + cls.__qualname__
        nodes.append([node.name, str(node.target) if not callable(node.target) or hasattr(node.target, "_schema")
                      else getattr(node.target, "__name__", str(node.target)), path, cls])
    graph = document["graph_module"]["graph"]
    calls = ep.module_call_graph[0].signature
    return collections.OrderedDict(
        schema_version=document["schema_version"], torch_version=document.get("torch_version"),
        verifiers=document.get("verifiers"), dialect=ep.dialect,
        range_constraints=document.get("range_constraints"),
        symbols=sorted(str(s) for s in ep.range_constraints),
        inputs=inputs, outputs=outputs, user_inputs=[size(n) for n in ep.graph_signature.user_inputs],
        user_outputs=[size(n) for n in ep.graph_signature.user_outputs],
        forward_arg_names=getattr(calls, "forward_arg_names", None),
        nodes=nodes, written_targets=[n["target"] for n in graph["nodes"]],
        tensor_values=sorted(graph["tensor_values"]),
        module_calls=[c.fqn for c in ep.module_call_graph])


def tensors(ep, prefix, config):
    """Weights, then constants. What shares a record shares a storage, whatever loading makes of it."""
    w, first = golden.Walk(), {}
    names = set(ep.graph_signature.parameters)
    for source, kind in ((ep.state_dict, None), (ep.constants, "constant")):
        for name, t in source.items():
            if not isinstance(t, torch.Tensor):
                continue
            count = len(w.tensors)
            is_parameter = name in names or isinstance(t, nn.Parameter)
            w.tensor(t, prefix + name, kind or ("parameter" if is_parameter else "buffer"))
            record = config.get((kind, name))
            for entry in w.tensors[count:]:
                if record is not None:
                    key = (kind, record["path_name"])
                    entry["record"], entry["use_pickle"] = record["path_name"], record["use_pickle"]
                    entry["shares_with"] = first.get(key)
                    first.setdefault(key, entry["name"])
    return w.tensors, w.unsupported


def describe(name):
    path = valid(name)
    with zipfile.ZipFile(path) as z:
        names = z.namelist()
        top = names[0].split("/")[0] if "/" in names[0] else ""
        base = top + "/" if top else ""
        read = lambda n: json.loads(z.read(base + n))
        if base + "archive_format" in names:
            documents = {n[len(base) + 7:-5]: read(n[len(base):]) for n in names if n.startswith(base + "models/")}
            fmt = "torch-export"
        else:
            documents = {"model": json.loads(z.read("serialized_exported_program.json"))}
            fmt = "torch-export-old"
        configs = {}
        for model in documents:
            configs[model] = {}
            for kind, file in ((None, "data/weights/%s_weights_config.json"),
                               ("constant", "data/constants/%s_constants_config.json")):
                if base + file % model in names:
                    for k, v in read(file % model)["config"].items():
                        configs[model][(kind, k)] = v
        extras = sorted(n[len(base) + 6:] for n in names if n.startswith(base + "extra/"))
    if fmt == "torch-export":
        from torch.export.pt2_archive._package import load_pt2
        programs = load_pt2(path).exported_programs
    else:
        programs = {"model": torch.export.load(path)}
    g = collections.OrderedDict(format=fmt, torch=torch.__version__.split("+")[0], top=top)
    g["tensors"], unsupported = [], []
    for model in documents:
        found = tensors(programs[model], model + "." if len(documents) > 1 else "", configs[model])
        g["tensors"] += found[0]
        unsupported += found[1]
    if unsupported:
        g["unsupported"] = unsupported
    g["models"] = {model: program(programs[model], documents[model]) for model in documents}
    g["extra_files"] = extras
    golden.dump(g, path + ".golden.json")
    with open(path, "rb") as f:
        record_scan(name, golden.scan_verdict(f.read()))


def save(name, make, **kwargs):
    """Exports and saves; what a release cannot export is said and left out."""
    try:
        ep = make()
        if isinstance(ep, dict):
            from torch.export.pt2_archive._package import package_pt2
            package_pt2(valid(name), exported_programs=ep)
        else:
            torch.export.save(ep, valid(name), **kwargs)
        describe(name)
    except Exception as e:
        print("  not made:", name, "-", type(e).__name__, str(e).strip().split("\n")[0])


def mlp():
    return export(models.MLP(), (torch.ones(2, 4),))


def outputs():
    t = torch.ones(2, 2)
    return export(MODELS.Outputs(), (t, (t, {"left": t})), {"options": {"k": t}, "scale": 3, "bias": None})


# Dtypes that the old layout cannot hold.
LATE = "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz uint32 uint64".split()


def common(prefix):
    image = torch.ones(2, 2, 4, 4)
    batch = Dim("batch", min=2, max=64)
    save(prefix + "mlp.pt2", mlp)
    save(prefix + "cnn_train.pt2", lambda: export(models.CNN(), (image,)))
    save(prefix + "cnn_eval.pt2", lambda: export(models.CNN().eval(), (image,), dynamic_shapes={"x": {0: batch}}))
    save(prefix + "dynamic.pt2", lambda: export(MODELS.Dynamic(), (torch.ones(6, 4), torch.ones(3, 4)),
                                                dynamic_shapes={"x": {0: Dim.AUTO}, "y": {0: Dim.AUTO}}))
    save(prefix + "tied.pt2", lambda: export(models.Tied(), (torch.tensor([1, 2]),)))
    save(prefix + "constants.pt2", lambda: export(MODELS.Constants(), (torch.ones(3, 2),)))
    save(prefix + "outputs.pt2", outputs)
    save(prefix + "shared.pt2", lambda: export(MODELS.Shared(), (torch.ones(1, 3),)))
    save(prefix + "decomposed.pt2", lambda: export(models.CNN(), (image,)).run_decompositions())
    save(prefix + "control.pt2", lambda: export(MODELS.Control(), (torch.ones(2, 2),)))
    names = [n for n in MODELS.DTypes.NAMES if n not in LATE or hasattr(torch.export, "pt2_archive")]
    save(prefix + "dtypes.pt2", lambda: export(MODELS.DTypes(names), (torch.ones(2),)))
    save(prefix + "views.pt2", lambda: export(MODELS.Views(), (torch.ones(3),)))
    save(prefix + "many.pt2", lambda: export(MODELS.Many(), (torch.ones(2, 4),)))


@group("export")
def export_files():
    """torch.export archives in the layout since 2.8."""
    common("pt2_")
    save("pt2_lstm.pt2", lambda: export(nn.LSTM(3, 2), (torch.ones(4, 1, 3),)))
    save("pt2_attention.pt2", lambda: export(nn.TransformerEncoderLayer(4, 2, 4).eval(), (torch.ones(3, 1, 4),)))
    save("pt2_two_models.pt2", lambda: {"first": mlp(), "second": export(models.Tied(), (torch.tensor([1]),))})
    save("pt2_extra.pt2", mlp, extra_files={"notes.txt": "hello"})
    save("pt2_subclass.pt2", subclass)
    f = io.BytesIO()
    torch.export.save(mlp(), f)
    with open(valid("pt2_buffer.pt2"), "wb") as out:
        out.write(f.getvalue())
    describe("pt2_buffer.pt2")


def subclass():
    """A weight that is a tensor subclass is pickled, not written raw."""
    from torch.testing._internal.two_tensor import TwoTensor
    m = nn.Linear(2, 2, bias=False)
    m.weight = nn.Parameter(TwoTensor(torch.ones(2, 2), torch.zeros(2, 2)))
    return export(m, (torch.ones(1, 2),))


@group("export26", needs="2.6")
def export_2_6():
    """torch.export files of 2.6: one zip of four records, archives inside the archive."""
    common("t26_pt2_")
