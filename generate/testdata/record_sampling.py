"""Records what transformers makes of logits before it draws a token: sampling.json.gz, for sampling_test.go.

    python record_sampling.py
"""

import gzip
import json
import random

import torch
import transformers
from transformers import GenerationConfig
from transformers.generation import logits_process as lp


def processors(o, prompt):
    """The list that generate() makes, in its order: penalties, then what narrows the choice."""
    steps = []
    if o.get("repetition_penalty", 1) != 1:
        steps.append(lp.RepetitionPenaltyLogitsProcessor(penalty=o["repetition_penalty"]))
    if o.get("no_repeat_ngram_size"):
        steps.append(lp.NoRepeatNGramLogitsProcessor(o["no_repeat_ngram_size"]))
    if o.get("bad_words"):
        steps.append(lp.NoBadWordsLogitsProcessor(o["bad_words"], eos_token_id=None))
    if o.get("min_tokens"):
        steps.append(lp.MinNewTokensLengthLogitsProcessor(prompt, o["min_tokens"], o["end"], device="cpu"))
    if o.get("suppress"):
        steps.append(lp.SuppressTokensLogitsProcessor(o["suppress"], device="cpu"))
    if o.get("temperature", 1) != 1:
        steps.append(lp.TemperatureLogitsWarper(o["temperature"]))
    if o.get("top_k"):
        steps.append(lp.TopKLogitsWarper(o["top_k"]))
    if o.get("top_p", 1) < 1:
        steps.append(lp.TopPLogitsWarper(o["top_p"]))
    if o.get("min_p"):
        steps.append(lp.MinPLogitsWarper(o["min_p"]))
    if o.get("typical", 1) < 1:
        steps.append(lp.TypicalLogitsWarper(o["typical"]))
    return lp.LogitsProcessorList(steps)


def main():
    rng = random.Random(7)
    torch.manual_seed(7)
    vocabulary = 40
    options = [
        {}, {"temperature": 0.7}, {"temperature": 1.9}, {"top_k": 5}, {"top_k": 1}, {"top_k": 100}, {"top_p": 0.9},
        {"top_p": 0.3}, {"top_p": 0.01}, {"min_p": 0.05}, {"min_p": 0.5}, {"min_p": 1.0}, {"typical": 0.9}, {"typical": 0.2},
        {"top_k": 20, "top_p": 0.8, "temperature": 0.8}, {"top_k": 20, "min_p": 0.1}, {"top_p": 0.7, "typical": 0.5},
        {"repetition_penalty": 1.3}, {"repetition_penalty": 0.8}, {"no_repeat_ngram_size": 1}, {"no_repeat_ngram_size": 2},
        {"no_repeat_ngram_size": 3}, {"bad_words": [[3], [4, 5], [1, 2, 3]]}, {"min_tokens": 4, "end": [0, 7]},
        {"suppress": [2, 9]},
        {"repetition_penalty": 1.2, "no_repeat_ngram_size": 2, "temperature": 0.6, "top_k": 30, "top_p": 0.95, "min_p": 0.02},
    ]
    cases = []
    for o in options:
        for k in range(4):
            prompt = [rng.randrange(8) for _ in range(rng.randrange(1, 9))]
            written = [rng.randrange(8) for _ in range(rng.randrange(0, 9))]
            if k == 3:
                prompt, written = [1, 2], [4, 1, 2]
            logits = torch.randn(vocabulary) * (1 + 2 * k)
            if k == 2:  # ties
                logits = logits.round()
            tokens = torch.tensor([prompt + written])
            scores = processors(o, len(prompt))(tokens, logits[None].clone())[0]
            probs = torch.softmax(scores, -1)
            cases.append({
                "options": o, "prompt": prompt, "written": written, "logits": [float(x) for x in logits],
                "probs": [round(float(x), 9) for x in probs],
            })
    out = {"transformers": transformers.__version__, "torch": torch.__version__, "cases": cases}
    with gzip.GzipFile("sampling.json.gz", "wb", mtime=0) as f:
        f.write(json.dumps(out).encode())


if __name__ == "__main__":
    main()
