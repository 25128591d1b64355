"""Writes valid/gguf_llama.gguf, a language model of random weights, and what transformers makes of it: the golden of the
loader's tests, with the tokens that follow a prompt for the tests of text.

    pip install gguf accelerate transformers torch && python make_gguf.py
"""

import hashlib
import json
import os

import fixtures_archive
import gguf
import numpy as np
import torch
import transformers

HIDDEN, INNER, HEADS, KEYS, LAYERS = 32, 32, 4, 2, 1
NAME = os.path.join(fixtures_archive.FOLDER, "gguf_llama.gguf")
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PROMPT = "the sun and the rain"
Q = gguf.GGMLQuantizationType
TENSORS = {
    "token_embd.weight": (None, Q.Q4_0), "output_norm.weight": (HIDDEN, Q.F32),
    "blk.0.attn_norm.weight": (HIDDEN, Q.F32), "blk.0.ffn_norm.weight": (HIDDEN, Q.F32),
    "blk.0.attn_q.weight": ((HIDDEN, HIDDEN), Q.Q4_1), "blk.0.attn_k.weight": ((HIDDEN // 2, HIDDEN), Q.Q8_0),
    "blk.0.attn_v.weight": ((HIDDEN // 2, HIDDEN), Q.Q5_0), "blk.0.attn_output.weight": ((HIDDEN, HIDDEN), Q.Q5_1),
    "blk.0.ffn_gate.weight": ((INNER, HIDDEN), Q.Q4_0), "blk.0.ffn_up.weight": ((INNER, HIDDEN), Q.BF16),
    "blk.0.ffn_down.weight": ((HIDDEN, INNER), Q.IQ4_NL),
}


def byte_pieces():
    """The characters that stand for bytes in GPT-2's vocabulary."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names, extra = {}, 0
    for b in range(256):
        names[b] = chr(b) if b in kept else chr(256 + extra)
        extra += b not in kept
    return [names[b] for b in range(256)]


def vocabulary():
    merges = ["t h", "th e", "Ġ the", "a n", "i n", "Ġ s", "u n", "an d", "Ġ and"]
    tokens = byte_pieces() + [m.replace(" ", "") for m in merges]
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    return tokens + special, [1] * len(tokens) + [3] * len(special), merges


def encode(x, kind):
    if kind == Q.IQ4_NL:  # which the package reads and does not write
        blocks = x.reshape(-1, 32)
        table = np.array(gguf.quants.IQ4_NL.kvalues, dtype=np.float32)
        d = (np.abs(blocks).max(1, keepdims=True) / 113).astype(np.float16)
        codes = np.abs(blocks[..., None] / d.astype(np.float32)[..., None] - table).argmin(-1).astype(np.uint8)
        packed = codes[:, :16] | codes[:, 16:] << 4
        return np.concatenate([d.view(np.uint8), packed], 1).reshape(*x.shape[:-1], -1)
    return gguf.quantize(x, kind)


def write():
    tokens, types, merges = vocabulary()
    w = gguf.GGUFWriter(NAME, "llama")
    w.add_name("Tiny")
    w.add_context_length(256)
    w.add_embedding_length(HIDDEN)
    w.add_feed_forward_length(INNER)
    w.add_block_count(LAYERS)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KEYS)
    w.add_rope_dimension_count(HIDDEN // HEADS)
    w.add_rope_freq_base(5000.0)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_vocab_size(len(tokens))
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("smollm")
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_merges(merges)
    w.add_bos_token_id(len(tokens) - 2)
    w.add_eos_token_id(len(tokens) - 3)
    w.add_add_bos_token(False)
    w.add_chat_template(TEMPLATE)
    rng = np.random.default_rng(7)
    for name, (shape, kind) in TENSORS.items():
        shape = shape or (len(tokens), HIDDEN)
        x = rng.standard_normal(shape).astype(np.float32)
        if "norm" in name:
            x = 1 + 0.1 * x
        elif "embd" not in name:
            x /= np.sqrt(np.float32(shape[-1])) / 2
        w.add_tensor(name, encode(x, kind), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def golden():
    tensors, at = [], 0
    for t in gguf.GGUFReader(NAME).tensors:
        x = gguf.dequantize(t.data, t.tensor_type)
        stored, dtype = t.n_bytes, {Q.F32: "float32", Q.BF16: "bfloat16"}.get(t.tensor_type, "float32")
        shape = [int(n) for n in reversed(t.shape)]
        data = x.astype("<f4").reshape(shape)
        heads = {"attn_q": HEADS, "attn_k": KEYS}.get(t.name.split(".")[2] if t.name.startswith("blk") else "")
        if heads:
            data = data.reshape(heads, shape[0] // heads // 2, 2, shape[1]).swapaxes(1, 2).reshape(shape)
        raw = np.ascontiguousarray(data).tobytes() if dtype == "float32" else t.data.tobytes()
        stride = [int(np.prod(shape[i + 1:])) for i in range(len(shape))]
        tensors.append({
            "name": t.name, "dtype": dtype, "shape": shape, "stride": stride, "offset": 0, "storage_bytes": len(raw),
            "sha256": hashlib.sha256(raw).hexdigest(), "shares_with": None,
            "encoding": t.tensor_type.name, "file_bytes": int(stored), "file_offset": int(t.data_offset),
        })
    return tensors


def generated():
    folder, file = os.path.split(NAME)
    tok = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=file)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32).eval()
    messages = [{"role": "user", "content": PROMPT}]
    out = {"prompt": PROMPT}
    for kind in ("raw", "chat"):
        if kind == "raw":
            ids = tok(PROMPT, return_tensors="pt", add_special_tokens=False)["input_ids"]
        else:
            text = tok.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
            ids = tok(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            logits = model(ids).logits[0, -1]
            told = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False)
        out[kind] = {"ids": ids[0].tolist(), "told": told[0, ids.shape[1]:].tolist(),
                     "logits": [float("%.6g" % x) for x in logits[:8]]}
    return out


fixtures_archive.unpack()
write()
with open(NAME + ".golden.json", "w") as f:
    json.dump({"format": "gguf", "tensors": golden(), "text": generated()}, f, ensure_ascii=False)
    f.write("\n")
fixtures_archive.pack()
