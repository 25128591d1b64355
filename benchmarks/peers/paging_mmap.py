"""The pass of `optimem synth mlp` in PyTorch over a mapped checkpoint: what a user does whose model is larger than memory.

    python paging_mmap.py FILE ROWS RUNS THREADS

Prints a JSON object with the seconds of each pass after the first.
"""

import json
import sys
import time

import torch

path, rows, runs, threads = sys.argv[1], *map(int, sys.argv[2:5])
torch.set_num_threads(threads)
state = torch.load(path, mmap=True, weights_only=True)
names = [n[: -len(".weight")] for n in state if n.endswith(".weight")]
x = torch.zeros(rows, state[names[0] + ".weight"].shape[1])
seconds = []
with torch.inference_mode():
    for run in range(runs + 1):
        begin = time.perf_counter()
        y = x
        for i, name in enumerate(names):
            y = torch.nn.functional.linear(y, state[name + ".weight"], state[name + ".bias"])
            if i < len(names) - 1:
                y = torch.relu(y)
        if run:
            seconds.append(time.perf_counter() - begin)
print(json.dumps({"torch": torch.__version__, "seconds": seconds}))
