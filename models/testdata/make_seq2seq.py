"""Makes tiny models with an encoder and a decoder and records what transformers computes: families/hf/seq2seq.json.gz.

    python make_seq2seq.py

A list of models; of each `name`, `config`, `state`, the names and the shapes of its state dict without those that are tied to
others, and

- `logits`: of the tokens of the first run, the rows ROWS of its first COLUMNS;
- `runs`: what is read (`source`: tokens, or `features`: a list of rows of numbers), and the tokens that are the most likely ones one
  after the other, of which the first is what the decoder starts with;
- `beams`: what four beams find of each source, of TEXT tokens at most, with an end.

Weights come from the hash of README.md, as make_decoders.py has it.
"""

import gzip
import json
import os
import random
import warnings

import torch
import transformers as T

import zoo_hash
from make_decoders import config_text, stored, weight_rule
from make_families_hf import OUT

PATH = os.path.join(OUT, "seq2seq.json.gz")
V = 96
BART = dict(vocab_size=V, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
            encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=80, pad_token_id=0, bos_token_id=1, eos_token_id=2,
            decoder_start_token_id=2, forced_eos_token_id=None)
T5 = dict(vocab_size=V, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, relative_attention_num_buckets=8,
          relative_attention_max_distance=20, pad_token_id=0, eos_token_id=2, decoder_start_token_id=0)
MODELS = [
    ("t5", "T5ForConditionalGeneration", T5),
    ("t5_gated", "T5ForConditionalGeneration", T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    ("bart", "BartForConditionalGeneration", BART | {"scale_embedding": True}),
    ("mbart", "MBartForConditionalGeneration", BART | {"tie_word_embeddings": False}),
    ("pegasus", "PegasusForConditionalGeneration", BART | {"scale_embedding": True, "activation_function": "relu",
                                                            "tie_word_embeddings": False}),
    ("marian", "MarianMTModel", BART | {"scale_embedding": True, "activation_function": "swish"}),
    ("marian_parted", "MarianMTModel", BART | {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 90}),
    ("whisper", "WhisperForConditionalGeneration", {k: v for k, v in BART.items() if k != "max_position_embeddings"} | {
        "num_mel_bins": 6, "max_source_positions": 20, "max_target_positions": 80}),
]
SOURCES, WRITTEN, ROWS, COLUMNS, TEXT = (5, 37), 48, (0, 20, 40), 40, 14


def source(model, rng, n):
    """What is read, as generate takes it and as it is stored."""
    if model.config.model_type != "whisper":
        ids = [rng.randrange(3, 90) for _ in range(n)]
        return {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, n, dtype=torch.int64)}, {"source": ids}
    rows = [[round(rng.gauss(0, 1), 2) for _ in range(40)] for _ in range(6)]
    return {"input_features": torch.tensor([rows])}, {"features": rows}


def generate(model, given, **options):
    """Of Whisper the search of any model, without what its own generate does for sounds."""
    return T.GenerationMixin.generate(model, **given, **options)


def write(model, given):
    out = generate(model, given, max_new_tokens=WRITTEN, do_sample=False, num_beams=1, output_logits=True,
                   return_dict_in_generate=True)
    top = torch.stack([x[0] for x in out.logits]).topk(2).values
    return out.sequences[0].tolist(), float((top[:, 0] - top[:, 1]).min())


def record(name, cls, options):
    torch.manual_seed(0)
    model = getattr(T, cls)(getattr(T, cls).config_class(**options)).float().eval().requires_grad_(False)
    state = stored(model)
    for key in [k for k in state if "embed_positions" in k and model.config.model_type in ("pegasus", "marian")]:
        del state[key]  # they are computed
    for key, x in model.state_dict().items():
        if key in state:
            x.copy_(zoo_hash.floats(key, tuple(x.shape), x.dtype, *weight_rule(key, x.shape)))
    if cls.startswith("T5"):
        model.tie_weights()
    g = model.generation_config
    g.forced_eos_token_id = g.forced_bos_token_id = None
    rng = random.Random(name)
    runs, least, first = [], 1.0, None
    for n in SOURCES:
        while True:
            given, kept = source(model, rng, n)
            g.eos_token_id = None
            tokens, gap = write(model, given)
            if gap > 1e-3:
                break
        least = min(least, gap)
        end = tokens[9]  # one that is likely to come
        g.eos_token_id = end
        beams = generate(model, given, max_new_tokens=TEXT, do_sample=False, num_beams=4, num_return_sequences=4, length_penalty=1.3,
                         output_scores=True, return_dict_in_generate=True)
        texts = []
        for row, score in zip(beams.sequences.tolist(), beams.sequences_scores.tolist()):
            row = row[1:]
            if end in row:
                row = row[:row.index(end) + 1]
            texts.append({"tokens": row, "score": float("%.6g" % score)})
        runs.append(kept | {"tokens": tokens, "end": end, "beams": texts})
        first = first or given
    with torch.no_grad():
        logits = model(**first, decoder_input_ids=torch.tensor([runs[0]["tokens"]]), use_cache=False).logits[0]
    digits = lambda x: [[float("%.6g" % v) for v in row] for row in x.tolist()]  # noqa: E731
    print(name, "gap %.3g" % least, "logits ±%.3g" % float(logits.abs().max()), [len(set(r["tokens"])) for r in runs],
          [[len(b["tokens"]) for b in r["beams"]] for r in runs])
    return {"name": name, "config": config_text(model), "state": state, "logits": digits(logits[list(ROWS), :COLUMNS]), "runs": runs}


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    records = [record(*m) for m in MODELS]
    text = json.dumps(records, separators=(",", ":")).encode()
    with open(PATH, "wb") as f, gzip.GzipFile(filename="", mode="wb", fileobj=f, mtime=0, compresslevel=9) as z:
        z.write(text)
    print(os.path.getsize(PATH), "bytes")


if __name__ == "__main__":
    main()
