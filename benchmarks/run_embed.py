"""Times optimem embed beside sentence-transformers and ONNX Runtime on one folder and 1,000 sentences of mixed lengths.

    python benchmarks/run_embed.py OPTIMEM FOLDER [--rounds 5] [--sentences 1000] [--save MODEL.onnx]

Each round runs every program once, in turns, as a process of its own; what counts is the time from the first sentence to
the last vector, without loading. ONNX Runtime is left out where torch cannot export (it needs the package onnx). The
table has medians of sentences a second, and the largest difference from sentence-transformers' numbers.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

import numpy as np

from run_generate import in_turns

SENTENCE = """
import sys, time, numpy as np, torch
from sentence_transformers import SentenceTransformer
folder, texts, out, threads = sys.argv[1:5]
torch.set_num_threads(int(threads))
m = SentenceTransformer(folder, device="cpu")
lines = open(texts).read().splitlines()
m.encode(lines[:8])
start = time.perf_counter()
v = m.encode(lines, batch_size=32)
print(time.perf_counter() - start)
np.save(out, v)
"""

ONNX = """
import os, sys, time, numpy as np, onnxruntime as ort
from tokenizers import Tokenizer
folder, texts, out, threads, model = sys.argv[1:6]
o = ort.SessionOptions()
o.intra_op_num_threads = int(threads)
s = ort.InferenceSession(model, o, providers=["CPUExecutionProvider"])
t = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
t.no_padding(); t.enable_truncation(256)
lines = open(texts).read().splitlines()
def encode(lines):
    got = [e.ids for e in t.encode_batch(lines)]
    order = sorted(range(len(got)), key=lambda i: len(got[i]))
    all = np.zeros((len(got), 384), np.float32)
    for k in range(0, len(order), 32):
        part = order[k:k + 32]
        width = max(len(got[i]) for i in part)
        ids = np.zeros((len(part), width), np.int64)
        mask = np.zeros_like(ids)
        for r, i in enumerate(part):
            ids[r, :len(got[i])] = got[i]
            mask[r, :len(got[i])] = 1
        h = s.run(None, {"input_ids": ids, "attention_mask": mask})[0]
        v = (h * mask[:, :, None]).sum(1) / mask.sum(1)[:, None]
        all[part] = v / np.linalg.norm(v, axis=1, keepdims=True)
    return all
encode(lines[:8])
start = time.perf_counter()
v = encode(lines)
print(time.perf_counter() - start)
np.save(out, v)
"""

EXPORT = """
import sys, torch, transformers as T
m = T.AutoModel.from_pretrained(sys.argv[1], dtype=torch.float32, attn_implementation="eager").eval()
ids = torch.ones(2, 8, dtype=torch.long)
class Encoder(torch.nn.Module):
    def forward(self, input_ids, attention_mask):
        return self.m(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
e = Encoder(); e.m = m
axes = {0: "batch", 1: "length"}
torch.onnx.export(e, (ids, ids), sys.argv[2], input_names=["input_ids", "attention_mask"], output_names=["states"], dynamo=False,
                  dynamic_axes={"input_ids": axes, "attention_mask": axes, "states": axes})
"""


def python(code, *args, threads):
    env = os.environ | {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false" if threads == 1 else "true"}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, *map(str, args)], capture_output=True, text=True, env=env, check=True)
    return float(done.stdout.split()[-1])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("folder")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--sentences", type=int, default=1000)
    p.add_argument("--save", default="")
    a = p.parse_args()
    words = "a man is eating food while the girl plays guitar near an old red house and some dogs run across wet green fields today".split()
    draw = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        texts = os.path.join(folder, "texts.txt")
        with open(texts, "w") as f:
            for _ in range(a.sentences):
                f.write(" ".join(draw.choices(words, k=draw.randint(4, 40))) + "\n")
        model = a.save or os.path.join(folder, "model.onnx")
        if not os.path.exists(model):
            done = subprocess.run([sys.executable, "-W", "ignore", "-c", EXPORT, a.folder, model], capture_output=True, text=True)
            if done.returncode:
                print("no ONNX model:", done.stderr.strip().splitlines()[-1], file=sys.stderr)
        out = lambda name: os.path.join(folder, name)

        def ours(threads):
            said = subprocess.run([a.program, "embed", a.folder, "--input", texts, "--json", "-o", out("ours.npy"), "--threads", str(threads)],
                                  capture_output=True, text=True, check=True).stdout
            said = json.loads(said)
            return said["seconds"] - said["load_seconds"]

        rows = {}
        for threads in (1, 2):
            rows["optimem", threads] = lambda t=threads: ours(t)
            rows["sentence-transformers", threads] = lambda t=threads: python(SENTENCE, a.folder, texts, out("st.npy"), t, threads=t)
            if os.path.exists(model):
                rows["ONNX Runtime", threads] = lambda t=threads: python(ONNX, a.folder, texts, out("onnx.npy"), t, model, threads=t)
        print("| | threads | sentences a second |\n|---|---|---|")
        for (name, threads), list_ in in_turns(rows, a.rounds).items():
            print(f"| {name} | {threads} | {a.sentences / statistics.median(list_):.1f} |")
        want = np.load(out("st.npy"))
        print(f"\nlargest difference from sentence-transformers: {abs(np.load(out('ours.npy')) - want).max():.2e}")


if __name__ == "__main__":
    main()
