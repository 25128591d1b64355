"""Exported programs as JSON: what torch.export.save writes as models/model.json, less what only a person reads."""

import inspect
import json

import torch
from torch._export.serde import serialize

# Of the metadata only the stack of modules matters to whoever runs the program; the rest holds paths and hashes.
KEPT = ("nn_module_stack",)


def to_json(ep):
    s = serialize.ExportedProgramSerializer().serialize(ep)
    program = json.loads(json.dumps(serialize._dataclass_to_dict(s.exported_program), cls=serialize.EnumEncoder))
    strip(program)
    return program


def strip(o):
    if isinstance(o, list):
        for e in o:
            strip(e)
    elif isinstance(o, dict):
        if "target" in o and isinstance(o.get("metadata"), dict):
            o["metadata"] = {k: v for k, v in o["metadata"].items() if k in KEPT}
        for e in o.values():
            strip(e)


def pack(o):
    return json.dumps(o, separators=(",", ":")).encode()


def nodes(o):
    """Every node of the graph and of the graphs in it."""
    if isinstance(o, list):
        for e in o:
            yield from nodes(e)
    elif isinstance(o, dict):
        if "target" in o and "inputs" in o:
            yield o
        for e in o.values():
            yield from nodes(e)


def _names(program, typ, context, n):
    if typ in ("builtins.tuple", "builtins.list", "collections.deque"):
        return None
    if typ == "collections.namedtuple":
        return program["graph_module"]["treespec_namedtuple_fields"].get(context, {}).get("field_names")
    if not n or not context:
        return None

    def first(o):
        if isinstance(o, dict):
            o = list(o.values())
        elif isinstance(o, list) and len(o) == n and all(type(e) in (str, int) for e in o):
            return [str(e) for e in o]
        for e in o if isinstance(o, list) else []:
            if (found := first(e)) is not None:
                return found
        return None

    try:
        return first(json.loads(context) if isinstance(context, str) else context)
    except ValueError:
        return None


def _paths(program, spec, prefix, named, out):
    if spec["type"] is None:
        out.append((prefix, named))
        return
    children = spec["children_spec"]
    names = _names(program, spec["type"], spec["context"], len(children))
    for i, c in enumerate(children):
        k = names[i] if names else str(i)
        _paths(program, c, f"{prefix}.{k}" if prefix else k, named or names is not None, out)


def _tag(arg):
    """The kind of a user's argument and the name of its value, "" for a constant."""
    (tag, v), = ((t, v) for t, v in arg.items() if v is not None)
    if tag == "as_tensor":
        return tag, v["name"]
    if tag in ("as_sym_int", "as_sym_float", "as_sym_bool"):
        return tag, v.get("as_name") or ""
    return tag, ""


def _unique(names, fallback):
    taken = set()
    for i, n in enumerate(names):
        if n == "" or n in taken:
            n = fallback if fallback == "x" else f"{fallback}{i}"
            while n in taken:
                n += "_"
            names[i] = n
        taken.add(n)
    return names


def inputs(program):
    """The names of the tensors that a user gives, in order."""
    gm = program["graph_module"]
    call = gm["module_call_graph"][0]["signature"]
    spec = json.loads(call["in_spec"])[1]
    args, kwargs = spec["children_spec"]
    paths = []
    argnames = call["forward_arg_names"] or []
    for i, c in enumerate(args["children_spec"]):
        sub = []
        _paths(program, c, argnames[i] if i < len(argnames) else "", True, sub)
        paths += [p if i < len(argnames) else "" for p, _ in sub]
    sub = []
    _paths(program, kwargs, "", True, sub)
    paths += [p for p, _ in sub]
    names, leaf = [], 0
    for s in gm["signature"]["input_specs"]:
        if "user_input" in s:
            tag, value = _tag(s["user_input"]["arg"])
            if value:
                names.append(paths[leaf] or value)
            leaf += 1
        elif "constant_input" in s:
            leaf += 1
    assert leaf == len(paths), (leaf, paths)
    return _unique(names, "x" if len(names) == 1 else "input_")


def outputs(program):
    """The names of the user's outputs, in order, constants among them."""
    gm = program["graph_module"]
    spec = json.loads(gm["module_call_graph"][0]["signature"]["out_spec"])[1]
    paths = []
    _paths(program, spec, "", False, paths)
    args = [s[k]["arg"] for s in gm["signature"]["output_specs"] for k in ("user_output", "loss_output") if k in s]
    assert len(args) == len(paths)
    return _unique([(p if named else "") or _tag(a)[1] for (p, named), a in zip(paths, args)], "output_")


def mutations(program):
    """The buffers and inputs that the program writes."""
    for s in program["graph_module"]["signature"]["output_specs"]:
        if "buffer_mutation" in s:
            yield "buffer", s["buffer_mutation"]["buffer_name"]
        elif "user_input_mutation" in s:
            yield "input", s["user_input_mutation"]["user_input_name"]


def argument_paths(forward, args, kwargs, is_leaf):
    """The arguments by the names that cli.md gives them."""
    names = [p.name for p in inspect.signature(forward).parameters.values()
             if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    found = {}

    def walk(path, o):
        if is_leaf(o):
            found[path] = o
        elif isinstance(o, dict):
            for k, v in o.items():
                walk(f"{path}.{k}", v)
        elif isinstance(o, tuple) and hasattr(o, "_fields"):
            for k in o._fields:
                walk(f"{path}.{k}", getattr(o, k))
        elif isinstance(o, (list, tuple)):
            for i, v in enumerate(o):
                walk(f"{path}.{i}", v)

    for n, a in zip(names, args):
        walk(n, a)
    for k, a in kwargs.items():
        walk(k, a)
    return found


def export(model, args, kwargs, dynamic):
    # With gradients enabled, as users do it: code under no_grad() becomes wrap_with_set_grad_enabled.
    return torch.export.export(model, args, kwargs or None, dynamic_shapes=dynamic, strict=False)
