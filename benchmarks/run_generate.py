"""Times optimem generate beside transformers on one folder: seconds to the first token, and tokens a second from there on.

    python benchmarks/run_generate.py OPTIMEM FOLDER [--rounds 5] [--tokens 64] [--words 200] [--openvino FOLDER] [--gguf FILE]

Each round runs every program once, in turns, as a process of its own, which answers a text of the same length before it is timed: optimem
as a server that streams. "fresh" is optimem generate instead, whose first token waits for weights to be read and packed as well.
Guesses are off but in the row that says so. --openvino FOLDER, which optimum-cli export openvino makes of the same folder, adds OpenVINO
GenAI, in float32 where the folder is and as it likes elsewhere; --gguf FILE, the same weights as they are (benchmarks/float_gguf.py), adds
llama.cpp. The table has medians, for one thread and two. Nothing else should run meanwhile.
"""

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

PEER = """
import json, sys, time, torch, transformers as T
folder, dtype, threads, tokens, prompt = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
torch.set_num_threads(threads)
tok = T.AutoTokenizer.from_pretrained(folder)
m = T.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
ids = torch.tensor([tok(prompt)["input_ids"]])
class Clock:
    def put(self, value):
        self.times.append(time.perf_counter())
    def end(self):
        pass
with torch.no_grad():
    m.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=4, do_sample=False)
    c = Clock(); c.times = []
    start = time.perf_counter()
    m.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, streamer=c)
first, last = c.times[1] - start, c.times[-1] - c.times[1]
print(json.dumps({"prompt_tokens": ids.shape[1], "first": first, "rate": (len(c.times) - 2) / last}))
"""


def peer(folder, dtype, threads, tokens, prompt):
    env = os.environ | {"OMP_NUM_THREADS": str(threads), "TRANSFORMERS_VERBOSITY": "error"}
    out = subprocess.run([sys.executable, "-W", "ignore", "-c", PEER, folder, dtype, str(threads), str(tokens), prompt],
                         capture_output=True, text=True, env=env, check=True).stdout
    return json.loads(out.strip().splitlines()[-1])


def ours(program, model, threads, tokens, prompt, more):
    out = subprocess.run([program, "generate", model, prompt, "--raw", "--json", "--quiet", "--max-tokens", str(tokens),
                          "--threads", str(threads), "--mode", "resident", *more], capture_output=True, text=True, check=True).stdout
    a = json.loads(out)
    return {"prompt_tokens": a["prompt_tokens"], "first": a["first_token_seconds"], "rate": a["tokens_per_second"]}


def stream(address, tokens, prompt):
    """Asks a server for a text, and returns when each piece of it came, after how long, and the usage."""
    body = {"model": "model", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}}
    ask = urllib.request.Request(f"http://{address}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    times, usage, start = [], None, time.perf_counter()
    with urllib.request.urlopen(ask) as answer:
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            usage = event.get("usage") or usage
            if any(c.get("text") for c in event["choices"]):
                times.append(time.perf_counter() - start)
    return times, usage


def peak(pid):
    """The most that a process has held at a time, in bytes; 0 where the system does not say."""
    try:
        with open(f"/proc/{pid}/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return 0


def warm(program, model, threads, tokens, prompt, more):
    """Times a server that has answered a text of that length before, other than what is timed, so that no prefix is known."""
    with tempfile.TemporaryDirectory() as models:
        if os.path.isdir(model):
            shutil.copytree(model, os.path.join(models, "model"))  # links that lead out of the directory are not followed
        else:
            shutil.copy(model, os.path.join(models, "model.gguf"))
        command = [program, "serve", models, "--listen", "127.0.0.1:0", "--threads", str(threads), "--context", "1024", *more]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            said, address = "", None
            for line in server.stdout:
                said += line
                if found := re.search(r"listening on (\S+:\d+)", line):
                    address = found.group(1)
                    break
            if address is None:
                raise RuntimeError(said)
            stream(address, 8, other(prompt))
            times, usage = stream(address, tokens, prompt)
            memory = peak(server.pid)
        finally:
            server.send_signal(signal.SIGTERM)
            server.communicate()
    return {"prompt_tokens": usage["prompt_tokens"], "first": times[0], "memory": memory,
            "rate": (usage["completion_tokens"] - 1) / (times[-1] - times[0])}


def other(prompt):
    """Returns a text of about the same length that begins otherwise."""
    return " ".join(reversed(prompt.split()))


def arguments(model, *more):
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument(model)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--tokens", type=int, default=64)
    p.add_argument("--words", type=int, default=200)
    for flag in more:
        p.add_argument(flag)
    a = p.parse_args()
    return a, " ".join(["The quick brown fox jumps over the lazy dog."] * (a.words // 9 + 1))


def in_turns(rows, rounds):
    """Runs every row once a round, and returns what each gave."""
    seen = {k: [] for k in rows}
    for _ in range(rounds):
        for k, run in rows.items():
            seen[k].append(run())
    return seen


def present(rows, peers):
    """Drops the rows of peers that cannot run, and says why."""
    for name, threads in [key for key in rows if key[0] in peers]:
        try:
            rows[name, threads]()
        except subprocess.CalledProcessError as e:
            said = (e.stderr or "").strip().splitlines()
            print(f"{name} with {threads} threads is left out: {said[-1] if said else e}", file=sys.stderr)
            del rows[name, threads]


def main():
    a, prompt = arguments("folder", "--openvino", "--gguf")
    with open(os.path.join(a.folder, "config.json")) as config:
        config = json.load(config)
    weights = config.get("dtype") or config.get("torch_dtype")
    rows = {}
    for threads in (1, 2):
        rows[f"optimem, {weights} weights", threads] = lambda t=threads: warm(
            a.program, a.folder, t, a.tokens, prompt, ["--kv", "bf16", "--speculate", "off"])
        rows["optimem, --precision bf16", threads] = lambda t=threads: warm(
            a.program, a.folder, t, a.tokens, prompt, ["--kv", "bf16", "--speculate", "off", "--precision", "bf16"])
        rows["optimem, with guesses", threads] = lambda t=threads: warm(a.program, a.folder, t, a.tokens, prompt, ["--kv", "bf16"])
        rows["optimem, fresh", threads] = lambda t=threads: ours(
            a.program, a.folder, t, a.tokens, prompt, ["--kv", "bf16", "--speculate", "off"])
        rows["transformers, bfloat16", threads] = lambda t=threads: peer(a.folder, "bfloat16", t, a.tokens, prompt)
        rows["transformers, float32", threads] = lambda t=threads: peer(a.folder, "float32", t, a.tokens, prompt)
        if a.openvino:
            from run_gguf import openvino
            hint = "f32" if weights == "float32" else "undefined"
            rows["OpenVINO GenAI", threads] = lambda t=threads, h=hint: openvino(a.openvino, t, a.tokens, prompt, h)
        if a.gguf:
            from run_gguf import peer as llama
            rows["llama.cpp", threads] = lambda t=threads: llama(a.gguf, t, a.tokens, prompt)
    present(rows, ("OpenVINO GenAI", "llama.cpp"))
    print("| | threads | prompt tokens | first token, s | tokens a second |\n|---|---|---|---|---|")
    for (name, threads), list_ in in_turns(rows, a.rounds).items():
        first, rate = (statistics.median(x[k] for x in list_) for k in ("first", "rate"))
        print(f"| {name} | {threads} | {list_[0]['prompt_tokens']} | {first:.3f} | {rate:.1f} |")


if __name__ == "__main__":
    main()
