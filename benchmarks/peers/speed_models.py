"""The models of the speed comparison, with seeded random weights: one place that says what each is, for every engine.

    python speed_models.py NAME FOLDER

writes NAME.pt2 (torch.export, which optimem reads), NAME.onnx, NAME.inputs.safetensors and what a pass costs, NAME.json,
into FOLDER. A name is a
model, @ and its batch: resnet50@8; language models have .decode for one token after 128, .bf16 for bfloat16.
"""

import json
import os
import sys

import torch
from torch.utils.flop_counter import FlopCounterMode

CONTEXT = 128  # tokens of a prefill, and those before a decoded one


def vision(name, size=224):
    def make(batch, dtype):
        import torchvision

        model = torchvision.models.get_model(name, weights=None)
        return model, [torch.rand(batch, 3, size, size)]

    return make


class Prefill(torch.nn.Module):
    """The logits of the last token, which is what a prefill is for."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(ids, use_cache=False, logits_to_keep=1).logits


class Decode(torch.nn.Module):
    """One token, with keys and values of the tokens before it as inputs and the grown ones as outputs."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, *past):
        from transformers.cache_utils import DynamicCache

        cache = DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        out = self.model(ids, past_key_values=cache, use_cache=True)
        grown = [t for layer in out.past_key_values.layers for t in (layer.keys, layer.values)]
        return (out.logits, *grown)


class Hidden(torch.nn.Module):
    """The last hidden state of an encoder."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(ids).last_hidden_state


def language(config, kind, mode):
    def make(batch, dtype):
        import transformers

        c = config(transformers)
        model = getattr(transformers, kind)(c).to(dtype)
        vocabulary = c.vocab_size
        if mode == "encode":
            return Hidden(model), [torch.randint(0, vocabulary, (batch, CONTEXT))]
        if mode == "prefill":
            return Prefill(model), [torch.randint(0, vocabulary, (batch, CONTEXT))]
        heads = getattr(c, "num_key_value_heads", c.num_attention_heads)
        width = c.hidden_size // c.num_attention_heads
        past = [torch.randn(batch, heads, CONTEXT, width, dtype=dtype) for _ in range(2 * c.num_hidden_layers)]
        return Decode(model), [torch.randint(0, vocabulary, (batch, 1)), *past]

    return make


def gpt2(t):
    return t.GPT2Config(attn_implementation="sdpa")


def llama(t):  # TinyLlama's size, 1.1 billion parameters
    return t.LlamaConfig(
        hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32, num_key_value_heads=4,
        max_position_embeddings=2048, attn_implementation="sdpa",
    )


MODELS = {
    "resnet101-512": vision("resnet101", 512),
    **{
        name: vision(name)
        for name in (
            "resnet18", "resnet50", "vgg16", "mobilenet_v3_large", "efficientnet_b0", "regnet_y_400mf", "convnext_tiny",
            "vit_b_16", "swin_t",
        )
    },
    "bert": language(lambda t: t.BertConfig(attn_implementation="sdpa"), "BertModel", "encode"),
    "t5": language(lambda t: t.T5Config.from_dict({"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8}),
                   "T5EncoderModel", "encode"),
    "gpt2": language(gpt2, "GPT2LMHeadModel", "prefill"),
    "gpt2.decode": language(gpt2, "GPT2LMHeadModel", "decode"),
    "llama1b.decode": language(llama, "LlamaForCausalLM", "decode"),
}


def make(name):
    """Returns the model, ready for inference, and its inputs."""
    kind, _, batch = name.partition("@")
    dtype = torch.float32
    if kind.endswith(".bf16"):
        kind, dtype = kind[: -len(".bf16")], torch.bfloat16
    torch.manual_seed(7)
    model, inputs = MODELS[kind](int(batch or 1), dtype)
    return model.eval(), inputs


def export(name, folder):
    from safetensors.torch import save_file

    model, inputs = make(name)
    path = os.path.join(folder, name)
    with torch.inference_mode(), torch.no_grad():
        program = torch.export.export(model, tuple(inputs), strict=False)
        torch.export.save(program, path + ".pt2")
        # Names in the order of the arguments.
        save_file({f"{i:03d}": x.contiguous() for i, x in enumerate(inputs)}, path + ".inputs.safetensors")
        # The fast path of attention is one op that the counter does not know.
        torch.backends.mha.set_fastpath_enabled(False)
        with FlopCounterMode(display=False) as counter:
            model(*inputs)
        torch.backends.mha.set_fastpath_enabled(True)
        weights = sum(p.numel() * p.element_size() for p in model.parameters())
        with open(path + ".json", "w") as f:
            json.dump({"flops": counter.get_total_flops(), "weight_bytes": weights}, f)
        try:
            torch.onnx.export(
                model, tuple(inputs), path + ".onnx", dynamo=True, external_data=True, verbose=False, optimize=True
            )
        except Exception as e:  # what one exporter cannot do is a gap in the table, not the end of it
            print(f"{name}: no ONNX: {type(e).__name__}: {str(e)[:200]}", file=sys.stderr)


if __name__ == "__main__":
    export(sys.argv[1], sys.argv[2])
