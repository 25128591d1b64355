"""Compute in PyTorch, on the GPU, what optimem computed there, and compare.

    python parity.py ops RESULTS FOLDER [--device cuda]
    python parity.py zoo RESULTS FOLDER [--device cuda]

RESULTS is what the tests of packages cuda and models wrote with -results: a JSON object for each call of an op, or for
each case of a model. FOLDER has the recorded calls (device/devicetest/testdata) or programs (models/testdata/zoo).
Programs are run node by node, without torch.export, which another version of PyTorch may not have written. TF32 is off.

Prints a JSON object for each call or model: the largest difference as a part of the largest magnitude, beside what is
allowed; or why PyTorch has nothing to compare with. Ends with a JSON object that counts.
"""

import argparse
import base64
import collections
import gzip
import json
import math
import operator
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import warnings

import torch

import calls
import zoo_archive
import zoo_program

DTYPES = {d: getattr(torch, d) for d in (
    "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "bool", "float16", "bfloat16", "float32",
    "float64", "complex64", "complex128")}


def raw(dtype, data):
    """A vector of the bytes."""
    if not data:
        return torch.empty(0, dtype=DTYPES[dtype])
    return torch.frombuffer(bytearray(data), dtype=DTYPES[dtype])


def emit(**what):
    print(json.dumps(what), flush=True)


def difference(got, want):
    """The largest difference as a part of the largest magnitude of want; infinite where shapes or NaNs differ."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return math.inf
    if got.numel() == 0:
        return 0.0
    if not got.dtype.is_floating_point and not got.dtype.is_complex:
        # Not every unsigned type can be compared.
        return 0.0 if got.contiguous().numpy().tobytes() == want.contiguous().numpy().tobytes() else math.inf
    if got.dtype.is_complex:
        got, want = torch.view_as_real(got), torch.view_as_real(want)
    got, want = got.double(), want.double()
    same = (got == want) | (got.isnan() & want.isnan())
    finite = want[want.isfinite()]
    largest = max(finite.abs().max().item() if finite.numel() else 0.0, 1e-30)
    off = torch.where(same, torch.zeros_like(got), (got - want).abs())
    off = torch.where(off.isfinite(), off, torch.full_like(off, math.inf))
    return off.max().item() / largest


def results(path):
    with open(path) as lines:
        for line in lines:
            yield json.loads(line)


def ours(output):
    return raw(output["dtype"], base64.b64decode(output["data"] or "")).reshape(output["shape"])


class Count:
    def __init__(self):
        self.same, self.outside, self.cannot = 0, 0, 0

    def add(self, name, off, bound, **more):
        # JSON has no number for what is infinite.
        shown = off if math.isfinite(off) else None
        if off <= bound:
            self.same += 1
        else:
            self.outside += 1
        if off > bound or more.pop("always", False):
            emit(name=name, off=shown, allowed=bound, ok=off <= bound, **more)

    def skip(self, name, error):
        self.cannot += 1
        text = (str(error).strip() or type(error).__name__).split("\n")[0][:200]
        emit(name=name, torch_cannot=f"{type(error).__name__}: {text}")

    def end(self, of):
        emit(summary=of, within_bounds=self.same, outside=self.outside, torch_cannot=self.cannot)


# Calls of ops.

def argument(a, inputs):
    def tensor(t):
        return None if t is None else torch.as_strided(inputs[t["tensor"]], t["shape"], t["strides"], t["offset"])

    if a.get("tensor") is not None:
        return tensor(a)
    if a.get("tensors") is not None:
        return [tensor(t) for t in a["tensors"]]
    for key in ("bool", "int", "str"):
        if a.get(key) is not None:
            return a[key]
    if a.get("float") is not None:
        return float.fromhex(a["float"])
    if a.get("dtype"):
        return DTYPES[a["dtype"]]
    return [argument(e, inputs) for e in a.get("list") or []]


def flat(out):
    return [out] if isinstance(out, torch.Tensor) else [t for t in out if isinstance(t, torch.Tensor)]


def overload(target):
    found = torch
    for part in target.removeprefix("torch.").split("."):
        found = getattr(found, part)
    return found


def call(op, args):
    """Call an op with arguments by name, in the order of its schema. Those that are None may be left out."""
    positional, named = [], {}
    for a in op._schema.arguments:
        v = args.get(a.name, a.default_value)
        if not a.kwarg_only:
            positional.append(v)
        elif a.name in args or not a.has_default_value():
            named[a.name] = v
    return op(*positional, **named)


def ops(args):
    """The calls, in another process: where one ends that, PyTorch cannot compute it, and the next process goes on behind it."""
    if args.place:
        return ops_from(args)
    with tempfile.NamedTemporaryFile("w+") as place:
        place.write("[0, [0, 0, 0], null]")
        place.flush()
        before = None
        while (code := subprocess.run([sys.executable, __file__, *sys.argv[1:], "--place", place.name]).returncode) < 0:
            at, counts, name = json.loads(pathlib.Path(place.name).read_text())
            if name == before:
                break
            before = name
            emit(name=name, torch_cannot=signal.Signals(-code).name)
            pathlib.Path(place.name).write_text(json.dumps([at + 1, [*counts[:2], counts[2] + 1], name]))
    sys.exit(code)


def ops_from(args):
    families = {}
    count = Count()
    first, (count.same, count.outside, count.cannot), _ = json.loads(args.place.read_text())
    for at, r in enumerate(results(args.results)):
        if at < first:
            continue
        args.place.write_text(json.dumps([at, [count.same, count.outside, count.cannot], r["name"]]))
        family, _, number = r["name"].split("/")
        if family not in families:
            families[family] = calls.read(args.folder / f"{family}.zst")
        c = families[family][int(number)]
        try:
            inputs = [raw(i["dtype"], i["data"]).to(args.device) for i in c["inputs"]]
            op = overload(c["target"])
            given = {name: argument(a, inputs) for name, a in c["args"].items()}
            if any(a.name == "device" for a in op._schema.arguments):
                given["device"] = args.device
            want = [t.cpu() for t in flat(call(op, given))]
        except Exception as e:  # whatever it is: it is said, and the next call follows
            count.skip(r["name"], e)
            continue
        off = max((difference(ours(o), w) for o, w in zip(r["outputs"] or [], want)), default=0.0)
        count.add(r["name"], off, c.get("bound") or 0, target=c["target"])
    count.end("calls")


# Programs.

SCALAR_TYPES = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32", 8: "float64",
                10: "complex64", 11: "complex128", 12: "bool", 13: "bfloat16"}
MEMORY_FORMATS = {1: torch.contiguous_format, 2: torch.channels_last, 3: torch.channels_last_3d,
                  4: torch.preserve_format}
GOLDEN = 0x9E3779B97F4A7C15
CHUNK = 1 << 24


def signed(n):
    n &= (1 << 64) - 1
    return n - (1 << 64) if n >> 63 else n


def key(name):
    h = 0xCBF29CE484222325
    for b in name.encode():
        h = (h ^ b) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def shifted(z, n):
    """A logical shift to the right: PyTorch has no arithmetic on uint64."""
    return (z >> n) & ((1 << (64 - n)) - 1)


def bits(name, start, stop, device):
    """The hashes of models/testdata/README.md."""
    z = torch.arange(start + 1, stop + 1, dtype=torch.int64, device=device)
    z = z * signed(GOLDEN) + signed(key(name))
    z = (z ^ shifted(z, 30)) * signed(0xBF58476D1CE4E5B9)
    z = (z ^ shifted(z, 27)) * signed(0x94D049BB133111EB)
    return z ^ shifted(z, 31)


def rounded(x):
    return struct.unpack("f", struct.pack("f", float(x)))[0]


def filled(name, f, device):
    """A tensor as the reference describes it."""
    dtype = DTYPES[f["dtype"]]
    if f.get("data") is not None or f.get("gzip") is not None:
        data = base64.b64decode(f.get("gzip") or f["data"])
        return raw(f["dtype"], gzip.decompress(data) if f.get("gzip") else data).reshape(f["shape"]).to(device)
    n = math.prod(f["shape"])
    floats = dtype.is_floating_point
    out = torch.empty(n, dtype=dtype, device=device)
    offset, scale = rounded(f.get("offset") or 0), rounded(f.get("scale") or 0)
    low, high = int(f.get("low") or 0), int(f.get("high") or 0)
    for at in range(0, n, CHUNK):
        end = min(n, at + CHUNK)
        z = bits(name, at, end, device)
        if floats:
            v = (shifted(z, 40) - (1 << 23)).double() * 2.0**-23 * scale + offset
            if dtype != torch.float64:
                v = v.float()
        else:
            v = low + shifted(shifted(z, 32) * (high - low), 32)
        out[at:end] = v.to(dtype)
    return out.reshape(f["shape"])


def weights(described, device):
    out = {}
    for path, f in described.items():
        owner, of = path, f
        while of.get("tied_to"):
            owner = of["tied_to"]
            of = described[owner]
        if owner not in out:
            out[owner] = filled(owner, of, device)
        out[path] = out[owner]
    return out


class Interpreter:
    """Runs a program node by node."""

    def __init__(self, program, device):
        self.program, self.device = program, device

    def value(self, arg, env):
        (kind, v), = ((k, v) for k, v in arg.items() if v is not None) if any(
            v is not None for v in arg.values()) else (("as_none", True),)
        if kind == "as_tensor":
            return env[v["name"]]
        if kind == "as_tensors":
            return [env[t["name"]] for t in v]
        if kind == "as_optional_tensors":
            return [self.value(t, env) for t in v]
        if kind in ("as_sym_int", "as_sym_bool", "as_sym_float"):
            return env[v["as_name"]] if v.get("as_name") else next(x for x in v.values() if x is not None)
        if kind in ("as_sym_ints", "as_sym_bools", "as_sym_floats"):
            return [self.value({kind[:-1]: x}, env) for x in v]
        if kind == "as_none":
            return None
        if kind == "as_scalar_type":
            return DTYPES[SCALAR_TYPES[v]]
        if kind == "as_memory_format":
            return MEMORY_FORMATS[v]
        if kind == "as_layout":
            return torch.strided
        if kind == "as_device":
            return torch.device(self.device)
        if kind == "as_graph":
            return v["graph"]
        if kind == "as_complex":
            return complex(v["real"], v["imag"])
        if kind == "as_float":
            return float(v)
        if kind == "as_floats":
            return [float(x) for x in v]
        if kind in ("as_int", "as_ints", "as_bool", "as_bools", "as_string", "as_strings"):
            return v
        raise NotImplementedError(kind)

    def node(self, node, env):
        target = node["target"]
        args = [(i["name"], i.get("kind", 1), self.value(i["arg"], env)) for i in node["inputs"]]
        if target == "torch.ops.higher_order.cond":
            predicate, yes, no, operands = (v for _, _, v in args)
            out = self.run(yes if bool(predicate) else no, operands)
        elif target == "torch.ops.higher_order.wrap_with_set_grad_enabled":
            out = self.run(args[1][2], [v for _, _, v in args[2:]])
        elif target == "torch.ops.higher_order.wrap_with_autocast":
            _, dtype, enabled, _, graph = (v for _, _, v in args[:5])
            with torch.autocast(torch.device(self.device).type, dtype=dtype, enabled=enabled):
                out = self.run(graph, [v for _, _, v in args[5:]])
        elif target.startswith("_operator."):
            out = getattr(operator, target.removeprefix("_operator."))(*(v for _, _, v in args))
        elif target.startswith("math."):
            out = getattr(math, target.removeprefix("math."))(*(v for _, _, v in args))
        elif target in ("torch.sym_max", "torch.sym_min", "torch.sym_float", "torch.sym_not"):
            out = getattr(torch, target.removeprefix("torch."))(*(v for _, _, v in args))
        elif not target.startswith("torch.ops.") or target.startswith("torch.ops.higher_order"):
            raise NotImplementedError(target)
        else:
            op = overload(target)
            named = {name: v for name, _, v in args}
            if any(a.name == "device" for a in op._schema.arguments):
                named["device"] = torch.device(self.device)
            out = call(op, named)
        self.bind(node["outputs"], out, env)

    def bind(self, outputs, out, env):
        if not outputs:
            return
        if len(outputs) == 1:
            (kind, v), = ((k, v) for k, v in outputs[0].items() if v is not None)
            if kind == "as_tensors":
                for t, o in zip(v, out):
                    env[t["name"]] = o
                return
            if kind == "as_tensor":
                env[v["name"]] = out[0] if isinstance(out, (list, tuple)) else out
                return
            env[v.get("as_name")] = out
            return
        for o, x in zip(outputs, out):
            self.bind([o], x, env)

    def run(self, graph, operands):
        """A graph within the graph."""
        env = {}
        for i, x in zip(graph["inputs"], operands):
            self.bind([i], x, env)
        for n in graph["nodes"]:
            self.node(n, env)
        out = [self.value(o, env) for o in graph["outputs"]]
        return out[0] if graph.get("is_single_tensor_return") else out

    def __call__(self, state, inputs):
        """Run with weights and buffers by name, of which those that the program writes are changed, and inputs by name."""
        gm = self.program["graph_module"]
        env, names = {}, iter(zoo_program.inputs(self.program))
        for s in gm["signature"]["input_specs"]:
            (kind, v), = s.items()
            if kind == "user_input":
                arg = v["arg"]
                if arg.get("as_tensor"):
                    env[arg["as_tensor"]["name"]] = inputs[next(names)]
                else:
                    self.symbol(arg, env, inputs, names)
                continue
            field = {"parameter": "parameter_name", "buffer": "buffer_name", "tensor_constant": "tensor_constant_name"}
            if kind in field:
                env[v["arg"]["name"]] = state[v[field[kind]]]
            elif kind == "constant_input":
                env[v["name"]] = self.value(v["value"], env)
            else:
                raise NotImplementedError(kind)
        self.sizes(gm["graph"], env)
        for n in gm["graph"]["nodes"]:
            self.node(n, env)
        outputs = []
        for s in gm["signature"]["output_specs"]:
            (kind, v), = s.items()
            if kind in ("user_output", "loss_output"):
                outputs.append(self.value(v["arg"], env))
            elif kind == "buffer_mutation":
                state[v["buffer_name"]] = env[v["arg"]["name"]]
        return dict(zip(zoo_program.outputs(self.program), outputs))

    def symbol(self, arg, env, inputs, names):
        name = next(names, None)
        value = self.value(arg, env) if not any(
            (v or {}).get("as_name") for v in arg.values() if isinstance(v, dict)) else None
        if value is None and name in inputs:
            (_, v), = ((k, v) for k, v in arg.items() if v is not None)
            env[v["as_name"]] = inputs[name].item()

    def sizes(self, graph, env):
        """What symbols are that the sizes of inputs name by themselves."""
        for name, meta in graph["tensor_values"].items():
            if name in env and isinstance(env[name], torch.Tensor):
                for size, n in zip(meta["sizes"], env[name].shape):
                    e = (size.get("as_expr") or {}).get("expr_str")
                    if e:
                        env.setdefault(e, n)


def zoo(args):
    count = Count()
    programs = collections.OrderedDict()
    for r in results(args.results):
        name = r["name"]
        r["outputs"] = r["outputs"] or []
        if name not in programs:
            programs.clear()  # one at a time is in memory
            try:
                family, model = name.split("/")
                archive = args.folder / f"{family}.zip"
                ref, program = (json.loads(zoo_archive.one(archive, f"{model}.{form}.json")) for form in ("ref", "aten"))
                programs[name] = (ref, Interpreter(program, args.device), {})
            except Exception as e:
                programs[name] = None
                count.skip(name, e)
        if programs[name] is None:
            continue
        ref, run, state = programs[name]
        case = ref["cases"][r["case"]]
        try:
            if not case.get("continues"):
                state.clear()
                state.update({k: v.clone() for k, v in weights(ref["weights"], args.device).items()})
            inputs = {k: filled("input:" + k, f, args.device) for k, f in case["inputs"].items()}
            with torch.inference_mode():
                want = run(state, inputs)
        except Exception as e:
            count.skip(f"{name}, case {r['case']}", e)
            continue
        worst, bound, least = 0.0, 0.0, []
        for o in r["outputs"]:
            w = want.get(o["name"])
            if not isinstance(w, torch.Tensor):
                continue
            off = difference(ours(o), w.cpu())
            # What the zoo's own test allows between optimem and PyTorch on the CPU.
            allowed = {"float16": 1e-2, "bfloat16": 4e-2, "float64": 1e-10}.get(o["dtype"], 1e-4)
            if off / allowed >= worst / (bound or 1):
                worst, bound = off, allowed
            least.append(o["name"])
        if not least:
            count.skip(f"{name}, case {r['case']}", ValueError("no outputs in common"))
            continue
        count.add(f"{name}, case {r['case']}", worst, bound, always=True)
    count.end("cases of models")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("ops", "zoo"))
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--place", type=pathlib.Path, help="for the program itself: where the process before it ended")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    if args.what == "zoo" or args.place:
        emit(torch=torch.__version__, device=torch.cuda.get_device_name() if args.device == "cuda" else args.device)
    {"ops": ops, "zoo": zoo}[args.what](args)


if __name__ == "__main__":
    sys.exit(main())
