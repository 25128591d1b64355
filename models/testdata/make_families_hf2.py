"""Records transformers models that see, hear, or read and write: as make_families_hf.py, which has the rest.

    python make_families_hf2.py                  everything
    python make_families_hf2.py vit t5           the references of some model types

families/hf/deit.json is config.json of the zoo's model hf/deit. families/hf/tiny_vit and tiny_dinov2 are folders as
save_pretrained writes them, with the names of weights that it has had for years, pixels.npy, and the logits that PyTorch
computes for them in logits.npy.
"""

import gzip
import os
import sys
import warnings

import numpy as np
import torch
import transformers as T

import make_families_hf as hf
import zoo_hash
import zoo_program
from zoo_hf import SEQ2SEQ, TEXT, VISION, padded
from zoo_spec import MODELS, In, ids, image, literal

DINO = {k: v for k, v in VISION.items() if k != "intermediate_size"} | {"image_size": 56}
BART = SEQ2SEQ
WHISPER = {k: v for k, v in SEQ2SEQ.items() if k != "max_position_embeddings"} | {
    "num_mel_bins": 16, "max_source_positions": 20, "max_target_positions": 16}
T5 = dict(vocab_size=200, d_model=48, d_kv=12, d_ff=80, num_layers=2, num_heads=4, relative_attention_num_buckets=8,
          relative_attention_max_distance=16, decoder_start_token_id=0, use_cache=False)
CLIP_TEXT = TEXT | {"max_position_embeddings": 16, "eos_token_id": 199, "projection_dim": 24}
CLIP_VISION = VISION | {"projection_dim": 24}
CLIP = {"text_config": CLIP_TEXT, "vision_config": CLIP_VISION, "projection_dim": 24}
SIGLIP_TEXT = {k: v for k, v in TEXT.items() if k != "type_vocab_size"} | {"max_position_embeddings": 16, "num_hidden_layers": 1}
SIGLIP = {"text_config": SIGLIP_TEXT, "vision_config": VISION | {"num_hidden_layers": 1}}
PATCHED = {k: v for k, v in VISION.items() if k != "image_size"} | {"patch_size": 4, "num_patches": 16, "num_hidden_layers": 1}
SIGLIP2 = {"text_config": SIGLIP_TEXT, "vision_config": PATCHED}
EAGER = {"attn_implementation": "eager"}
LABELS = {"num_labels": 5}


def ended(b, s, end):
    """Tokens with an end in each row, followed by padding."""
    x = torch.arange(b * s).reshape(b, s) % 150 + 3
    for i in range(b):
        x[i, s - 1 - i % s:] = 0
        x[i, s - 1 - i % s] = end
    return literal(x)


def both(b, s, t, **more):
    return {"input_ids": ids(b, s), "decoder_input_ids": ids(b, t)} | more


def heard(b, t, **more):
    return {"input_features": In((b, 16, 40)), "decoder_input_ids": ids(b, t)} | more


def pixels(*shape):
    return {"pixel_values": image(*shape)}


def patches(sizes, most=None):
    """Pictures as patches, with a mask: so many in each direction, and padding to the most."""
    counts = [a * b for a, b in sizes]
    most = most or max(counts)
    mask = torch.tensor([[int(i < n) for i in range(most)] for n in counts])
    return {"pixel_values": image(len(sizes), most, 48), "pixel_attention_mask": literal(mask),
            "spatial_shapes": literal(torch.tensor(sizes))}


SEEN = [pixels(2, 3, 40, 40)]
PAIRS = [both(2, 9, 5), both(3, 23, 21, attention_mask=padded(3, 23), decoder_attention_mask=padded(3, 21))]
TOKENS = [{"input_ids": ended(2, 9, 199)}, {"input_ids": ended(3, 12, 199), "attention_mask": padded(3, 12)}]

HEADS = {
    "vit": [
        ("classes", "ViTForImageClassification", VISION | LABELS, SEEN),
        ("eager", "ViTModel", VISION | EAGER | {"qkv_bias": False, "hidden_act": "gelu_new", "pooler_output_size": 20}, SEEN),
        ("oblong", "ViTModel", VISION | {"image_size": [24, 40], "num_channels": 1}, [pixels(2, 1, 24, 40)]),
    ],
    "deit": [
        ("classes", "DeiTForImageClassification", VISION | LABELS, SEEN),
        ("teacher", "DeiTForImageClassificationWithTeacher", VISION | LABELS, SEEN),
    ],
    "dinov2": [
        ("classes", "Dinov2ForImageClassification", DINO | LABELS, [pixels(1, 3, 56, 56), pixels(2, 3, 33, 64)]),
        ("gated", "Dinov2Model", DINO | EAGER | {"use_swiglu_ffn": True, "qkv_bias": False}, [pixels(1, 3, 56, 56)]),
    ],
    "dinov3_vit": [
        ("registers", "DINOv3ViTModel", VISION | {"num_register_tokens": 3, "hidden_size": 64}, [pixels(2, 3, 40, 27), pixels(1, 3, 16, 16)]),
        ("gated", "DINOv3ViTModel", VISION | EAGER | {"use_gated_mlp": True, "hidden_act": "silu", "key_bias": True, "mlp_bias": False,
                                                      "query_bias": False, "rope_theta": 30.0}, [pixels(1, 3, 40, 40)]),
    ],
    "clip": [
        ("both", "CLIPModel", CLIP, [
            {"input_ids": ended(3, 9, 199)} | pixels(2, 3, 40, 40),
            {"input_ids": ended(2, 12, 199), "attention_mask": padded(2, 12)} | pixels(1, 3, 40, 40)]),
        ("first_end", "CLIPModel", CLIP | {"text_config": CLIP_TEXT | {"eos_token_id": 2}},
         [{"input_ids": ended(3, 9, 199)} | pixels(1, 3, 40, 40)]),
        ("classes", "CLIPForImageClassification", CLIP | LABELS, SEEN),
    ],
    "clip_text_model": [
        ("projected", "CLIPTextModelWithProjection", CLIP_TEXT, TOKENS),
        ("eager", "CLIPTextModel", CLIP_TEXT | EAGER | {"hidden_act": "gelu"}, TOKENS),
    ],
    "clip_vision_model": [
        ("projected", "CLIPVisionModelWithProjection", CLIP_VISION, SEEN),
        ("eager", "CLIPVisionModel", CLIP_VISION | EAGER | {"hidden_act": "gelu"}, SEEN),
    ],
    "siglip": [
        ("both", "SiglipModel", SIGLIP, [{"input_ids": ids(3, 9), "attention_mask": padded(3, 9)} | pixels(2, 3, 40, 40)]),
        ("classes", "SiglipForImageClassification", SIGLIP | LABELS, SEEN),
    ],
    "siglip_text_model": [("eager", "SiglipTextModel", SIGLIP_TEXT | EAGER | {"projection_size": 20}, [
        {"input_ids": ids(3, 9), "attention_mask": padded(3, 9)}])],
    "siglip_vision_model": [
        ("pooled", "SiglipVisionModel", VISION, SEEN),
        ("bare", "SiglipVisionModel", VISION | EAGER | {"vision_use_head": False, "hidden_act": "gelu"}, SEEN),
    ],
    "siglip2": [
        ("both", "Siglip2Model", SIGLIP2, [{"input_ids": ids(2, 9)} | patches([[3, 5], [4, 2], [1, 1]])]),
        ("classes", "Siglip2ForImageClassification", SIGLIP2 | LABELS, [patches([[6, 7], [3, 2]])]),
    ],
    "siglip2_text_model": [("text", "Siglip2TextModel", SIGLIP_TEXT, [{"input_ids": ids(2, 5)}])],
    "siglip2_vision_model": [("pooled", "Siglip2VisionModel", PATCHED, [patches([[5, 3], [2, 6]])])],
    "t5": [
        ("base", "T5Model", T5, PAIRS),
        ("deeper", "T5ForConditionalGeneration", T5 | {"num_decoder_layers": 3, "feed_forward_proj": "gelu"}, PAIRS),
        ("gated", "T5ForConditionalGeneration", T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}, PAIRS),
        ("gated_silu", "T5EncoderModel", T5 | {"feed_forward_proj": "gated-silu"},
         [{"input_ids": ids(2, 37)}, {"input_ids": ids(3, 11), "attention_mask": padded(3, 11)}]),
    ],
    "bart": [
        ("base", "BartModel", BART, PAIRS + [{"input_ids": ids(2, 9)}]),
        ("scaled", "BartForConditionalGeneration", BART | {"scale_embedding": True, "activation_function": "relu"}, PAIRS),
        ("eager", "BartForConditionalGeneration", BART | EAGER, PAIRS),
        ("sequence", "BartForSequenceClassification", BART | LABELS, [
            {"input_ids": ended(3, 9, 2)}, {"input_ids": ended(2, 11, 2), "attention_mask": padded(2, 11)}]),
        ("spans", "BartForQuestionAnswering", BART, [{"input_ids": ids(2, 9)}]),
    ],
    "whisper": [
        ("base", "WhisperModel", WHISPER, [
            heard(2, 5), heard(3, 7, decoder_attention_mask=padded(3, 7)),
            heard(1, 4, decoder_position_ids=literal(torch.tensor([[3, 4, 5, 6]])))]),
        ("eager", "WhisperForConditionalGeneration", WHISPER | EAGER, [heard(2, 5)]),
        ("classes", "WhisperForAudioClassification", WHISPER | LABELS | {"classifier_proj_size": 20},
         [{"input_features": In((2, 16, 40))}]),
    ],
}


def fields(out, prefix=""):
    """What a model returned, by name; of a result within, with a dot."""
    named = {}
    for k, v in out.items():
        if isinstance(v, torch.Tensor):
            named[prefix + k] = v
        elif hasattr(v, "items"):
            named |= fields(v, prefix + k + ".")
    return named


def folder(name, model, shape):
    model = model.eval().requires_grad_(False)
    for key, p in model.named_parameters():
        p.copy_(zoo_hash.floats(key, tuple(p.shape), p.dtype, float("norm" in key or "lambda" in key), 0.3))
    path = os.path.join(hf.OUT, name)
    model.save_pretrained(path)
    x = zoo_hash.floats("input:pixel_values", shape, torch.float32, 0.0, 1.0)
    np.save(os.path.join(path, "pixels.npy"), x.numpy())
    np.save(os.path.join(path, "logits.npy"), model(x).logits.numpy())


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    hf.fields = fields
    some = sys.argv[1:]
    if not some:
        with open(os.path.join(hf.OUT, "deit.json"), "w") as f:
            f.write(hf.config_text(MODELS["hf", "deit"]().model))
        small = dict(hidden_size=8, num_hidden_layers=2, num_attention_heads=2, image_size=8, patch_size=4, num_labels=3)
        folder("tiny_vit", T.ViTForImageClassification(T.ViTConfig(intermediate_size=12, **small)), (2, 3, 8, 8))
        folder("tiny_dinov2", T.Dinov2ForImageClassification(
            T.Dinov2Config(mlp_ratio=2, use_swiglu_ffn=True, **small)), (2, 3, 8, 12))
    for kind in some or HEADS:
        hf.ref.SAMPLES = hf.samples(kind)
        records = []
        for name, cls, options, cases in HEADS[kind]:
            config, record = hf.reference(cls, options, cases)
            print(kind, name, [c["err64"] for c in record["cases"]], [o["name"] for o in record["cases"][0]["outputs"]])
            records.append({"name": name, "config": config, "reference": record})
        with open(os.path.join(hf.OUT, kind + ".heads.json.gz"), "wb") as f:
            f.write(gzip.compress(zoo_program.pack(records), 9, mtime=0))


if __name__ == "__main__":
    main()
