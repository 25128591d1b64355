"""Records what transformers' beam search writes with the folder chat: beams.json.gz.

    python record_beams.py
"""

import gzip
import itertools
import json
import os

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    torch.set_num_threads(1)
    folder = os.path.join(HERE, "chat")
    tok = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    cases = []
    texts = ["The capital of", "Hello", "Rome is <|im_start|>", "<|im_start|>user\nWhat is the capital of Oslo?<|im_end|>\n<|im_start|>assistant\n"]
    for i, (text, beams, penalty, early) in enumerate(
        itertools.product(texts, [1, 2, 5], [0.0, 1.0, 2.0, -1.0], [False, True, "never"])
    ):
        if beams == 1:
            continue
        prompt = tok.encode(text, add_special_tokens=False)
        end = [[2, 0], 2, [2, 0, 14, 220]][i % 3]
        out = model.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.int64), do_sample=False, num_beams=beams,
            num_return_sequences=beams, max_new_tokens=6 + i % 11, length_penalty=penalty, early_stopping=early, eos_token_id=end,
            pad_token_id=0, return_dict_in_generate=True, output_scores=True,
        )
        found = []
        ends = end if isinstance(end, list) else [end]
        for row, score in zip(out.sequences[:, len(prompt):].tolist(), out.sequences_scores.tolist()):
            stop = next((k + 1 for k, t in enumerate(row) if t in ends), len(row))
            found.append({"tokens": row[:stop], "score": score})
        cases.append({"prompt": prompt, "beams": beams, "penalty": penalty, "early": str(early), "end": ends,
                      "max_tokens": 6 + i % 11, "found": found})
    with gzip.GzipFile(os.path.join(HERE, "beams.json.gz"), "wb", mtime=0) as f:
        f.write(json.dumps(cases).encode())
    print(len(cases), cases[-1])


if __name__ == "__main__":
    main()
