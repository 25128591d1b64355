"""Exports models with an older torch and has optimem run them: older.json. older.pt2 is such a program, whose input and output are there, too.

    OPTIMEM=bin/optimem python list_older.py               with torch 2.6, torchvision 0.21 and transformers 4.49
    OPTIMEM=bin/optimem python list_older.py resnet18      some, the others stay as they are

torchvision's models have random weights that let pictures through, those of transformers are tiny. Of each the
largest difference of its outputs from PyTorch's, as part of the largest value, or why there is none, as list_exports.py has it.
It stands alone, since the scripts beside it want newer libraries.
"""

import json
import os
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import torch
import torchvision
import transformers as T
from safetensors.numpy import load_file

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "older.json")
OPTIMEM = os.environ.get("OPTIMEM", "optimem")
PICTURES = """alexnet vgg11 resnet18 resnext50_32x4d densenet121 googlenet inception_v3 mobilenet_v2 mobilenet_v3_small shufflenet_v2_x0_5 squeezenet1_1
mnasnet0_5 efficientnet_b0 efficientnet_v2_s regnet_y_400mf convnext_tiny vit_b_32 swin_t swin_v2_t maxvit_t""".split()
SEGMENTED = ["deeplabv3_mobilenet_v3_large", "fcn_resnet50", "lraspp_mobilenet_v3_large"]
TEXT = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
DECODER = TEXT | {"num_key_value_heads": 2}
VISION = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8)
BART = dict(vocab_size=96, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
            encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=64)
TEXTS = [
    ("bert", "BertModel", TEXT), ("roberta", "RobertaForMaskedLM", TEXT), ("xlm-roberta", "XLMRobertaModel", TEXT),
    ("distilbert", "DistilBertModel", dict(vocab_size=96, dim=32, hidden_dim=48, n_layers=2, n_heads=4)),
    ("albert", "AlbertModel", TEXT | {"embedding_size": 16}), ("electra", "ElectraModel", TEXT), ("mpnet", "MPNetModel", TEXT),
    ("deberta-v2", "DebertaV2Model", TEXT | {"relative_attention": True, "position_buckets": 8}),
    ("modernbert", "ModernBertModel", TEXT | {"pad_token_id": 0}), ("gpt2", "GPT2LMHeadModel", dict(vocab_size=96, n_embd=32, n_layer=2, n_head=4)),
    ("opt", "OPTForCausalLM", dict(vocab_size=96, hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4, word_embed_proj_dim=32)),
    ("llama", "LlamaForCausalLM", DECODER), ("mistral", "MistralForCausalLM", DECODER), ("qwen2", "Qwen2ForCausalLM", DECODER),
    ("gemma2", "Gemma2ForCausalLM", DECODER | {"head_dim": 8}), ("phi3", "Phi3ForCausalLM", DECODER | {"pad_token_id": 0}),
    ("granite", "GraniteForCausalLM", DECODER), ("cohere", "CohereForCausalLM", DECODER | {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}),
    ("olmo2", "Olmo2ForCausalLM", DECODER), ("stablelm", "StableLmForCausalLM", DECODER), ("starcoder2", "Starcoder2ForCausalLM", DECODER),
    ("gpt_neox", "GPTNeoXForCausalLM", TEXT), ("falcon", "FalconForCausalLM", dict(vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)),
    ("bloom", "BloomForCausalLM", dict(vocab_size=96, hidden_size=32, n_layer=2, n_head=4)), ("mamba", "MambaForCausalLM", dict(vocab_size=96, hidden_size=32, num_hidden_layers=2)),
]
SEEN = [("vit", "ViTModel", VISION), ("dinov2", "Dinov2Model", {k: v for k, v in VISION.items() if k != "intermediate_size"}),
        ("siglip_vision", "SiglipVisionModel", VISION), ("clip_vision", "CLIPVisionModel", VISION)]
PAIRS = [("t5", "T5ForConditionalGeneration", dict(vocab_size=96, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0)),
         ("bart", "BartForConditionalGeneration", BART), ("marian", "MarianMTModel", BART | {"decoder_start_token_id": 1, "pad_token_id": 0})]


class Outputs(torch.nn.Module):
    """A model that returns tensors, of a model of transformers the first of its outputs."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, **inputs):
        out = self.model(*inputs.values()) if set(inputs) == {"x"} else self.model(**inputs)
        if isinstance(out, torch.Tensor):
            return (out,)
        return (next(v for v in out.values() if isinstance(v, torch.Tensor)),)


def reason(text):
    """The first line that says something, without addresses and places."""
    for line in text.strip().splitlines():
        line = line.strip().removeprefix("error: ")
        if line:
            return " ".join(line.split())[:140]
    return "nothing"


def tried(model, inputs):
    model = Outputs(model.float().eval().requires_grad_(False))
    want = [x.numpy() for x in model(**inputs)]
    with tempfile.TemporaryDirectory() as folder:
        at = lambda name: os.path.join(folder, name)  # noqa: E731
        try:
            torch.export.save(torch.export.export(model, (), inputs, strict=False), at("m.pt2"))
        except Exception as e:  # whatever it is, it is what is recorded
            return {"export": reason(f"{type(e).__name__}: {e}")}
        files = []
        for k, x in inputs.items():
            np.save(at(k + ".npy"), x.numpy())
            files += ["--input", f"{k}={at(k + '.npy')}"]
        done = subprocess.run([OPTIMEM, "run", at("m.pt2"), *files, "-o", at("out.safetensors"), "--quiet"], capture_output=True, text=True)
        if done.returncode:
            return {"run": reason(done.stderr.replace(folder + "/", ""))}
        got = list(load_file(at("out.safetensors")).values())
        if [g.shape for g in got] != [w.shape for w in want]:
            return {"run": "outputs of other shapes"}
        return {"err": float("%.1e" % max(np.abs(g.astype(np.float64) - w).max() / np.abs(w).max() for g, w in zip(got, want)))}


@torch.jit.script
def scale(x: torch.Tensor, factor: int):
    """As DeBERTa has one: a size that is asked for in a function that is scripted."""
    return torch.sqrt(torch.tensor(x.size(-1) * factor, dtype=torch.float))


class Small(torch.nn.Module):
    """A model that CI runs, with a size in a scripted function."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = torch.nn.Linear(6, 8), torch.nn.LayerNorm(8)

    def forward(self, x):
        h = torch.nn.functional.gelu(self.first(x))
        q = self.norm(h / scale(h, 3))
        y = torch.nn.functional.scaled_dot_product_attention(q, h, h)
        return y.reshape(x.shape[0], -1).softmax(-1)


def small():
    torch.manual_seed(0)
    model = Small().eval().requires_grad_(False)
    x = torch.rand(4, 5, 6)
    torch.export.save(torch.export.export(model, (x,), strict=False), os.path.join(os.path.dirname(PATH), "older.pt2"))
    return {"input": x.flatten().tolist(), "output": model(x).flatten().tolist()}


def of_torchvision(name, **more):
    model = torchvision.models.get_model(name, weights=None, **more)
    if name == "efficientnet_v2_s":
        return model  # PyTorch itself is 0.3 off with those weights
    for p in model.parameters():
        if p.ndim > 1:
            torch.nn.init.kaiming_normal_(p)
    return model


def of_transformers(cls, options):
    model = getattr(T, cls)(getattr(T, cls).config_class(**options))
    model.config.use_cache = False
    return model


def all_models():
    ids = (torch.arange(2 * 13) * 7 % 90 + 3).reshape(2, 13)
    picture = lambda n: {"x": torch.rand(2, 3, n, n, generator=torch.Generator().manual_seed(1))}  # noqa: E731
    for name in PICTURES:
        fixed = {"inception_v3": 299, "vit_b_32": 224, "maxvit_t": 224}
        yield name, lambda n=name: tried(of_torchvision(n), picture(fixed.get(n, 96)))
    for name in SEGMENTED:
        yield name, lambda n=name: tried(of_torchvision(n, weights_backbone=None), picture(96))
    for name, cls, options in TEXTS:
        yield name, lambda c=cls, o=options: tried(of_transformers(c, o), {"input_ids": ids})
    for name, cls, options in SEEN:
        yield name, lambda c=cls, o=options: tried(of_transformers(c, o), {"pixel_values": picture(32)["x"]})
    for name, cls, options in PAIRS:
        yield name, lambda c=cls, o=options: tried(of_transformers(c, o), {"input_ids": ids, "decoder_input_ids": ids[:, :5]})


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    fixture = small()
    have = {}
    if os.path.exists(PATH):
        with open(PATH) as f:
            have = json.load(f)["models"]
    for name, try_ in all_models():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        torch.manual_seed(0)
        try:
            have[name] = try_()
        except Exception as e:
            have[name] = {"export": reason(f"{type(e).__name__}: {e}")}
        print(name, have[name], flush=True)
        with open(PATH, "w") as f:
            json.dump({"torch": torch.__version__, "torchvision": torchvision.__version__, "transformers": T.__version__,
                       "small": fixture, "models": dict(sorted(have.items()))}, f, separators=(",", ":"))
            f.write("\n")


if __name__ == "__main__":
    main()
