"""Run the parts of the kit one after another and write one file of results. Started by run.sh; needs Python alone.

A part is a list of programs. Each line of the file is a JSON object with the part it is of; what programs print is in
the file as soon as they print it. A program that fails, or is cut when the part's time is over, leaves a line that says
so, and the next one follows.
"""

import argparse
import concurrent.futures
import datetime
import gzip
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent


class Results:
    """The file, and what is in it for the table at the end."""

    def __init__(self, path):
        self.file, self.lines, self.lock = open(path, "w"), [], threading.Lock()

    def add(self, part, **what):
        with self.lock:
            self.lines.append({"part": part, **what})
            self.file.write(json.dumps(self.lines[-1]) + "\n")
            self.file.flush()


class Part:
    """A part and the time that is left of it."""

    def __init__(self, kit, name, seconds):
        self.kit, self.name, self.end = kit, name, time.monotonic() + seconds
        self.failed = False

    def left(self):
        return self.end - time.monotonic()

    def add(self, **what):
        self.kit.results.add(self.name, **what)

    def run(self, label, argv, line=None, seconds=None, environment=None):
        """Run a program; line makes what is kept of a line that it prints. Returns what was kept, None where it failed."""
        limit = min(self.left(), seconds or self.left())
        begin, kept = time.monotonic(), []
        argv = [str(a) for a in argv]
        if limit <= 0:
            self.fail(label, "not begun: the part's time is over", 0)
            return None
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                                   env={**self.kit.environment, **(environment or {})}, start_new_session=True, cwd=HERE)
        cut = threading.Timer(limit, lambda: kill(process))
        said = []
        listener = threading.Thread(target=lambda: said.extend(process.stderr), daemon=True)
        cut.start()
        listener.start()
        try:
            for text in process.stdout:
                found = (line or as_json)(text.rstrip("\n"))
                if found is not None:
                    kept.append(found)
                    self.add(run=label, **found)
            process.wait()
        finally:
            cut.cancel()
            kill(process)
        listener.join(1)
        took = time.monotonic() - begin
        if process.returncode != 0:
            why = "cut after its time" if took >= limit else "".join(said[-4:]).strip()[-600:] or f"exit {process.returncode}"
            self.fail(label, why, took)
            return None
        self.add(run=label, finished=True, took_seconds=round(took, 2))
        return kept

    def fail(self, label, why, took):
        self.failed = True
        self.add(run=label, failed=why, took_seconds=round(took, 2))

    def together(self, calls):
        with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
            return [f.result() for f in [pool.submit(c) for c in calls]]


def kill(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def as_json(text):
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


class TestLines:
    """Counts what a Go test says, and keeps what failed or was left out."""

    def __init__(self):
        self.counts, self.said = {"PASS": 0, "FAIL": 0, "SKIP": 0}, []

    def __call__(self, text):
        found = re.match(r"\s*--- (PASS|FAIL|SKIP): (\S+) \(", text)
        if found:
            verdict, name = found.groups()
            self.counts[verdict] += 1
            self.said = []
            return {"test": name, "verdict": verdict} if verdict != "PASS" else None
        note = re.match(r"\s+\w+_test\.go:\d+: (.*)", text)
        if note and re.search(r"NOT ON THE GPU|off by|bits|other|differs|[0-9]+ of [0-9]+", text):
            return {"note": note[1][:400]}
        if text.startswith("panic:"):
            return {"note": text[:400]}
        return None


class Benchmarks:
    """Keeps the rates that Go benchmarks print."""

    def __call__(self, text):
        found = re.match(r"(Benchmark\S+)\s+\d+\s+([0-9.]+) ns/op\s+([0-9.]+) MB/s", text)
        return {"copy": found[1], "bytes_per_second": float(found[3]) * 1e6} if found else None


def go_test(part, kit, binary, folder, label, run, *options, seconds=None):
    """Run tests of a package with the driver."""
    lines = TestLines()
    argv = ["env", "-C", folder, kit.bin / binary, "-test.v", "-test.run", run, f"-test.timeout={int(max(part.left(), 1))}s",
            "-gpu", *options]
    part.run(label, argv, lines, seconds)
    part.add(run=label, tests=dict(lines.counts))
    return lines.counts


def parity(part, kit):
    """Every op and every model on the GPU, beside what PyTorch on a CPU gave and beside PyTorch on this GPU."""
    ops, models = kit.scratch / "ops.jsonl", kit.scratch / "zoo"
    names = "TestCompliance/linear" if kit.dry else "TestCompliance"
    go_test(part, kit, "cuda.test", HERE, "ops", f"^{names}", "-results", ops, seconds=kit.seconds(60))
    go_test(part, kit, "cuda.test", HERE, "paging", "^(TestPageGivesTheSameBits|TestFused|TestFailsOnData|TestCancel)$",
            "-test.short", seconds=kit.seconds(40))
    part.run("ops, PyTorch on the GPU", [sys.executable, "parity.py", "ops", ops, "device/devicetest/testdata", "--device", kit.device],
             seconds=kit.seconds(40))
    families = ["nn/lstm"] if kit.dry else ["extra", "nn", "hf", "timm", "tv"]

    def family(name):
        # The weights come from a hash, and computing them takes most of the time: the families run beside each other.
        file = models.with_name(f"zoo-{name.replace('/', '-')}.jsonl")
        go_test(part, kit, "models.test", HERE / "models", f"models {name}", "^TestZooOnGPU$", "-sim-zoo", name,
                "-results", file, seconds=kit.seconds(110))
        return file

    files = part.together([lambda name=name: family(name) for name in families])
    for name, file in zip(families, files):
        if file.exists():
            part.run(f"models {name}, PyTorch on the GPU",
                     [sys.executable, "parity.py", "zoo", file, "models/testdata/zoo", "--device", kit.device])


def copies(part, kit):
    """What memory of the host the bus likes."""
    mib = "1" if kit.dry else "1,16,256"
    part.run("PyTorch", [sys.executable, "peers.py", "copies", "--device", kit.device, "--mib", mib],
             seconds=kit.seconds(25))
    part.run("optimem", [kit.bin / "cuda.test", "-test.run", "^$", "-test.bench", "Copy/1MiB" if kit.dry else "Copy",
                         "-test.benchtime", "100ms" if kit.dry else "300ms", "-gpu"], Benchmarks())


def ours(part, kit, label, mode, path, rows, size, *options, runs=None, seconds=None):
    """Our passes of all numbers of rows, in one process. Returns what is known of the last."""
    argv = [kit.bin / "paging", "-device", "cuda", "-library", kit.environment.get("OPTIMEM_LIBCUDA", ""), "-mode", mode,
            "-rows", listed(rows), "-size", size, "-threads", os.cpu_count() or 1, "-runs", kit.runs if runs is None else runs,
            "-most", f"{kit.most}s", *options, path]
    kept = part.run(label, argv, shown, seconds)
    return kept[-1] if kept else None


def listed(rows):
    return ",".join(str(r) for r in (rows if isinstance(rows, list) else [rows]))


def shown(text):
    found = as_json(text)
    if found and "seconds" in found:
        # Without passes that count, what counts is all from opening the files on.
        seconds = sorted(found["seconds"] or [found["open_seconds"] + found["first_seconds"]])
        found["median"] = seconds[len(seconds) // 2]
    return found


def peer(part, kit, how, network, path, rows, size, *options, label=None, seconds=None):
    part.run(label or f"PyTorch {how}", [
        sys.executable, "peers.py", "run", how, network, path, "--device", kit.device, "--rows", listed(rows), "--size", size,
        "--runs", kit.runs, "--most", kit.most, *options], seconds=seconds)


def in_turn(part, kit, programs):
    """Run programs one after another. Each has its share of what is left, so that none takes the time of those behind it."""
    for i, program in enumerate(programs):
        part.add(clocks=clocks(kit))
        program(max(part.left() / (len(programs) - i) * 1.3, 1))
    part.add(clocks=clocks(kit))


CLOCKS = ("pcie.link.gen.current", "pcie.link.width.current", "clocks.sm", "clocks.mem", "temperature.gpu", "power.draw",
          "clocks_throttle_reasons.active")


def clocks(kit):
    """What the GPU runs at now, as nvidia-smi says it; nothing where there is none."""
    if kit.dry or not shutil.which("nvidia-smi"):
        return None
    try:
        said = subprocess.run(["nvidia-smi", "--query-gpu=" + ",".join(CLOCKS), "--format=csv,noheader,nounits"],
                              capture_output=True, text=True, timeout=5).stdout.splitlines()
    except (OSError, subprocess.TimeoutExpired):
        return None
    return dict(zip(CLOCKS, (x.strip() for x in said[0].split(",")))) if said else None


BLOCK = 7_000_000  # parameters: the blocks of layer3 and layer4 and the whole of layer1 and layer2 are below


def contest(part, kit, network, path, rows, size, block, budget=None):
    """Our modes and the peers at one model, in turn: a GPU that becomes warm does so for both."""
    limit, known = ["-memory", budget] if budget else [], {}

    def us(label, mode, *options):
        def run(seconds):
            known[label] = ours(part, kit, f"optimem {label}", mode, path, rows, size, *options, seconds=seconds)
        return run

    def auto(seconds):
        most = budget
        if most is None and known.get("page, by leaf") and known.get("resident"):  # half way between the two
            most = (known["page, by leaf"]["planned_bytes"] + known["resident"]["planned_bytes"]) // 2
        if most:
            ours(part, kit, "optimem auto", "auto", path, rows, size, "-memory", most, seconds=seconds)

    def them(label, how, *options):
        return lambda seconds: peer(part, kit, how, network, path, rows, size, *options, label=f"PyTorch {label}", seconds=seconds)

    in_turn(part, kit, [
        us("page, by leaf", "page", *limit), them("group", "group"), us("resident", "resident"), them("resident", "resident"), auto,
        them("cpu_offload", "cpu_offload"), us("page, by module", "page", "-max-layer-size", block, *limit), them("page, by leaf", "page"),
        them("page, by module", "page", "--max-layer-size", block)])


def resnet(part, kit):
    """ResNet-101, pictures of 512×512, by batch."""
    rows, size = ([1], 32) if kit.dry else ([1, 16, 64], 512)
    name, path = pictures(part, kit)
    if path:
        contest(part, kit, name, path, rows, size, BLOCK)


def pictures(part, kit):
    """The model of pictures, and its file, which is made if it is not there; None where that fails."""
    name = "resnet18" if kit.dry else "resnet101"
    path = kit.scratch / f"{name}.safetensors"
    if not path.exists() and part.run("model", [kit.bin / "optimem", "synth", name, "--seed", "1", "-o", path],
                                      seconds=kit.seconds(20)) is None:
        return name, None
    return name, path


LAYERS = 14


def transformer(part, kit):
    """A transformer of 12 GB in 4 GB, sequences of 128 tokens, from one to so many that computing takes the time."""
    folder = llama(part, kit)
    if folder is None:
        return
    rows, size, budget = ([1, 2], 8, 2 << 20) if kit.dry else ([1, 4, 8, 16, 32], 128, 4 << 30)
    contest(part, kit, "llama", folder, rows, size, 250_000_000, budget)


def llama(part, kit):
    folder = kit.scratch / "llama"
    if (folder / "config.json").exists():
        return folder
    sizes = (2, kit.device, 128, 256, 1024) if kit.dry else (LAYERS, kit.device)
    if part.run("model", [sys.executable, "make_llama.py", folder, *sizes], lambda text: None,
                seconds=kit.seconds(60)) is None:
        return None
    return folder


class Profile:
    """Keeps of what optimem profile prints the kinds of ops and the slowest ops, with the time of each."""

    def __init__(self, rows):
        self.rows, self.text = rows, []

    def __call__(self, text):
        self.text.append(text)
        if text != "}":
            return None
        found = json.loads("\n".join(self.text))
        ops = sorted(found["ops"], key=lambda op: -op["seconds"])
        of_ops = sum(op["seconds"] for op in ops)
        return {"profiled_rows": self.rows, "pass_seconds": found["seconds_median"], "ops": len(ops), "op_seconds": of_ops,
                "waiting_seconds": max(found["seconds_median"] - of_ops - found["other_seconds"], 0),
                "shortest_op_seconds": ops[-1]["seconds"] if ops else None, "kinds": found["kinds"],
                "slowest": [{k: op[k] for k in ("kind", "path", "seconds")} for op in ops[:5]]}


def ops(part, kit):
    """Where a pass's time goes by op, each waited for: pictures whose weights stay, and the transformer whose weights are brought."""
    _, path = pictures(part, kit)
    folder = kit.scratch / "llama"
    programs = []

    def profiled(label, model, mode, rows, shape, *options):
        environment = {"OPTIMEM_LIBCUDA": kit.environment.get("OPTIMEM_LIBCUDA", "")}
        programs.append(lambda seconds: part.run(
            f"optimem {mode}, {label}",
            [kit.bin / "optimem", "profile", model, "--device", "cuda", "--mode", mode, "--shape", shape, "--runs", 1 if kit.dry else 7,
             "--json", "--quiet", *options], Profile(rows), seconds, environment))

    for rows in ([1] if kit.dry else [1, 16]):
        if path:
            profiled("pictures", path, "resident", rows, f"x={rows},3," + ("32,32" if kit.dry else "512,512"))
    for rows in ([1] if kit.dry else [1, 32]):
        if (folder / "config.json").exists():
            profiled("transformer", folder, "page", rows, f"input_ids={rows}," + ("8" if kit.dry else "128"),
                     "--memory", (2 << 20) if kit.dry else (4 << 30))
    in_turn(part, kit, programs)


def cold(part, kit):
    """From opening the files to the end of the first pass, nothing of them in memory."""
    folder = llama(part, kit)
    if folder is None:
        return
    rows, size, budget = (1, 8, 2 << 20) if kit.dry else (1, 128, 4 << 30)
    forget = f"import pathlib, peers; peers.forget(pathlib.Path({str(folder)!r}))"
    for label, mode, options in (("optimem page, cold", "page", ()), ("optimem auto, cold", "auto", ())):
        if part.run("empty the page cache", [sys.executable, "-c", forget], lambda text: None) is not None:
            ours(part, kit, label, mode, folder, rows, size, "-memory", budget, *options, runs=0, seconds=kit.seconds(30))
    if not kit.dry:  # nothing is kept in host memory, so that every pass reads the disk
        part.run("empty the page cache", [sys.executable, "-c", forget], lambda text: None)
        ours(part, kit, "optimem page, each pass from disk", "page", folder, rows, size, "-memory", budget,
             "-host-memory", 2 << 30, runs=1, seconds=kit.seconds(40))
    for how in ("cpu_offload", "resident"):
        part.run(f"PyTorch {how}, cold", [
            sys.executable, "peers.py", "run", how, "llama", folder, "--device", kit.device, "--rows", rows, "--size", size,
            "--runs", 0, "--cold"], seconds=kit.seconds(40))


class OpBenchmarks:
    """Keeps what BenchmarkOps and BenchmarkModules print."""

    def __call__(self, text):
        found = re.match(r"Benchmark(Ops|Modules)(?:/(\S+?))?(?:-\d+)?\s+\d+\s+(.*)", text)
        if not found:
            return None
        numbers = {unit: float(n) for n, unit in re.findall(r"([0-9.e+-]+) (\S+)", found[3])}
        if found[1] == "Modules":
            return {"load_kernels_seconds": numbers["ns/op"] / 1e9}
        return {"op": found[2].replace("_", " "), "seconds": numbers["us/op"] / 1e6, "tflops": numbers["TFLOP/s"],
                "gb_per_second": numbers["GB/s"]}


def kernels(part, kit):
    """Single ops beside PyTorch's, what the device gives at best, and what loading the kernels takes."""
    only = "relu 4 KiB" if kit.dry else ""
    bench = [kit.bin / "cuda.test", "-test.run", "^$", "-test.bench", "Ops/" + only.replace(" ", "_") + ("$" if only else ""),
             "-test.benchtime", "1x" if kit.dry else "300ms", "-gpu"]
    part.run("PyTorch", [sys.executable, "single_ops.py", "--device", kit.device, "--only", only], seconds=kit.seconds(60))
    part.run("optimem", [*bench, "-cublaslt", "none"], OpBenchmarks(), seconds=kit.seconds(60))
    blas = kit.environment.get("OPTIMEM_LIBCUDA") if kit.dry else cublaslt()
    if blas:
        part.run("optimem, cuBLASLt", [*bench, "-cublaslt", blas], OpBenchmarks(), seconds=kit.seconds(60))
    cache = {"CUDA_CACHE_PATH": str(kit.scratch / "compiled")}
    load = [kit.bin / "cuda.test", "-test.run", "^$", "-test.bench", "Modules", "-test.benchtime", "1x", "-gpu"]
    for label in ("kernels, first time", "kernels, again"):
        part.run(label, load, OpBenchmarks(), seconds=kit.seconds(30), environment=cache)
    if checker := shutil.which("compute-sanitizer"):
        for tool in ("memcheck", "racecheck"):
            part.run(f"compute-sanitizer {tool}", ["env", "-C", HERE, checker, "--tool", tool, "--error-exitcode", "9",
                                                   kit.bin / "cuda.test", "-test.run", "^TestCompliance$/^(linear|conv|attention)",
                                                   "-gpu"], lambda text: {"note": text[:300]} if "ERROR SUMMARY" in text else None,
                     seconds=kit.seconds(60))


def cublaslt():
    """The cuBLASLt that PyTorch brings, else one that the loader finds."""
    try:
        import torch

        site = pathlib.Path(torch.__file__).parent.parent
    except ImportError:
        return "auto"
    found = sorted(site.glob("nvidia/*/lib/libcublasLt.so.*"))
    return found[-1] if found else "auto"


def models(part, kit):
    """Whole models that stay on the GPU, beside PyTorch, in float32 and with factors rounded to bfloat16 and to TF32."""
    blas = kit.environment.get("OPTIMEM_LIBCUDA") if kit.dry else cublaslt()
    for name, rows_list, size in [("resnet18", [1], 32)] if kit.dry else [
            ("resnet101", [1, 16], 512), ("vit_b_16", [1, 16], 224), ("bert-base", [1, 16], 128), ("gpt2", [1, 16], 128)]:
        path = kit.scratch / f"{name}.safetensors"
        made = part.run("model", [kit.bin / "optimem", "synth", name, "--seed", "1", "-o", path], lambda text: None,
                        seconds=kit.seconds(20))
        if made is None:
            continue
        alone = ["-cublaslt", "none"]
        for label, options in (("", alone), (", bf16", ["-precision", "bf16", *alone]), (", tf32", ["-precision", "tf32", *alone]),
                               (", cuBLASLt", ["-cublaslt", blas]), (", bf16, cuBLASLt", ["-precision", "bf16", "-cublaslt", blas])):
            if options[-1:] != [None]:
                ours(part, kit, f"optimem {name}{label}", "resident", path, rows_list, size, *options, seconds=kit.seconds(30))
        for precision in ("fp32", "bf16", "tf32"):
            part.run(f"PyTorch {name}, {precision}", [
                sys.executable, "peers.py", "run", "resident", name, path, "--device", kit.device, "--rows",
                ",".join(map(str, rows_list)), "--size", size, "--runs", kit.runs, "--precision", precision],
                     seconds=kit.seconds(30))
        path.unlink(missing_ok=True)


def start(part, kit):
    """What the first pass waits for: compiling the kernels, with the driver's cache empty and then not. And some ops."""
    cache = {"CUDA_CACHE_PATH": str(kit.scratch / "compiled-first")}
    load = [kit.bin / "cuda.test", "-test.run", "^$", "-test.bench", "Modules", "-test.benchtime", "1x", "-gpu"]
    for label in ("kernels, first time", "kernels, again"):
        part.run(label, load, OpBenchmarks(), seconds=kit.seconds(20), environment=cache)
    only = "relu 4 KiB" if kit.dry else "linear 4096"
    part.run("PyTorch", [sys.executable, "single_ops.py", "--device", kit.device, "--only", only], seconds=kit.seconds(15))
    part.run("optimem", [kit.bin / "cuda.test", "-test.run", "^$", "-test.bench", "Ops/" + only.replace(" ", "_") + ("$" if kit.dry else ""),
                         "-test.benchtime", "1x" if kit.dry else "100ms", "-gpu"], OpBenchmarks(), seconds=kit.seconds(15))


# A model of some 3 GB in bfloat16, and a budget in which half of its layers stay.
WRITER, WRITER_BUDGET = ("-layers", 24, "-hidden", 2560, "-inner", 6912, "-heads", 20, "-key-heads", 4), 2 << 30


def text(part, kit):
    """Tokens a second, with weights that stay and with some that are brought for each pass: bfloat16 and int4, for one and more sequences."""
    sizes, budget = (("-hidden", 64, "-inner", 128, "-heads", 1, "-key-heads", 1), 0) if kit.dry else (WRITER, WRITER_BUDGET)
    kinds = {"bf16": (), "int4": ("-int4",)}
    for name, more in kinds.items():
        if part.run(f"model, {name}", [kit.bin / "larger", "make", *sizes, *more, kit.scratch / f"writer-{name}"], lambda text: None,
                    seconds=kit.seconds(15)) is None:
            return

    def write(name, mode, memory, sequences):
        def run(seconds):
            part.run(f"optimem {mode}, {name}", [
                kit.bin / "larger", "run", "-device", "cuda", "-library", kit.environment.get("OPTIMEM_LIBCUDA", ""), "-mode", mode,
                "-memory", memory, "-sequences", sequences, "-passes", 2 if kit.dry else 32, "-warm", 1, "-context", 16 if kit.dry else 512,
                kit.scratch / f"writer-{name}"],
                     lambda text: named(as_json(text), sequences), seconds)
        return run

    def named(found, sequences):
        return found and {**found, "text_rows": sequences}

    # Of int4 a quarter of the bytes is brought through a quarter of the memory.
    in_turn(part, kit, [write(name, mode, memory, n) for n in (1, 8) for name, part_of in (("bf16", 1), ("int4", 4))
                        for mode, memory in (("resident", 0), ("page", budget // part_of))])


# The limits of the usual parts add up to 470 seconds, of 475 that run.sh gives, of 480 that there are; those of the others,
# which are for a run of their own, to less.
PARTS = {"parity": (parity, 95), "copies": (copies, 20), "start": (start, 30), "resnet": (resnet, 95), "transformer": (transformer, 110),
         "ops": (ops, 20), "text": (text, 55), "cold": (cold, 45), "kernels": (kernels, 240), "models": (models, 220)}
USUAL = ["parity", "copies", "start", "resnet", "transformer", "ops", "text", "cold"]


class Kit:
    def __init__(self, args):
        self.dry, self.patience = args.dry, args.patience
        self.device = "cpu" if args.dry else "cuda"
        # What differs by a twentieth is told from seven passes on. Long ones have at least three, and no more than this many seconds.
        self.runs, self.most = (1, 600) if args.dry else (7, 4)
        self.results = Results(args.out)
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="optimem-gpu-"))
        self.bin = self.unpacked()
        self.environment = {**os.environ, "PYTHONPATH": str(HERE)}
        if args.library:
            self.environment["OPTIMEM_LIBCUDA"] = str(pathlib.Path(args.library).resolve())

    def unpacked(self):
        """The programs, which the kit carries compressed."""
        folder = self.scratch / "bin"
        folder.mkdir()
        for packed in (HERE / "bin").glob("*.gz"):
            with gzip.open(packed) as source, open(folder / packed.stem, "wb") as to:
                shutil.copyfileobj(source, to)
            (folder / packed.stem).chmod(0o755)
        return folder

    def seconds(self, n):
        """A limit: on the simulated driver, which computes on the host, there is more time."""
        return (10 if self.dry else self.patience) * n

    def facts(self):
        cpu = ""
        try:
            cpu = next(x.split(":")[1].strip() for x in open("/proc/cpuinfo") if x.startswith("model name"))
        except (OSError, StopIteration):
            pass
        return {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "dry": self.dry,
                "cpu": cpu, "cpus": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version(),
                "build": (HERE / "BUILD").read_text().strip() if (HERE / "BUILD").exists() else ""}

    def run(self, names):
        self.results.add("machine", **self.facts())
        part = Part(self, "machine", 40)
        part.run("optimem devices", [self.bin / "optimem", "devices", "--json"], whole(), 20)
        part.run("nvidia-smi", ["sh", "-c", "nvidia-smi --query-gpu=name,driver_version,memory.total,pcie.link.gen.max,"
                                "pcie.link.width.max,pcie.link.gen.current,clocks.max.sm --format=csv,noheader || true"], lambda text: {"gpu": text[:300]}, 10)
        failed = []
        for name in names:
            do, seconds = PARTS[name]
            part = Part(self, name, self.seconds(seconds))
            begin = time.monotonic()
            try:
                do(part, self)
            except Exception as e:  # the next part does not depend on this one
                part.fail("the part", f"{type(e).__name__}: {e}", time.monotonic() - begin)
            part.add(finished=True, took_seconds=round(time.monotonic() - begin, 1))
            print(f"{name}: {time.monotonic() - begin:.0f} s" + (", with failures" if part.failed else ""), flush=True)
            if part.failed:
                failed.append(name)
        return failed


def whole():
    """Keeps a JSON object that takes several lines."""
    text = []

    def line(more):
        text.append(more)
        return as_json("\n".join(text))

    return line


def cell(r):
    """A median for people: ~ where fewer than seven passes, or their spread, say little about a twentieth."""
    seconds = r.get("seconds") or []
    spread = (max(seconds) - min(seconds)) / r["median"] if len(seconds) > 1 else 1
    return ("~" if len(seconds) < 7 or spread > 0.1 else "") + f"{1e3 * r['median']:.1f}"


def uneven(seconds):
    """~ where there are fewer than seven passes, or the middle half of them differs by more than a tenth."""
    seconds, n = sorted(seconds), len(seconds)
    return "~" if n < 7 or seconds[3 * n // 4] - seconds[n // 4] > 0.1 * seconds[n // 2] else ""


def grid(title, lines, unit):
    """A table: a line for each way, a column for each number of rows; * is the best of each column."""
    ways, columns = list(dict.fromkeys(r["run"] for r in lines)), sorted({r["rows"] for r in lines})
    if not ways:
        return
    best = {n: min(r["median"] for r in lines if r["rows"] == n) for n in columns}
    print(f"\n{title}, {unit}")
    print("  " + f"{'':<34}" + "".join(f"{n:>12}" for n in columns))
    for way in ways:
        cells = []
        for n in columns:
            found = [r for r in lines if r["run"] == way and r["rows"] == n]
            cells.append(cell(found[-1]) + ("*" if found[-1]["median"] == best[n] else " ") if found else "- ")
        print("  " + f"{way:<34}" + "".join(f"{c:>12}" for c in cells))


def profile_table(r):
    """Where a pass's time went: kinds of ops, what weights were waited for, and the slowest ops."""
    whole = r["pass_seconds"]

    def line(name, calls, seconds):
        print(f"  {name:<34}{calls:>6}{1e3 * seconds:>12.3f} ms{100 * seconds / whole:>7.1f} %")

    print(f"\n{r['run']}, rows {r['profiled_rows']}: a pass of {1e3 * whole:.1f} ms, each op given and waited for by itself"
          f" (the shortest took {1e6 * (r['shortest_op_seconds'] or 0):.0f} us)")
    for kind in r["kinds"][:8]:
        line(kind["kind"], kind["calls"], kind["seconds"])
    line("(waiting for weights)", "", r["waiting_seconds"])
    line("(other)", "", whole - r["op_seconds"] - r["waiting_seconds"])
    for op in r["slowest"]:
        line(f"  {op['kind']} {op['path']}"[:34], "", op["seconds"])


def table(results):
    """What people want to know, as tables."""
    lines = results.lines
    if any(r.get("dry") for r in lines):
        print("  A DRY RUN: small sizes on a simulated driver. Its times say nothing.")
    for r in lines:
        if r["part"] == "machine" and ("gpu" in r or "cpu" in r):
            print("  " + (r.get("gpu") or f"{r['cpu']}, {r['cpus']} processors, {r['date']}"))
    slowest = [r["clocks"] for r in lines if r.get("clocks")]
    if slowest:
        for key in CLOCKS:
            seen = sorted({c.get(key, "") for c in slowest})
            print(f"  {key:<34}{seen[0]} to {seen[-1]}")
    tests = [r for r in lines if "tests" in r]
    if tests:
        print("\nparity")
        for r in tests:
            print(f"  {r['run']:<34}{r['tests']['PASS']:>6} passed {r['tests']['FAIL']:>4} failed {r['tests']['SKIP']:>4} left out")
    for r in lines:
        if "summary" in r:
            print(f"  {r['run']:<34}" + ", ".join(f"{v} {k}" for k, v in r.items() if k not in ("part", "run", "summary")))
    timed = [r for r in lines if r.get("median") is not None and "rows" in r]
    for part, title in (("resnet", "ResNet-101, pictures of 512x512"), ("transformer", "12 GB transformer in 4 GB, sequences of 128 tokens"),
                        ("cold", "cold: from opening to the first output"), ("models", "models that stay")):
        grid(title, [r for r in timed if r["part"] == part], "ms a pass by rows (* best, ~ uncertain)")
    writes = [{"run": r["run"], "rows": r["text_rows"], "rate": r["tokens_per_second"], "mark": uneven(r["pass_seconds"])}
              for r in lines if "text_rows" in r]
    if writes:
        print("\nwriting, tokens a second by sequences (~ uncertain)")
        for way in dict.fromkeys(r["run"] for r in writes):
            print(f"  {way:<34}" + "".join(f"{r['rows']:>6}: {r['mark'] + format(r['rate'], '.2f'):<10}" for r in writes if r["run"] == way))
    for r in lines:
        if "profiled_rows" in r:
            profile_table(r)
    peers = {r["op"]: r for r in lines if "op" in r and r["run"] == "PyTorch"}
    ops = [r for r in lines if "op" in r]
    if ops:
        print("\nops")
    for r in ops:
        ratio = r["seconds"] / peers[r["op"]]["seconds"] if r["op"] in peers else float("nan")
        print(f"  {r['run']:<20}{r['op']:<30}{1e6 * r['seconds']:>10.1f} us {r['tflops']:>8.2f} TFLOP/s"
              f" {r['gb_per_second']:>8.1f} GB/s {ratio:>6.2f} of PyTorch's time")
    for r in lines:
        if "load_kernels_seconds" in r:
            print(f"  {r['run']:<50}{r['load_kernels_seconds']:>8.2f} s")
        if "bytes_per_second" in r:
            print(f"  {'copies':<12}{r['copy']:<44}{r.get('way', ''):<5}{r['bytes_per_second'] / 1e9:>8.1f} GB/s")
    failed = [r for r in lines if r.get("failed")]
    if failed:
        print("\nfailed or cut")
    for r in failed:
        print(f"  {r['part']:<12}{r.get('run', r.get('copy', '')):<34}{r['failed'].splitlines()[-1][:70] if r['failed'] else ''}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default=",".join(USUAL), help="parts, of " + ", ".join(PARTS))
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "results.jsonl")
    parser.add_argument("--dry", action="store_true", help="small sizes, PyTorch on the CPU")
    parser.add_argument("--patience", type=float, default=1, help="so many times the limits of programs and parts; run.sh's own is OPTIMEM_KIT_SECONDS")
    parser.add_argument("--library", help="another driver than the system's, such as the simulated one")
    args = parser.parse_args()
    names = [n for n in args.only.split(",") if n]
    if unknown := [n for n in names if n not in PARTS]:
        parser.error(f"no part is called {unknown[0]}")
    args.out = args.out.resolve()
    kit = Kit(args)
    # run.sh's limit ends this process first: what is in the file stays.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(124))
    try:
        failed = kit.run(names)
    finally:
        shutil.rmtree(kit.scratch, ignore_errors=True)
    table(kit.results)
    print(f"results: {args.out}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
