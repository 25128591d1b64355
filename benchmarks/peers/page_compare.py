"""optimem's page mode beside resident weights: both have the model in processes of their own and take turns. Writes the medians of
elapsed times, and what page mode takes, elapsed and of the processors, divided by what resident weights take.

    python page_compare.py --worker SPEED --data FOLDER [--threads 2,1] [--file disk,cache] [--rounds 11] MODEL...

With the file on the disk the page cache is emptied of it before; page mode reads past the page cache and leaves it so. With the file in
the page cache it is read in order, so that it lies in large pieces there, and locked, since kernels give pages back that nobody
uses. Models: speed_models.py.
"""

import contextlib
import ctypes
import datetime
import mmap
import os
import platform
import statistics
import sys

from speed_compare import Worker, cpu_name, environment, forget, options, ours_command, prepare, results_path, tell

TABLE = [
    "vit_b_16@8", "bert@8", "convnext_tiny@8", "resnet50@8", "resnet18@8", "efficientnet_b0@8", "vgg16@8", "resnet50@32",
    "resnet18@32", "efficientnet_b0@32",
]


def evict(path):
    """Empties the page cache of a file."""
    with open(path, "rb", buffering=0) as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@contextlib.contextmanager
def placed(path, where):
    """A file that the page cache does not hold when this begins, or holds until this ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    evict(path)
    if where == "disk":
        yield
        return
    with open(path, "rb", buffering=0) as f:
        while f.read(1 << 20):
            pass
        size = os.path.getsize(path)
        memory = ctypes.c_void_p(libc.mmap(
            None, ctypes.c_size_t(size), mmap.PROT_READ, mmap.MAP_SHARED, f.fileno(), ctypes.c_long(0)))
        if libc.mlock(memory, ctypes.c_size_t(size)):
            print(f"{path} is not locked in memory: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
        yield
        libc.munmap(memory, ctypes.c_size_t(size))


def cases(o, table):
    """The models asked for, or those of a table, each with where its file lies and how many threads compute."""
    for model in o.models or table:
        prepare(o, model)
        for where in o.file.split(","):
            for threads in map(int, o.threads.split(",")):
                yield model, where, threads
        if not o.keep:
            forget(o, model)


def processor_seconds(worker):
    with open(f"/proc/{worker.process.pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def compare(o, model, threads, where):
    path = os.path.join(o.data, model) + ".pt2"
    workers = []
    for mode in ("resident", "page"):
        o.flags = ["-mode", mode]
        workers.append(Worker(mode, ours_command(o, model, threads), environment(threads, "")))
    resident, page = workers
    outputs = [w.ask("output") for w in workers]
    for w in workers:
        w.seconds, w.medians = 0, []
    count = max(2, int(o.turn_ms / min(resident.ask("run 2"))))
    page.ask("run 2")
    for _ in range(o.rounds):
        for w in workers:
            before = processor_seconds(w)
            w.medians.append(statistics.median(w.ask(f"run {count}")))
            w.seconds += processor_seconds(w) - before
    result = {
        "model": model, "threads": threads, "file": where, "resident_ms": resident.medians, "page_ms": page.medians,
        "ratio": statistics.median(b / a for a, b in zip(resident.medians, page.medians)),
        "processor": page.seconds / resident.seconds, "same": outputs[0] == outputs[1],
        "peak": [w.ask("memory")["peak"] for w in workers], "file_bytes": os.path.getsize(path),
    }
    for w in workers:
        w.close()
    return result


def main():
    p = options(rounds=11)
    p.add_argument("--file", default="disk,cache")
    o = p.parse_args()
    out = results_path(o, "page")
    text = (
        f"{cpu_name()}, {os.cpu_count()} processors, {datetime.date.today()}, Linux {platform.release().split('-')[0]}\n"
        f"Page mode beside resident weights, in turns, {o.rounds} rounds. ms: medians of rounds. ratio: the median of the rounds' ratios.\n"
        "processor: processor time of page mode ÷ that of resident weights. MB: peaks of the processes. Nothing was calibrated.\n\n"
        f"{'model':20} T file   resident      page  ratio processor  MB res.  MB page\n"
    )
    sys.stdout.write(text)
    results = []
    for model, where, threads in cases(o, TABLE):
        with placed(os.path.join(o.data, model) + ".pt2", where):
            r = compare(o, model, threads, where)
        results.append(r)
        row = (
            f"{model:20} {threads} {where:5} {statistics.median(r['resident_ms']):9.2f} {statistics.median(r['page_ms']):9.2f} "
            f"{r['ratio']:6.3f} {r['processor']:9.3f} {r['peak'][0] / 1e6:8.0f} {r['peak'][1] / 1e6:8.0f}"
            f"{'' if r['same'] else '  OTHER BITS'}\n"
        )
        text = tell(out, text, row, results)


if __name__ == "__main__":
    main()
