"""Compares greedy texts of models of real width and random weights with transformers': 20 prompts, 256 tokens after each.

    python check_widths.py OPTIMEM [NAME...]

Each model has the width, heads and feed-forward layers of one that is published, two layers or a few more and 2,000 tokens. Computing is in
float32 on both sides. A difference is printed with how far apart the two likeliest logits were there. Twenty minutes of two cores, 4 GB.
"""

import json
import os
import subprocess
import sys
import tempfile

import tokenizers
import torch
import transformers as T

V, PROMPTS, WRITTEN = 2000, 20, 256
TEXT = dict(vocab_size=V, num_hidden_layers=2, max_position_embeddings=2048, pad_token_id=0, bos_token_id=1, eos_token_id=None)


def text(hidden, inner, heads, keys, **more):
    return TEXT | dict(hidden_size=hidden, intermediate_size=inner, num_attention_heads=heads, num_key_value_heads=keys) | more


MODELS = {
    "Llama-2-7B": ("LlamaForCausalLM", text(4096, 11008, 32, 32)),
    "Llama-3.2-1B": ("LlamaForCausalLM", text(2048, 8192, 32, 8, tie_word_embeddings=True, rope_parameters={
        "rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192})),
    "Mistral-7B": ("MistralForCausalLM", text(4096, 14336, 32, 8, sliding_window=128)),
    "Qwen2-1.5B": ("Qwen2ForCausalLM", text(1536, 8960, 12, 2, tie_word_embeddings=True)),
    "Qwen3-1.7B": ("Qwen3ForCausalLM", text(2048, 6144, 16, 8, head_dim=128, tie_word_embeddings=True)),
    "SmolLM2-1.7B": ("LlamaForCausalLM", text(2048, 8192, 32, 32, tie_word_embeddings=True)),
    "SmolLM3-3B": ("SmolLM3ForCausalLM", text(2048, 11008, 16, 4, num_hidden_layers=4)),
    "Gemma-2B": ("GemmaForCausalLM", text(2048, 16384, 8, 1, head_dim=256)),
    "Gemma-2-2B": ("Gemma2ForCausalLM", text(2304, 9216, 8, 4, head_dim=256, sliding_window=128)),
    "Gemma-3-1B": ("Gemma3ForCausalLM", text(1152, 6912, 4, 1, head_dim=256, sliding_window=128, num_hidden_layers=6)),
    "Phi-3-mini": ("Phi3ForCausalLM", text(3072, 8192, 32, 32)),
    "Phi-4-mini": ("Phi3ForCausalLM", text(3072, 8192, 24, 8, partial_rotary_factor=0.75, tie_word_embeddings=True)),
    "GPT-2": ("GPT2LMHeadModel", dict(vocab_size=V, n_embd=768, n_head=12, n_layer=2, n_positions=1024, bos_token_id=1, eos_token_id=None)),
    "T5-base": ("T5ForConditionalGeneration", dict(
        vocab_size=V, d_model=768, d_ff=3072, d_kv=64, num_heads=12, num_layers=2, num_decoder_layers=2, pad_token_id=0, eos_token_id=None,
        decoder_start_token_id=0)),
    "BART-base": ("BartForConditionalGeneration", dict(
        vocab_size=V, d_model=768, encoder_layers=2, decoder_layers=2, encoder_attention_heads=12, decoder_attention_heads=12,
        encoder_ffn_dim=3072, decoder_ffn_dim=3072, max_position_embeddings=1024, pad_token_id=0, bos_token_id=1, eos_token_id=None,
        decoder_start_token_id=2, forced_eos_token_id=None)),
}


def save(name, folder):
    """Makes a model of random weights and a tokenizer whose token N is the word wN."""
    of, options = MODELS[name]
    of = getattr(T, of)
    torch.manual_seed(7)
    model = of(of.config_class(**options)).eval()
    with torch.no_grad():
        for n, p in model.named_parameters():  # larger than they begin with, so that texts do not repeat at once
            if p.dim() > 1:
                p.normal_(0, (2.0 if "embed" in n or "wte" in n or "shared" in n else 1.6) / p.shape[-1] ** 0.5)
    model.generation_config = T.GenerationConfig(bos_token_id=1, eos_token_id=None, pad_token_id=0,
                                                 decoder_start_token_id=options.get("decoder_start_token_id"))
    model.save_pretrained(folder)
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{i}": i for i in range(V)}, unk_token="w3"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    words.save(os.path.join(folder, "tokenizer.json"))
    return model


def theirs(model, prompts):
    out = model.generate(torch.tensor(prompts), attention_mask=torch.ones(len(prompts), len(prompts[0]), dtype=torch.long), do_sample=False,
                         max_new_tokens=WRITTEN, min_new_tokens=WRITTEN, output_logits=True, return_dict_in_generate=True)
    tokens = out.sequences[:, -WRITTEN:].tolist()
    top = torch.stack(out.logits).topk(2).values
    return tokens, (top[..., 0] - top[..., 1]).T.tolist()


def ours(program, folder, prompts):
    lines = os.path.join(folder, "prompts.jsonl")
    with open(lines, "w") as f:
        for i, p in enumerate(prompts):
            f.write(json.dumps({"id": i, "prompt": " ".join(f"w{t}" for t in p)}) + "\n")
    out = subprocess.run([program, "generate", folder, "--batch", lines, "--raw", "--json", "--quiet", "--temperature", "0", "--kv", "fp32",
                          "--max-tokens", str(WRITTEN)], capture_output=True, text=True)
    if out.returncode:
        raise RuntimeError(out.stderr)
    answers = [json.loads(line) for line in out.stdout.splitlines() if line.startswith("{")]
    return [a["token_ids"] for a in sorted(answers, key=lambda a: a["id"])]


def main():
    program, names = sys.argv[1], sys.argv[2:] or list(MODELS)
    bad = 0
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            model = save(name, folder)
            draw = torch.Generator().manual_seed(3)
            prompts = torch.randint(4, V, (PROMPTS, 24), generator=draw).tolist()
            want, gaps = theirs(model, prompts)
            got = ours(program, folder, prompts)
        same, said = 0, []
        for i, (a, b) in enumerate(zip(want, got)):
            at = next((k for k in range(WRITTEN) if k >= len(b) or a[k] != b[k]), None)
            if at is None:
                same += 1
            else:
                said.append(f"prompt {i}, token {at}: gap {gaps[i][at]:.2g}")
        distinct = len({t for a in want for t in a})
        print(f"{name}: {same} of {len(want)} texts are equal, {distinct} different tokens{'; ' if said else ''}{'; '.join(said)}", flush=True)
        bad += len(want) - same
    sys.exit(bad > 0)


if __name__ == "__main__":
    with torch.no_grad():
        main()
