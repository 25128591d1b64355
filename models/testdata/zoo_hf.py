"""Architectures of the transformers library, two layers each and narrow."""

import torch
import transformers as T
from torch import nn
from torch.export import Dim

from zoo_spec import Case, In, Spec, ids, image, literal, model

AUTO = Dim.DYNAMIC
TEXT = dict(vocab_size=200, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)


def hf(name, config, cls, options, cases, dynamic=None, **kwargs):
    @model("hf", name)
    def spec():
        c = config(**options)
        m = cls(c)
        if getattr(m.config, "use_cache", False):
            m.config.use_cache = False
        text = f"transformers.{cls.__name__}({config.__name__}(" + ", ".join(
            f"{k}={v!r}" for k, v in options.items()) + "))"
        return Spec(m, cases, text, dynamic, **kwargs)


def tokens(*shapes, **more):
    return [Case((), {"input_ids": ids(*s)} | {k: f(*s) for k, f in more.items()}) for s in shapes]


def padded(b, s):
    """An attention mask with rows of different lengths."""
    mask = torch.ones(b, s, dtype=torch.int64)
    for i in range(b):
        mask[i, s - i % s:] = 0
    return literal(mask)


SEQ = {"input_ids": {0: AUTO, 1: AUTO}}
MASKED = {"input_ids": {0: AUTO, 1: AUTO}, "attention_mask": {0: AUTO, 1: AUTO}}


def causal(name, config, cls, dynamic=False, shapes=((2, 9),), drop=(), **more):
    options = {k: v for k, v in TEXT.items() if k not in drop} | more
    if dynamic:
        shapes = ((2, 9), (3, 13), (2, 5))
    hf(name, config, cls, options, tokens(*shapes), SEQ if dynamic else None)


hf("bert_mask", T.BertConfig, T.BertModel, TEXT, tokens((2, 9), (3, 12), attention_mask=padded), MASKED)
hf("distilbert", T.DistilBertConfig, T.DistilBertModel,
   dict(vocab_size=200, dim=48, hidden_dim=80, n_layers=2, n_heads=4, max_position_embeddings=64),
   tokens((2, 9), (4, 7)), SEQ)
hf("roberta", T.RobertaConfig, T.RobertaModel, TEXT | {"pad_token_id": 1}, tokens((2, 9)))
hf("electra", T.ElectraConfig, T.ElectraModel, TEXT | {"embedding_size": 24}, tokens((2, 9), attention_mask=padded))
hf("albert", T.AlbertConfig, T.AlbertModel, TEXT | {"embedding_size": 24}, tokens((2, 9)))
hf("deberta_v2", T.DebertaV2Config, T.DebertaV2Model,
   TEXT | {"relative_attention": True, "position_buckets": 8, "pos_att_type": ["p2c", "c2p"], "share_att_key": True,
           "norm_rel_ebd": "layer_norm", "max_relative_positions": 16}, tokens((2, 9)))
hf("modernbert", T.ModernBertConfig, T.ModernBertModel,
   TEXT | {"num_hidden_layers": 3, "local_attention": 8, "cls_token_id": 1, "sep_token_id": 2},
   tokens((2, 11), attention_mask=padded))

GPT2 = dict(vocab_size=200, n_embd=48, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2,
            attn_implementation="eager")  # with the fused attention run_decompositions() refuses a batch of 2
hf("gpt2", T.GPT2Config, T.GPT2LMHeadModel, GPT2, tokens((2, 9), (3, 13), (2, 5)), SEQ)
causal("llama", T.LlamaConfig, T.LlamaForCausalLM, True, num_key_value_heads=2)
