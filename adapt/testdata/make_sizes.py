"""Records the sizes that toma 1.1.0 tries on scripted failures, as sizes.json, and what its faults do.

    pip install toma==1.1.0 psutil torch
    python adapt/testdata/make_sizes.py

No memory runs out: functions raise what PyTorch raises, above a size or at given calls. Garbage collection between tries
is left out, which changes no size, and the free memory that toma asks psutil for is scripted.
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile

import torch

import toma as package
from toma import GlobalBatchsizeCache, NoBatchsizeCache, StacktraceMemoryBatchsizeCache, explicit, simple, toma

package.gc_cuda = lambda: None

GIB = 1 << 30
FREE = [2 * GIB]
package.cpu_memory.get_available_cpu_memory = lambda: FREE[0]
package.torch_cuda_memory.get_cuda_assumed_available_memory = lambda: 0

CACHES = {"never": NoBatchsizeCache, "always": GlobalBatchsizeCache, "by free": StacktraceMemoryBatchsizeCache}


def out_of_memory():
    return RuntimeError("[enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory")


class Script:
    """Fails for want of memory above a limit and at given calls, and for another reason at one."""

    def __init__(self, limit, fails, other):
        self.limit, self.fails, self.other, self.tries = limit, set(fails), other, []

    def __call__(self, size, part):
        at = len(self.tries)
        self.tries.append(part)
        if at == self.other:
            raise RuntimeError("another error")
        if at in self.fails or size > self.limit:
            raise out_of_memory()


def call(kind, cache, context, c):
    """Runs one call and adds to it what was tried and how it ended."""
    FREE[0] = c.get("free", FREE[0])
    script = Script(c.get("limit", 1 << 40), c.get("fails", []), c.get("other", -1))

    def batch(n):
        script(n, n)

    def rng(lo, hi):
        script(hi - lo, [lo, hi])

    def chunk(part, lo, hi):
        assert part.shape[0] == hi - lo and part[0].item() == lo
        script(hi - lo, [lo, hi])

    def once(options):
        if kind == "batch":
            return (simple if cache == "simple" else explicit).batch(batch, c["initial"], **options)
        if kind == "range":
            return (simple if cache == "simple" else explicit).range(rng, c["start"], c["end"], c["initial"], **options)
        tensor = torch.arange(c["end"])
        return (simple if cache == "simple" else explicit).chunked(chunk, tensor, c["initial"], **options)

    options = {} if cache == "simple" else {"toma_context": context, "toma_cache_type": CACHES[cache]}
    try:
        once(options)
        c["ends"] = "well"
    except RuntimeError as e:
        c["ends"] = "out of memory" if "DefaultCPUAllocator" in str(e) else "another error"
    c["tries"] = script.tries


def sequences():
    by_hand = [
        ("batch", "simple", [{"initial": 512, "limit": 100}]),
        ("batch", "simple", [{"initial": 7, "limit": 0}]),
        ("batch", "simple", [{"initial": 1, "limit": 0}]),
        ("batch", "simple", [{"initial": 64, "other": 0}]),
        ("batch", "never", [{"initial": 64, "limit": 9}, {"initial": 64, "limit": 9}]),
        ("batch", "always", [{"initial": 64, "limit": 9}, {"initial": 64, "limit": 9}, {"initial": 64, "limit": 3}, {"initial": 64}]),
        ("batch", "always", [{"initial": 64, "fails": [0, 1], "other": 2}, {"initial": 64}]),
        ("batch", "by free", [{"initial": 64, "limit": 9, "free": f * GIB} for f in (2, 2, 8, 2, 16, 8)]),
        ("batch", "by free", [{"initial": 64, "limit": 9, "free": f} for f in (2 * GIB + 1000, 2 * GIB + 2000)]),
        ("range", "simple", [{"start": 0, "end": 100, "initial": 32}]),
        ("range", "simple", [{"start": 5, "end": 5, "initial": 32}, {"start": 6, "end": 5, "initial": 32}]),
        ("range", "simple", [{"start": -3, "end": 4, "initial": 4, "limit": 2}]),
        ("range", "simple", [{"start": 0, "end": 70, "initial": 64, "limit": 5}]),
        ("range", "simple", [{"start": 0, "end": 3, "initial": 64, "fails": [0, 1, 2]}]),
        ("range", "always", [{"start": 0, "end": 40, "initial": 16, "fails": [1]}, {"start": 0, "end": 40, "initial": 16}]),
        ("chunked", "by free", [{"start": 0, "end": 40, "initial": 16, "limit": 7}, {"start": 0, "end": 9, "initial": 16, "limit": 7}]),
    ]
    rnd = random.Random(25)
    for _ in range(45):
        kind, cache = rnd.choice(["batch", "range", "chunked"]), rnd.choice(["simple", "never", "always", "by free"])
        initial, calls = rnd.randint(1, 100), []
        for _ in range(1 if cache == "simple" else rnd.randint(1, 4)):
            c = {"initial": initial}
            if kind != "batch":
                c["start"] = rnd.randint(-5, 20) if kind == "range" else 0
                c["end"] = c["start"] + rnd.randint(0, 3 * initial)
            if rnd.random() < 0.6:
                c["limit"] = rnd.randint(initial // 5, initial)
            if rnd.random() < 0.6:
                c["fails"] = sorted(rnd.sample(range(8), rnd.randint(1, 3)))
            if rnd.random() < 0.1:
                c["other"] = rnd.randint(0, 4)
            if cache == "by free":
                c["free"] = rnd.choice([1, 2, 4]) * GIB
            calls.append(c)
        by_hand.append((kind, cache, calls))
    out = []
    for i, (kind, cache, calls) in enumerate(by_hand):
        FREE[0] = 2 * GIB
        for c in calls:
            call(kind, cache, f"sequence {i}", c)
        out.append({"kind": kind, "cache": cache, "calls": calls})
    return out


def faults():
    """What toma does where its documentation says otherwise."""
    found = {}

    shapes = []

    @toma.chunked(initial_step=2, dimension=1)
    def columns(part, start, end):
        shapes.append(list(part.shape))

    columns(torch.zeros(4, 6))
    found["dimension=1 of the decorator"] = shapes

    @toma.chunked(initial_step=2)
    def scaled(part, start, end, factor):
        part *= factor

    try:
        scaled(torch.ones(4), 3)
        found["further arguments of chunked"] = "none"
    except TypeError as e:
        found["further arguments of chunked"] = type(e).__name__

    def limited(sizes):
        def func(size):
            sizes.append(size)
            if size > 9:
                raise out_of_memory()
        return func

    # Two decorated functions that were given a context in common, to share what they learn.
    first, second = [], []
    for sizes in (first, second):
        toma.batch(initial_batchsize=64, context="ours", cache_type=GlobalBatchsizeCache)(limited(sizes))()
    found["context= beside other options"] = [first, second]

    # Two calls of one function, each from a line of its own of a module: the second gets the size of the first.
    with tempfile.TemporaryDirectory() as folder:
        module = pathlib.Path(folder, "outermost.py")
        module.write_text(OUTERMOST)
        found["two calls at the outermost level"] = json.loads(subprocess.check_output([sys.executable, module]))

    # A later call with a smaller initial size gets the larger one.
    sizes = []
    shrinking = toma.batch(cache_type=GlobalBatchsizeCache)(limited(sizes))
    for initial in (8, 4):
        shrinking(toma_initial_batchsize=initial)
    found["a smaller initial size"] = sizes
    return found


OUTERMOST = """
import json
from toma import toma

sizes = []

@toma.batch(initial_batchsize=64)
def limited(size):
    sizes.append(size)
    if size > 9:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

limited()
limited()
print(json.dumps(sizes))
"""


def compact(o):
    return json.dumps(o, separators=(",", ":"))


if __name__ == "__main__":
    torch.manual_seed(0)
    lines = ",\n".join(compact(s) for s in sequences())
    text = '{"toma": "1.1.0", "sequences": [\n' + lines + '\n], "faults": ' + json.dumps(faults()) + "}\n"
    pathlib.Path(__file__).with_name("sizes.json").write_text(text)
