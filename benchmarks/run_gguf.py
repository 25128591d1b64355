"""Times optimem generate beside llama.cpp (xllamacpp from PyPI) and OpenVINO GenAI on one GGUF file: prompt tokens a second, and tokens a second after.

    python benchmarks/run_gguf.py OPTIMEM FILE.gguf [--rounds 5] [--tokens 64] [--words 200] [--speed SPEED]

Each round runs every program once, in turns, as a process of its own, which answers a prompt of the same length before it is timed:
optimem as a server that streams, also with factors that are rounded as peers round them (--precision). "fresh" is optimem generate instead, whose first token waits for weights to be read, too.
"read" is what a token takes of memory at least, the bytes of all tensors but an embedding of its own, times tokens a second, in GB/s and as a
part of what the machine reads with as many threads ("the machine", which --speed SPEED measures: go build -o SPEED ./benchmarks/speed). "memory" is the
most that a process held at a time, in MiB; of llama.cpp that is with Python, whose share is said before the table.
A peer that is not installed, or does not read the file, has no rows, and why is said on standard error. Tokens are generated without guesses and greedily. The table has medians, for one thread and two. Nothing
else should run meanwhile: llama.cpp's threads wait for each other by spinning.
"""

import json
import statistics
import subprocess
import sys

from run_generate import arguments, in_turns, ours, present, warm

# A peer's own peak: ru_maxrss of a child begins with what its parent held.
PEAK = """
peak = int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1]) * 1024
"""

PEER = """
import json, sys, xllamacpp as x
path, threads, tokens, prompt = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
p = x.CommonParams()
p.model.path = path
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = threads
p.n_ctx, p.n_parallel, p.verbosity, p.cache_prompt = 1024, 1, -1, False
s = x.Server(p)
ask = lambda text, n: s.handle_completions({"prompt": text, "max_tokens": n, "temperature": 0, "ignore_eos": True})
ask(" ".join(reversed(prompt.split())), 4)
t = ask(prompt, tokens)["timings"]
""" + PEAK + """print(json.dumps({"memory": peak, "prompt_tokens": t["prompt_n"], "first": t["prompt_ms"] / 1000, "rate": t["predicted_per_second"]}))
"""

OPENVINO = """
import json, sys, openvino_genai as ov
path, threads, tokens, prompt, hint = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
more = {} if hint == "undefined" else {"INFERENCE_PRECISION_HINT": hint}
pipe = ov.LLMPipeline(path, "CPU", INFERENCE_NUM_THREADS=threads, **more)
def ask(text, n):
    c = ov.GenerationConfig()
    c.max_new_tokens, c.ignore_eos, c.do_sample, c.apply_chat_template = n, True, False, False
    return pipe.generate([text], c).perf_metrics
ask(" ".join(reversed(prompt.split())), 4)
m = ask(prompt, tokens)
""" + PEAK + """print(json.dumps({"memory": peak, "prompt_tokens": m.get_num_input_tokens(), "first": m.get_ttft().mean / 1000, "rate": 1000 / m.get_tpot().mean}))
"""


def openvino(path, threads, tokens, prompt, hint="undefined"):
    """Times OpenVINO GenAI on a GGUF file, or on a folder that optimum-intel exported."""
    out = subprocess.run([sys.executable, "-W", "ignore", "-c", OPENVINO, path, str(threads), str(tokens), prompt, hint],
                         capture_output=True, text=True, check=True).stdout
    return json.loads(out.strip().splitlines()[-1])


def peer(path, threads, tokens, prompt):
    out = subprocess.run([sys.executable, "-W", "ignore", "-c", PEER, path, str(threads), str(tokens), prompt],
                         capture_output=True, text=True, check=True).stdout
    return json.loads(out.strip().splitlines()[-1])


def weight_bytes(program, path):
    """Bytes of the tensors that a token takes: all but those of an embedding that is no output, too."""
    tensors = json.loads(subprocess.run([program, "inspect", path, "--json"], capture_output=True, text=True, check=True).stdout)["tensors"]
    stored = {t["name"]: (t.get("encoded") or {"file_bytes": t["bytes"]})["file_bytes"] for t in tensors}
    if "output.weight" in stored:
        stored.pop("token_embd.weight")
    return sum(stored.values())


def machine(speed, threads):
    """What the machine reads of memory in a second, in GB."""
    out = subprocess.run([speed, "-read", "-threads", str(threads)], capture_output=True, text=True, check=True).stdout
    return json.loads(out)["gigabytes"]


def main():
    a, prompt = arguments("file", "--speed")
    rows = {}
    for threads in (1, 2):
        rows["optimem", threads] = lambda t=threads: warm(a.program, a.file, t, a.tokens, prompt, ["--speculate", "off"])
        for rounded in ("int8", "bf16"):
            rows[f"optimem, --precision {rounded}", threads] = lambda t=threads, r=rounded: warm(
                a.program, a.file, t, a.tokens, prompt, ["--speculate", "off", "--precision", r])
        rows["optimem, fresh", threads] = lambda t=threads: ours(a.program, a.file, t, a.tokens, prompt, ["--speculate", "off"])
        rows["llama.cpp", threads] = lambda t=threads: peer(a.file, t, a.tokens, prompt)
        rows["OpenVINO GenAI", threads] = lambda t=threads: openvino(a.file, t, a.tokens, prompt)
    present(rows, ("llama.cpp", "OpenVINO GenAI"))
    each = weight_bytes(a.program, a.file)
    alone = int(subprocess.run([sys.executable, "-c", PEAK + "print(peak)"], capture_output=True, text=True, check=True).stdout)
    print(f"A token takes {each / 1e6:.1f} MB of weights. Python by itself holds {alone / 2**20:.1f} MiB.")
    reads = {}
    for threads in (1, 2) if a.speed else ():
        reads[threads] = machine(a.speed, threads)
        print(f"The machine reads {reads[threads]:.2f} GB/s with {threads} thread{'s' * (threads > 1)}.")
    print("\n| | threads | prompt tokens | prompt tokens a second | tokens a second | read, GB/s | of the machine's | memory, MiB |\n" + "|---" * 8 + "|")
    for (name, threads), list_ in in_turns(rows, a.rounds).items():
        prefill = statistics.median(x["prompt_tokens"] / x["first"] for x in list_)
        rate = statistics.median(x["rate"] for x in list_)
        read = each * rate / 1e9
        part = f"{100 * read / reads[threads]:.0f} %" if threads in reads else ""
        memory = max(x.get("memory", 0) for x in list_)
        held = f"{memory / 2**20:.0f}" if memory else ""
        print(f"| {name} | {threads} | {list_[0]['prompt_tokens']} | {prefill:.1f} | {rate:.1f} | {read:.2f} | {part} | {held} |")


if __name__ == "__main__":
    main()
