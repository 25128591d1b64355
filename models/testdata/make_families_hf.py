"""Records transformers models for the folders' tests: configurations, and what PyTorch computes.

    python make_families_hf.py                   everything
    python make_families_hf.py bert llama        the references of some model types

families/hf/tiny_llama is a folder as save_pretrained writes it, in three shards, with ids.npy, and the logits that
PyTorch computes for them in logits.npy.
families/hf/defaults.json has, of every class with the configuration of its type's defaults, how many entries its state
dict has and the SHA-256 of their sorted lines, "name shape" with the sizes separated by commas.
families/hf/NAME.json is config.json of the zoo's model hf/NAME. families/hf/TYPE.heads.json.gz is a list of what the zoo
does not have: heads, masks, options; of each `name`, `config` and `reference`, which is as in README.md. The names of its
outputs are those of the fields of what the model returns, and the names of its weights those of its state dict.
"""

import gzip
import hashlib
import json
import math
import os
import sys
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "families", "hf")
sys.path.insert(0, HERE)

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers as T  # noqa: E402

import zoo_hash  # noqa: E402
import zoo_hf  # noqa: E402, F401
import zoo_program  # noqa: E402
import zoo_reference as ref  # noqa: E402
import zoo_weights  # noqa: E402
from zoo_build import described  # noqa: E402
from zoo_hf import TEXT, padded  # noqa: E402
from zoo_spec import MODELS, In, ids, literal  # noqa: E402

ZOO = ["bert_mask", "roberta", "distilbert", "gpt2", "opt", "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2",
       "phi3", "t5", "bart", "whisper-tiny", "vit", "dinov2", "clip_vision", "clip_text"]


def config_text(model):
    """The text that save_pretrained writes; and the attention where it is not the usual one, which it leaves out."""
    config = model.config
    config.architectures = [type(model).__name__]
    text = config.to_json_string(use_diff=True)
    if config._attn_implementation == "eager" and model._supports_sdpa:
        text = text.replace("{", '{\n  "attn_implementation": "eager",', 1)
    return text


def left_padded(b, s):
    """An attention mask whose rows begin later and later."""
    mask = torch.ones(b, s, dtype=torch.int64)
    for i in range(b):
        mask[i, :i % s] = 0
    return literal(mask)


def kinds(b, s):
    return ids(b, s, high=2)


def reversed_positions(b, s):
    return literal(torch.arange(s - 1, -1, -1).repeat(b, 1))


def packed_positions(b, s):
    """Two sequences in each row."""
    half = s // 2
    return literal(torch.cat([torch.arange(half), torch.arange(s - half)]).repeat(b, 1))


def case(b, s, **more):
    return {"input_ids": ids(b, s)} | {k: f(b, s) for k, f in more.items()}


PLAIN = [case(2, 9)]
MASKED = [case(3, 11, attention_mask=padded), case(1, 1)]
BERT = [case(2, 37, attention_mask=padded, token_type_ids=kinds), case(1, 9, position_ids=reversed_positions)]
CAUSAL = [case(2, 37), case(3, 11, attention_mask=padded), case(3, 7, attention_mask=left_padded),
          case(2, 9, position_ids=packed_positions)]
# Within a context of 16, and longer and longer beyond it: what one call changes in the model the next one changes again.
LONGER = [case(2, 9), case(1, 40), case(1, 45, position_ids=reversed_positions)]
STRETCHED = {"short_factor": [1.0, 1.1, 1.25, 1.5, 1.75, 2.0], "long_factor": [1.05, 1.5, 2.5, 4.0, 6.0, 9.5]}
LLAMA = TEXT | {"num_key_value_heads": 2}
DISTIL = dict(vocab_size=200, dim=48, hidden_dim=80, n_layers=2, n_heads=4, max_position_embeddings=64)
GPT2 = dict(vocab_size=200, n_embd=48, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2)
OPT = {k: v for k, v in TEXT.items() if k != "intermediate_size"} | {"ffn_dim": 80, "word_embed_proj_dim": 48}
ROBERTA = TEXT | {"pad_token_id": 1}
ELECTRA = TEXT | {"num_hidden_layers": 1, "embedding_size": 24}
DEBERTA = {k: v for k, v in TEXT.items() if k != "type_vocab_size"} | {
    "relative_attention": True, "position_buckets": 8, "norm_rel_ebd": "layer_norm", "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"], "position_biased_input": False, "max_position_embeddings": 40, "num_hidden_layers": 2}
MPNET = {k: v for k, v in TEXT.items() if k != "type_vocab_size"} | {"pad_token_id": 1}
MODERN = TEXT | {"num_hidden_layers": 4, "local_attention": 12, "pad_token_id": 3, "cls_token_id": 4, "sep_token_id": 5,
                 "bos_token_id": 4, "eos_token_id": 5}
FEWER = MODERN | {"num_hidden_layers": 2}
ALBERT = TEXT | {"embedding_size": 24, "num_hidden_layers": 2}
LABELS = {"num_labels": 5}
# Families of whose outputs a few values are recorded: the repository has a bound.
FEW = ("deberta-v2", "siglip", "dinov3")


def rope(kind, **more):
    return {"rope_parameters": {"rope_theta": 10000.0, "rope_type": kind} | more}


# model type -> name, class, options, cases
HEADS = {
    "bert": [
        ("masked_lm", "BertForMaskedLM", TEXT, BERT),
        ("masked_lm_untied", "BertForMaskedLM", TEXT | {"tie_word_embeddings": False}, PLAIN),
        ("decoder", "BertLMHeadModel", TEXT | {"is_decoder": True}, MASKED),
        ("pretraining", "BertForPreTraining", TEXT, MASKED),
        ("next_sentence", "BertForNextSentencePrediction", TEXT, MASKED),
        ("sequence", "BertForSequenceClassification", TEXT | LABELS, BERT),
        ("token", "BertForTokenClassification", TEXT | LABELS, MASKED),
        ("spans", "BertForQuestionAnswering", TEXT, MASKED),
        ("eager_relu", "BertModel", TEXT | {"hidden_act": "relu", "attn_implementation": "eager"}, BERT),
        ("gelu_new", "BertModel", TEXT | {"hidden_act": "gelu_new", "type_vocab_size": 3}, PLAIN),
        ("gelu_fast", "BertModel", TEXT | {"hidden_act": "gelu_fast", "layer_norm_eps": 1e-3}, PLAIN),
        ("quick_gelu", "BertModel", TEXT | {"hidden_act": "quick_gelu"}, PLAIN),
    ],
    "roberta": [
        ("masked", "RobertaModel", ROBERTA, BERT),
        ("masked_lm", "RobertaForMaskedLM", ROBERTA, MASKED),
        ("causal", "RobertaForCausalLM", ROBERTA | {"is_decoder": True}, MASKED),
        ("sequence", "RobertaForSequenceClassification", ROBERTA | LABELS, MASKED),
        ("token", "RobertaForTokenClassification", ROBERTA | LABELS, MASKED),
        ("spans", "RobertaForQuestionAnswering", ROBERTA, MASKED),
    ],
    "xlm-roberta": [("masked_lm", "XLMRobertaForMaskedLM", ROBERTA, [case(3, 11, attention_mask=padded)])],
    "albert": [
        ("masked_lm", "AlbertForMaskedLM", TEXT | {
            "embedding_size": 24, "num_hidden_layers": 5, "num_hidden_groups": 2, "inner_group_num": 2},
         [case(2, 11, attention_mask=padded)]),
        ("texts", "AlbertForSequenceClassification", ALBERT | {"num_labels": 3}, [case(2, 11, attention_mask=padded)]),
        ("tokens", "AlbertForTokenClassification", ALBERT | LABELS, [case(1, 9)]),
        ("spans", "AlbertForQuestionAnswering", ALBERT, [case(1, 9)]),
    ],
    "electra": [
        ("replaced", "ElectraForPreTraining", ELECTRA, [case(2, 23, attention_mask=padded, token_type_ids=kinds)]),
        ("texts", "ElectraForSequenceClassification", ELECTRA | {"num_labels": 3, "embedding_size": 48, "hidden_act": "relu"}, [case(2, 9)]),
        ("tokens", "ElectraForTokenClassification", ELECTRA | {"num_labels": 5}, [case(1, 9, position_ids=reversed_positions)]),
        ("spans", "ElectraForQuestionAnswering", ELECTRA, [case(2, 9)]),
    ],
    "deberta-v2": [  # as version 3 has it, as version 2's largest has it, and with neither
        ("masked", "DebertaV2Model", DEBERTA, [case(2, 37, attention_mask=padded), case(1, 9)]),
        ("masked_lm", "DebertaV2ForMaskedLM", DEBERTA | {
            "conv_kernel_size": 3, "conv_act": "gelu", "share_att_key": False, "pos_att_type": "c2p|p2c", "norm_rel_ebd": "none",
            "position_buckets": -1, "max_relative_positions": 7, "embedding_size": 24, "position_biased_input": True,
            "type_vocab_size": 2},
         [case(2, 11, attention_mask=padded, token_type_ids=kinds), case(1, 5, position_ids=reversed_positions)]),
        ("masked_lm_new", "DebertaV2ForMaskedLM", DEBERTA | {"legacy": False, "pos_att_type": ["p2c"]}, [case(1, 23)]),
        ("sequence", "DebertaV2ForSequenceClassification", DEBERTA | {"num_labels": 3, "pos_att_type": ["c2p"]},
         [case(2, 13, attention_mask=padded)]),
        ("token", "DebertaV2ForTokenClassification", DEBERTA | LABELS | {"relative_attention": False}, [case(2, 9, attention_mask=padded)]),
        ("spans", "DebertaV2ForQuestionAnswering", DEBERTA, [case(1, 9)]),
    ],
    "mpnet": [
        ("masked", "MPNetModel", MPNET, [case(2, 37, attention_mask=padded)]),
        ("masked_lm", "MPNetForMaskedLM", MPNET, [case(1, 1, position_ids=reversed_positions)]),
        ("texts", "MPNetForSequenceClassification", MPNET | {"num_labels": 1}, [case(2, 11, attention_mask=padded)]),
        ("tokens", "MPNetForTokenClassification", MPNET | LABELS, [case(1, 9)]),
        ("spans", "MPNetForQuestionAnswering", MPNET, [case(1, 9)]),
    ],
    "modernbert": [
        ("masked", "ModernBertModel", MODERN, [case(2, 37, attention_mask=padded)]),
        ("masked_lm", "ModernBertForMaskedLM", MODERN | {
            "norm_bias": True, "attention_bias": True, "mlp_bias": True, "classifier_bias": True, "decoder_bias": False,
            "local_attention": 5, "layer_types": ["sliding_attention", "full_attention"], "num_hidden_layers": 2,
            "attn_implementation": "eager",
            "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0},
                                "sliding_attention": {"rope_type": "default", "rope_theta": 90.0}}},
         [case(3, 11, attention_mask=padded, position_ids=reversed_positions)]),
        ("first", "ModernBertForSequenceClassification", FEWER | {"num_labels": 1}, [case(2, 11, attention_mask=padded)]),
        ("mean", "ModernBertForSequenceClassification", FEWER | {"classifier_pooling": "mean", "classifier_bias": True},
         [case(2, 11, attention_mask=padded), case(1, 9)]),
        ("tokens", "ModernBertForTokenClassification", FEWER | LABELS, [case(1, 9)]),
        ("spans", "ModernBertForQuestionAnswering", FEWER, [case(1, 9)]),
    ],
    "distilbert": [
        ("masked", "DistilBertModel", DISTIL, [case(2, 37, attention_mask=padded)]),
        ("masked_lm", "DistilBertForMaskedLM", DISTIL, MASKED),
        ("sequence", "DistilBertForSequenceClassification", DISTIL | LABELS, MASKED),
        ("token", "DistilBertForTokenClassification", DISTIL | LABELS, MASKED),
        ("spans", "DistilBertForQuestionAnswering", DISTIL, MASKED),
        ("eager", "DistilBertModel", DISTIL | {"attn_implementation": "eager", "activation": "relu"}, MASKED),
    ],
    "gpt2": [
        ("base", "GPT2Model", GPT2, CAUSAL + [case(2, 9, token_type_ids=kinds)]),
        ("causal", "GPT2LMHeadModel", GPT2 | {"scale_attn_by_inverse_layer_idx": True, "n_inner": 100}, MASKED),
        ("unscaled", "GPT2LMHeadModel", GPT2 | {"scale_attn_weights": False, "activation_function": "relu"}, PLAIN),
        ("sequence", "GPT2ForSequenceClassification", GPT2 | LABELS | {"pad_token_id": 3}, MASKED),
        ("sequence_unpadded", "GPT2ForSequenceClassification", GPT2 | LABELS, [case(1, 9)]),
        ("token", "GPT2ForTokenClassification", GPT2 | LABELS, MASKED),
        ("spans", "GPT2ForQuestionAnswering", GPT2, MASKED),
    ],
    "opt": [
        ("base", "OPTModel", OPT, CAUSAL),
        ("projected", "OPTForCausalLM", OPT | {"word_embed_proj_dim": 24, "do_layer_norm_before": False}, MASKED),
        ("bare", "OPTForCausalLM", OPT | {"enable_bias": False, "layer_norm_elementwise_affine": False,
                                          "activation_function": "gelu", "attn_implementation": "eager"}, MASKED),
        ("sequence", "OPTForSequenceClassification", OPT | LABELS, MASKED),
        ("spans", "OPTForQuestionAnswering", OPT, MASKED),
    ],
    "llama": [
        ("base", "LlamaModel", LLAMA, CAUSAL),
        ("eager", "LlamaForCausalLM", LLAMA | {"attn_implementation": "eager"}, MASKED),
        ("tied_biased", "LlamaForCausalLM",
         LLAMA | {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True, "head_dim": 16}, MASKED),
        ("ungrouped", "LlamaForCausalLM", TEXT | {"rms_norm_eps": 1e-5, "hidden_act": "gelu"}, PLAIN),
        ("sequence", "LlamaForSequenceClassification", LLAMA | LABELS, MASKED),
        ("token", "LlamaForTokenClassification", LLAMA | LABELS, MASKED),
        ("spans", "LlamaForQuestionAnswering", LLAMA, MASKED),
        ("rope_theta", "LlamaModel", LLAMA | {"head_dim": 32} | rope("default", rope_theta=500000.0), CAUSAL[:1]),
        ("rope_linear", "LlamaModel", LLAMA | rope("linear", factor=4.0), CAUSAL[:1]),
        ("rope_llama3", "LlamaModel", LLAMA | {"head_dim": 32} | rope(
            "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32),
         CAUSAL[:1]),
        ("rope_yarn", "LlamaModel", LLAMA | {"head_dim": 32} | rope(
            "yarn", factor=4.0, original_max_position_embeddings=16), CAUSAL[:1]),
        ("rope_dynamic", "LlamaModel", LLAMA | {"max_position_embeddings": 16} | rope("dynamic", factor=1.7), LONGER),
        ("rope_longrope", "LlamaModel", LLAMA | rope(
            "longrope", factor=4.0, original_max_position_embeddings=16, **STRETCHED), LONGER),
    ],
    "mistral": [
        ("base", "MistralModel", LLAMA | {"sliding_window": 5}, CAUSAL),
        ("full", "MistralForCausalLM", LLAMA | {"sliding_window": None}, MASKED),
        ("sequence", "MistralForSequenceClassification", LLAMA | LABELS, MASKED),
        ("token", "MistralForTokenClassification", LLAMA | LABELS, MASKED),
        ("spans", "MistralForQuestionAnswering", LLAMA, MASKED),
    ],
    "qwen2": [
        ("sliding", "Qwen2Model", LLAMA | {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}, CAUSAL),
        ("tied", "Qwen2ForCausalLM", LLAMA | {"tie_word_embeddings": True}, MASKED),
        ("sequence", "Qwen2ForSequenceClassification", LLAMA | LABELS, MASKED),
        ("token", "Qwen2ForTokenClassification", LLAMA | LABELS, MASKED),
        ("spans", "Qwen2ForQuestionAnswering", LLAMA, MASKED),
    ],
    "qwen3": [
        ("base", "Qwen3Model", LLAMA | {"head_dim": 16, "attention_bias": True}, CAUSAL),
        ("sliding", "Qwen3ForCausalLM", LLAMA | {
            "head_dim": 16, "use_sliding_window": True, "sliding_window": 4,
            "layer_types": ["sliding_attention", "full_attention"]}, MASKED),
        ("sequence", "Qwen3ForSequenceClassification", LLAMA | LABELS, MASKED),
        ("token", "Qwen3ForTokenClassification", LLAMA | LABELS, MASKED),
        ("spans", "Qwen3ForQuestionAnswering", LLAMA, MASKED),
    ],
    "gemma": [
        ("base", "GemmaModel", LLAMA | {"head_dim": 16}, CAUSAL),
        ("causal", "GemmaForCausalLM", LLAMA | {"head_dim": 16}, MASKED),
        ("sequence", "GemmaForSequenceClassification", LLAMA | LABELS | {"head_dim": 16}, MASKED),
        ("token", "GemmaForTokenClassification", LLAMA | LABELS | {"head_dim": 16}, MASKED),
    ],
    "gemma2": [
        ("base", "Gemma2Model", LLAMA | {"head_dim": 16, "sliding_window": 5, "query_pre_attn_scalar": 24}, CAUSAL),
        ("unbounded", "Gemma2ForCausalLM", LLAMA | {
            "head_dim": 16, "attn_logit_softcapping": None, "final_logit_softcapping": None}, MASKED),
        ("sequence", "Gemma2ForSequenceClassification", LLAMA | LABELS | {"head_dim": 16}, MASKED),
        ("token", "Gemma2ForTokenClassification", LLAMA | LABELS | {"head_dim": 16}, MASKED),
    ],
    "phi3": [
        ("base", "Phi3Model", LLAMA | {"sliding_window": 5}, CAUSAL),
        ("partial", "Phi3ForCausalLM", LLAMA | rope("default", partial_rotary_factor=0.5), MASKED),
        ("longrope", "Phi3ForCausalLM", LLAMA | {"original_max_position_embeddings": 16} | rope("longrope", **STRETCHED),
         LONGER),
        ("sequence", "Phi3ForSequenceClassification", LLAMA | LABELS, MASKED),
        ("token", "Phi3ForTokenClassification", LLAMA | LABELS, MASKED),
    ],
}


def tensors(c):
    return {k: v.tensor(k) if isinstance(v, In) else v for k, v in c.items()}


def fields(out):
    """What a model returned, by name."""
    return {k: v for k, v in out.items() if isinstance(v, torch.Tensor)}


def finite(x):
    """None where a row that sees no token is what the smallest number of the dtype makes of it."""
    return float(f"{x:.2g}") if math.isfinite(x) else None


def reference(cls, options, cases):
    torch.manual_seed(0)
    model = getattr(T, cls)(getattr(T, cls).config_class(**options)).eval().requires_grad_(False)
    model.config.use_cache = False
    config = config_text(model)
    weights = zoo_weights.Weights(model, {})
    state = ref.fresh(model)
    zoo_weights.calibrate(model, weights, (), tensors(cases[0]))
    ref.restore(model, {k: v for k, v in state.items() if "offset" not in weights.entries.get(k, {})})  # others are hashed
    wide = ref.doubled(model)
    records = []
    for c in cases:
        values = tensors(c)
        out, high = fields(ref.run(model, (), values)), fields(ref.run(wide, (), ref.widen(values)))
        records.append({
            "inputs": {k: described(d, values[k]) for k, d in c.items()},
            "outputs": [ref.describe(k, v) for k, v in out.items()],
            "err64": finite(max(ref.relative(high[k], v) for k, v in out.items())),
        })
    return config, {"torch": torch.__version__.split("+")[0], "model": f"transformers.{cls}",
                    "weights": weights.entries, "cases": records}


def samples(kind):
    return 48 if kind.startswith(FEW) else 256


def folder():
    torch.manual_seed(0)
    config = T.LlamaConfig(vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
                           num_key_value_heads=1, max_position_embeddings=32, use_cache=False)
    model = T.LlamaForCausalLM(config).eval().requires_grad_(False)
    for name, p in model.named_parameters():
        p.copy_(zoo_hash.floats(name, tuple(p.shape), p.dtype, float(p.ndim < 2), 0.4 if p.ndim > 1 else 0.1))
    path = os.path.join(OUT, "tiny_llama")
    model.save_pretrained(path, max_shard_size="5KB")
    os.remove(os.path.join(path, "generation_config.json"))
    tokens = zoo_hash.integers("input:input_ids", (2, 7), torch.int64, 0, 32)
    np.save(os.path.join(path, "ids.npy"), tokens.numpy())
    np.save(os.path.join(path, "logits.npy"), model(tokens).logits.numpy())


def defaults(heads, copies, name):
    found = {}
    classes = {kind: {cls for _, cls, _, _ in models} for kind, models in heads.items()}
    for kind in classes.keys() | copies.keys():
        for cls in classes.get(kind, set()).union(copies.get(kind, [])):
            with torch.device("meta"):
                model = getattr(T, cls)(getattr(T, cls).config_class())
            lines = sorted(f"{k} {','.join(map(str, v.shape))}\n" for k, v in model.state_dict().items())
            found.setdefault(kind, {})[cls] = [len(lines), hashlib.sha256("".join(lines).encode()).hexdigest()]
    with open(os.path.join(OUT, name), "w") as f:
        json.dump(found, f, indent=1, sort_keys=True)


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.makedirs(OUT, exist_ok=True)
    some = sys.argv[1:]
    for name in ZOO if not some else []:
        with open(os.path.join(OUT, name + ".json"), "w") as f:
            f.write(config_text(MODELS["hf", name]().model))
    if not some:
        folder()
        defaults(HEADS, {"camembert": ["CamembertModel", "CamembertForMaskedLM"], "xlm-roberta": ["XLMRobertaModel"],
                         "albert": ["AlbertModel"], "electra": ["ElectraModel"]}, "defaults.json")
    for kind in some or HEADS:
        ref.SAMPLES = samples(kind)
        records = []
        for name, cls, options, cases in HEADS[kind]:
            config, record = reference(cls, options, cases)
            print(kind, name, [c["err64"] for c in record["cases"]], [o["name"] for o in record["cases"][0]["outputs"]])
            records.append({"name": name, "config": config, "reference": record})
        with open(os.path.join(OUT, kind + ".heads.json.gz"), "wb") as f:
            f.write(gzip.compress(zoo_program.pack(records), 9, mtime=0))


if __name__ == "__main__":
    main()
