"""Compares text/tokenizer with Hugging Face's tokenizers: seconds of processor time to encode a text, on one thread.

    python benchmarks/run_tokenizer.py --text FILE TOKENIZER.json...

Processor time, and not the clock's, so that the result stands on a machine that others use. For Go it is that of four
rounds less that of one, divided by three: opening and starting fall out. Ids are compared by their number here; that they are
equal is for the package's tests.
"""
import argparse
import os
import platform
import re
import resource
import subprocess
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import tokenizers  # noqa: E402


def cpu_name():
    with open("/proc/cpuinfo") as f:
        return re.search(r"model name\s*: (.*)", f.read()).group(1)


def go_rounds(binary, name, text, n):
    env = dict(os.environ, GOMAXPROCS="1", OPTIMEM_BENCH_TOKENIZER=name, OPTIMEM_BENCH_TEXT=text)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = subprocess.run([binary, "-test.run", "^$", "-test.bench", "EncodeFile/encode", "-test.benchtime", f"{n}x"],
                         env=env, capture_output=True, text=True, check=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    tokens = int(float(re.search(r"([\d.e+]+) tokens", out).group(1)))
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, tokens


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("files", nargs="+")
    args = parser.parse_args()
    with open(args.text, encoding="utf-8") as f:
        text = f.read()
    print(f"{cpu_name()}, {platform.machine()}, load {os.getloadavg()[0]:.1f}; tokenizers {tokenizers.__version__}; "
          f"{len(text.encode())} bytes, {len(text)} characters; seconds of processor time, the least of {args.rounds}")
    print(f"{'tokenizer.json':24} {'tokens':>9} {'HF encode':>10} {'HF fast':>8} {'optimem':>8} {'ratio':>6} {'to fast':>8}")
    with tempfile.TemporaryDirectory() as tmp:
        binary = os.path.join(tmp, "tokenizer.test")
        subprocess.run(["go", "test", "-c", "-o", binary, "./text/tokenizer"], check=True)
        for name in args.files:
            tok = tokenizers.Tokenizer.from_file(name)
            full, fast = [], []
            for _ in range(args.rounds):
                start = time.process_time()
                n = len(tok.encode(text, add_special_tokens=False).ids)
                full.append(time.process_time() - start)
                start = time.process_time()
                tok.encode_batch_fast([text], add_special_tokens=False)
                fast.append(time.process_time() - start)
            one = min(go_rounds(binary, name, args.text, 1)[0] for _ in range(args.rounds))
            four, tokens = min(go_rounds(binary, name, args.text, 4) for _ in range(args.rounds))
            ours = (four - one) / 3
            if tokens != n:
                raise SystemExit(f"{name}: {tokens} tokens, Hugging Face's has {n}")
            label = "/".join(name.split("/")[-3:-2]) or name
            print(f"{label:24} {n:9} {min(full):10.2f} {min(fast):8.2f} {ours:8.3f} {min(full) / ours:6.1f} {min(fast) / ours:8.1f}", flush=True)


if __name__ == "__main__":
    main()
