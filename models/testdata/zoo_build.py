"""Makes the three files of one model: the program in both forms and the reference."""

import copy
import json
import math

import torch
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import FlopCounterMode

import zoo_program
import zoo_reference as ref
import zoo_weights
from zoo_spec import In

FORBIDDEN = ("/site-packages/", "/home/", "/tmp/", "/usr/", "stack_trace")


def is_in(o):
    return isinstance(o, In)


def materialize(model, case):
    """The arguments of a case with tensors in them, and the inputs by name."""
    found = zoo_program.argument_paths(model.forward, case.args, case.kwargs, is_in)
    values = {n: d.tensor(n) for n, d in found.items()}
    by_id = {}
    for n, d in found.items():
        assert id(d) not in by_id, "an input is used twice"
        by_id[id(d)] = values[n]
    args, kwargs = pytree.tree_map_only(In, lambda d: by_id[id(d)], (case.args, case.kwargs))
    return args, kwargs, found, values


def described(d, t):
    e = {"dtype": ref.dtype_name(t.dtype), "shape": list(t.shape)}
    if d.literal is not None:
        return e | {"kind": "literal"} | zoo_weights.literal(t)
    if d.low is not None:
        return e | {"kind": "ints", "low": d.low, "high": d.high}
    return e | {"kind": "hash", "offset": zoo_weights.round3(d.offset), "scale": zoo_weights.round3(d.scale)}


def constants(ep, weights):
    """Adds what the program lifted: tensors that are no parameters and no buffers."""
    for name, t in list(ep.constants.items()) + list(ep.state_dict.items()):
        if not isinstance(t, torch.Tensor) or name in weights.entries:
            continue
        e = {"dtype": ref.dtype_name(t.dtype), "shape": list(t.shape), "kind": "constant"}
        weights.entries[name] = e | zoo_weights.literal(t)


def dynamic_dims(program):
    dims = {}
    values = program["graph_module"]["graph"]["tensor_values"]
    for s in program["graph_module"]["signature"]["input_specs"]:
        if "user_input" in s:
            meta = values.get(s["user_input"]["arg"].get("as_tensor", {}).get("name"))
            for i, size in enumerate(meta["sizes"] if meta else []):
                if "as_expr" in size:
                    dims.setdefault(s["user_input"]["arg"]["as_tensor"]["name"], []).append(i)
    return dims


def build(family, name, spec):
    model = spec.model.eval()
    for p in model.parameters():
        p.requires_grad_(False)
    weights = zoo_weights.Weights(model, spec.weights)
    args, kwargs, _, _ = materialize(model, spec.cases[0])
    if spec.calibrate:
        state = ref.fresh(model) if list(model.buffers()) else {}
        zoo_weights.calibrate(model, weights, *copy.deepcopy((args, kwargs)))
        for n, b in model.named_buffers():
            if "scale" not in weights.entries[n]:
                b.copy_(state[n])

    programs, exported, notes = {}, {}, []
    with_state = ref.fresh(model)
    ep = zoo_program.export(model, *copy.deepcopy((args, kwargs)), spec.dynamic)
    exported["aten"] = ep
    exported["core"] = ep.run_decompositions()
    for form, e in exported.items():
        programs[form] = zoo_program.to_json(e)
        constants(e, weights)
        text = json.dumps(programs[form])
        for bad in FORBIDDEN:
            assert bad not in text, f"{form}: {bad} in the program"
    ref.restore(model, with_state)

    wide = None
    if spec.double and not spec.unsupported:
        try:
            wide = ref.doubled(model)
        except Exception as e:
            notes.append(f"no float64: {type(e).__name__}")
    modules = {} if spec.unsupported else {form: e.module() for form, e in exported.items()}
    cases, flops, agree = [], [], {}
    for i, case in enumerate(spec.cases):
        args, kwargs, found, values = materialize(model, case)
        if not case.continues:
            ref.restore(model, with_state)
        for e in programs.values():
            names = zoo_program.inputs(e)
            assert sorted(names) == sorted(found), (names, list(found))
        record = {"inputs": {n: described(found[n], values[n]) for n in names}}
        if case.continues:
            record["continues"] = True
        before, state_before = copy.deepcopy((args, kwargs)), ref.fresh(model)
        counter = FlopCounterMode(display=False)  # a run of its own: of cond it runs both branches
        with counter:
            ref.run(model, *copy.deepcopy(before))
        ref.restore(model, state_before)
        out = ref.flatten(ref.run(model, args, kwargs))
        out = [o.clone() if isinstance(o, torch.Tensor) else o for o in out]
        flops.append(counter.get_total_flops())
        outnames = zoo_program.outputs(programs["aten"])
        corenames = zoo_program.outputs(programs["core"])
        assert len(outnames) == len(corenames) == len(out), (outnames, corenames, len(out))
        record["outputs"] = [ref.describe(n, o) for n, o in zip(outnames, out)]
        for o, n in zip(record["outputs"], corenames):
            if n != o["name"]:
                o["core_name"] = n
        writes = sorted(set(zoo_program.mutations(programs["aten"])) | set(zoo_program.mutations(programs["core"])))
        buffers = dict(model.named_buffers())
        state = [ref.describe(n, buffers[n]) for k, n in writes if k == "buffer"]
        if state:
            record["state"] = state
        written = [n for n in values if not torch.equal(values[n], found[n].tensor(n))]
        if written:
            record["inputs_after"] = [ref.describe(n, values[n]) for n in written]
        check_outputs(spec, record)
        state_after = ref.fresh(model)  # the exported programs may share the model's buffers
        for form, m in modules.items():
            ref.restore(m, state_before)
            got = ref.flatten(ref.run(m, *copy.deepcopy(before)))
            agree[form] = max([agree.get(form, 0.0)] + [ref.relative(a, b) for a, b in zip(out, got)])
        ref.restore(model, state_after)
        if wide is not None and not state:
            record["err64"] = None
            try:
                high = ref.flatten(ref.run(wide, *ref.widen(copy.deepcopy(before))))
                errs = [ref.relative(b, a) for a, b in zip(out, high) if isinstance(a, torch.Tensor)
                        and a.is_floating_point() and b.dtype == torch.float64]
                if errs:
                    record["err64"] = float(f"{max(errs):.2g}")
            except Exception as e:
                notes.append(f"no float64: {type(e).__name__}: {str(e)[:60]}")
                wide = None
        if i == 0:
            sensitivity = sense(model, case, out, with_state)
            ref.restore(model, state_after)
        cases.append(record)
    for form, a in agree.items():
        assert a <= spec.agree, f"{form} differs from the model by {a:.2g}"

    document = {
        "torch": torch.__version__.split("+")[0], "model": spec.config or f"{family}.{name}",
        "stats": {"flops": flops, "weight_bytes": weight_bytes(weights), "dynamic": dynamic_dims(programs["aten"]),
                  "sensitivity": sensitivity, "agree": {k: float(f"{v:.2g}") for k, v in agree.items()}},
        "weights": weights.entries, "cases": cases}
    if spec.unsupported:
        document["unsupported"] = spec.unsupported
    files = {form: zoo_program.pack(p) for form, p in programs.items()}
    files["ref"] = zoo_program.pack(document)
    nodes = {f: len(list(zoo_program.nodes(p))) for f, p in programs.items()}
    err64 = max((c.get("err64") or 0 for c in cases), default=0)
    report = (f"nodes {nodes['aten']}/{nodes['core']} {sum(flops) / 1e9:.2f} GFLOP "
              f"{document['stats']['weight_bytes'] / 1e6:.0f} MB files {[len(f) for f in files.values()]} "
              f"max {[float('%.2g' % o['max_abs']) for o in cases[0]['outputs'] if 'max_abs' in o][:4]} "
              f"sense {sensitivity} agree {agree} err64 {err64:.1g} {notes[:1] or ''}")
    return files, report


def weight_bytes(weights):
    n = 0
    for e in weights.entries.values():
        if "tied_to" not in e:
            n += math.prod(e["shape"]) * getattr(torch, e["dtype"]).itemsize
    return n


def check_outputs(spec, record):
    if spec.unsupported:
        return
    for o in record["outputs"]:
        if "max_abs" not in o or "float" not in o["dtype"] or not o["values"] or not spec.calibrate:
            continue
        finite = [v for v in o["values"] if not isinstance(v, str)]
        assert len(finite) == len(o["values"]), f"{o['name']} is not finite"
        assert 1e-3 <= o["max_abs"] <= 1e3, f"{o['name']} reaches {o['max_abs']:.2g}"
        assert len(finite) < 2 or max(finite) - min(finite) > 1e-3 * o["max_abs"], f"{o['name']} is constant"


def sense(model, case, out, state):
    """How much the outputs change, as a part of the largest, when the inputs' hashes are those of other names."""
    def other(d):
        if d.literal is not None:
            return d.tensor("")
        return d.tensor("other")

    try:
        args, kwargs = pytree.tree_map_only(In, other, (case.args, case.kwargs))
        ref.restore(model, state)
        got = ref.flatten(ref.run(model, args, kwargs))
        ref.restore(model, state)
        found = [ref.relative(a, b) for a, b in zip(out, got) if isinstance(a, torch.Tensor) and a.is_floating_point()]
        return float(f"{max(found):.2g}") if found and math.isfinite(max(found)) else None
    except Exception:
        return None
