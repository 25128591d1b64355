"""What other programs do with the models of larger_than_memory.sh: llama.cpp (xllamacpp, gguf from PyPI) with a file that
is mapped, transformers with accelerate's disk offload, and AirLLM.

    python benchmarks/larger_peers.py gguf FOLDER FILE.gguf
    python benchmarks/larger_peers.py llama FILE.gguf [--passes 8] [--warm 1] [--tokens T.json --choices C.json]
    python benchmarks/larger_peers.py accelerate FOLDER [--passes 3] [--warm 1] [--sequences 1]
    python benchmarks/larger_peers.py split FOLDER SHARDS       # what AirLLM reads: a file for each layer
    python benchmarks/larger_peers.py airllm FOLDER SHARDS [--passes 3] [--warm 1] [--sequences 1]

A pass takes one random token of each sequence, as benchmarks/larger does, or those of a file that "larger tokens" has
written; then --choices is what "larger run -choices" says was the likeliest next token after each pass, and "agreed" tells
how often this program finds the same one: the sign that both computed the same model and sent rows to the same experts.
Passes that do not count end after a third of --seconds, the others after all of them; one of each there is. Each prints one line of JSON. What was read is what the kernel
says that this process has had read from disks.
"""

import argparse
import json
import os
import random
import resource
import struct
import time


def read_bytes():
    with open("/proc/self/io") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("read_bytes"))


def tell(size, tokens, seconds, read, more):
    print(json.dumps({
        "model_bytes": size, "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "tokens": tokens, "seconds": seconds, "read_bytes": read, "bytes_per_token": read / tokens,
        "tokens_per_gb": tokens / read * 1e9 if read else 0, "tokens_per_second": tokens / seconds, **more,
    }, separators=(",", ":")))


def measured(size, a, one, more=dict):
    began = time.monotonic()

    def late(part):
        return time.monotonic() - began > a.seconds * part

    warm = passes = 0
    while warm < a.warm and not (late(1 / 3) and warm):
        one()
        warm += 1
    read, begin = read_bytes(), time.monotonic()
    while passes < a.passes and not (late(1) and passes):
        one()
        passes += 1
    seconds = time.monotonic() - begin
    tell(size, a.sequences * passes, seconds, read_bytes() - read, {"passes": passes, "warm": warm, **more()})


class Tensors:
    """The bytes of a safetensors file by name."""

    def __init__(self, path):
        self.file = open(path, "rb")
        (n,) = struct.unpack("<Q", self.file.read(8))
        self.head = json.loads(self.file.read(n))
        self.head.pop("__metadata__", None)
        self.begin = 8 + n

    def shape(self, name):
        return self.head[name]["shape"]

    def bytes(self, name):
        import numpy as np
        low, high = self.head[name]["data_offsets"]
        self.file.seek(self.begin + low)
        return np.frombuffer(self.file.read(high - low), dtype=np.uint8)


def to_gguf(folder, path):
    """Rows of queries and keys are not put in llama.cpp's order: of random weights any order is as good."""
    import gguf
    import numpy as np
    with open(os.path.join(folder, "config.json")) as f:
        c = json.load(f)
    t = Tensors(os.path.join(folder, "model.safetensors"))
    experts = c["num_experts"]
    w = gguf.GGUFWriter(path, "qwen3moe" if experts else "llama")
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_key_length(c["head_dim"])
    w.add_value_length(c["head_dim"])
    w.add_rope_dimension_count(c["head_dim"])
    w.add_rope_freq_base(10000.0)
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_vocab_size(c["vocab_size"])
    if experts:
        w.add_expert_count(experts)
        w.add_expert_used_count(c["num_experts_per_tok"])
        w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    w.add_tokenizer_model("llama")
    w.add_token_list(["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] + [f"w{i}" for i in range(259, c["vocab_size"])])
    w.add_token_scores([-float(i) for i in range(c["vocab_size"])])
    w.add_token_types([2, 3, 3] + [6] * 256 + [1] * (c["vocab_size"] - 259))
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    parts = []

    def add(name, *sources):
        parts.append((name, sources))

    add("token_embd.weight", "model.embed_tokens.weight")
    for i in range(c["num_hidden_layers"]):
        old, new = f"model.layers.{i}.", f"blk.{i}."
        add(new + "attn_norm.weight", old + "input_layernorm.weight")
        add(new + "ffn_norm.weight", old + "post_attention_layernorm.weight")
        for a, b in (("q", "attn_q"), ("k", "attn_k"), ("v", "attn_v"), ("o", "attn_output")):
            add(new + b + ".weight", old + f"self_attn.{a}_proj.weight")
        if not experts:
            for x in ("gate", "up", "down"):
                add(new + f"ffn_{x}.weight", old + f"mlp.{x}_proj.weight")
            continue
        add(new + "attn_q_norm.weight", old + "self_attn.q_norm.weight")
        add(new + "attn_k_norm.weight", old + "self_attn.k_norm.weight")
        add(new + "ffn_gate_inp.weight", old + "mlp.gate.weight")
        for x in ("gate", "up", "down"):
            add(new + f"ffn_{x}_exps.weight", *(old + f"mlp.experts.{e}.{x}_proj.weight" for e in range(experts)))
    add("output_norm.weight", "model.norm.weight")
    add("output.weight", "lm_head.weight")

    def is_single(name):  # llama.cpp has norms and routers in single precision
        return "norm" in name or "gate_inp" in name

    for name, sources in parts:
        shape = t.shape(sources[0])
        if len(sources) > 1:
            shape = [len(sources)] + shape
        n = 1
        for d in shape:
            n *= d
        single = is_single(name)
        kind = gguf.GGMLQuantizationType.F32 if single else gguf.GGMLQuantizationType.BF16
        # A shape of bytes is what the writer takes for a dtype that NumPy does not have.
        given = shape if single else shape[:-1] + [2 * shape[-1]]
        w.add_tensor_info(name, given, np.dtype(np.float32 if single else np.uint8), n * (4 if single else 2), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_ti_data_to_file()
    for name, sources in parts:
        data = t.bytes(sources[0]) if len(sources) == 1 else np.concatenate([t.bytes(s) for s in sources])
        if is_single(name):
            data = (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        w.write_tensor_data(data)
    w.close()


def llama(path, a):
    import xllamacpp
    p = xllamacpp.CommonParams()
    p.model.path = path
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = os.cpu_count()
    p.n_ctx, p.n_parallel, p.verbosity, p.cache_prompt, p.warmup = 512, 1, -1, True, False
    server = xllamacpp.Server(p)
    rng = random.Random(1)
    walk, choices = given(a.tokens), given(a.choices)
    tokens, found = [], []

    def one():  # the prompt is cached but for its last token
        tokens.append(walk[len(tokens)] if walk else rng.randrange(300, 1000))
        answer = server.handle_completions({"prompt": tokens, "max_tokens": 1, "temperature": 0, "ignore_eos": True, "cache_prompt": True})
        if "timings" not in answer:
            raise SystemExit(f"llama.cpp: {answer}")
        found.append(answer["choices"][0]["text"] if "choices" in answer else answer["content"])

    def more():
        same = sum(f"w{c}" == f.strip() for f, c in zip(found, choices or []))
        return {"agreed": same / len(found)} if choices else {}

    a.sequences = 1
    measured(os.path.getsize(path), a, one, more)


def given(path):
    if not path:
        return None
    with open(path) as f:
        return json.load(f)


def accelerate(folder, a):
    import tempfile
    import torch
    from transformers import AutoModelForCausalLM
    torch.set_num_threads(os.cpu_count())
    with open(os.path.join(folder, "config.json")) as f:
        layers = json.load(f)["num_hidden_layers"]
    where = {"model.embed_tokens": "cpu", "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "disk"}
    where |= {f"model.layers.{i}": "disk" for i in range(layers)}
    with tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(folder))) as offload, torch.no_grad():
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, device_map=where, offload_folder=offload)
        measured(os.path.getsize(os.path.join(folder, "model.safetensors")), a, stepped(model, a.sequences))


def stepped(model, sequences):
    """A pass of a model of transformers: a random token of each sequence."""
    import torch
    torch.manual_seed(1)
    state = {"past": None}

    def one():
        ids = torch.randint(300, 1000, (sequences, 1))
        state["past"] = model(ids, past_key_values=state["past"], use_cache=True).past_key_values

    return one


def streaming(folder, shards):
    """AirLLM's model, of a folder that has no tokenizer."""
    import sys
    printed, sys.stdout = sys.stdout, sys.stderr  # it tells of itself
    try:
        from airllm.airllm_base import AirLLMBaseModel

        class Streaming(AirLLMBaseModel):
            def get_tokenizer(self, hf_token=None):
                return None

        return Streaming(folder, device="cpu", layer_shards_saving_path=shards)
    finally:
        sys.stdout = printed


def airllm(folder, shards, a):
    import torch
    torch.set_num_threads(os.cpu_count())
    with torch.no_grad():
        model = streaming(folder, shards)
        measured(os.path.getsize(os.path.join(folder, "model.safetensors")), a, stepped(model.model, a.sequences))


def main():
    a = argparse.ArgumentParser()
    a.add_argument("what", choices=["gguf", "llama", "accelerate", "split", "airllm"])
    a.add_argument("path")
    a.add_argument("into", nargs="?")
    a.add_argument("--passes", type=int, default=3)
    a.add_argument("--warm", type=int, default=1)
    a.add_argument("--sequences", type=int, default=1)
    a.add_argument("--seconds", type=float, default=480)
    a.add_argument("--tokens")
    a.add_argument("--choices")
    a = a.parse_args()
    if a.what == "gguf":
        to_gguf(a.path, a.into)
    elif a.what == "llama":
        llama(a.path, a)
    elif a.what == "split":
        streaming(a.path, a.into)
    elif a.what == "airllm":
        airllm(a.path, a.into, a)
    else:
        accelerate(a.path, a)


if __name__ == "__main__":
    main()
