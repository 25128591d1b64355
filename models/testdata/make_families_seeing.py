"""Records transformers models of pictures and texts: as make_families_hf.py, which has the rest.

    python make_families_seeing.py                  everything
    python make_families_seeing.py llava            the references of some model types

Records of models whose folders are taken for their text part have the class in `arch`, those of models that write of a picture
the tokens that transformers writes of the first picture of the first case in `caption`. `written` are those that it writes behind
each text of each case, with the pictures that are in it.
"""

import gzip
import os
import sys
import warnings

import torch

import make_families_hf as hf
import make_families_hf2 as hf2
import zoo_program
from zoo_hf import TEXT, VISION, padded
from zoo_spec import image, literal

ONE = {"num_hidden_layers": 1}
EYES = VISION | {"num_hidden_layers": 3, "model_type": "clip_vision_model"}
WORDS = {k: v for k, v in TEXT.items() if k != "type_vocab_size"} | {"num_key_value_heads": 2, "max_position_embeddings": 128, "model_type": "llama"}
LLAVA = {"text_config": WORDS, "vision_config": EYES, "image_token_index": 7}


def asked(patches, *pictures, **more):
    """Texts of 30 and so many pictures each, one token for each patch."""
    rows = torch.arange(len(pictures) * (30 + patches * max(pictures))).reshape(len(pictures), -1) % 150 + 20
    for row, n in zip(rows, pictures):
        row[3:3 + n * patches] = 7
    side = 40
    return {"input_ids": literal(rows), "pixel_values": image(sum(pictures), 3, side, side)} | more


def words(b, s):
    return {"input_ids": literal(torch.arange(b * s).reshape(b, s) % 150 + 20), "attention_mask": padded(b, s)}


HEADS = {
    "llava": [
        ("clip", "LlavaForConditionalGeneration", LLAVA, [asked(25, 1), asked(25, 2, 1), words(2, 9)]),
        ("siglip", "LlavaForConditionalGeneration", LLAVA | {
            "text_config": WORDS | {"model_type": "qwen2"}, "vision_config": EYES | {"model_type": "siglip_vision_model", "vision_use_head": False},
            "vision_feature_select_strategy": "full", "vision_feature_layer": -1, "projector_hidden_act": "relu",
            "tie_word_embeddings": True}, [asked(25, 1)]),
        ("several", "LlavaForConditionalGeneration", LLAVA | hf2.EAGER | {
            "text_config": WORDS | ONE, "vision_feature_layer": [-3, 1, -1], "multimodal_projector_bias": False}, [asked(25, 1)]),
    ],
}
HEADS |= {
    "chinese_clip": [("both", "ChineseCLIPModel", {
        "text_config": TEXT | ONE, "vision_config": VISION | ONE, "projection_dim": 24}, [
            words(2, 9) | {"pixel_values": image(3, 3, 40, 40), "token_type_ids": literal(torch.arange(18).reshape(2, 9) % 2)}])],
}
BLIP = {"text_config": TEXT | ONE | {"encoder_hidden_size": 48}, "vision_config": VISION | ONE, "projection_dim": 24}
HEADS |= {
    "blip": [
        ("written", "BlipForConditionalGeneration", BLIP, [{"pixel_values": image(2, 3, 40, 40)} | words(2, 9)]),
        ("both", "BlipModel", BLIP, [{"pixel_values": image(3, 3, 40, 40)} | words(2, 9)]),
    ],
}
PARTS = ("llava",)


def fields(out):
    """What a model returned, and of a LLaVA what stands for pictures."""
    named = hf2.fields(out)
    seen = out.get("image_outputs")
    if seen is not None:
        named = {"logits": out.logits, "image_features": torch.stack(list(seen.pooler_output))}
    return named


def caption(model, pixels):
    """What a model writes of a picture: the likeliest tokens, with the first one, whatever ends a text."""
    model.config.text_config.sep_token_id = None
    tokens = model.generate(pixels, max_length=24, do_sample=False, num_beams=1, output_logits=True, return_dict_in_generate=True)
    top = torch.stack([x[0] for x in tokens.logits]).topk(2).values
    print("gap", float((top[:, 0] - top[:, 1]).min()))
    return tokens.sequences[0].tolist()


def written(model, cases, token):
    """What a model writes behind texts with pictures: the likeliest tokens, whatever ends a text, and how sure it is."""
    rows, gap = [], float("inf")
    for case in cases:
        inputs, first, lists = hf.tensors(case), 0, []
        for row in inputs["input_ids"]:
            more = {}
            if "pixel_values" in inputs:
                n = int((row == token).sum()) * len(inputs["pixel_values"]) // int((inputs["input_ids"] == token).sum())
                more["pixel_values"] = inputs["pixel_values"][first:first + n]
                first += n
            out = model.generate(row[None], max_new_tokens=12, do_sample=False, num_beams=1, eos_token_id=-1,
                                 output_logits=True, return_dict_in_generate=True, **more)
            top = torch.stack([x[0] for x in out.logits]).topk(2).values
            gap = min(gap, float((top[:, 0] - top[:, 1]).min()))
            lists.append(out.sequences[0, len(row):].tolist())
        rows.append(lists)
    print("gap", gap)
    return rows


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    hf.fields = fields
    hf.ref.SAMPLES = 48
    for kind in sys.argv[1:] or HEADS:
        records = []
        for name, cls, options, cases in HEADS[kind]:
            models, run = [], hf.ref.run

            def kept(model, *args):
                models.append(model)
                return run(model, *args)
            hf.ref.run = kept
            config, record = hf.reference(cls, options, cases)
            hf.ref.run = run
            print(kind, name, [c["err64"] for c in record["cases"]], [o["name"] for o in record["cases"][0]["outputs"]])
            arch = {"arch": cls} if kind in PARTS else {}
            if cls == "BlipForConditionalGeneration":
                arch["caption"] = caption(models[0], hf.tensors(cases[0])["pixel_values"][:1])
            if kind in PARTS:
                arch["written"] = written(models[0], [c for c in cases if "attention_mask" not in c], 7)
            records.append({"name": name, "config": config, "reference": record} | arch)
        with open(os.path.join(hf.OUT, kind + ".heads.json.gz"), "wb") as f:
            f.write(gzip.compress(zoo_program.pack(records), 9, mtime=0))


if __name__ == "__main__":
    main()
