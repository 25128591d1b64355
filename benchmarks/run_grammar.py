"""Measures masks of xgrammar and llguidance on the grammars of text/grammar's BenchmarkGrammars, in processor time of one thread.

    python benchmarks/run_grammar.py --tokens FILE

FILE has a token's bytes in hexadecimal on each line, as for `go test ./text/grammar -run xxx -bench Grammars -args -tokens FILE`. Texts
are taken token by token, each the longest that there is; at every place the mask is asked for. Of each place the least of all passes
counts. compile is what is done before the first mask. xgrammar's compiled grammar is that of all passes; llguidance's matcher is new
in each, as it learns while it runs.
"""
import argparse
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import time

import llguidance
import llguidance.gbnf_to_lark
import llguidance.numpy
import numpy as np
import xgrammar

HERE = os.path.dirname(os.path.abspath(__file__))


class Tokens:
    eos_token_id = None
    bos_token_id = None
    special_token_ids = []

    def __init__(self, tokens):
        self.tokens = tokens + [b"<|end|>"]
        self.eos_token_id = len(tokens)
        self.ids = {t: i for i, t in enumerate(tokens)}
        self.special_token_ids = [len(tokens)]

    def __call__(self, text):
        text = text.encode() if isinstance(text, str) else text
        out = []
        while text:
            n = min(len(text), 256)
            while text[:n] not in self.ids:
                n -= 1
            out.append(self.ids[text[:n]])
            text = text[n:]
        return out


def passes(count, start, ids):
    times = [1e9] * (len(ids) + 1)
    for _ in range(count):
        mask, accept = start()
        for i in range(len(ids) + 1):
            began = time.thread_time_ns()
            mask()
            times[i] = min(times[i], (time.thread_time_ns() - began) / 1e3)
            if i < len(ids) and not accept(ids[i]):
                return None, f"refuses token {i}"
    return sorted(times), ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", required=True)
    parser.add_argument("--passes", type=int, default=5)
    args = parser.parse_args()
    with open(args.tokens) as f:
        tokens = Tokens([bytes.fromhex(line.strip()) for line in f])
    cases = json.loads(subprocess.check_output([sys.executable, os.path.join(HERE, "../text/grammar/testdata/masks.py")]))
    with open("/proc/cpuinfo") as f:
        cpu = re.search(r"model name\s*: (.*)", f.read()).group(1)
    print(f"{cpu}, {time.strftime('%Y-%m-%d')}, load {os.getloadavg()[0]:.1f}; xgrammar {importlib.metadata.version('xgrammar')}, llguidance "
          f"{llguidance.get_version()}; {len(tokens.tokens)} tokens; µs of a thread's processor time, compile in ms")
    print(f"{'':22}{'xgrammar':>10}{'p99':>9}{'median':>9}{'compile':>9}{'llguidance':>13}{'p99':>9}{'median':>9}{'compile':>9}")
    info = xgrammar.TokenizerInfo(tokens.tokens, vocab_size=len(tokens.tokens), stop_token_ids=[tokens.eos_token_id])
    lltok = llguidance.LLTokenizer(llguidance.TokenizerWrapper(tokens), n_vocab=len(tokens.tokens), eos_token=tokens.eos_token_id)
    bits = np.zeros((1, (len(tokens.tokens) + 31) // 32), dtype=np.int32)
    for case in cases:
        ids = tokens(case["text"])
        line = f"{case['name']:22}"
        try:
            compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
            began = time.process_time()
            if "schema" in case:
                grammar = compiler.compile_json_schema(json.dumps(case["schema"]), strict_mode=True)
            else:
                grammar = compiler.compile_grammar(case["gbnf"])
            compiled = (time.process_time() - began) * 1e3

            def start():
                m = xgrammar.GrammarMatcher(grammar)
                return lambda: m.fill_next_token_bitmask(bits), m.accept_token

            times, why = passes(args.passes, start, ids)
        except Exception as e:
            times, why = None, str(e).strip().split("\n")[0]
        if times:
            line += f"{times[-1]:10.0f}{times[len(times)*99//100]:9.0f}{times[len(times)//2]:9.1f}{compiled:9.1f}"
        else:
            line += f"  {why[:34]:35}"
        try:
            least = [1e9]

            def start():
                began = time.thread_time()
                if "schema" in case:
                    source = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(case["schema"]))
                else:
                    source = llguidance.LLMatcher.grammar_from_lark(llguidance.gbnf_to_lark.gbnf_to_lark(case["gbnf"]))
                m = llguidance.LLMatcher(lltok, source)
                least[0] = min(least[0], (time.thread_time() - began) * 1e3)
                if m.is_error():
                    raise ValueError(m.get_error())
                return lambda: llguidance.numpy.fill_next_token_bitmask(m, bits), m.consume_token

            times, why = passes(args.passes, start, ids)
        except Exception as e:
            times, why = None, str(e).strip().split("\n")[0]
        if times:
            line += f"{times[-1]:13.0f}{times[len(times)*99//100]:9.0f}{times[len(times)//2]:9.1f}{least[0]:9.1f}"
        else:
            line += f"  {why[:38]}"
        print(line, flush=True)


main()
