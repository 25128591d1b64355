"""toma's own benchmark (tests/test_benchmark.py of 1.1.0) beside package adapt's, each row in a process of its own.

    python adapt_compare.py [--rounds N]          runs all rows in turns and writes the result
    python adapt_compare.py --worker ROW BODY     one row; prints a JSON object

A tensor of 128 × 256 × 256 float32 is cut into four chunks, which are filled with ones ("fill", toma's body) or left as
they are ("nothing", which leaves what cutting costs). Rows of toma's table: native is a loop without toma, simple its plain
functions, toma_no_cache a decorator without memory of sizes, explicit and toma with the default memory.
"""

import argparse
import datetime
import json
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOMA = ["native", "simple", "toma_no_cache", "explicit", "toma"]
ADAPT = ["Native", "NoSite", "Never", "Always", "ByFree", "ByFreeGrow"]
SECONDS = 2


def native(func, tensor, step):
    for current in range(0, tensor.shape[0], step):
        func(tensor.narrow(0, current, step), current, current + step)


def worker(row, body):
    import torch
    from toma import NoBatchsizeCache, explicit, simple, toma

    def fill(tensor, start, end):
        tensor[:] = 1.0

    def nothing(tensor, start, end):
        pass

    func = {"fill": fill, "nothing": nothing}[body]
    tensor = torch.zeros((128, 256, 256))
    call = {
        "native": lambda: native(func, tensor, 32),
        "simple": lambda: simple.chunked(func, tensor, 32),
        "explicit": lambda: explicit.chunked(func, tensor, 32),
        "toma": lambda wrapped=toma.chunked(func, initial_step=32): wrapped(tensor),
        "toma_no_cache": lambda wrapped=toma.chunked(func, initial_step=32, cache_type=NoBatchsizeCache): wrapped(tensor),
    }[row]
    call()
    took, end = [], time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(took) < 3:
        began = time.perf_counter()
        call()
        took.append((time.perf_counter() - began) * 1e9)
    print(json.dumps({"min": min(took), "median": statistics.median(took), "calls": len(took)}))


def run_toma(row, body):
    return json.loads(subprocess.check_output([sys.executable, __file__, "--worker", row, body]))


def run_adapt(row, body):
    bench = f"^Benchmark{body.capitalize()}$/^{row}$"
    out = subprocess.check_output(
        [ROOT / "benchmarks/data/adapt.test", "-test.run=^$", f"-test.bench={bench}", f"-test.benchtime={SECONDS}s"], text=True
    )
    values = {unit: float(n) for n, unit in re.findall(r"([\d.e+]+) (min-ns|median-ns|allocs/op)", out)}
    calls = int(re.search(r"Benchmark\S+\s+(\d+)", out)[1])
    return {"min": values["min-ns"], "median": values["median-ns"], "calls": calls, "allocs": int(values["allocs/op"])}


def cpu():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def duration(ns):
    return f"{ns / 1e6:.2f} ms" if ns >= 1e6 else f"{ns / 1e3:.2f} µs"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker", nargs=2)
    args = parser.parse_args()
    if args.worker:
        return worker(*args.worker)

    rows = [("toma", r) for r in TOMA] + [("adapt", r) for r in ADAPT]
    found = {}
    load = pathlib.Path("/proc/loadavg").read_text().split()[0]
    for i in range(args.rounds):
        for who, row in rows[i:] + rows[:i]:
            for body in ("fill", "nothing"):
                r = (run_toma if who == "toma" else run_adapt)(row, body)
                found.setdefault((who, row, body), []).append(r)

    import torch

    day = datetime.date.today().isoformat()
    versions = f"toma 1.1.0, torch {torch.__version__}, {subprocess.check_output(['go', 'env', 'GOVERSION'], text=True).strip()}"
    lines = [
        f"toma's own benchmark beside package adapt's. {cpu()}, {day}, load {load} at the start; {versions}.",
        f"Each row is a process of its own; {args.rounds} rounds in turns, of {SECONDS} s each: the least of the rounds' shortest",
        "calls, and the least of their medians. A call cuts a tensor of 32 MiB into four chunks.",
        "",
        "    OPTIMEM_PYTHON=python3 benchmarks/run_adapt.sh",
        "",
        f"{'':22}{'chunks are filled':>28}{'nothing is done':>28}",
        f"{'':22}{'shortest':>14}{'median':>14}{'shortest':>14}{'median':>14}   allocations",
    ]
    for who, row in rows:
        cells = f"{who + ' ' + row:22}"
        for body in ("fill", "nothing"):
            r = found[who, row, body]
            cells += "".join(f"{duration(min(x[k] for x in r)):>14}" for k in ("min", "median"))
        if who == "adapt":
            cells += f"   {found[who, row, 'nothing'][0]['allocs']}"
        lines.append(cells)
    slug = re.sub(r"[^a-z0-9]+", "-", cpu().lower()).strip("-")
    path = ROOT / f"benchmarks/results/adapt-{slug}-{day}.txt"
    path.write_text("\n".join(lines) + "\n")
    print(path.read_text(), end="")


if __name__ == "__main__":
    main()
