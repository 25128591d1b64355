"""Writes torchao.bin.gz: the pytorch_model.bin of a small Llama whose linear layers are torchao's, as save_pretrained and torch.save write them.

    pip install torch torchao && python make_torchao.py

Recorded with torchao 0.18 and torch 2.15. The test knows the codes and scales, and computes the numbers.
"""

import collections
import gzip
import io

import torch
from torchao.quantization import Int8Tensor


def linear(rows, columns):
    r, c = torch.arange(rows)[:, None], torch.arange(columns)[None]
    q = ((r * 7 + c * 3) % 251 - 125).to(torch.int8)
    scale = (torch.arange(rows)[:, None] + 1).float() / 1024
    return Int8Tensor(q, scale, [1, columns], torch.bfloat16, zero_point=torch.zeros(rows, 1, dtype=torch.int8))


def plain(*shape):
    return torch.linspace(-1, 1, shape[0])[:, None].expand(shape).contiguous().to(torch.bfloat16) if len(shape) == 2 else torch.ones(shape, dtype=torch.bfloat16)


state = collections.OrderedDict({"model.embed_tokens.weight": plain(32, 32), "model.norm.weight": plain(32), "lm_head.weight": plain(32, 32)})
layer = "model.layers.0."
for name in ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]:
    state[f"{layer}{name}.weight"] = linear(32, 32)
for name in ["input_layernorm", "post_attention_layernorm"]:
    state[f"{layer}{name}.weight"] = plain(32)
file = io.BytesIO()
torch.save(state, file)
with open("torchao.bin.gz", "wb") as f:
    f.write(gzip.compress(file.getvalue(), 9, mtime=0))
