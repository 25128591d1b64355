"""optimem beside PyTorch, ONNX Runtime and OpenVINO on the CPU: every engine has the model loaded in a process of its own, and
they take turns, so that all are measured in the same minutes. Writes the medians, and ours divided by the best peer's.

    python speed_compare.py --worker SPEED --data FOLDER [--threads 1,2] [--isa avx2] [--engines a,b] [--rounds 7] MODEL...

Models and engines: speed_models.py and speed_worker.py.
"""

import argparse
import datetime
import glob
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = [
    "resnet101-512@1", "resnet50@1", "resnet50@8", "resnet18@1", "resnet18@8", "vgg16@1", "vgg16@8", "mobilenet_v3_large@1",
    "efficientnet_b0@1", "regnet_y_400mf@1", "convnext_tiny@1", "vit_b_16@1", "swin_t@1", "bert@1", "gpt2@1", "t5@1",
    "gpt2.decode@1", "gpt2.decode.bf16@1", "llama1b.decode@1", "llama1b.decode.bf16@1",
]
# What issue and README promise: ours divided by the best peer's time.
GOALS = {
    "resnet101-512": 0.72, "resnet50": 0.80, "resnet18": 0.80, "vgg16": 0.80, "mobilenet_v3_large": 0.90,
    "efficientnet_b0": 0.90, "regnet_y_400mf": 0.90, "convnext_tiny": 0.90, "vit_b_16": 0.95, "swin_t": 0.95, "bert": 0.95,
    "gpt2": 0.95, "t5": 0.95, "gpt2.decode": 0.95, "gpt2.decode.bf16": 0.95, "llama1b.decode": 0.95,
    "llama1b.decode.bf16": 0.95,
}
# Models that are mostly products of matrices. OpenVINO leaves these to MLAS, which asks the processor itself what it has, as
# ONNX Runtime does: neither can be held to AVX2. (512×2048 by 2048×2048 on a thread of a Zen 5: 210 GFLOP/s with AVX2 asked
# for, of which that has 120. OpenVINO's convolutions do what they are told: 222 without and 117 with it.)
PRODUCTS = {
    "convnext_tiny", "vit_b_16", "swin_t", "bert", "gpt2", "t5", "gpt2.decode", "gpt2.decode.bf16", "llama1b.decode",
    "llama1b.decode.bf16",
}


class Worker:
    """An engine in a process of its own."""

    def __init__(self, name, command, environment):
        self.name = name
        begin = time.perf_counter()
        messages = tempfile.TemporaryFile("w+")  # a pipe would be full one day
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=messages, text=True, env=environment
        )
        if not self.process.stdout.readline():
            self.process.wait()
            messages.seek(0)
            lines = messages.read().strip().splitlines()
            raise RuntimeError(lines[-1][:200] if lines else "no answer")
        self.ready = time.perf_counter() - begin
        self.times = []

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def cpu_name():
    with open("/proc/cpuinfo") as f:
        return re.search(r"model name\s*:\s*(.*)", f.read()).group(1).strip()


def environment(threads, isa):
    e = dict(os.environ, OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads), TOKENIZERS_PARALLELISM="false")
    if isa == "avx2":
        e.update(ONEDNN_MAX_CPU_ISA="AVX2", ATEN_CPU_CAPABILITY="avx2", MKL_ENABLE_INSTRUCTIONS="AVX2")
        e["GODEBUG"] = "cpu.avx512f=off"
    return e


def ours_command(o, model, threads):
    path = os.path.join(o.data, model)
    return [o.worker, "-threads", str(threads), "-inputs", path + ".inputs.safetensors", *o.flags, path + ".pt2"]


def compare(o, model, threads):
    workers, failed = [], {}
    for engine in ["optimem", *o.engines]:
        if engine == "channels_last" and os.path.getsize(os.path.join(o.data, model + ".inputs.safetensors")) < 100_000:
            continue  # no pictures
        if engine == "compile" and model.startswith("llama"):
            failed[engine] = "left out: the others' copies of the weights leave too little memory for it"
            continue
        if o.isa == "avx2" and engine == "openvino" and model.split("@")[0] in PRODUCTS:
            failed[engine] = "its products cannot be held to AVX2"
            continue
        command = ours_command(o, model, threads)
        if engine != "optimem":
            command = [sys.executable, os.path.join(HERE, "speed_worker.py"), engine, model, o.data, str(threads)]
        try:
            workers.append(Worker(engine, command, environment(threads, o.isa)))
        except RuntimeError as e:
            failed[engine] = str(e)
            print(f"{model}: {engine}: {e}", file=sys.stderr)
    outputs = {w.name: w.ask("output") for w in workers}
    for w in workers:  # a run of each alone says how many fit into a turn
        once = min(w.ask("run 2"))
        w.count = max(1, min(50, int(o.turn_ms / once)))
    for _ in range(o.rounds):
        for w in workers:
            w.times += w.ask(f"run {w.count}")
    with open(os.path.join(o.data, model + ".json")) as f:
        cost = json.load(f)
    result = {"model": model, "threads": threads, **cost, "failed": failed, "engines": {}}
    others = [outputs[n] for n in outputs if n != "optimem"]
    reference = outputs.get("eager") or (others or list(outputs.values()))[0]
    scale = max(map(abs, reference)) or 1
    for w in workers:
        result["engines"][w.name] = {
            "median_ms": statistics.median(w.times), "min_ms": min(w.times), "runs": len(w.times), "ready_seconds": w.ready,
            "error": max(abs(a - b) for a, b in zip(outputs[w.name], reference)) / scale, **w.ask("memory"),
        }
        w.close()
    if "onnxruntime" in result["engines"]:
        result["onnxruntime_alone"] = onnxruntime_alone(o, model, threads)
    peers = {n: e["median_ms"] for n, e in result["engines"].items() if n != "optimem"}
    if peers and "optimem" in result["engines"]:
        result["best"] = min(peers, key=peers.get)
        result["ratio"] = result["engines"]["optimem"]["median_ms"] / peers[result["best"]]
    return result


def onnxruntime_alone(o, model, threads):
    """What ONNX Runtime takes in a program without Python, which reuses its outputs: the bytes it held at most, and its first result."""
    import onnxruntime

    program = os.path.join(o.data, "ort_memory")
    library = glob.glob(os.path.join(os.path.dirname(onnxruntime.__file__), "capi", "libonnxruntime.so.*"))
    source = os.path.join(HERE, "ort_memory.c")
    try:
        if not os.path.exists(program) or os.path.getmtime(program) < os.path.getmtime(source):
            subprocess.run(["cc", "-O1", "-std=gnu11", "-o", program, source, "-ldl"], check=True, stderr=subprocess.DEVNULL)
        out = subprocess.run([program, library[0], os.path.join(o.data, model) + ".onnx", str(threads), "3"],
                             capture_output=True, text=True, check=True)
    except (OSError, IndexError, subprocess.CalledProcessError) as e:
        print(f"{model}: ONNX Runtime without Python: {e}", file=sys.stderr)
        return None
    return json.loads(out.stdout)


def prepare(o, model):
    if not os.path.exists(os.path.join(o.data, model + ".pt2")):
        subprocess.run([sys.executable, os.path.join(HERE, "speed_models.py"), model, o.data], check=True,
                       stdout=subprocess.DEVNULL, env=dict(os.environ, PYTHONWARNINGS="ignore"))


def forget(o, model):
    for path in glob.glob(glob.escape(os.path.join(o.data, model)) + ".*"):
        os.remove(path)


def results_path(o, kind):
    name = re.sub(r"[^a-z0-9]+", "-", cpu_name().lower()).strip("-")
    return o.out or f"benchmarks/results/{kind}-{name}-{datetime.date.today()}"


def tell(out, text, row, results):
    """Prints a row and writes all so far, for people and for programs. Returns the text with the row."""
    sys.stdout.write(row)
    sys.stdout.flush()
    with open(out + ".txt", "w") as f:
        f.write(text + row)
    with open(out + ".json", "w") as f:
        json.dump({"cpu": cpu_name(), "results": results}, f, indent=1)
    return text + row


def machine(o, threads):
    """What the machine does just then: products of matrices that stay in the first caches, which is what its arithmetic gives, a
    product of large matrices in PyTorch, and a read of memory."""
    code = (
        "import torch,time,statistics as s;torch.set_num_threads(%d);a=torch.rand(2048,2048);x=torch.rand(1<<27)\n"
        "def t(f):\n r=[]\n for _ in range(7):\n  b=time.perf_counter();f();r.append(time.perf_counter()-b)\n return s.median(r)\n"
        "print(2*2048**3/t(lambda:a@a)/1e9, 4*(1<<27)/t(lambda:x.max())/1e9)" % threads
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    alone = subprocess.run([o.worker, "-peak", "-threads", str(threads)], capture_output=True, text=True, check=True,
                           env=environment(threads, o.isa)).stdout
    return {"peak_gflops": json.loads(alone)["gflops"], "gemm_gflops": float(out[0]), "read_gb_per_s": float(out[1])}


def roof(r):
    """The milliseconds that a model takes at least, at the rates of the machine just then: its arithmetic at that of products
    in the first caches, or its weights at that of a read. (Winograd's convolutions multiply less.)"""
    rates = r["machine"]
    return max(r["flops"] / (rates["peak_gflops"] or rates["gemm_gflops"]), r["weight_bytes"] / rates["read_gb_per_s"]) / 1e6


def line(r, goal):
    columns = [f"{r['model']:24}", f"{r['threads']}T"]
    for name in ("optimem", "eager", "channels_last", "compile", "onnxruntime", "openvino"):
        e = r["engines"].get(name) or r["engines"].get(name + "_bf16")
        columns.append(f"{e['median_ms']:9.1f}" if e else f"{'–':>9}")
    columns.append(f"{r['ratio']:6.2f}" if "ratio" in r else f"{'–':>6}")
    columns.append(f"{goal:5.2f}" if goal else f"{'–':>5}")
    ours = r["engines"].get("optimem")
    if ours:
        columns.append(f"{r['flops'] / ours['median_ms'] / 1e6:7.0f}")
        columns.append(f"{r['weight_bytes'] / ours['median_ms'] / 1e6:6.1f}")
        columns.append(f"{roof(r):7.1f}")
        columns.append(f"{ours['peak'] / 1e6:6.0f}")
        ort, alone = r["engines"].get("onnxruntime"), r.get("onnxruntime_alone")
        columns.append(f"{alone['peak'] / 1e6:6.0f}" if alone else f"{'–':>6}")
        columns.append(f"{ours['ready_seconds']:6.2f}")
        columns.append(f"{ort['ready_seconds']:6.2f}" if ort else f"{'–':>6}")
        columns.append(f"{ours['error']:.1e}")
    return " ".join(columns)


def options(rounds):
    """What every comparison of our workers takes."""
    p = argparse.ArgumentParser()
    p.add_argument("--worker", required=True)
    p.add_argument("--data", required=True)
    p.add_argument("--threads", default="2,1")
    p.add_argument("--rounds", type=int, default=rounds)
    p.add_argument("--turn-ms", type=float, default=300)
    p.add_argument("--keep", action="store_true", help="keep the models on disk")
    p.add_argument("--out", default="")
    p.add_argument("models", nargs="*")
    return p


def main():
    p = options(rounds=7)
    p.add_argument("--isa", default="")
    p.add_argument("--engines", default="", help="eager,channels_last,compile,onnxruntime,openvino if nothing is said")
    p.add_argument("--precision", default="", help="bf16: factors of products are rounded, by the peers' own ways of doing so")
    p.add_argument("--flags", default="", help="of our worker, such as '-mode page'")
    o = p.parse_args()
    usual = "eager_bf16,openvino_bf16" if o.precision == "bf16" else "eager,channels_last,compile,onnxruntime,openvino"
    o.engines, o.flags = (o.engines or usual).split(","), o.flags.split()
    if o.precision:
        o.flags += ["-precision", o.precision]
    import onnxruntime, openvino, torch, transformers  # for their versions; noqa: E401

    out = results_path(o, "speed") + ("" if o.out else "".join(f"-{x}" for x in (o.isa, o.precision) if x))
    head = (
        f"{cpu_name()}, {os.cpu_count()} processors, {datetime.date.today()}, Linux {platform.release()}\n"
        f"torch {torch.__version__}, onnxruntime {onnxruntime.__version__}, openvino {openvino.__version__}, "
        f"transformers {transformers.__version__}{', all held to AVX2 where they can be (ONNX Runtime cannot, nor OpenVINO for products)' if o.isa else ''}\n"
        "Medians in ms of runs in turns. ratio: ours ÷ the best peer's. GF/s and GB/s: what ours did, of arithmetic and of weights.\n"
        "MB: peak of our process, and of a C program that does nothing but run ONNX Runtime. s: from start to the first result\n"
        "(of ONNX Runtime: in Python). roof: ms that the arithmetic takes at the rate of products in the first caches, or the weights at\n"
        "that of a read, whichever is more.\n\n"
        f"{'model':24} T    optimem     eager channels_   compile  onnxrun. openvino  ratio  goal    GF/s   GB/s    roof     MB ortMB      s  ort s error\n"
    )
    results, text = [], head
    sys.stdout.write(head)
    for model in o.models or TABLE:
        prepare(o, model)
        for threads in map(int, o.threads.split(",")):
            rates = machine(o, threads)
            r = compare(o, model, threads)
            r["machine"] = rates
            results.append(r)
            row = line(r, 1.0 if o.precision else GOALS.get(model.split("@")[0])) + f"  (peak {rates['peak_gflops']:.0f}, gemm {rates['gemm_gflops']:.0f} GF/s, read {rates['read_gb_per_s']:.0f} GB/s)\n"
            text = tell(out, text, row, results)
        if not o.keep:
            forget(o, model)


if __name__ == "__main__":
    main()
