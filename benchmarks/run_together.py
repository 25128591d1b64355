"""Times one text and sixteen at once where each pass brings weights: tokens a second of all, and bytes brought for a token.

    python benchmarks/run_together.py OPTIMEM FOLDER [--memory 512MiB] [--tokens 32] [--texts 16] [--threads 2]

A time is that of the process less what one of one token takes: its start and the pass that reads the prompt. The goal is six
times the tokens a second. Nothing else should run meanwhile.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time


def write(a, texts, tokens):
    """Writes so many texts of so many tokens, and returns how many seconds that took."""
    with tempfile.TemporaryDirectory() as folder:
        prompts = os.path.join(folder, "prompts.jsonl")
        with open(prompts, "w") as f:
            for i in range(texts):
                print(json.dumps({"id": i, "prompt": f"Text number {i} begins here.", "max_tokens": tokens}), file=f)
        begin = time.perf_counter()
        subprocess.run([a.program, "generate", a.folder, "--batch", prompts, "-o", os.path.join(folder, "answers.jsonl"), "--raw", "--quiet",
                        "--memory", a.memory, "--mode", "page", "--speculate", "off", "--kv", "bf16", "--context", str(tokens + 32),
                        "--threads", str(a.threads)], check=True)
        seconds = time.perf_counter() - begin
        with open(os.path.join(folder, "answers.jsonl")) as f:
            assert sum(1 for _ in f) == texts
    return seconds


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("folder")
    p.add_argument("--memory", default="512MiB")
    p.add_argument("--tokens", type=int, default=32)
    p.add_argument("--texts", type=int, default=16)
    p.add_argument("--threads", type=int, default=2)
    a = p.parse_args()
    rates = []
    print("| texts at once | tokens a second |\n|---|---|")
    for texts in (1, a.texts):
        seconds = write(a, texts, a.tokens) - write(a, texts, 1)
        rates.append(texts * (a.tokens - 1) / seconds)
        print(f"| {texts} | {rates[-1]:.2f} |", flush=True)
    print(f"\n{a.texts} at once: {rates[1] / rates[0]:.1f} times one")


if __name__ == "__main__":
    main()
