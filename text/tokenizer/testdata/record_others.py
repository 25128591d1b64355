"""Records what sentencepiece and tiktoken make of the texts of record.py, with small models of each.

    python record_others.py

Needs sentencepiece 0.2.3 and tiktoken 0.14.0 besides what record.py needs.
"""
import base64
import gzip
import io
import json
import tempfile

import sentencepiece
import tiktoken

import record


# The rules of sentencepiece's own normalization take 240 KB in every model.
RULES = [("ﬁ", "fi"), ("½", "1⁄2"), ("Ａ", "A"), ("１", "1"), ("\u00a0", " "), ("\u3000", " "), ("\t", " "), ("\n", " "), ("\r", " "),
         ("e\u0301", "é"), ("\x01", ""), ("\x7f", ""), ("\u200b", ""), ("…", "..."), ("ｶﾞ", "ガ"), ("ｶ", "カ"), ("Ⅷ", "VIII")]


def trained(**options):
    model = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        for old, new in RULES:
            rules.write(" ".join(f"{ord(c):X}" for c in old) + "\t" + " ".join(f"{ord(c):X}" for c in new) + "\n")
        rules.flush()
        if "normalization_rule_name" not in options:
            options["normalization_rule_tsv"] = rules.name
        train(model, options)
    return model.getvalue()


def train(model, options):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(record.CORPUS * 3), model_writer=model, minloglevel=2, hard_vocab_limit=False, **options)


def byte_of():
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    chars = {chr(b): b for b in keep}
    for b in range(256):
        if b not in keep:
            chars[chr(256 + len(chars) - len(keep))] = b
    return chars


def main():
    texts = record.texts()
    models = {
        "unigram": trained(model_type="unigram", vocab_size=380),
        "unigram-bytes": trained(model_type="unigram", vocab_size=640, byte_fallback=True, user_defined_symbols=["<extra>", "[MASK]"]),
        "bpe": trained(model_type="bpe", vocab_size=420, character_coverage=0.98, user_defined_symbols=["<extra>"]),
        "bpe-bytes": trained(model_type="bpe", vocab_size=640, character_coverage=0.98, byte_fallback=True,
                             normalization_rule_name="identity", remove_extra_whitespaces=False),
        "bpe-no-prefix": trained(model_type="bpe", vocab_size=420, character_coverage=0.98, add_dummy_prefix=False),
    }
    out = {"texts": texts, "sentencepiece": {}, "tiktoken": {}}
    for name, model in models.items():
        sp = sentencepiece.SentencePieceProcessor(model_proto=model)
        ids = [sp.encode(t) for t in texts]
        out["sentencepiece"][name] = {
            "model": base64.b64encode(model).decode(), "ids": ids,
            # sentencepiece writes unknown pieces as they please it.
            "decoded": [None if sp.unk_id() in i else sp.decode(i) for i in ids]}
    chars = byte_of()
    with gzip.open("tokenizers.json.gz") as f:
        vocab = json.load(f)["gpt2"]["model"]["vocab"]
    ranks = {}
    for token in sorted((t for t in vocab if t != "<|end|>"), key=vocab.get):
        ranks[bytes(chars[c] for c in token)] = len(ranks)
    special = {"<|end|>": len(ranks) + 5}
    for name, pattern in [("llama3", record.LLAMA3), ("o200k", record.O200K), ("gpt2", record.GPT2)]:
        enc = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)
        out["tiktoken"][name] = {"pattern": pattern, "ids": [enc.encode(t, allowed_special="all") for t in texts]}
    out["ranks"] = "".join(f"{base64.b64encode(t).decode()} {i}\n" for t, i in ranks.items())
    out["special"] = special
    record.write("others.json.gz", out)


if __name__ == "__main__":
    main()
