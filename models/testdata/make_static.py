"""Writes static.pt2 and static_core.pt2: a language model as transformers exports it with its cache, which each call changes, and
static.json: the logits of a text that PyTorch gave token by token.

    python make_static.py

static.pt2 changes the cache in place, as torch.export gives it; static_core.pt2 says what it becomes, as run_decompositions does.
Both are of the newest PyTorch of their day.
"""

import io
import json
import pathlib
import warnings
import zipfile

import torch
import transformers as T
from transformers.integrations.executorch import convert_and_export_with_cache

FOLDER = pathlib.Path(__file__).parent
TEXT = [3, 7, 9, 11, 30, 2, 2, 5, 19, 23, 8, 1]


def save(program, name, kept=()):
    """The archive, without what only the machine that exported knows."""
    raw = io.BytesIO()
    torch.export.save(program, raw)
    with zipfile.ZipFile(raw) as old, zipfile.ZipFile(FOLDER / name, "w") as new:
        for record in old.namelist():
            data = old.read(record)
            if record.endswith("model.json"):
                program = json.loads(data)
                for node in program["graph_module"]["graph"]["nodes"]:
                    node["metadata"] = {k: v for k, v in node["metadata"].items() if k in kept}
                data = json.dumps(program, separators=(",", ":")).encode()
            text = record.endswith(".json")
            how = zipfile.ZIP_DEFLATED if text else zipfile.ZIP_STORED  # weights are read where they lie
            new.writestr(zipfile.ZipInfo(record, (1980, 1, 1, 0, 0, 0)), data, how, 9 if text else None)


def main():
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    config = T.LlamaConfig(vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
                           num_key_value_heads=1, max_position_embeddings=64, pad_token_id=0)
    config._attn_implementation = "sdpa"
    model = T.LlamaForCausalLM(config).eval().requires_grad_(False)
    model.generation_config = T.GenerationConfig(
        use_cache=True, cache_implementation="static", max_length=16, cache_config={"batch_size": 1, "max_cache_len": 16},
        eos_token_id=2, pad_token_id=0)
    program = convert_and_export_with_cache(
        model, example_input_ids=torch.tensor([[3]]), example_cache_position=torch.tensor([0]), strict=True)
    save(program, "static.pt2", ("nn_module_stack",))
    save(program.run_decompositions({}), "static_core.pt2")
    step = program.module()
    logits = [step(input_ids=torch.tensor([[t]]), cache_position=torch.tensor([i]))[0, 0] for i, t in enumerate(TEXT)]
    whole = model(torch.tensor([TEXT]), use_cache=False).logits[0]
    assert (torch.stack(logits) - whole).abs().max() < 1e-5
    with open(FOLDER / "static.json", "w") as f:
        f.write(json.dumps({"torch": torch.__version__, "text": TEXT, "logits": [
            [float("%.7g" % x) for x in row[:8]] for row in torch.stack(logits).tolist()]}) + "\n")


if __name__ == "__main__":
    main()
