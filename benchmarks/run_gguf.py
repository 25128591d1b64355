"""Times optimem generate beside llama.cpp (xllamacpp from PyPI) on one GGUF file: prompt tokens a second, and tokens a second after.

    python benchmarks/run_gguf.py OPTIMEM FILE.gguf [--rounds 5] [--tokens 64] [--words 200]

Each round runs every program once, in turns, as a process of its own. llama.cpp answers a short prompt before it is timed.
Tokens are generated without guesses and greedily. The table has medians, for one thread and two. Nothing
else should run meanwhile: llama.cpp's threads wait for each other by spinning.
"""

import argparse
import json
import statistics
import subprocess
import sys

PEER = """
import json, sys, xllamacpp as x
path, threads, tokens, prompt = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
p = x.CommonParams()
p.model.path = path
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = threads
p.n_ctx, p.n_parallel, p.verbosity, p.cache_prompt = 1024, 1, -1, False
s = x.Server(p)
ask = lambda text, n: s.handle_completions({"prompt": text, "max_tokens": n, "temperature": 0, "ignore_eos": True})
ask("Once", 4)
t = ask(prompt, tokens)["timings"]
print(json.dumps({"prompt_tokens": t["prompt_n"], "prefill": t["prompt_per_second"], "rate": t["predicted_per_second"]}))
"""


def peer(path, threads, tokens, prompt):
    out = subprocess.run([sys.executable, "-W", "ignore", "-c", PEER, path, str(threads), str(tokens), prompt],
                         capture_output=True, text=True, check=True).stdout
    return json.loads(out.strip().splitlines()[-1])


def ours(program, path, threads, tokens, prompt):
    out = subprocess.run([program, "generate", path, prompt, "--raw", "--json", "--quiet", "--max-tokens", str(tokens), "--speculate", "off",
                          "--threads", str(threads), "--mode", "resident"], capture_output=True, text=True, check=True).stdout
    a = json.loads(out)
    return {"prompt_tokens": a["prompt_tokens"], "prefill": a["prompt_tokens"] / a["first_token_seconds"], "rate": a["tokens_per_second"]}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("file")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--tokens", type=int, default=64)
    p.add_argument("--words", type=int, default=200)
    a = p.parse_args()
    prompt = " ".join(["The quick brown fox jumps over the lazy dog."] * (a.words // 9 + 1))
    rows = {}
    for threads in (1, 2):
        rows["optimem", threads] = lambda t=threads: ours(a.program, a.file, t, a.tokens, prompt)
        rows["llama.cpp", threads] = lambda t=threads: peer(a.file, t, a.tokens, prompt)
    seen = {k: [] for k in rows}
    for _ in range(a.rounds):
        for k, run in rows.items():
            seen[k].append(run())
    print("| | threads | prompt tokens | prompt tokens a second | tokens a second |\n|---|---|---|---|---|")
    for (name, threads), list_ in seen.items():
        prefill, rate = (statistics.median(x[k] for x in list_) for k in ("prefill", "rate"))
        print(f"| {name} | {threads} | {list_[0]['prompt_tokens']} | {prefill:.1f} | {rate:.1f} |")


if __name__ == "__main__":
    main()
