"""Writes the tensors of a GGUF file as BF16 or F32, all else as it is: what its codes stand for, or with --weights FOLDER those of that Llama.

    python benchmarks/float_gguf.py FILE.gguf bf16|f32 OUT.gguf [--weights FOLDER]
"""

import argparse
import json
import os

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize, quantize
from safetensors import safe_open

PARTS = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm",
         "ffn_norm": "post_attention_layernorm"}
ENDS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def of_folder(folder):
    """Returns what gives a tensor of a Llama's folder by its name in GGUF, where the rows of queries and keys lie in another order."""
    file = safe_open(os.path.join(folder, "model.safetensors"), "pt")
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}

    def tensor(name):
        at = name.split(".")
        if at[0] != "blk":
            return file.get_tensor(ENDS[at[0]] + ".weight").to(torch.float32).numpy()
        t = file.get_tensor(f"model.layers.{at[1]}.{PARTS[at[2]]}.weight").to(torch.float32)
        if n := heads.get(at[2]):
            t = t.reshape(n, 2, t.shape[0] // n // 2, -1).swapaxes(1, 2).reshape(t.shape)
        return t.numpy()
    return tensor


def main():
    p = argparse.ArgumentParser()
    for name in ("file", "kind", "out"):
        p.add_argument(name)
    p.add_argument("--weights")
    a = p.parse_args()
    read = GGUFReader(a.file)
    write = GGUFWriter(a.out, read.fields["general.architecture"].contents())
    for name, field in read.fields.items():
        if name == "general.file_type":
            write.add_file_type(32 if a.kind == "bf16" else 0)
        elif field.types[:1] == [GGUFValueType.ARRAY]:
            write.add_array(name, field.contents())
        elif not name.startswith("GGUF.") and name != "general.architecture":
            write.add_key_value(name, field.contents(), field.types[0])
    other = a.weights and of_folder(a.weights)
    for t in read.tensors:
        x = other(t.name) if other else dequantize(t.data, t.tensor_type).astype(np.float32)
        if a.kind == "f32" or x.ndim == 1:
            write.add_tensor(t.name, x)
        else:
            write.add_tensor(t.name, quantize(x, GGMLQuantizationType.BF16), raw_dtype=GGMLQuantizationType.BF16)
    write.write_header_to_file()
    write.write_kv_data_to_file()
    write.write_tensors_to_file()
    write.close()


if __name__ == "__main__":
    main()
