"""Records what Hugging Face's tokenizers makes of nasty texts, with small tokenizers of every kind.

    python record.py

Each tokenizer is trained here, on the text below, and lies in tokenizers.json.gz by name; what it makes of the texts in
expected.json.bz2. Offsets are in characters, as Python counts them. Run with tokenizers 0.23.3.
"""
import base64
import bz2
import gzip
import json
import random
import struct

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = [
    "The quick brown fox jumps over the lazy dog. Don't panic: we've been here before, haven't we?",
    "It's 2026-11-24; prices rose 3.14% to $1,234,567.89 (see http://example.com/a?b=1&c=2).",
    "def f(x):\n    return x + 1  # comment\n\n\tprint(f(41))\r\n",
    "Ünïcödé: naïve café résumé, Straße, İstanbul, ﬁne oﬃce, Ω Å ½ ² Ⅷ ①",
    "你好，世界。これはテストです。カタカナー ひらがな 한국어 텍스트 ไทยภาษา",
    "Привет, мир! Γειά σου Κόσμε שלום עולם مرحبا بالعالم नमस्ते दुनिया क्षि",
    "👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 😀😃 👍🏽 zero\u200dwidth\u200bspace",
    "lower lowest newer newest wider widest low new wide er est " * 3,
    "the of and to in is that it was for on are with as his they be at one have this " * 3,
]

WORDS = (
    "the a of and don't I'll we've HELLO World naïve café résumé Straße ﬁne 1234567 3.14 foo_bar HTTPServer x=y+z; "
    "<html> </s> <s> <unk> [CLS] [SEP] [MASK] <|end|> <extra> 'S 'LL 'ſ @ # newest lowest ▁ Ġ"
).split()
BITS = [
    "你好世界", "日本語テキスト", "한국어", "ไทย", "עברית", "العربية", "हिन्दी क्षि", "Ελληνικά", "русский", "👨‍👩‍👧‍👦",
    "🏳️‍🌈", "🇩🇪🇫🇷", "e\u0301", "a\u0323\u0301", "a\u0301\u0323", "\u0301", "\u00a0", "\u3000", "\u2028", "\u200b", "\u200d", "\ufeff", "\ufffd",
    "\x00", "\x01", "\x1f", "\x7f", "\x85", "½", "²", "Ⅷ", "İ", "ı", "ß", "Å", "가", "\u1100\u1161\u11a8", "が", "か\u3099", "ｶﾞ",
    "Ａ１", "\U0001d400", "\U00020000", "\U00011935\U00011930", "😀", "\u0897", "\U00011f02", "ー", "…", "—", "“q”", "\U0010fffd",
    "\ue000", "\u0378", "\u1734", "\u061d", "\u0344", "\ua7f2", "\u32ff",
]
SPACES = [" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", " \n ", " " * 9, "\n" * 5, "\u00a0 ", "\v"]


def nasty(rng):
    out = []
    for _ in range(rng.choice([1, 2, 3, 5, 8, 13])):
        k = rng.random()
        if k < 0.4:
            out.append(rng.choice(WORDS))
        elif k < 0.6:
            out.append(rng.choice(BITS))
        elif k < 0.85:
            out.append(rng.choice(SPACES) if rng.random() < 0.5 else " ")
        elif k < 0.9:
            out.append("".join(rng.choice("abcdenorstw") for _ in range(rng.randint(1, 9))))
        elif k < 0.95:
            out.append("".join(rng.choice("0123456789!?.,'\"-()") for _ in range(rng.randint(1, 8))))
        else:
            out.append(chr(rng.choice([rng.randrange(0x80, 0x3000), rng.randrange(0x3000, 0xD800), rng.randrange(0x10000, 0x20000)])))
    return "".join(out)


def texts():
    rng = random.Random(20261124)
    fixed = [
        "", " ", "a", "\n", "\x00", "Hello, world!", "  two  spaces  ", "don't 'S it'LL", "<s>a</s>", "x<extra>y <extra> z",
        "a" * 300, " " * 300 + "x", "\n" * 100, "1" * 50, "é" * 40, "e\u0301" * 40, "😀" * 20, "[MASK] a[MASK]b  [MASK]  ",
        "\ufeffbom", "tab\there", "lower newest", "LOWER NEWEST", "unhappiness", "日本語日本語", "क्षि" * 3,
    ]
    return fixed + [nasty(rng) for _ in range(45)]


GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = [
    r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
    " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
]


def trained(tok, trainer):
    tok.train_from_iterator(CORPUS, trainer)
    return tok


def byte_level(pattern, size=420, special=("<|end|>",), **options):
    tok = Tokenizer(models.BPE(**options))
    if pattern is None:
        tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        parts = pattern if isinstance(pattern, list) else [pattern]
        tok.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(p), "isolated") for p in parts]
            + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    return trained(tok, trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(special), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))


def fallback(tok, size=200):
    """Adds <0x00> to <0xFF> to a BPE model, as sentencepiece's models have them."""
    d = json.loads(tok.to_str())
    vocab = d["model"]["vocab"]
    for b in range(256):
        vocab[f"<0x{b:02X}>"] = len(vocab)
    d["model"]["byte_fallback"] = True
    d["model"]["fuse_unk"] = True
    return Tokenizer.from_str(json.dumps(d))


def llama(normalizer, pre, decoder, special=("<unk>", "<s>", "</s>")):
    tok = Tokenizer(models.BPE(unk_token="<unk>"))
    tok.normalizer, tok.pre_tokenizer = normalizer, pre
    tok = trained(tok, trainers.BpeTrainer(vocab_size=260, special_tokens=list(special), show_progress=False, limit_alphabet=80))
    tok = fallback(tok)
    tok.decoder = decoder
    return tok


def charsmap(pairs):
    """A sentencepiece table of replacements: a double array (darts-clone's units) by bytes, and the replacements."""
    texts, at = b"", {}
    for _, new in pairs:
        if new not in at:
            at[new] = len(texts)
            texts += new.encode() + b"\0"
    root = {}
    for old, new in pairs:
        node = root
        for b in old.encode():
            node = node.setdefault(b, {})
        node[0] = at[new]
    units, used = [0] * 1024, [False] * 1024
    used[0] = True

    def place(node, pos):
        labels = sorted(node)
        base = 1
        while any(used[base ^ l] for l in labels) or pos ^ base == 0 or (pos ^ base) >= 1 << 21:
            base += 1
        for l in labels:
            used[base ^ l] = True
        units[pos] |= (pos ^ base) << 10
        if 0 in node:
            units[pos] |= 1 << 8
            units[base] = (1 << 31) | node[0]
        for l in labels:
            if l:
                units[base ^ l] |= l
        for l in labels:
            if l:
                place(node[l], base ^ l)

    place(root, 0)
    return struct.pack("<I", 4 * len(units)) + struct.pack(f"<{len(units)}I", *units) + texts


def unigram(pieces, normalizer, pre, decoder, byte_fallback=False, size=420):
    tok = Tokenizer(models.Unigram())
    tok.normalizer, tok.pre_tokenizer = normalizer, pre
    tok = trained(tok, trainers.UnigramTrainer(vocab_size=size, special_tokens=pieces, unk_token="<unk>", show_progress=False))
    if byte_fallback:
        d = json.loads(tok.to_str())
        d["model"]["vocab"] += [[f"<0x{b:02X}>", 0.0] for b in range(256)]
        d["model"]["byte_fallback"] = True
        tok = Tokenizer.from_str(json.dumps(d))
    tok.decoder = decoder
    return tok


def word_piece(lower, **bert):
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tok.normalizer = normalizers.BertNormalizer(lowercase=lower, **bert)
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tok = trained(tok, trainers.WordPieceTrainer(
        vocab_size=300, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
    tok.decoder = decoders.WordPiece()
    return tok


def word_level(pre, normalizer=None):
    tok = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tok.pre_tokenizer = pre
    if normalizer:
        tok.normalizer = normalizer
    return trained(tok, trainers.WordLevelTrainer(vocab_size=90, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False))


def build():
    out = {}
    P, N, D = pre_tokenizers, normalizers, decoders
    out["gpt2"] = byte_level(None)
    out["llama3"] = byte_level(LLAMA3, ignore_merges=True)
    out["llama3"].post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing("<|end|> $A", "<|end|> $A <|end|>:1 $B:1", [("<|end|>", 0)])])
    out["qwen"] = byte_level(QWEN)
    out["qwen"].normalizer = N.NFC()
    out["o200k"] = byte_level(O200K)
    out["deepseek"] = byte_level(DEEPSEEK)
    out["bytes-whole"] = byte_level(["\x00never"])
    out["roberta"] = byte_level(None, special=("<s>", "<pad>", "</s>", "<unk>", "<mask>"))
    out["roberta"].pre_tokenizer = P.ByteLevel(add_prefix_space=True)
    out["roberta"].post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    out["roberta"].add_special_tokens([AddedToken("[MASK]", lstrip=True)])
    out["bytelevel-trim"] = byte_level(None)
    out["bytelevel-trim"].post_processor = processors.ByteLevel(trim_offsets=True, add_prefix_space=False)
    out["bytelevel-trim"].add_tokens([AddedToken("<extra>", lstrip=True, rstrip=True)])
    out["bytelevel-normalizer"] = byte_level(None)
    out["bytelevel-normalizer"].pre_tokenizer = P.Split(Regex("Ġ?[^Ġ]+|Ġ"), "isolated")
    out["bytelevel-normalizer"].normalizer = N.ByteLevel()
    short = byte_level(None)
    d = json.loads(short.to_str())
    keep = {k: v for k, v in d["model"]["vocab"].items() if k not in ("ã", "Ł", "z")}
    d["model"]["vocab"] = keep
    d["model"]["merges"] = [m for m in d["model"]["merges"] if m[0] in keep and m[1] in keep and m[0] + m[1] in keep]
    d["model"]["unk_token"] = "<|end|>"
    out["bytelevel-incomplete"] = Tokenizer.from_str(json.dumps(d))

    strip = D.Sequence([D.Replace("▁", " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)])
    out["llama2"] = llama(N.Sequence([N.Prepend("▁"), N.Replace(" ", "▁")]), None, strip)
    out["llama2"].post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s>:1 $B:1", [("<s>", 1)])
    out["mistral"] = llama(None, P.Metaspace(prepend_scheme="first", split=False), strip)
    out["metaspace-always"] = llama(None, P.Metaspace(prepend_scheme="always"), D.Metaspace())
    out["metaspace-never"] = llama(None, P.Metaspace(prepend_scheme="never"), D.Metaspace(prepend_scheme="never"))
    out["gemma"] = llama(N.Replace(" ", "▁"), P.Split(" ", "merged_with_previous"),
                         D.Sequence([D.Replace("▁", " "), D.ByteFallback(), D.Fuse()]))
    out["gemma"].add_tokens([AddedToken("\n\n", normalized=False), AddedToken("  "), AddedToken("<extra>", single_word=True)])
    clip = Tokenizer(models.BPE(unk_token="<|end|>", end_of_word_suffix="</w>"))
    clip.normalizer = N.Sequence([N.NFC(), N.Replace(Regex(r"\s+"), " "), N.Lowercase()])
    clip.pre_tokenizer = P.Sequence([
        P.Split(Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True),
        P.ByteLevel(add_prefix_space=False)])
    clip.decoder = D.ByteLevel()
    out["clip"] = trained(clip, trainers.BpeTrainer(
        vocab_size=700, special_tokens=["<|start|>", "<|end|>"], end_of_word_suffix="</w>", show_progress=False,
        initial_alphabet=P.ByteLevel.alphabet()))
    out["clip"].post_processor = processors.RobertaProcessing(("<|end|>", 1), ("<|start|>", 0), trim_offsets=False, add_prefix_space=False)
    old = Tokenizer(models.BPE(unk_token="<unk>", continuing_subword_prefix="##", end_of_word_suffix="</w>"))
    old.pre_tokenizer = P.Whitespace()
    old.decoder = D.BPEDecoder(suffix="</w>")
    out["bpe-affixes"] = trained(old, trainers.BpeTrainer(
        vocab_size=250, special_tokens=["<unk>"], continuing_subword_prefix="##", end_of_word_suffix="</w>", show_progress=False, limit_alphabet=60))
    for fuse in (False, True):
        tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse))
        tok.pre_tokenizer = P.WhitespaceSplit()
        out[f"bpe-unknown-{'fused' if fuse else 'apart'}"] = trained(tok, trainers.BpeTrainer(
            vocab_size=150, special_tokens=["<unk>"], show_progress=False, limit_alphabet=40))
    tok = Tokenizer(models.BPE())
    out["bpe-no-unknown"] = trained(tok, trainers.BpeTrainer(vocab_size=200, show_progress=False, limit_alphabet=40))

    table = base64.b64encode(charsmap([
        ("ﬁ", "fi"), ("ﬀ", "ff"), ("½", "1⁄2"), ("Ａ", "A"), ("１", "1"), ("\u00a0", " "), ("\u3000", " "), ("\t", " "), ("\n", " "),
        ("\r", " "), ("e\u0301", "é"), ("\x01", ""), ("\x7f", ""), ("\u200b", ""), ("…", "..."), ("ｶﾞ", "ガ"), ("ｶ", "カ"), ("Å", "Å"),
        ("か\u3099", "が"), ("\r\n", "  "), ("\u0301", ""),
    ])).decode()
    precompiled = N.Sequence([N.NFC()])
    spec = {"type": "Precompiled", "precompiled_charsmap": table}

    def with_normalizer(tok, norm):
        d = json.loads(tok.to_str())
        d["normalizer"] = norm
        return Tokenizer.from_str(json.dumps(d))

    xlmr = unigram(["<s>", "<pad>", "</s>", "<unk>"], precompiled, P.Sequence([P.WhitespaceSplit(), P.Metaspace()]), D.Metaspace())
    out["xlmr"] = with_normalizer(xlmr, spec)
    out["xlmr"].post_processor = processors.TemplateProcessing("<s> $A </s>", "<s> $A </s> </s> $B </s>", [("<s>", 0), ("</s>", 2)])
    out["xlmr"].add_special_tokens([AddedToken("[MASK]", lstrip=True)])
    t5 = unigram(["<pad>", "</s>", "<unk>"], precompiled, P.Metaspace(), D.Metaspace(), byte_fallback=True)
    out["t5"] = with_normalizer(t5, {"type": "Sequence", "normalizers": [
        spec, {"type": "Strip", "strip_left": False, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}]})
    out["t5"].add_special_tokens(["<extra>"])
    out["unigram-whole"] = unigram(["<unk>"], N.Sequence([N.Nmt(), N.NFKC(), N.Replace(Regex(" +"), " ")]), None, D.Fuse())

    out["bert"] = word_piece(True)
    out["bert"].post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    out["bert"].enable_truncation(12)
    out["bert"].enable_padding(length=14)
    out["bert-cased"] = word_piece(False, strip_accents=False)
    out["bert-cased"].post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", [("[CLS]", 2), ("[SEP]", 3)])
    out["bert-cased"].add_tokens([AddedToken("newest", single_word=True), "Straße", AddedToken("low", normalized=True)])
    out["bert-accents"] = word_piece(False, strip_accents=True, handle_chinese_chars=False, clean_text=False)
    out["bert-left"] = word_piece(True)
    out["bert-left"].enable_truncation(7, direction="left", strategy="longest_first")
    out["bert-left"].enable_padding(direction="left", pad_to_multiple_of=8, pad_id=0, pad_type_id=2)

    out["words"] = word_level(P.Whitespace())
    out["words-lower"] = word_level(P.WhitespaceSplit(), N.Sequence([N.NFD(), N.StripAccents(), N.Lowercase(), N.Strip()]))
    out["words-lower"].add_tokens([AddedToken("Straße"), AddedToken("CAFÉ", normalized=True), AddedToken("fox", normalized=True)])
    for how in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        out[f"split-{how}"] = word_level(P.Split(Regex(r"[\s\p{P}]"), how))
        out[f"split-{how}-invert"] = word_level(P.Split(Regex(r"\w+"), how, invert=True))
        out[f"punctuation-{how}"] = word_level(P.Punctuation(how))
    out["split-text"] = word_level(P.Split("er", "isolated"))
    out["digits"] = word_level(P.Sequence([P.WhitespaceSplit(), P.Digits(individual_digits=False)]))
    out["digits-each"] = word_level(P.Sequence([P.WhitespaceSplit(), P.Digits(individual_digits=True)]))
    out["scripts"] = word_level(P.UnicodeScripts())
    out["delimiter"] = word_level(P.CharDelimiterSplit("e"))
    out["fixed"] = word_level(P.FixedLength(3))
    out["bert-pre"] = word_level(P.BertPreTokenizer(), N.NFKD())
    out["metaspace-twice"] = word_level(P.Sequence([P.Metaspace(prepend_scheme="first"), P.Punctuation()]), N.Strip())
    ctc = word_level(P.Split(Regex(""), "isolated"))
    ctc.decoder = D.CTC(pad_token="e", word_delimiter_token=" ")
    out["ctc"] = ctc
    fused = byte_level(None)
    fused.decoder = D.Sequence([D.Fuse(), D.Strip("Ġ", 2, 3), D.ByteLevel()])
    out["decoder-fused-bytes"] = fused
    return out


PATTERNS = [
    GPT2, LLAMA3, QWEN, O200K, *DEEPSEEK, r"\p{N}{1,3}+", r"a{2,3}?", "a{,2}", r"(?i:'s|'t|'re)|k+", "^a|b$", "a.b", "(?m)a.b", r"[a-d&&[^b]]+",
    r"[[:alpha:]]+", r"\bab|ab\b", "x*", "", r"(?<=a)b", r"(?<!a)b", r"(?<=ab|c)d", "(?>a+)b", r"\Aa|a\z", r"\p{^L}+", r"[^\s\p{L}\p{N}]++[\r\n]*",
    r"\x41|\u0042|\x{1F600}", r"\h+", r"\R", r"[^\W\d_]+", r"\w+|\W", "(?=a)", "(?!a).", r"(?:a|b)+c|.", "(?i)é|ſ", "a**b?", r"\p{Han}+|\p{Hiragana}+",
    r"\d{1,3}(?=(?:\d{3})*\b)", r"(?:(?:a|ab)(?:c|bcd)(?:d*))+", r"\s+$|\s+", r"a++b|a", r"(?x) a b # c", "(ab|a)(bc|c)?", r"[\d\-a]+", r"[]a]+",
    r"\p{Lu}\p{Ll}*|\p{Nd}", r"(?<=\d)(?=\D)", r".*?b", r"a{0}b", "{a", "a{b}", r"\p{Greek}+|\p{Thai}", r"(?i)[a-c]+", r"(?<name>ab)+", r"[a-z&&m-o]+",
]


def patterns():
    rng = random.Random(7)
    alphabet = "aabbccd  \n1234.,-'SsTtKxAB"
    strings = ["", "a", "ab", "aab", "abab", "abcd", "a\nb", "AB", "x{a}", "1234567 89", "it'S 'T", "]a", "don't", "\n", "a\n", "{ab}"]
    strings += ["".join(rng.choice(alphabet) for _ in range(rng.randint(1, 14))) for _ in range(25)]
    strings += [nasty(rng) for _ in range(14)]
    out = []
    for p in PATTERNS:
        split = pre_tokenizers.Split(Regex(p), "removed")
        each = pre_tokenizers.Split(Regex(p), "isolated")
        # Which parts are matches shows in what is removed.
        out.append({"pattern": p, "kept": [[list(o) for _, o in split.pre_tokenize_str(s)] for s in strings],
                    "parts": [[list(o) for _, o in each.pre_tokenize_str(s)] for s in strings]})
    return {"texts": strings, "patterns": out}


def write(name, value):
    data = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    with open(name, "wb") as f:
        f.write(bz2.compress(data, 9) if name.endswith(".bz2") else gzip.compress(data, 9, mtime=0))


def record(tok, text, pair=None, special=False):
    try:
        e = tok.encode(text, pair, add_special_tokens=special)
    except BaseException:  # a panic of Rust is none of Python's errors
        return None
    return {
        "ids": e.ids, "tokens": e.tokens, "offsets": [list(o) for o in e.offsets], "types": e.type_ids,
        "words": [-1 if w is None else w for w in e.word_ids], "special": e.special_tokens_mask, "attention": e.attention_mask,
        "decoded": decoded(tok, e.ids, False), "skipped": decoded(tok, e.ids, True),
    }


def decoded(tok, ids, skip):
    try:
        return tok.decode(ids, skip_special_tokens=skip)
    except BaseException:  # Strip panics where there is less than it strips
        return None


def main():
    all_texts = texts()
    toks = build()
    files, expected = {}, {}
    for name, tok in toks.items():
        files[name] = json.loads(tok.to_str())
        # The cheap ones see all texts, and every one a few pairs.
        expected[name] = {
            "plain": [record(tok, t) for t in all_texts],
            "special": [record(tok, t, special=True) for t in all_texts[::5]],
            "pairs": [record(tok, a, b, special=s) for a, b, s in zip(all_texts[5::7], all_texts[30::3], [True, False] * 9)],
        }
    write("tokenizers.json.gz", files)
    write("expected.json.bz2", {"texts": all_texts, "tokenizers": expected})
    write("patterns.json.gz", patterns())


if __name__ == "__main__":
    main()
