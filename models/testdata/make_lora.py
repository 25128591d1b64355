"""Records what Python's peft computes with LoRA adapters of tiny models: lora.json.gz.

    python make_lora.py

A list of adapters; of each `name`, `config` and `reference` as in families/hf/TYPE.heads.json.gz, where the cases are those with
the adapter; `adapter_config`, the text that peft saves; `tensors`, what is in its file, filled by hash as the model's weights
are; and for models that write, `runs`: prompts and the most likely tokens one after the other.
"""

import copy
import gzip
import json
import os
import tempfile
import warnings

import torch
import transformers as T
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict

import make_families_hf as hf
import zoo_hash
import zoo_program
import zoo_reference as ref
import zoo_weights
from zoo_hf import TEXT, VISION
from zoo_spec import ids, image

LLAMA = TEXT | {"num_key_value_heads": 2}
GPT2 = dict(vocab_size=200, n_embd=48, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2)
T5 = dict(vocab_size=200, d_model=48, d_kv=12, d_ff=80, num_layers=2, num_heads=4, relative_attention_num_buckets=8,
          relative_attention_max_distance=16, decoder_start_token_id=0, use_cache=False)
TOKENS = {"input_ids": ids(2, 9)}
BOTH = {"input_ids": ids(2, 9), "decoder_input_ids": ids(2, 5)}

ADAPTERS = [
    ("llama", "LlamaForCausalLM", LLAMA, TOKENS, dict(
        r=4, lora_alpha=16, target_modules=["q_proj", "v_proj", "down_proj"], rank_pattern={"layers.1.self_attn.q_proj": 6, "down_proj": 2},
        alpha_pattern={"v_proj": 6, "^model.layers.0.mlp.down_proj": 9})),
    ("llama_rslora", "LlamaForCausalLM", LLAMA | {"tie_word_embeddings": True}, TOKENS, dict(
        r=5, lora_alpha=3, use_rslora=True, target_modules="all-linear")),
    ("llama_dora", "LlamaForCausalLM", LLAMA | {"attention_bias": True}, TOKENS, dict(
        r=4, lora_alpha=6, use_dora=True, target_modules=["k_proj", "o_proj", "up_proj", "lm_head"])),
    ("llama_embedding", "LlamaForCausalLM", LLAMA, TOKENS, dict(
        r=3, lora_alpha=5, target_modules=["embed_tokens", "gate_proj"], modules_to_save=["lm_head", "model.norm"])),
    ("llama_layers", "LlamaModel", LLAMA, TOKENS, dict(
        r=2, lora_alpha=4, target_modules=["o_proj", "mlp.up_proj"], layers_to_transform=[1], layers_pattern="layers")),
    ("qwen3", "Qwen3ForCausalLM", LLAMA | {"head_dim": 16}, TOKENS, dict(
        r=4, lora_alpha=8, target_modules=r".*\.layers\.[01]\.(self_attn\.(q|o)_proj|mlp\.up_proj)", lora_bias=True,
        exclude_modules=["layers.1.self_attn.o_proj"])),
    ("gpt2", "GPT2LMHeadModel", GPT2, TOKENS, dict(
        r=4, lora_alpha=8, fan_in_fan_out=True, target_modules=["c_attn", "mlp.c_fc", "wpe"])),
    ("gpt2_dora", "GPT2LMHeadModel", GPT2, TOKENS, dict(
        r=4, lora_alpha=8, use_dora=True, use_rslora=True, fan_in_fan_out=True, target_modules=["c_proj"])),
    ("bert", "BertForSequenceClassification", TEXT | {"num_labels": 5}, TOKENS, dict(
        r=4, lora_alpha=8, task_type="SEQ_CLS", bias="lora_only", target_modules=["query", "value"])),
    ("bert_biases", "BertForSequenceClassification", TEXT | {"num_labels": 5}, TOKENS, dict(
        r=4, lora_alpha=8, task_type="SEQ_CLS", bias="all", target_modules=["attention.output.dense"])),
    ("vit", "ViTForImageClassification", VISION | {"num_labels": 5}, {"pixel_values": image(2, 3, 40, 40)}, dict(
        r=4, lora_alpha=8, target_modules="all-linear", modules_to_save=["classifier"])),
    ("t5", "T5ForConditionalGeneration", T5, BOTH, dict(
        r=4, lora_alpha=8, task_type="SEQ_2_SEQ_LM", target_modules=["q", "v", "wo"])),
]
PROMPTS, WRITTEN = 4, 24


def fill(model):
    """Fills an adapter by hash and returns the table of its tensors."""
    table, values = {}, {}
    for name, t in get_peft_model_state_dict(model).items():
        if ".original_module." in name or ".modules_to_save." in name:
            continue
        offset, scale = 0.0, 0.5
        if "magnitude" in name:
            offset, scale = float(t.mean()), float(t.mean()) / 3
        elif t.ndim > 1 and "embedding" not in name:
            scale = 1 / t.shape[1] ** 0.5
        elif "norm" in name:
            offset, scale = 1.0, 0.2
        e = {"dtype": "float32", "shape": list(t.shape), "offset": zoo_weights.round3(offset), "scale": zoo_weights.round3(scale)}
        table[name] = e
        values[name] = zoo_hash.floats(name, tuple(t.shape), torch.float32, e["offset"], e["scale"])
    return table, values


def written(model):
    """Prompts and what follows them."""
    runs = []
    for i in range(PROMPTS):
        prompt = zoo_hash.integers(f"prompt {i}", (5 + 7 * i,), torch.int64, 3, 200)
        tokens, gap = prompt, 1e9
        for _ in range(WRITTEN):
            with torch.no_grad():
                logits = model(input_ids=tokens[None]).logits[0, -1]
            top = logits.topk(2).values
            gap = min(gap, float(top[0] - top[1]))
            tokens = torch.cat([tokens, logits.argmax()[None]])
        assert gap > 1e-4, gap
        runs.append({"prompt": prompt.tolist(), "tokens": tokens[len(prompt):].tolist()})
    return runs


def record(name, cls, options, case, adapter):
    torch.manual_seed(0)
    base = getattr(T, cls)(getattr(T, cls).config_class(**options)).eval().requires_grad_(False)
    base.config.use_cache = False
    config = hf.config_text(base)
    weights = zoo_weights.Weights(base, {})
    values = hf.tensors(case)
    zoo_weights.calibrate(base, weights, (), values)
    before = hf.fields(ref.run(base, (), values))
    model = get_peft_model(copy.deepcopy(base), LoraConfig(**adapter)).eval().requires_grad_(False)
    tensors, filled = fill(model)
    set_peft_model_state_dict(model, filled)
    out = hf.fields(ref.run(model, (), values))
    wide = ref.doubled(model)
    high = hf.fields(ref.run(wide, (), ref.widen(values)))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        with open(os.path.join(folder, "adapter_config.json")) as f:
            text = f.read()
    err = max(ref.relative(high[k], v) for k, v in out.items())
    r = {"name": name, "config": config, "adapter_config": text, "tensors": tensors, "reference": {
        "torch": torch.__version__.split("+")[0], "model": f"transformers.{cls}", "weights": weights.entries,
        "cases": [{"inputs": {k: hf.described(d, values[k]) for k, d in case.items()},
                   "outputs": [ref.describe(k, v) for k, v in out.items()], "err64": float(f"{err:.2g}")}]}}
    if "CausalLM" in cls or "LMHead" in cls:
        r["runs"] = written(model)
    print(name, len(tensors), err, min(ref.relative(before[k], v) for k, v in out.items()))
    return r


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    records = [record(*a) for a in ADAPTERS]
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "lora.json.gz"), "wb") as f:
        f.write(gzip.compress(zoo_program.pack(records), 9, mtime=0))


if __name__ == "__main__":
    main()
