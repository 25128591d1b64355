"""Records folders of sentence-transformers and model2vec with the vectors that these libraries give.

    python record.py          needs torch, transformers, sentence-transformers and model2vec

folders.json.gz has the texts and the folders. Of each folder `files` are its files of text; `weights`, by file, are the
dtype and shape of each tensor, whose elements `element` below gives; `requests` are what was asked of it: the `options` of
encode and, of every vector, its norm and SAMPLES of its numbers, evenly spread.
"""

import gzip
import hashlib
import json
import os
import shutil
import tempfile
import warnings

import numpy as np
import torch
import transformers as T
from model2vec import StaticModel
from safetensors.numpy import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers import models as M
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import WordPiece

HERE = os.path.dirname(os.path.abspath(__file__))
SAMPLES = 3
WORDS = ("the a of to in and is it on for that with as was by an be this are from or at not have has but which they one "
         "all their we can when what so there out if up about who more go me good boat oven lake tea winter north").split()
TEXTS = [
    "The boat is on the lake",
    "tea for one!",
    "What is it about winter that they have not: the north, or all of the lake and the boat? " * 3,
    "",
    "which oven was that from , and who can say zzz",
    "a good boat to go north with in this winter, and more of it",
]


def element(name, shape):
    """Numbers by splitmix64, from the first eight bytes of the name's SHA-256 on: of a half at most; near 1 for norms."""
    x = np.frombuffer(hashlib.sha256(name.encode()).digest()[:8], "<u8")[0]
    with np.errstate(over="ignore"):
        x = x + np.arange(1, int(np.prod(shape)) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    v = (x >> np.uint64(40)).astype(np.float32) / np.float32(2**23) - np.float32(1)
    if len(shape) == 1 and "weight" in name:
        v = np.float32(1) + v * np.float32(0.25)
    elif len(shape) == 1:
        v = v * np.float32(0.25)
    else:
        v = v * np.float32(0.5)
    return v.reshape(shape)


def fill(path):
    """Gives the weights of a file their elements. Which names it has, of those that share a weight, is the library's."""
    tensors = load_file(path)
    save_file({k: element(k, v.shape) if v.dtype == np.float32 else v for k, v in tensors.items()}, path,
              metadata={"format": "pt"})


def tokenizer(begin, end, pad, unk, folder=None, limit=None):
    letters = "abcdefghijklmnopqrstuvwxyz"
    pieces = [pad, begin or "[x]", end, unk, "[MASK]", *letters, *",.?:", *("##" + c for c in letters),
              *(w for w in WORDS if len(w) > 1)]
    if begin == "<s>":  # RoBERTa's padding is 1
        pieces[0], pieces[1] = pieces[1], pieces[0]
    t = Tokenizer(WordPiece({p: i for i, p in enumerate(pieces)}, unk_token=unk, max_input_chars_per_word=20))
    t.normalizer = normalizers.BertNormalizer(lowercase=True)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    special = [(p, t.token_to_id(p)) for p in (begin, end) if p]
    single = f"{begin} $A {end}" if begin else f"$A {end}"
    t.post_processor = processors.TemplateProcessing(
        single=single, pair=single + f" $B:1 {end}:1", special_tokens=special)
    t.add_special_tokens([p for p in (pad, begin, end, unk, "[MASK]") if p])
    if folder:
        more = {"bos_token": begin} if begin == "<s>" else {"cls_token": begin} if begin else {}
        fast = T.PreTrainedTokenizerFast(tokenizer_object=t, pad_token=pad, unk_token=unk, mask_token="[MASK]",
                                         eos_token=end, model_max_length=limit or int(1e30), **more)
        fast.save_pretrained(folder)
    return t


SIZE = dict(vocab_size=130, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
            max_position_embeddings=120, pad_token_id=0)
BERT = ("[CLS]", "[SEP]", "[PAD]", "[UNK]")
ROBERTA = ("<s>", "</s>", "<pad>", "<unk>")
QWEN = (None, "<end>", "<pad>", "<unk>")


def plain(folder, cls, options, marks, limit=None):
    getattr(T, cls)(getattr(T, cls).config_class(**options)).save_pretrained(folder)
    tokenizer(*marks, folder=folder, limit=limit)


def sentences(folder, cls, options, marks, modules, limit=None, **more):
    """A folder of sentence-transformers; modules are made for a transformer."""
    inner = tempfile.mkdtemp()
    plain(inner, cls, options, marks, limit)
    first = M.Transformer(inner, **{k: more.pop(k) for k in ("max_seq_length",) if k in more})
    width = first.get_embedding_dimension()
    SentenceTransformer(modules=[first, *modules(width)], device="cpu", **more).save(folder, create_model_card=False)
    shutil.rmtree(inner)


def pool(*modes, **more):
    return lambda width: M.Pooling(width, pooling_mode=modes, **more)


CASES = {
    "bert": lambda f: sentences(
        f, "BertModel", SIZE, BERT, lambda w: [pool("mean")(w), M.Normalize()], max_seq_length=24,
        prompts={"query": "what is ", "passage": "this : "}, similarity_fn_name="dot"),
    "bert_all": lambda f: sentences(
        f, "BertForMaskedLM", SIZE, BERT,
        lambda w: [pool("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")(w),
                   M.Dense(6 * w, 20, activation_function=torch.nn.Tanh()), M.LayerNorm(20),
                   M.Dense(20, 20, bias=False, activation_function=torch.nn.GELU(), use_residual=True),
                   M.Dense(20, 12, activation_function=torch.nn.Identity(), use_residual=True), M.Dropout(0.1)],
        truncate_dim=10),
    "roberta": lambda f: sentences(
        f, "RobertaModel", SIZE | {"pad_token_id": 1, "max_position_embeddings": 40}, ROBERTA,
        lambda w: [pool("cls")(w), M.Normalize()], limit=38),
    "xlm-roberta": lambda f: sentences(
        f, "XLMRobertaModel", SIZE | {"pad_token_id": 1}, ROBERTA, lambda w: [pool("mean")(w)]),
    "mpnet": lambda f: sentences(
        f, "MPNetModel", SIZE | {"pad_token_id": 1}, ROBERTA, lambda w: [pool("mean")(w), M.Normalize()]),
    "modernbert": lambda f: sentences(
        f, "ModernBertModel", SIZE | {
            "num_hidden_layers": 4, "local_attention": 6, "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1,
            "eos_token_id": 2},
        BERT, lambda w: [pool("cls")(w)]),
    "distilbert": lambda f: sentences(
        f, "DistilBertModel", dict(
            vocab_size=130, dim=16, hidden_dim=24, n_layers=2, n_heads=2, max_position_embeddings=120, pad_token_id=0),
        BERT, lambda w: [pool("max")(w)]),
    "t5": lambda f: sentences(
        f, "T5EncoderModel",
        dict(vocab_size=130, d_model=16, d_ff=24, d_kv=8, num_layers=2, num_heads=2, pad_token_id=0), QWEN,
        lambda w: [pool("weightedmean")(w)]),
    "qwen3": lambda f: sentences(
        f, "Qwen3Model", SIZE | {"num_key_value_heads": 1, "head_dim": 8}, QWEN,
        lambda w: [pool("lasttoken")(w), M.Normalize()],
        prompts={"query": "Instruct : go north . ", "document": ""}),
    "instructor": lambda f: sentences(
        f, "BertModel", SIZE, BERT, lambda w: [pool("mean", "cls", "weightedmean", include_prompt=False)(w)],
        prompts={"query": "the good oven : "}, default_prompt_name="query"),
    "plain": lambda f: plain(f, "BertForMaskedLM", SIZE, BERT),
    "causal": lambda f: plain(f, "Qwen3ForCausalLM", SIZE | {"num_key_value_heads": 1, "head_dim": 8}, QWEN),
}


def static(folder):
    t = tokenizer(*BERT)
    model = StaticEmbedding(t, embedding_dim=16)
    SentenceTransformer(modules=[model], device="cpu").save(folder, create_model_card=False)


def model2vec(folder):
    t = tokenizer(*BERT)
    words = t.get_vocab_size()
    StaticModel(element("embeddings", (40, 16)), t, config={"model_type": "model2vec"}, normalize=True,
                weights=element("weights", (words,)), token_mapping=np.arange(words, dtype=np.int64) * 7 % 40,
                max_length=9).save_pretrained(folder)
    os.remove(os.path.join(folder, "modules.json"))


CASES |= {"static": static, "model2vec": model2vec}

# What is asked besides the plain vectors: options of encode, or a method of its own.
MORE = {
    "bert": [{"prompt_name": "query"}, {"prompt_name": "passage"}, {"truncate_dim": 5, "normalize_embeddings": True}],
    "bert_all": [{"truncate_dim": 12}],
    "xlm-roberta": [{"normalize_embeddings": True}],
    "qwen3": [{"prompt_name": "query"}, {"prompt_name": "document"}],
    "instructor": [{"prompt": ""}, {"prompt": "tea "}],
}


def vectors(folder, name, options):
    if name == "model2vec":
        return StaticModel.from_pretrained(folder).encode(TEXTS).astype(np.float32)
    model = SentenceTransformer(folder, device="cpu")
    return model.encode(TEXTS, batch_size=4, **options)


def record(name, make):
    folder = tempfile.mkdtemp()
    make(folder)
    files, tensors = {}, {}
    for root, _, names in os.walk(folder):
        for n in sorted(names):
            path = os.path.relpath(os.path.join(root, n), folder)
            if n.endswith(".safetensors"):
                fill(os.path.join(folder, path))
                with open(os.path.join(folder, path), "rb") as f:
                    header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
                tensors[path] = {k: [v["dtype"], v["shape"]] for k, v in header.items() if k != "__metadata__"}
            elif n.endswith(".json") and n != "special_tokens_map.json":
                with open(os.path.join(folder, path)) as f:
                    files[path] = json.dumps(json.load(f), separators=(",", ":"))
    requests = []
    for options in [{}, *MORE.get(name, [])]:
        v = vectors(folder, name, options)
        some = np.arange(SAMPLES) * v.shape[1] // SAMPLES
        norms = np.linalg.norm(v.astype(np.float64), axis=1)
        requests.append({"options": options, "dim": v.shape[1], "norms": [float(f"{x:.7g}") for x in norms],
                         "samples": [[float(f"{x:.7g}") for x in row[some]] for row in v]})
        print(name, options, v.shape, requests[-1]["norms"])
    shutil.rmtree(folder)
    return {"name": name, "files": files, "weights": tensors, "requests": requests}


def main():
    warnings.simplefilter("ignore")
    T.logging.set_verbosity_error()
    torch.set_num_threads(1)
    records = [record(name, make) for name, make in CASES.items()]
    text = json.dumps({"texts": TEXTS, "folders": records}, separators=(",", ":"), ensure_ascii=False).encode()
    with open(os.path.join(HERE, "folders.json.gz"), "wb") as f:
        f.write(gzip.compress(text, 9, mtime=0))
    print(len(text), os.path.getsize(os.path.join(HERE, "folders.json.gz")))


if __name__ == "__main__":
    main()
