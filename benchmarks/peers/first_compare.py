"""The time from the start of a process to its first result: 'optimem run', with weights that stay and in page mode, beside Python
with ONNX Runtime, in turns. Writes medians in seconds, and ours divided by that of ONNX Runtime.

    python first_compare.py --program OPTIMEM --worker SPEED --data FOLDER [--threads 2,1] [--file cache,disk] [--rounds 9] MODEL...

A time ends when the process has ended. The files of both are in the page cache, locked, or on the disk alone, which the page cache is
emptied for before each turn. Models: speed_models.py.
"""

import contextlib
import datetime
import os
import platform
import statistics
import subprocess
import sys
import time

from page_compare import cases, evict, placed
from speed_compare import HERE, cpu_name, environment, options, results_path, tell

TABLE = [
    "resnet101-512@1", "resnet50@1", "resnet50@8", "resnet18@1", "vgg16@1", "mobilenet_v3_large@1", "efficientnet_b0@1",
    "regnet_y_400mf@1", "convnext_tiny@1", "vit_b_16@1", "swin_t@1", "bert@1", "gpt2@1", "t5@1",
]
GOAL = 0.20


def commands(o, model, threads):
    path = os.path.join(o.data, model)
    run = [o.program, "run", "--quiet", "--device", "cpu", "--threads", str(threads), "--input", path + ".inputs.safetensors", path + ".pt2"]
    return {
        "run": run, "page": [*run, "--mode", "page"],
        "onnxruntime": [sys.executable, os.path.join(HERE, "speed_worker.py"), "onnxruntime", model, o.data, str(threads)],
    }


def once(command, threads):
    begin = time.perf_counter()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=environment(threads, ""))
    seconds = time.perf_counter() - begin
    if done.returncode or not done.stdout:
        raise RuntimeError(f"{command[0]}: {done.stderr.strip()[-300:]}")
    return seconds


def compare(o, model, threads, where):
    contestants = commands(o, model, threads)
    times = {name: [] for name in contestants}
    files = [os.path.join(o.data, model) + end for end in (".pt2", ".onnx", ".onnx.data")]
    with contextlib.ExitStack() as stack:
        for path in files:
            stack.enter_context(placed(path, where))
        for _ in range(o.rounds):
            for name, command in contestants.items():
                if where == "disk":  # which the turn before has read
                    for path in files:
                        evict(path)
                times[name].append(once(command, threads))
    median = {name: statistics.median(t) for name, t in times.items()}
    return {
        "model": model, "threads": threads, "file": where, "seconds": times, "median": median,
        "ratio": {name: median[name] / median["onnxruntime"] for name in ("run", "page")},
    }


def main():
    p = options(rounds=9)
    p.add_argument("--program", required=True)
    p.add_argument("--file", default="cache,disk")
    o = p.parse_args()
    import onnxruntime  # for its version

    out = results_path(o, "first")
    text = (
        f"{cpu_name()}, {os.cpu_count()} processors, {datetime.date.today()}, Linux {platform.release().split('-')[0]}, onnxruntime {onnxruntime.__version__}\n"
        f"From the start of a process to its end, with one result, in turns, medians of {o.rounds} in seconds: 'optimem run', the same with --mode page,\n"
        f"and Python with ONNX Runtime. The goal is {GOAL:.2f} of its time. Nothing was calibrated.\n\n"
        f"{'model':22} T file     run    page  onnxrun.  run ÷  page ÷\n"
    )
    sys.stdout.write(text)
    results = []
    for model, where, threads in cases(o, TABLE):
        r = compare(o, model, threads, where)
        results.append(r)
        m = r["median"]
        row = (
            f"{model:22} {threads} {where:5} {m['run']:6.3f}  {m['page']:6.3f}    {m['onnxruntime']:6.3f}   "
            f"{r['ratio']['run']:4.2f}    {r['ratio']['page']:4.2f}\n"
        )
        text = tell(out, text, row, results)


if __name__ == "__main__":
    main()
