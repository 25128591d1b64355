"""Records transformers models that hear: as make_families_hf.py, which has the rest.

    python make_families_speech.py                  everything
    python make_families_speech.py wav2vec2         the references of some model types

families/hf/wav2vec2.json and hubert.json are config.json of the zoo's models. families/hf/defaults_speech.json is as
defaults.json, without what training alone reads. families/hf/speech.json.gz has what transformers' pipeline writes of
sounds: of each model `name`, `config`, the other `files` of its folder, `state`, the names and the shapes of its weights,
and `runs`: how many `samples` the sound has, and the `text` of it.
"""

import gzip
import hashlib
import json
import math
import os
import sys
import tempfile
import warnings

import numpy as np
import torch
import transformers as T

import make_families_hf as hf
import zoo_hash
import zoo_program
from zoo_hf import SPEECH
from zoo_spec import MODELS, In, literal

LABELS = {"num_labels": 5}
STABLE = {"feat_extract_norm": "layer", "do_stable_layer_norm": True, "conv_bias": True}
ONE = {"num_hidden_layers": 1}
SPEAKER = ONE | LABELS | {"tdnn_dim": [16, 12, 20], "tdnn_kernel": [3, 2, 1], "tdnn_dilation": [1, 2, 1], "xvector_output_dim": 16}
NEAR = {"num_buckets": 16, "max_bucket_distance": 12}
STACKED = {k: v for k, v in SPEECH.items() if k != "num_conv_pos_embeddings"} | {"conv_pos_kernel_size": 6, "num_conv_pos_embeddings": 2}


def heard(samples, *lengths, batch=1):
    """Sounds, with a mask of those that have padding behind them."""
    if not lengths:
        return {"input_values": In((batch, samples))}
    mask = torch.tensor([[int(i < n) for i in range(samples)] for n in lengths])
    return {"input_values": In((len(lengths), samples)), "attention_mask": literal(mask)}


PLAIN, MASKED, LONGER = heard(417, batch=2), heard(300, 300, 211, 97), heard(400, 400, 341, 250)

HEADS = {
    "wav2vec2": [
        ("ctc", "Wav2Vec2ForCTC", SPEECH, [PLAIN, MASKED]),
        ("stable", "Wav2Vec2Model", SPEECH | STABLE | {"adapter_attn_dim": 12, "num_conv_pos_embeddings": 15}, [MASKED]),
        ("shorter", "Wav2Vec2ForCTC", SPEECH | ONE | {"add_adapter": True, "output_hidden_size": 32, "num_adapter_layers": 2}, [MASKED]),
        ("eager", "Wav2Vec2Model", SPEECH | ONE | {"attn_implementation": "eager", "hidden_act": "relu", "add_adapter": True}, [MASKED]),
        ("classes", "Wav2Vec2ForSequenceClassification", SPEECH | LABELS | {"use_weighted_layer_sum": True}, [PLAIN, MASKED]),
        ("frames", "Wav2Vec2ForAudioFrameClassification", SPEECH | ONE | LABELS, [MASKED]),
        ("speaker", "Wav2Vec2ForXVector", SPEECH | SPEAKER, [PLAIN, LONGER]),
    ],
    "hubert": [
        ("ctc", "HubertForCTC", SPEECH | STABLE | {"feat_proj_layer_norm": False}, [PLAIN, MASKED]),
        ("normed", "HubertModel", SPEECH | ONE | {"conv_pos_batch_norm": True}, [MASKED]),
        ("classes", "HubertForSequenceClassification", SPEECH | STABLE | LABELS | {"use_weighted_layer_sum": True}, [MASKED]),
    ],
    "wavlm": [
        ("ctc", "WavLMForCTC", SPEECH | NEAR, [PLAIN, MASKED]),
        ("stable", "WavLMModel", SPEECH | STABLE | NEAR | {"add_adapter": True}, [MASKED]),
        ("speaker", "WavLMForXVector", SPEECH | SPEAKER, [LONGER]),
        ("frames", "WavLMForAudioFrameClassification", SPEECH | NEAR | LABELS | {"use_weighted_layer_sum": True}, [PLAIN]),
    ],
    "data2vec-audio": [
        ("ctc", "Data2VecAudioForCTC", STACKED, [PLAIN, MASKED]),
        ("base", "Data2VecAudioModel", STACKED | ONE | {"conv_pos_kernel_size": 5, "conv_bias": True}, [PLAIN]),
    ],
    "unispeech": [("ctc", "UniSpeechForCTC", SPEECH | STABLE, [MASKED])],
    "unispeech-sat": [("speaker", "UniSpeechSatForXVector", SPEECH | SPEAKER, [PLAIN]), ("base", "UniSpeechSatModel", SPEECH | STABLE, [MASKED])],
}
UNREAD = ("masked_spec_embed", "objective.weight")


def defaults():
    found = {}
    for kind, models in HEADS.items():
        for cls in sorted({cls for _, cls, _, _ in models}):
            with torch.device("meta"):
                model = getattr(T, cls)(getattr(T, cls).config_class())
            lines = sorted(f"{k} {','.join(map(str, v.shape))}\n" for k, v in model.state_dict().items() if not k.endswith(UNREAD))
            found.setdefault(kind, {})[cls] = [len(lines), hashlib.sha256("".join(lines).encode()).hexdigest()]
    with open(os.path.join(hf.OUT, "defaults_speech.json"), "w") as f:
        json.dump(found, f, indent=1, sort_keys=True)


SOUNDS = (1, 2000, 9000)
NAMES = ["<pad>", "<s>", "</s>", "<unk>", "|"] + list("ETAONIHSRDLUMWCFGYPBVK'XJQZ") + [".", ",", "?", "Ü"]
TEXTS = [  # name, class, options, preprocessor_config.json, and the other files
    ("wav2vec2", "Wav2Vec2ForCTC", SPEECH, {"do_normalize": True, "feature_size": 1, "padding_side": "right", "sampling_rate": 16000}, {
        "tokenizer_config.json": {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "do_lower_case": False},
        "special_tokens_map.json": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"},
        "vocab.json": {c: i for i, c in enumerate(NAMES)}}),
    ("hubert", "HubertForCTC", SPEECH | STABLE, {"do_normalize": False, "return_attention_mask": True}, {
        "tokenizer_config.json": {"do_lower_case": True, "target_lang": "eng", "clean_up_tokenization_spaces": True,
                                  "pad_token": {"content": "[PAD]", "lstrip": False, "__type": "AddedToken"}, "word_delimiter_token": "|"},
        "vocab.json": {"deu": {"Ä": 0}, "eng": {{"<pad>": "[PAD]"}.get(c, c): i for i, c in enumerate(NAMES)}},
        "added_tokens.json": {"<odd>": 37}}),
]


def sound(n):
    """Samples of 16 bits, which are those of ../../internal/sound/testdata/make_features.py."""
    out, state = [], 1
    for i in range(n):
        state = (state * 1103515245 + 12345) % (1 << 31)
        out.append(abs(i % 64 - 32) * 200 - 3200 + (abs(i % 500 - 250) * 80 - 10000) * (n - i) // n + (state >> 16) % 201 - 100)
    return np.array(out, dtype=np.float32) / 32768


def rule(name, shape):
    """The offset and the scale of a weight."""
    if name.endswith("bias"):
        return 0.0, 0.125
    if len(shape) == 1:
        return 1.0, 0.25
    if name.endswith("original0"):
        return 3.0, 0.5
    return 0.0, float("%.3g" % ((9.0 / math.prod(shape[1:])) ** 0.5))


def spoken(name, cls, options, prepared, files):
    torch.manual_seed(0)
    model = getattr(T, cls)(getattr(T, cls).config_class(**options)).eval().requires_grad_(False)
    state = {k: list(x.shape) for k, x in model.state_dict().items() if not k.endswith(UNREAD)}
    for key, x in model.state_dict().items():
        if key in state:
            x.copy_(zoo_hash.floats(key, tuple(x.shape), x.dtype, *rule(key, x.shape)))
    prepared = {"feature_extractor_type": "Wav2Vec2FeatureExtractor"} | prepared
    with tempfile.TemporaryDirectory() as folder:
        for file, content in (files | {"preprocessor_config.json": prepared}).items():
            with open(os.path.join(folder, file), "w") as f:
                json.dump(content, f)
        tokenizer = T.Wav2Vec2CTCTokenizer.from_pretrained(folder)
        extractor = T.Wav2Vec2FeatureExtractor.from_pretrained(folder)
    listen = T.pipeline("automatic-speech-recognition", model=model, tokenizer=tokenizer, feature_extractor=extractor)
    runs = []
    for n in SOUNDS:
        wave = sound(n * 8 + 120)
        values = extractor(wave, sampling_rate=16000, return_tensors="pt").input_values
        top = model(values).logits[0].topk(2).values
        text = listen({"raw": wave, "sampling_rate": 16000})["text"]
        print(name, n, "gap %.3g" % float((top[:, 0] - top[:, 1]).min()), text[:100])
        runs.append({"samples": n * 8 + 120, "text": text})
    files = {k: json.dumps(v) for k, v in (files | {"preprocessor_config.json": prepared}).items()}
    return {"name": name, "config": hf.config_text(model), "files": files, "state": state, "runs": runs}


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    some = sys.argv[1:]
    if not some:
        for name in ("wav2vec2", "hubert"):
            with open(os.path.join(hf.OUT, name + ".json"), "w") as f:
                f.write(hf.config_text(MODELS["hf", name]().model))
        defaults()
        with open(os.path.join(hf.OUT, "speech.json.gz"), "wb") as f:
            text = json.dumps([spoken(*t) for t in TEXTS], separators=(",", ":")).encode()
            f.write(gzip.compress(text, 9, mtime=0))
    hf.ref.SAMPLES = 48
    for kind in some or HEADS:
        records = []
        for name, cls, options, cases in HEADS[kind]:
            config, record = hf.reference(cls, options, cases)
            print(kind, name, [c["err64"] for c in record["cases"]], [o["name"] for o in record["cases"][0]["outputs"]])
            records.append({"name": name, "config": config, "reference": record})
        with open(os.path.join(hf.OUT, kind + ".heads.json.gz"), "wb") as f:
            f.write(gzip.compress(zoo_program.pack(records), 9, mtime=0))


if __name__ == "__main__":
    main()
