"""Let the loader and its peers take turns at the same files, and write what came out. Started by run_loader.sh.

Every round runs each contestant once, in an order that turns by one from round to round, so that what else the machine
does falls on all alike. What counts is the ratio of medians.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent.parent
DATA = HERE / "data"
ZIP, PT2, BIG = DATA / "tensors10000.pth", DATA / "nodes5000.pt2", DATA / "big.pt"
PEERS = [sys.executable, str(HERE / "peers" / "loader_peers.py")]
OURS = "optimem"
UNITS = {"wall_ms": "ms", "cpu_ms": "ms of CPU", "rss_mib": "MiB resident at most", "mb_s": "MB/s"}


class Server:
    """A process that answers a request a line with nanoseconds and a count."""

    def __init__(self, *argv):
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, request):
        self.process.stdin.write(request + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if len(answer) != 2:
            raise RuntimeError(f"no answer to {request!r}")
        return int(answer[0]) / 1e6, int(answer[1])

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def run(argv):
    """Run a process to its end; return wall and CPU milliseconds and peak resident MiB."""
    start = time.perf_counter()
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = (time.perf_counter() - start) * 1e3
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{argv}: exit status {process.returncode}")
    return {"wall_ms": wall, "cpu_ms": (usage.ru_utime + usage.ru_stime) * 1e3, "rss_mib": usage.ru_maxrss / 1024}


def rounds(contestants, n):
    """Run every contestant n times, in turns. A contestant is a function, or one with a smaller number of rounds."""
    results = {name: [] for name in contestants}
    names = list(contestants)
    for i in range(n):
        for name in names[i % len(names):] + names[:i % len(names)]:
            measure, most = contestants[name] if isinstance(contestants[name], tuple) else (contestants[name], n)
            if i < most:
                results[name].append(measure())
    return results


class Quiet:
    """Waits for a machine that others use too, for some minutes altogether."""

    def __init__(self, below, seconds):
        self.below, self.seconds = below, seconds
        self.loads = []

    def wait(self, what):
        while os.getloadavg()[0] >= self.below and self.seconds > 0:
            time.sleep(5)
            self.seconds -= 5
        self.loads.append({"before": what, "load": round(os.getloadavg()[0], 2)})
        print(f"{what}: load {os.getloadavg()[0]:.2f}", file=sys.stderr, flush=True)


def whole_processes(n):
    return {
        "10,000 tensors, whole process": rounds({
            OURS: lambda: run([DATA / "optimem", "inspect", "--json", ZIP]),
            "torch.load(mmap=True, weights_only=True)": lambda: run([*PEERS, "load", ZIP]),
            "gopickle": lambda: run([DATA / "gopickle", "open", ZIP]),
        }, n),
        "pt2 of 5,000 nodes, whole process": rounds({
            OURS: lambda: run([DATA / "optimem", "inspect", "--json", PT2]),
            "torch.export.load": (lambda: run([*PEERS, "export", PT2]), 3),
            "json.loads of the graph, without torch": lambda: run([*PEERS, "json", PT2]),
        }, n),
    }


def warm_processes(n):
    ours = Server(DATA / "loader", "serve")
    torch = Server(*PEERS, "serve")
    gopickle = Server(DATA / "gopickle", "serve")

    def ask(server, request, want):
        def measure():
            milliseconds, count = server.ask(request)
            if count != want:
                raise RuntimeError(f"{request}: {count}, want {want}")
            return {"wall_ms": milliseconds}

        measure()  # once before it counts
        return measure

    tables = {
        "10,000 tensors, in a warm process": rounds({
            OURS: ask(ours, f"open {ZIP}", 10_000),
            "torch.load(mmap=True, weights_only=True)": ask(torch, f"load {ZIP}", 10_000),
            "gopickle": ask(gopickle, f"open {ZIP}", 10_000),
        }, n),
        "pt2 of 5,000 nodes, in a warm process": rounds({
            OURS: ask(ours, f"open {PT2}", 6_000),
            "torch.export.load": (ask(torch, f"export {PT2}", 5_000), 3),
            "json.loads of the graph": ask(torch, f"json {PT2}", 5_000),
        }, n),
    }
    for server in (ours, torch, gopickle):
        server.close()
    return tables


def make_big(width):
    subprocess.run([DATA / "optimem", "synth", "mlp", "--layers", "24", "--width", str(width), "-o", BIG],
                   check=True, stderr=subprocess.DEVNULL)
    os.sync()
    return BIG.stat().st_size


def drop_cache():
    with open(BIG, "rb") as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def warm_cache():
    with open(BIG, "rb", buffering=0) as f:
        buffer = bytearray(8 << 20)
        while f.readinto(buffer):
            pass


def fio(*options):
    out = subprocess.run(["fio", "--name=read", f"--filename={BIG}", "--readonly", "--rw=read", "--bs=8M", "--thread",
                          "--group_reporting", "--output-format=json", *options],
                         check=True, capture_output=True, text=True).stdout
    return json.loads(out[out.index("{"):])["jobs"][0]["read"]["bw_bytes"] / 1e6


def disk(n, size):
    ours = Server(DATA / "loader", "serve")

    def read():
        milliseconds, count = ours.ask(f"read {BIG} 4")
        return count / milliseconds / 1e3

    def dd(*options):
        start = time.perf_counter()
        subprocess.run(["dd", f"if={BIG}", "of=/dev/null", "bs=8M", *options], check=True, stderr=subprocess.DEVNULL)
        return size / (time.perf_counter() - start) / 1e6

    def after(prepare, measure):
        def both():
            prepare()
            return {"mb_s": measure()}
        return both

    quarter = size // 4 // (8 << 20) * (8 << 20)
    quarters = ["--numjobs=4", f"--size={quarter}", f"--offset_increment={quarter}"]
    tables = {
        "all weights of the big file, cold": rounds({
            OURS: after(drop_cache, read),
            "fio, O_DIRECT, 4 in flight": after(
                drop_cache, lambda: fio("--direct=1", "--ioengine=libaio", "--iodepth=4")),
            "fio, O_DIRECT, 4 threads": after(drop_cache, lambda: fio("--direct=1", "--ioengine=psync", *quarters)),
            "dd, O_DIRECT": after(drop_cache, lambda: dd("iflag=direct")),
        }, n),
        "all weights of the big file, in the page cache": rounds({
            OURS: after(warm_cache, read),
            "fio, 1 thread": after(warm_cache, lambda: fio("--direct=0", "--invalidate=0", "--ioengine=psync")),
            "fio, 4 threads": after(
                warm_cache, lambda: fio("--direct=0", "--invalidate=0", "--ioengine=psync", *quarters)),
            "dd": after(warm_cache, dd),
        }, n),
    }
    ours.close()
    return tables


def output(*argv):
    return subprocess.run(argv, capture_output=True, text=True, cwd=HERE).stdout.strip()


def machine():
    cpu = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text()).group(1)
    gopickle = re.search(r"gopickle (v\S+)", (HERE.parent / "go.mod").read_text()).group(1)
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "date": datetime.date.today().isoformat(),
        "optimem": output("git", "describe", "--always", "--dirty"),
        "go": output("go", "env", "GOVERSION"),
        "python": platform.python_version(),
        "torch": output(sys.executable, "-c", "import torch; print(torch.__version__)"),
        "gopickle": gopickle,
        "fio": output("fio", "--version"),
    }


def column(runs, key):
    values = [r[key] for r in runs if key in r]
    return (statistics.median(values), min(values), max(values)) if values else None


def text(facts, tables, loads):
    """The results as a table for people."""
    lines = [", ".join(f"{k} {v}" for k, v in facts.items()), ""]
    lines += [f"Load of the machine, which others use too, before each part: "
              + ", ".join(f"{x['before']} {x['load']}" for x in loads) + ".",
              "Runs take turns. Median (least to most) of n runs; the ratio is to optimem's median.", ""]
    for title, results in tables.items():
        lines.append(title)
        for key, unit in UNITS.items():
            ours = column(results[OURS], key)
            if not ours:
                continue
            for name, runs in results.items():
                mid, least, most = column(runs, key)
                ratio = ours[0] / mid if key == "mb_s" else mid / ours[0]
                note = "" if name == OURS else f"  {ratio:.2f}×"
                lines.append(f"  {name:<42} {mid:9.1f} ({least:.1f} to {most:.1f}) {unit}, n {len(runs)}{note}")
        lines.append("")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", type=int, default=15, help="rounds")
    parser.add_argument("--disk-rounds", type=int, default=5)
    parser.add_argument("--width", type=int, default=8192, help="of the big file's 24 layers; 8192 makes 6.4 GB")
    parser.add_argument("--load", type=float, default=2.5, help="wait for a load below this")
    parser.add_argument("--wait", type=float, default=600, help="seconds to wait altogether")
    parser.add_argument("--nice", type=int, default=0, help="priority of all contestants; negative needs privileges")
    args = parser.parse_args()

    os.nice(args.nice)
    quiet = Quiet(args.load, args.wait)
    tables = {}
    quiet.wait("processes")
    tables.update(whole_processes(args.n))
    quiet.wait("warm")
    tables.update(warm_processes(args.n))
    try:
        size = make_big(args.width)
        quiet.wait("big file")
        tables[f"a file of {size / 1e9:.1f} GB, whole process"] = rounds({
            OURS: lambda: run([DATA / "optimem", "inspect", "--json", BIG]),
            "torch.load(mmap=True, weights_only=True)": lambda: run([*PEERS, "load", BIG]),
        }, args.disk_rounds)
        quiet.wait("disk")
        tables.update(disk(args.disk_rounds, size))
    finally:
        BIG.unlink(missing_ok=True)

    facts = machine()
    slug = re.sub(r"\((r|tm)\)", "", facts["cpu"].lower())
    slug = re.sub(r"[^a-z0-9]+", "-", slug).strip("-")
    result = HERE / "results" / f"loader-{slug}-{facts['date']}"
    facts["nice"] = args.nice
    report = text(facts, tables, quiet.loads)
    result.with_name(result.name + ".txt").write_text(report)
    result.with_name(result.name + ".json").write_text(
        json.dumps({"machine": facts, "loads": quiet.loads, "tables": tables}, indent=1) + "\n")
    print(report)


if __name__ == "__main__":
    main()
