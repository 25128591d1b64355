"""Let optimem's modes and their peers take turns at the same models, and write what came out. Started by run_paging.sh.

A contestant is a process: it loads the model, makes a warm-up pass and then measured ones. Every round runs
each contestant once, in an order that turns by one from round to round. What counts is the ratio of medians over all
rounds' passes. The parts:

    resnet    ResNet-101, a picture of 512×512, the file in the page cache, on the CPU; and on the clock of an emulated
              accelerator, which is no measurement
    mlp       linear layers of 6.4 GB (--layers) in a memory limit, cold, for several numbers of rows
    llama     seven layers in the sizes of Llama-2-7B, 6.2 GB, in a memory limit, cold, sequences of several lengths
    unet      the denoiser of Stable Diffusion 1.5, 3.4 GB, in a memory limit, cold
    cached    the 6.4 GB in the page cache, beside a plain read of the file
    close     page mode beside resident at 8 rows, raw files and packed ones, in the page cache and on the disk: the ratio within
              each round
    forecast  what plans expect after 'optimem calibrate' beside what passes take, for models and modes
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import re
import resource
import signal
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent.parent
DATA = pathlib.Path(os.environ.get("DATA", HERE / "data"))
OPTIMEM, PAGING = DATA / "optimem", DATA / "paging"
PEERS = [sys.executable, str(HERE / "peers" / "paging_peers.py")]
RATES = DATA / "rates.json"
LLAMA_LAYERS = 7


class Group:
    """A memory limit for processes: a cgroup of version 1 or 2, or none where there is no right to make one."""

    def __init__(self, limit):
        self.limit, self.path, self.procs, self.peak = limit, None, None, None
        for base, knob, peak in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
                                 ("/sys/fs/cgroup", "memory.max", "memory.peak")):
            path = pathlib.Path(base, "optimem-bench")
            try:
                path.mkdir(exist_ok=True)
                if not (path / knob).exists() or not os.access(path / "cgroup.procs", os.W_OK):
                    path.rmdir()  # this is no cgroup, or one without that controller
                    continue
                (path / knob).write_text(str(limit))
            except OSError:
                continue
            self.path, self.procs, self.peak = path, path / "cgroup.procs", path / peak
            break

    def __str__(self):
        if self.path is None:
            return "no limit: there is no cgroup memory controller that can be written"
        return f"limit of {self.limit / 2**30:.2f} GiB ({self.path})"

    def enter(self):
        if self.path is not None:
            self.procs.write_text(str(os.getpid()))

    def reset(self):
        """Forget the last process: its pages, its peak."""
        if self.path is not None:
            for knob, value in ((self.path / "memory.force_empty", "0"), (self.peak, "0")):
                try:
                    knob.write_text(value)
                except OSError:
                    pass

    def peak_bytes(self):
        try:
            return int(self.peak.read_text())
        except (OSError, AttributeError, ValueError):
            return None

    def close(self):
        if self.path is not None:
            try:
                self.path.rmdir()
            except OSError:
                pass


def cold(path):
    """Empty the page cache, at least of a model."""
    os.sync()
    try:
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        for f in files(path):
            with open(f, "rb") as opened:
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def warm(path):
    for f in files(path):
        with open(f, "rb", buffering=0) as opened:
            buffer = bytearray(8 << 20)
            while opened.readinto(buffer):
                pass


def files(path):
    return [f for f in path.iterdir() if f.is_file()] if path.is_dir() else [path]


def run(argv, group=None, timeout=900, before=None):
    """Run a process that prints a JSON object; return it with what the process held, or why there is none. before is called
    before its passes, which are waited for then, and their processor time is told."""
    if group is not None:
        group.reset()
    load = round(os.getloadavg()[0], 2)
    process = subprocess.Popen([str(a) for a in argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, preexec_fn=group.enter if group is not None else None, text=True,
                               start_new_session=True)
    said, used, children = [], None, processor_seconds()
    if before:
        for line in process.stderr:
            if line.strip() == "ready":
                before(process.pid)
                fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
                used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                break
            said.append(line)
    try:
        out, err = process.communicate("\n", timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return {"failed": f"more than {timeout} s", "load": load}
    if process.returncode != 0:
        err = ("".join(said) + err).strip().split("\n")[-1][:200]
        return {"failed": "out of memory" if process.returncode == -signal.SIGKILL else err, "load": load}
    report = json.loads(out)
    report["load"] = load
    if used is not None and "seconds" in report:
        report["processor_seconds_per_run"] = (processor_seconds() - children - used) / (len(report["seconds"]) + 1)
    if group is not None and group.peak_bytes():
        report["group_peak_bytes"] = group.peak_bytes()
    return report


def processor_seconds():
    """What processes took that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def ahead(pid):
    """Let a process, which has a session of its own, have most of the processors. Its threads share them as ever, where those
    with real-time priority go on for 100 ms each."""
    try:
        pathlib.Path(f"/proc/{pid}/autogroup").write_text("-20")
    except OSError as e:
        print(f"no more of the processors than others: {e}", file=sys.stderr)


def hurry(pid):
    """Let all threads of a process, and those that they will make, go before what else runs."""
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            os.sched_setscheduler(int(task), os.SCHED_RR, os.sched_param(1))
        except OSError as e:
            print(f"no real-time priority: {e}", file=sys.stderr)
            return


class Quiet:
    """Waits for a machine that others use too, for some minutes altogether."""

    def __init__(self, below, seconds, before):
        self.below, self.seconds, self.waited, self.before = below, seconds, 0, before

    def wait(self):
        """Wait until what runs besides is little: fewer runnable processes than the limit, three times in a row."""
        calm = 0
        while calm < 3 and self.waited < self.seconds:
            calm = calm + 1 if running() <= self.below else 0
            time.sleep(0.5)
            self.waited += 0.5


def running():
    """How many processes run now, without this one."""
    return int(pathlib.Path("/proc/loadavg").read_text().split()[3].split("/")[0]) - 1


UNLIMITED = "optimem resident, no limit"


def contest(contestants, rounds, before, quiet, group=None, note=""):
    """Run every contestant in every round, in turns."""
    if quiet.before:
        contestants = {name: waiting(argv) for name, argv in contestants.items()}
    results = {name: [] for name in contestants}
    names = list(contestants)
    for i in range(rounds):
        for name in names[i % len(names):] + names[:i % len(names)]:
            if any(r.get("failed") == "out of memory" for r in results[name]):
                continue  # it would be again
            quiet.wait()
            before()
            limit = None if name == UNLIMITED else group
            results[name].append(run(contestants[name], limit, before=quiet.before))
            last = results[name][-1]
            print(f"{note}round {i + 1}, {name}: {last.get('failed') or [round(s, 3) for s in last['seconds']]}, "
                  f"load {last['load']:.2f}", file=sys.stderr, flush=True)
    return results


def waiting(argv):
    """The same contestant, told to wait before its passes."""
    return [argv[0], "-wait", *argv[1:]] if argv[0] == PAGING else [*argv, "--wait"]


def ours(mode, path, runs, *options, device=None):
    argv = [PAGING, "-mode", mode, "-runs", runs, "-rates", RATES, *options]
    if device:
        argv += ["-device", device]
    return [*argv, path]


def peer(how, network, path, runs, *options):
    return [*PEERS, how, network, path, "--runs", runs, *options]


def synth(name, file, *options):
    path = DATA / file
    if not path.exists():
        subprocess.run([OPTIMEM, "synth", name, "--seed", "1", *options, "-o", path], check=True,
                       stderr=subprocess.DEVNULL)
        os.sync()
    return path


def calibrate(before, seconds=10):
    """Measure the host for the planner, with the kernels of this build."""
    model = synth("mlp", "mlp-1.6GB.pth", "--layers", "24", "--width", "4096")
    environment = {**os.environ, "OPTIMEM_CALIBRATION": str(DATA / "calibration.json")}
    out = subprocess.run([OPTIMEM, "calibrate", "--json", "--seconds", str(seconds), model], check=True,
                         env=environment, capture_output=True, text=True,
                         preexec_fn=(lambda: before("self")) if before else None, start_new_session=True).stdout
    RATES.write_text(out)
    rates = json.loads(out)
    del rates["path"]
    return rates


PICTURE = ("-size", 512)
BLOCKS = 7_000_000  # parameters: the blocks of layer3 and layer4 and the whole of layer1 and layer2 are below
HALF = 22_274_580  # half of ResNet-101's
# An accelerator with 8 TFLOP/s, 300 GB/s of memory and 5 µs an op.
ACCELERATOR = {"flops_per_second": 8e12, "memory_bytes_per_second": 300e9, "op_seconds": 5e-6}
BUS = "bandwidth=12GB/s,latency=10us"


def resnet(args, quiet):
    path = synth("resnet101", "resnet101.safetensors")
    n = args.runs or 3
    auto = 128 << 20
    contestants = {
        "optimem resident": ours("resident", path, n, *PICTURE),
        "optimem page, by leaf": ours("page", path, n, *PICTURE),
        "optimem page, by block": ours("page", path, n, *PICTURE, "-max-layer-size", BLOCKS),
        "optimem chunk, half pinned": ours("chunk", path, n, *PICTURE, "-capacity", HALF),
        "optimem auto, 128 MiB": ours("auto", path, n, *PICTURE, "-memory", auto),
        "PyTorch": peer("plain", "resnet101", path, n, "--size", 512),
        "PyTorch, mapped file": peer("mmap", "resnet101", path, n, "--size", 512),
        "accelerate cpu_offload": peer("cpu_offload", "resnet101", path, n, "--size", 512),
        "accelerate disk_offload": peer("disk_offload", "resnet101", path, n, "--size", 512),
        "pytorch-optimem's page, by leaf": peer("page", "resnet101", path, n, "--size", 512),
        "pytorch-optimem's page, by block": peer("page", "resnet101", path, n, "--size", 512,
                                                 "--max-layer-size", BLOCKS),
        "pytorch-optimem's chunk, half pinned": peer("chunk", "resnet101", path, n, "--size", 512, "--capacity", HALF),
    }
    group = Group(8 << 30)  # for the peak; nothing comes near it
    results = contest(contestants, args.rounds or 5, lambda: warm(path), quiet, group)
    group.close()
    rates = DATA / "accelerator.json"
    rates.write_text(json.dumps(ACCELERATOR))
    emulated = {}
    for name, mode, memory, options in (
            ("resident", "resident", "1GiB", ()),
            ("page, by leaf", "page", "1GiB", ()),
            ("page, by block", "page", "1GiB", ("-max-layer-size", BLOCKS)),
            ("chunk, half pinned, the rest on the CPU", "chunk", "1GiB", ("-capacity", HALF)),
            ("auto, 128 MiB", "auto", "128MiB", ()),
    ):
        emulated[name] = run(ours(mode, path, 1, *PICTURE, "-device-rates", rates, *options,
                                  device=f"emu:memory={memory},{BUS}"))
    return {"tables": {"ResNet-101, 512×512, on the CPU, the file in the page cache": results}, "emulated": emulated}


def emulated_text(emulated):
    lines = ["ResNet-101, 512×512, on an EMULATED accelerator (8 TFLOP/s, 300 GB/s of memory, 5 µs an op, a bus of "
             "12 GB/s and 10 µs a copy):", "its own clock, not a measurement. The CPU beside it has the rates measured here."]
    for name, r in emulated.items():
        if "failed" in r:
            lines.append(f"  optimem {name}: {r['failed']}")
            continue
        lines.append(f"  optimem {name:<42} {1e3 * r['seconds'][-1]:8.2f} ms, {r['peak_device_bytes'] / 2**20:.0f} MiB "
                     f"on the device, {r['bytes_moved_per_run'] / 1e6:.0f} MB moved")
        if name.startswith("page"):
            compute, load = r["expected_compute_seconds"], r["expected_load_seconds"]
            lines.append(f"    the same groups, load then compute {1e3 * (compute + load):18.2f} ms; copied back as "
                         f"well, as pytorch-optimem does, {1e3 * (compute + 2 * load):.2f} ms")
            lines.append(f"    max(load, compute) {1e3 * max(load, compute):33.2f} ms")
    return lines


def limited(network, path, torch_path, args, quiet, rows_list, options, peer_options, batch=(), what="", offloaded=None):
    group = Group(args.limit)
    budget = args.limit - (128 << 20)
    tables = {}
    size = sum(f.stat().st_size for f in files(path))
    for rows in rows_list:
        n = args.runs or (2 if rows <= args.few_above else 1)
        rounds = args.rounds or (3 if rows <= args.few_above else 1)
        shape = ["--rows", rows, *peer_options]
        contestants = {
            "optimem page": ours("page", path, n, "-rows", rows, "-memory", budget, *options, *batch),
            "optimem auto": ours("auto", path, n, "-rows", rows, "-memory", budget, *options, *batch),
        }
        if size < memory_bytes() / 2:
            contestants[UNLIMITED] = ours("resident", path, n, "-rows", rows, *options, *batch)
        for name, way, own in (
                ("PyTorch, mapped file", "mmap", torch_path),
                ("accelerate cpu_offload, mapped", "cpu_offload", torch_path),
                ("accelerate disk_offload", "disk_offload", offloaded or path),
                ("pytorch-optimem's page, by leaf, mapped", "page", torch_path)):
            if way in args.peers.split(","):
                contestants[name] = peer(way, network, own, n, *shape)
        if network == "mlp":
            contestants["PyTorch, weights read"] = peer("plain", network, torch_path, n, *shape)
        title = f"{network} of {size / 1e9:.1f} GB, {rows} rows{what}, {group}, cold"
        tables[title] = contest(contestants, rounds, lambda: cold(path), quiet, group, f"{network} {rows}: ")
        tables[title]["disk alone, O_DIRECT"] = [direct(path, quiet.before) for _ in range(rounds)]
    group.close()
    return {"tables": tables}


def memory_bytes():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def direct(path, before):
    """What the disk alone takes for the files, read past the page cache into huge pages: the fastest of several ways, of
    which now one and now another is, by a tenth."""
    seconds = []
    for piece, readers in (1 << 20, 4), (1 << 20, 16), (2 << 20, 8):
        cold(path)
        found = subprocess.run([sys.executable, "-c", DIRECT, str(piece), str(readers), *map(str, files(path))], check=True,
                               capture_output=True, preexec_fn=(lambda: before("self")) if before else None, start_new_session=True)
        seconds.append(float(found.stdout))
    size = sum(f.stat().st_size for f in files(path))
    return {"seconds": [min(seconds)], "ways": seconds, "bytes_moved_per_run": size, "load": os.getloadavg()[0]}


DIRECT = """
import mmap, os, sys, threading, time
PIECE, READERS = int(sys.argv[1]), int(sys.argv[2])
files = [(os.open(f, os.O_RDONLY | os.O_DIRECT), os.stat(f).st_size) for f in sys.argv[3:]]
turn, lock = iter([(fd, at) for fd, size in files for at in range(0, size, PIECE)]), threading.Lock()
memory = mmap.mmap(-1, (READERS + 1) << 21)
memory.madvise(mmap.MADV_HUGEPAGE)
memory[:] = bytes(len(memory))

def read(k):
    into = memoryview(memory)[k << 21:][:PIECE]
    while True:
        with lock:
            fd, at = next(turn, (None, 0))
        if fd is None:
            return
        os.preadv(fd, [into], at)

threads = [threading.Thread(target=read, args=[k]) for k in range(READERS)]
begin = time.perf_counter()
for t in threads: t.start()
for t in threads: t.join()
print(time.perf_counter() - begin)
"""


def numbers(text):
    return [int(x) for x in text.split(",")]


def mlp(args, quiet):
    options = ("--layers", str(args.layers), "--width", "8192")
    name = f"mlp-{args.layers * 8192 * 8192 * 4 / 1e9:.1f}GB"
    tensors = synth("mlp", name + ".safetensors", *options)
    torch_path = synth("mlp", name + ".pth", *options)
    try:
        return limited("mlp", tensors, torch_path, args, quiet, numbers(args.rows or "1,8,32,64,256"), (), ())
    finally:
        if not args.keep:
            torch_path.unlink()


@contextlib.contextmanager
def generated(folder, last, script, *options, keep):
    """A folder that a script writes, the file called last after the others."""
    if not (folder / last).exists():
        subprocess.run([sys.executable, HERE / "peers" / script, folder, *options], check=True)
        os.sync()
    try:
        yield folder
    finally:
        if not keep:
            for f in files(folder):
                f.unlink()
            folder.rmdir()


def llama(args, quiet):
    with generated(DATA / "llama-6.2GB", "config.json", "make_llama.py", str(LLAMA_LAYERS), keep=args.keep) as folder:
        tables = {}
        for tokens in numbers(args.tokens):
            tables |= limited("llama", folder, folder, args, quiet, numbers(args.rows or "1"), ("-size", tokens),
                              ("--size", tokens), ("-batch",), f" of {tokens} tokens")["tables"]
        return {"tables": tables}


def unet(args, quiet):
    with generated(DATA / "unet", "unet.pt2", "make_unet.py", keep=args.keep) as folder:
        weights = folder / "unet.safetensors"
        return limited("unet", folder / "unet.pt2", weights, args, quiet, [2], ("-size", 64), ("--size", 64), offloaded=weights)


def cached(args, quiet):
    path = synth("mlp", "mlp-6.4GB.safetensors", "--layers", "24", "--width", "8192")
    n = args.runs or 2

    def plain(buffer):
        return [sys.executable, "-c", f"""
import json, sys, time
f = open({str(path)!r}, "rb", buffering=0)
buffer = bytearray({buffer})
seconds = []
if "--wait" in sys.argv:
    print("ready", file=sys.stderr, flush=True)
    sys.stdin.readline()
for _ in range({n + 1}):
    f.seek(0)
    begin = time.perf_counter()
    while f.readinto(buffer): pass
    seconds.append(time.perf_counter() - begin)
print(json.dumps({{"seconds": seconds[1:]}}))"""]

    contestants = {
        "optimem page": ours("page", path, n),
        "optimem page, 8 rows": ours("page", path, n, "-rows", 8),
        "a plain read into 8 MiB": plain(8 << 20),
        "a plain read into 256 MiB": plain(256 << 20),
        "PyTorch, mapped file": peer("mmap", "mlp", path, n),
    }
    results = contest(contestants, args.rounds or 3, lambda: warm(path), quiet)
    if not args.keep:
        path.unlink()
    return {"tables": {"6.4 GB of linear layers in the page cache, 1 row where not said": results}}


CLOSE = {"resnet18": 224, "resnet50": 224, "efficientnet_b0": 224, "vgg16": 224, "bert-base": 128}


def close(args, quiet):
    """Page mode is to take no more than 1.05 times what resident takes, with packed files."""
    tables = {}
    for name, size in CLOSE.items():
        raw = synth(name, name + ".safetensors")
        packed = DATA / (name + "-packed.safetensors")
        packed.unlink(missing_ok=True)
        subprocess.run([OPTIMEM, "pack", "--quiet", raw, "-o", packed], check=True, stdout=subprocess.DEVNULL)
        options = ("-size", size, "-rows", args.rows or "8")
        n = args.runs or 5
        for state, before in ("in the page cache", warm), ("on the disk", cold):
            def both():
                before(raw)
                before(packed)
            contestants = {
                "resident": ours("resident", raw, n, *options),
                "page": ours("page", raw, n, *options),
                "page, packed": ours("page", packed, n, *options),
            }
            tables[f"{name}; {state}"] = contest(contestants, args.rounds or 5, both, quiet, None, f"{name}, {state}: ")
        if not args.keep:
            raw.unlink()
            packed.unlink()
    return {"close": tables}


def close_text(tables):
    lines = ["Page mode ÷ resident, 8 rows where not said: each round's ratio of medians, their median (least to most). The goal is "
             "1.05, packed.",
             f"  {'model':<18}{'file':<20}{'resident':>12}{'page':>22}{'page, packed':>24}"]
    if any("processor_seconds_per_run" in r for t in tables.values() for runs in t.values() for r in runs):
        lines.insert(1, "Behind it: the least processor time of a process's pass ÷ that with resident weights.")
    for title, results in tables.items():
        model, state = title.split("; ")
        line = f"  {model:<18}{state:<20}"
        whole = [r for r in results["resident"] if "failed" not in r]
        line += f"{1e3 * statistics.median(s for r in whole for s in r['seconds']):>9.1f} ms" if whole else f"{'failed':>12}"
        for name in "page", "page, packed":
            ratios = sorted(statistics.median(page["seconds"]) / statistics.median(resident["seconds"])
                            for page, resident in zip(results[name], results["resident"])
                            if "failed" not in page and "failed" not in resident)
            line += (f"{statistics.median(ratios):>8.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})" if ratios
                     else f"  {results[name][0]['failed']}")
            if ratios and any("processor_seconds_per_run" in r for r in results[name]):
                least = [min(r["processor_seconds_per_run"] for r in results[k] if "failed" not in r) for k in (name, "resident")]
                line += f" {least[0] / least[1]:.3f}"
        lines.append(line)
        outputs = [r["output"] for runs in results.values() for r in runs if "output" in r]
        if outputs and max(outputs) != min(outputs):
            lines.append(f"  !! the outputs differ: mean absolute values {min(outputs)} to {max(outputs)}")
    return lines


FORECASTS = {
    "resnet101": ("resnet101", 512, 1), "vgg16": ("vgg16", 224, 1), "vit_b_16": ("vit_b_16", 224, 1),
    "mobilenet_v2": ("mobilenet_v2", 224, 1), "gpt2": ("gpt2", 128, 1), "bert-base": ("bert-base", 128, 1),
    "mlp": ("mlp-1.6GB", 0, 1), "mlp, 64 rows": ("mlp-1.6GB", 0, 64),
}


def forecast(args, quiet):
    rates = calibrate(args.before)
    tables = {}
    for name, (file, size, rows) in FORECASTS.items():
        path = synth(file.split("-1.6")[0], file + ".pth", *(() if "1.6GB" not in file else
                                                             ("--layers", "24", "--width", "4096")))
        half = path.stat().st_size // 4 // 2
        options = ("-size", size, "-rows", rows)
        n = args.runs or 5
        for state, before in (("cold", cold), ("in the page cache", warm)):
            contestants = {
                "page": ours("page", path, n, *options),
                "chunk, half": ours("chunk", path, n, *options, "-capacity", half),
            }
            if state == "cold":
                contestants["resident"] = ours("resident", path, n, *options)
            results = contest(contestants, args.rounds or 3, lambda: before(path), quiet, None, f"{name}, {state}: ")
            for mode, runs in results.items():
                tables[f"{name}; {mode}; " + ("" if mode == "resident" else state)] = runs
    return {"forecasts": tables, "rates": rates}


def forecast_text(tables):
    lines = ["What plans expect ÷ what a pass takes (median), after 'optimem calibrate'. The goal is 0.85 to 1.15.",
             f"  {'model':<16}{'mode':<14}{'file':<20}{'expected':>10}{'took':>10}{'ratio':>8}"]
    for title, runs in tables.items():
        model, mode, state = title.split("; ")
        good = [r for r in runs if "failed" not in r]
        if not good:
            lines.append(f"  {model:<16}{mode:<14}{state:<20} {runs[0]['failed']}")
            continue
        took = statistics.median(s for r in good for s in r["seconds"])
        expected = statistics.median(r["expected_seconds"] for r in good)
        mark = "" if 0.85 <= expected / took <= 1.15 else "  *"
        lines.append(f"  {model:<16}{mode:<14}{state:<20}{1e3 * expected:>7.1f} ms{1e3 * took:>7.1f} ms"
                     f"{expected / took:>8.2f}{mark}")
    return lines


def tables_text(tables):
    lines = []
    for title, results in tables.items():
        lines.append(title)
        # A contestant that is named with its rows has other outputs than the rest.
        outputs = [r["output"] for name, runs in results.items() for r in runs if "output" in r and "rows" not in name]
        for name, runs in results.items():
            good = [r for r in runs if "failed" not in r]
            if not good:
                lines.append(f"  {name:<38} {runs[0]['failed']}")
                continue
            seconds = [s for r in good for s in r["seconds"]]
            line = (f"  {name:<38} {statistics.median(seconds):8.3f} s ({min(seconds):.3f} to {max(seconds):.3f}), "
                    f"n {len(seconds)}")
            if good[0].get("bytes_moved_per_run", 0) > 0 and (name == "optimem page" or name.startswith("disk")):
                line += f", {good[0]['bytes_moved_per_run'] / statistics.median(seconds) / 1e9:.2f} GB/s"
            if any("group_peak_bytes" in r for r in good):
                line += f", {max(r.get('group_peak_bytes', 0) for r in good) / 2**20:.0f} MiB with page cache"
            if "expected_seconds" in good[0]:
                line += f", expected {statistics.median(r['expected_seconds'] for r in good):.3f} s"
            lines.append(line)
        if outputs and max(outputs) - min(outputs) > 1e-4 * max(outputs):
            lines.append(f"  !! the outputs differ: mean absolute values {min(outputs)} to {max(outputs)}")
        lines.append("")
    return lines


def output(*argv):
    return subprocess.run(argv, capture_output=True, text=True, cwd=HERE).stdout.strip()


def machine():
    cpu = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text()).group(1)
    versions = output(sys.executable, "-c", "import torch, transformers, accelerate; "
                      "print(torch.__version__, transformers.__version__, accelerate.__version__)").split()
    return {
        "cpu": cpu, "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "optimem": output("git", "describe", "--always", "--dirty"), "go": output("go", "env", "GOVERSION"),
        **dict(zip(("torch", "transformers", "accelerate"), versions)),
    }


PARTS = {"resnet": resnet, "mlp": mlp, "llama": llama, "unet": unet, "cached": cached, "close": close, "forecast": forecast}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default=",".join(PARTS), help="parts, of " + ", ".join(PARTS))
    parser.add_argument("--rounds", type=int, help="rounds of every part")
    parser.add_argument("--runs", type=int, help="passes of a process that count")
    parser.add_argument("--rows", help="mlp, llama: numbers of rows, such as 1,8")
    parser.add_argument("--tokens", default="1,128,256", help="llama: lengths of the sequences")
    parser.add_argument("--peers", default="mmap,cpu_offload,disk_offload,page", help="mlp, llama, unet: which of the peers")
    parser.add_argument("--layers", type=int, default=24, help="mlp: layers of 268 MB")
    parser.add_argument("--few-above", type=int, default=64, help="mlp, llama: one round of a pass above so many rows")
    parser.add_argument("--limit", type=int, default=1536 << 20, help="bytes of memory in mlp, llama and unet")
    parser.add_argument("--running", type=int, default=0, help="wait until no more processes than this run besides")
    parser.add_argument("--wait", type=float, default=300, help="seconds to wait in a part altogether")
    parser.add_argument("--keep", action="store_true", help="keep the large models")
    parser.add_argument("--tag", default="", help="added to the names of the results")
    parser.add_argument("--nice", type=int, default=0, help="priority of all contestants; negative needs privileges")
    parser.add_argument("--realtime", action="store_true", help="let what else runs wait during the passes (SCHED_RR)")
    parser.add_argument("--ahead", action="store_true", help="give the passes most of the processors (autogroup), where others use them")
    args = parser.parse_args()
    args.before = hurry if args.realtime else ahead if args.ahead else None
    os.nice(args.nice)
    calibrate(args.before)
    facts = machine()
    if args.nice:
        facts["nice"] = args.nice
    if args.realtime:
        facts["passes"] = "with real-time priority, since others use the machine"
    elif args.ahead:
        facts["passes"] = "with most of the processors, which others use, too"
    slug = re.sub(r"[^a-z0-9]+", "-", re.sub(r"\((r|tm)\)", "", facts["cpu"].lower())).strip("-")
    for name in args.only.split(","):
        quiet = Quiet(args.running, args.wait, args.before)
        part = PARTS[name](args, quiet)
        lines = [", ".join(f"{k} {v}" for k, v in facts.items()), "",
                 "Separate processes, interleaved. Median (least to most) of n passes after one warm-up.", f"Load before a process: {loads(part)}.", ""]
        lines += tables_text(part.get("tables", {}))
        if "emulated" in part:
            lines += emulated_text(part["emulated"])
        if "close" in part:
            lines += close_text(part["close"])
        if "forecasts" in part:
            lines += forecast_text(part["forecasts"])
        text = "\n".join(lines).rstrip() + "\n"
        result = HERE / "results" / f"paging-{name}-{slug}-{facts['date'][:10]}{args.tag}"
        result.with_name(result.name + ".txt").write_text(text)
        result.with_name(result.name + ".json").write_text(json.dumps({"machine": facts, **part}, indent=1) + "\n")
        print(text)


def loads(part):
    all_runs = [r for t in (*part.get("tables", {}).values(), *part.get("close", {}).values(), part.get("forecasts", {})) for runs in t.values()
                for r in runs if "load" in r]
    found = sorted(r["load"] for r in all_runs)
    return f"{found[0]:.2f} to {found[-1]:.2f}, median {statistics.median(found):.2f}" if found else "not known"


if __name__ == "__main__":
    main()
