"""llama.cpp's server, as the package xllamacpp has it, with a slot for each of 32 clients.

    python serve_llama.py PORT FILE.gguf THREADS
"""

import sys
import time

import xllamacpp as x

p = x.CommonParams()
p.model.path = sys.argv[2]
p.port = int(sys.argv[1])
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = int(sys.argv[3])
p.n_parallel, p.n_ctx, p.verbosity = 32, 32 * 256, -1
server = x.Server(p)
print(server.listening_address, flush=True)
while True:
    time.sleep(60)
