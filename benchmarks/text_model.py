"""Makes a Llama of 1.1 billion random weights at TinyLlama's shape, to measure with: bfloat16, and of it Q8_0 and Q4_K as GGUF.

    python benchmarks/text_model.py OPTIMEM TOKENIZER FOLDER

TOKENIZER is a folder with a byte-level BPE tokenizer.json of 32,000 tokens or more, such as SmolLM2-135M-Instruct, whose
first 32,000 tokens and their merges are taken. FOLDER gets llama/, llama-q8_0.gguf and llama-q4_k.gguf; what is there stays.
"""

import json
import os
import subprocess
import sys

WORDS = 32000
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632,
    "num_hidden_layers": 22, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": WORDS,
    "max_position_embeddings": 2048, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "hidden_act": "silu",
    "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False, "dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2,
}


def shorter(t):
    """Keeps the first words of a byte-level BPE, and the merges that make one of them."""
    model = t["model"]
    model["vocab"] = {word: i for word, i in model["vocab"].items() if i < WORDS}
    pair = lambda m: m.split(" ") if isinstance(m, str) else m
    model["merges"] = [m for m in model["merges"] if "".join(pair(m)) in model["vocab"] and all(p in model["vocab"] for p in pair(m))]
    t["added_tokens"] = [a for a in t["added_tokens"] if a["id"] < WORDS]
    return t


def make(program, tokenizer, folder):
    model = os.path.join(folder, "llama")
    os.makedirs(model, exist_ok=True)
    with open(os.path.join(tokenizer, "tokenizer.json"), encoding="utf-8") as f:
        t = shorter(json.load(f))
    with open(os.path.join(model, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(t, f, ensure_ascii=False)
    with open(os.path.join(model, "config.json"), "w") as f:
        json.dump(CONFIG, f, indent=1)
    with open(os.path.join(model, "tokenizer_config.json"), "w") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": t["added_tokens"][1]["content"],
                   "eos_token": t["added_tokens"][2]["content"]}, f)
    weights = os.path.join(model, "model.safetensors")
    if not os.path.exists(weights):
        subprocess.run([program, "synth", "tinyllama-1.1b", "--dtype", "bfloat16", "-o", weights], check=True, stdout=sys.stderr)
    files = []
    for kind in ("q8_0", "q4_k"):
        file = os.path.join(folder, f"llama-{kind}.gguf")
        if not os.path.exists(file):
            subprocess.run([program, "quantize", model, "--format", "gguf", "--to", kind, "-o", file], check=True, stdout=sys.stderr)
        files.append(file)
    return model, files


if __name__ == "__main__":
    print(*make(*sys.argv[1:4]))
