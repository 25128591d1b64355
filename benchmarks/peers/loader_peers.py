"""What PyTorch and Python do with the files that the loader opens.

    loader_peers.py serve           answer requests on standard input, one a line, with nanoseconds and a count:
                                    "load PATH", "export PATH", "json PATH"; "export" imports what it needs first
    loader_peers.py load PATH       the same once, in a process of its own
"""

import json
import sys
import time
import warnings
import zipfile

warnings.filterwarnings("ignore")


def load(path):
    """Open a checkpoint lazily, without running code in it."""
    import torch

    return len(torch.load(path, mmap=True, weights_only=True))


def export(path):
    """Open a torch.export archive."""
    import torch

    return sum(n.op == "call_function" for n in torch.export.load(path).graph.nodes)


def parse(path):
    """Only parse the JSON of a torch.export archive's graph."""
    archive = zipfile.ZipFile(path)
    name = next(n for n in archive.namelist() if n.endswith("/models/model.json"))
    return len(json.loads(archive.read(name))["graph_module"]["graph"]["nodes"])


COMMANDS = {"load": load, "export": export, "json": parse}


def serve():
    import torch

    torch.export  # noqa: B018 -- loaded lazily
    for line in sys.stdin:
        command, path = line.split()
        start = time.perf_counter_ns()
        count = COMMANDS[command](path)
        print(time.perf_counter_ns() - start, count, flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        print(COMMANDS[sys.argv[1]](sys.argv[2]))
