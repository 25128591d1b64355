"""The cases of make_nn.py: every class of torch.nn that has a forward of its own in evaluation."""

import base64
from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import nn


class Case:
    def __init__(self, name, model, inputs, call=None, calls=True, refused=None, text=False):
        self.name, self.model, self.inputs, self.call = name, model, inputs, call
        self.calls, self.refused, self.text = calls, refused, text

    def arguments(self, inputs):
        """The arguments of forward for tensors by name."""
        if self.call:
            return self.call(**inputs)
        return tuple(inputs.values()), {}


def x(*shape, dtype="float32", offset=0.0, scale=2.0):
    return {"dtype": dtype, "shape": list(shape), "kind": "hash", "offset": offset, "scale": scale}


def ids(*shape, high=10, dtype="int64"):
    return {"dtype": dtype, "shape": list(shape), "kind": "ints", "low": 0, "high": high}


def literal(t):
    t = t.contiguous()
    raw = t.view(torch.uint8) if t.dtype == torch.bool else t
    return {"dtype": str(t.dtype).removeprefix("torch."), "shape": list(t.shape), "kind": "literal",
            "data": base64.b64encode(raw.numpy().tobytes()).decode()}


def show(v):
    if isinstance(v, nn.Module):
        return type(v).__name__
    return getattr(v, "__name__", None) or repr(v)


def one(cls, *args, at=None, calls=True, refused=None, dtype=None, input="input", **kwargs):
    """A class with one input, of which at is the description."""
    words = [show(a) for a in args] + [f"{k}={show(v)}" for k, v in kwargs.items()]
    name = f"{cls.__name__}({', '.join(words)})"
    if list(at["shape"]):
        name += " of " + "x".join(map(str, at["shape"]))
    if at["dtype"] in ("float16", "bfloat16", "float64") or dtype:
        name += f" {dtype or at['dtype']}".replace("torch.", "")

    def model():
        m = cls(*args, **kwargs)
        return m.to(dtype) if dtype else m

    return Case(name, model, {input: at}, calls=calls, refused=refused, text=True)


def activations():
    at = x(2, 3, 5)
    for cls in (nn.ReLU, nn.ReLU6, nn.SiLU, nn.Mish, nn.SELU, nn.Hardswish, nn.Hardsigmoid):
        yield one(cls, at=at)
        yield one(cls, inplace=True, at=at)
    for cls in (nn.Sigmoid, nn.Tanh, nn.LogSigmoid, nn.Softsign, nn.Tanhshrink, nn.GELU, nn.Softmax2d):
        yield one(cls, at=x(2, 3, 4, 5) if cls is nn.Softmax2d else at)
    yield one(nn.Softmax2d, at=x(3, 4, 5))
    yield one(nn.GELU, approximate="tanh", at=at)
    for cls in (nn.ELU, nn.CELU):
        yield one(cls, at=at)
        yield one(cls, alpha=0.5, inplace=True, at=at)
    yield one(nn.LeakyReLU, at=at)
    yield one(nn.LeakyReLU, 0.2, inplace=True, at=at)
    yield one(nn.Hardtanh, at=at)
    yield one(nn.Hardtanh, -0.5, 0.25, True, at=at)
    yield one(nn.Threshold, 0.1, 20, at=at)
    yield one(nn.Threshold, 0.1, -2.5, True, at=at)
    yield one(nn.RReLU, at=at)
    yield one(nn.RReLU, 0.1, 0.2, inplace=True, at=at)
    yield one(nn.Softplus, at=at)
    yield one(nn.Softplus, beta=2, threshold=1, at=at)
    yield one(nn.Softshrink, at=at)
    yield one(nn.Softshrink, 0.25, at=at)
    yield one(nn.Hardshrink, at=at)
    yield one(nn.Hardshrink, 0.25, at=at)
    yield one(nn.GLU, at=x(2, 3, 6))
    yield one(nn.GLU, 1, at=x(2, 4, 3))
    yield one(nn.PReLU, at=at)
    yield one(nn.PReLU, 3, at=at)
    for cls in (nn.Softmax, nn.LogSoftmax, nn.Softmin):
        yield one(cls, dim=-1, at=at)
        yield one(cls, dim=1, at=at)
        yield one(cls, at=x(3, 5))
        yield one(cls, at=at)
    for dtype in ("float16", "bfloat16", "float64"):
        make = lambda dtype=dtype: nn.Sequential(nn.PReLU(), nn.GELU(), nn.Softmax(1)).to(getattr(torch, dtype))  # noqa: E731
        yield Case(f"PReLU, GELU, Softmax, {dtype}", make, {"input": x(2, 3, 5, dtype=dtype)})


def linears():
    yield one(nn.Linear, 6, 4, at=x(3, 6))
    yield one(nn.Linear, 6, 4, bias=False, at=x(2, 3, 6))
    yield one(nn.Linear, 6, 4, at=x(6))
    yield one(nn.Linear, 6, 4, dtype=torch.float64, at=x(3, 6, dtype="float64"))
    yield one(nn.Linear, 6, 4, dtype=torch.float16, at=x(4, 6, dtype="float16"))
    yield one(nn.Linear, 6, 4, dtype=torch.bfloat16, at=x(5, 6, dtype="bfloat16"))
    for bias in (True, False):
        yield Case(f"Bilinear(4, 5, 3, bias={bias})", lambda bias=bias: nn.Bilinear(4, 5, 3, bias=bias),
                   {"input1": x(2, 4), "input2": x(2, 5)}, text=True)
    yield one(nn.Identity, at=x(2, 3))
    yield one(nn.Flatten, at=x(2, 3, 4))
    yield one(nn.Flatten, 0, 1, at=x(2, 3, 4))
    yield one(nn.Unflatten, 1, (2, 3), at=x(2, 6, 4))
    yield one(nn.Unflatten, -1, torch.Size([2, -1]), at=x(2, 6))

    def materialized(cls, *args, at):
        m = cls(*args)
        m(torch.zeros(at))
        return m

    yield Case("LazyLinear(4), materialized", lambda: materialized(nn.LazyLinear, 4, at=(2, 6)), {"input": x(3, 6)})
    yield Case("LazyConv2d(4, 3), materialized", lambda: materialized(nn.LazyConv2d, 4, 3, at=(1, 2, 5, 5)),
               {"input": x(1, 2, 5, 5)})
    yield Case("LazyBatchNorm2d(), materialized", lambda: materialized(nn.LazyBatchNorm2d, at=(2, 3, 5, 5)),
               {"input": x(1, 3, 5, 5)})


def convolutions():
    space = {1: (9,), 2: (9, 8), 3: (5, 6, 5)}
    for n, (conv, transposed) in {1: (nn.Conv1d, nn.ConvTranspose1d), 2: (nn.Conv2d, nn.ConvTranspose2d),
                                  3: (nn.Conv3d, nn.ConvTranspose3d)}.items():
        at = x(2, 4, *space[n])
        yield one(conv, 4, 6, 3, at=at)
        yield one(conv, 4, 6, 3, at=x(4, *space[n]))
        yield one(conv, 4, 6, 3, stride=2, padding=1, bias=False, at=at)
        yield one(conv, 4, 6, 3, padding=2, dilation=2, groups=2, at=at)
        yield one(conv, 4, 4, 3, groups=4, padding="same", at=at)
        yield one(conv, 4, 6, 2, padding="same", at=at)
        yield one(conv, 4, 6, 3, padding="valid", at=at)
        for mode in ("reflect", "replicate", "circular"):
            yield one(conv, 4, 6, 3, padding=1, padding_mode=mode, at=at)
        yield one(conv, 4, 6, 2, padding="same", padding_mode="replicate", at=at)
        yield one(transposed, 4, 6, 3, at=at)
        yield one(transposed, 4, 6, 3, stride=2, padding=1, output_padding=1, at=at)
        yield one(transposed, 4, 6, 3, groups=2, dilation=2, bias=False, at=at)
    at = x(2, 4, 9, 8)
    yield one(nn.Conv2d, 4, 6, (3, 1), stride=(2, 1), padding=(1, 0), dilation=(1, 2), at=at)
    yield one(nn.Conv2d, 4, 6, (3, 5), padding=(1, 2), padding_mode="circular", at=at)
    yield one(nn.ConvTranspose2d, 4, 6, (2, 3), stride=(2, 1), padding=(0, 1), at=at)
    yield one(nn.Conv2d, 4, 6, 3, dtype=torch.float16, at=x(2, 4, 9, 8, dtype="float16"))


def norms():
    for n, cls in {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}.items():
        at = x(2, 4, *(3, 5, 2)[:n])
        yield one(cls, 4, at=at)
        yield one(cls, 4, eps=0.1, affine=False, at=at)
        yield one(cls, 4, track_running_stats=False, at=at)
        yield one(cls, 4, momentum=None, at=at)
    yield one(nn.BatchNorm1d, 4, at=x(3, 4))
    yield one(nn.SyncBatchNorm, 4, at=x(2, 4, 3), calls=False)
    yield one(nn.SyncBatchNorm, 4, at=x(2, 4, 3, 2), calls=False)
    for n, cls in {1: nn.InstanceNorm1d, 2: nn.InstanceNorm2d, 3: nn.InstanceNorm3d}.items():
        at = x(2, 4, *(3, 5, 2)[:n])
        yield one(cls, 4, at=at)
        yield one(cls, 4, affine=True, eps=0.1, at=at)
        yield one(cls, 4, affine=True, track_running_stats=True, at=at)
        yield one(cls, 4, at=x(4, *(3, 5, 2)[:n]))
    yield one(nn.LayerNorm, 6, at=x(2, 3, 6))
    yield one(nn.LayerNorm, [3, 6], eps=0.01, at=x(2, 3, 6))
    yield one(nn.LayerNorm, 6, bias=False, at=x(2, 3, 6))
    yield one(nn.LayerNorm, 6, elementwise_affine=False, at=x(2, 3, 6))
    yield one(nn.LayerNorm, 6, dtype=torch.float16, at=x(2, 4, 6, dtype="float16"))
    yield one(nn.RMSNorm, 6, at=x(2, 3, 6))
    yield one(nn.RMSNorm, (3, 6), eps=0.01, at=x(2, 3, 6))
    yield one(nn.RMSNorm, 6, elementwise_affine=False, at=x(2, 3, 6))
    yield one(nn.GroupNorm, 2, 4, at=x(2, 4, 3, 5))
    yield one(nn.GroupNorm, 4, 4, eps=0.1, affine=False, at=x(2, 4, 3))
    for size in (1, 2, 3, 4):
        yield one(nn.LocalResponseNorm, size, at=x(2, 6, 3, 4))
        yield one(nn.CrossMapLRN2d, size, at=x(2, 6, 3, 4), calls=False)
    yield one(nn.LocalResponseNorm, 3, alpha=0.1, beta=0.5, k=2.0, at=x(2, 6, 3))
    yield one(nn.LocalResponseNorm, 3, alpha=0.1, at=x(2, 6, 3, 2, 2))
    yield one(nn.CrossMapLRN2d, 5, alpha=0.1, beta=0.5, k=2, at=x(2, 6, 3, 4), calls=False)


def pools():
    space = {1: (9,), 2: (9, 8), 3: (6, 7, 6)}
    for n in (1, 2, 3):
        at, single = x(2, 3, *space[n]), x(3, *space[n])
        pool, average, power, adaptive, adaptive_max, unpool = (
            getattr(nn, f"{c}{n}d") for c in ("MaxPool", "AvgPool", "LPPool", "AdaptiveAvgPool", "AdaptiveMaxPool",
                                              "MaxUnpool"))
        yield one(pool, 2, at=at)
        yield one(pool, 2, at=single)
        yield one(pool, 3, 2, 1, ceil_mode=True, at=at)
        yield one(pool, 2, 1, dilation=2, at=at)
        yield one(pool, 2, return_indices=True, at=at)
        yield one(average, 2, at=at)
        yield one(average, 2, at=single)
        yield one(average, 3, 2, 1, ceil_mode=True, at=at)
        yield one(average, 3, 2, 1, count_include_pad=False, at=at)
        if n > 1:
            yield one(average, 2, divisor_override=3, at=at)
        yield one(power, 2, 2, at=at)
        yield one(power, 1.5, 3, stride=2, ceil_mode=True, at=x(2, 3, *space[n], offset=3.0, scale=1.0))
        yield one(adaptive, 3, at=at)
        yield one(adaptive, 1, at=single)
        yield one(adaptive_max, 3, at=at)
        yield one(adaptive_max, 2, return_indices=True, at=at)
        if n > 1:
            yield one(adaptive, (None, 2, 2)[:n], at=at)
            yield one(adaptive_max, (None, 2, 2)[:n], at=at)
        small = [s // 2 for s in space[n]]
        where = torch.arange(2 * 3 * torch.Size(small).numel()).reshape(2, 3, *small)
        where = where % torch.Size(small).numel()
        yield Case(f"MaxUnpool{n}d(2)", lambda unpool=unpool: unpool(2),
                   {"input": x(2, 3, *small), "indices": literal(where)}, text=True)
        yield Case(f"MaxUnpool{n}d(3, stride=2, padding=1)", lambda unpool=unpool: unpool(3, stride=2, padding=1),
                   {"input": x(2, 3, *small), "indices": literal(where)}, text=True)
    yield one(nn.MaxPool2d, (3, 2), (2, 1), (1, 0), at=x(2, 3, 9, 8))
    yield one(nn.AvgPool2d, (3, 2), (2, 1), (1, 0), at=x(2, 3, 9, 8))
    yield one(nn.LPPool2d, 2, (3, 2), (2, 1), at=x(2, 3, 9, 8))
    yield one(nn.AdaptiveAvgPool2d, (3, 5), at=x(2, 3, 9, 8))
    yield one(nn.FractionalMaxPool2d, 3, output_size=4, at=x(1, 3, 9, 8), refused="random")
    yield one(nn.FractionalMaxPool3d, 2, output_size=4, at=x(1, 3, 9, 8, 8), refused="random")


def shapes():
    space = {1: (6,), 2: (6, 5), 3: (4, 5, 6)}
    for n in (1, 2, 3):
        at = x(2, 3, *space[n])
        pads = (1, 2, 3, 0, 2, 1)[:2 * n]
        for cls in ("ReflectionPad", "ReplicationPad", "CircularPad", "ZeroPad"):
            yield one(getattr(nn, f"{cls}{n}d"), 1, at=at)
            yield one(getattr(nn, f"{cls}{n}d"), pads, at=at)
        yield one(getattr(nn, f"ConstantPad{n}d"), 1, 3.5, at=at)
        yield one(getattr(nn, f"ConstantPad{n}d"), pads, -1, at=at)
        yield one(getattr(nn, f"ConstantPad{n}d"), (-1, 2) * n, 0, at=at)
        for kwargs in ({"scale_factor": 2}, {"size": 7}, {"scale_factor": 1.7}, {"scale_factor": 0.6}):
            modes = ["nearest", "nearest-exact", {1: "linear", 2: "bilinear", 3: "trilinear"}[n]]
            for mode in modes + (["bicubic"] if n == 2 else []):
                yield one(nn.Upsample, mode=mode, at=at, **kwargs)
                if mode not in ("nearest", "nearest-exact"):
                    yield one(nn.Upsample, mode=mode, align_corners=True, at=at, **kwargs)
            yield one(nn.Upsample, mode="area", at=at, **kwargs)
        yield one(nn.Upsample, scale_factor=1.7, recompute_scale_factor=True, at=at)
    yield one(nn.Upsample, size=(3, 9), mode="bilinear", at=x(2, 3, 6, 5))
    yield one(nn.Upsample, scale_factor=(1.5, 2), mode="bilinear", at=x(2, 3, 6, 5))
    yield one(nn.Upsample, scale_factor=1.7, mode="bilinear", recompute_scale_factor=True, at=x(2, 3, 6, 5))
    yield one(nn.UpsamplingNearest2d, scale_factor=2, at=x(2, 3, 6, 5))
    yield one(nn.UpsamplingBilinear2d, size=(9, 4), at=x(2, 3, 6, 5))
    yield one(nn.PixelShuffle, 2, at=x(2, 8, 3, 4))
    yield one(nn.PixelUnshuffle, 2, at=x(2, 3, 4, 6))
    yield one(nn.ChannelShuffle, 3, at=x(2, 6, 3, 4))
    yield one(nn.Fold, (4, 5), (2, 2), at=x(2, 12, 12))
    yield one(nn.Fold, (4, 5), 3, dilation=1, padding=1, stride=2, at=x(2, 27, 6))
    yield one(nn.Unfold, 2, at=x(2, 3, 4, 5))
    yield one(nn.Unfold, (2, 3), dilation=(2, 1), padding=1, stride=(1, 2), at=x(2, 3, 4, 5))
    for dim, eps in ((1, 1e-8), (-1, 0.1)):
        yield Case(f"CosineSimilarity({dim}, {eps})", lambda d=dim, e=eps: nn.CosineSimilarity(d, e),
                   {"x1": x(3, 4, 5), "x2": x(3, 4, 5)}, text=True)
    for args in ((), (1.0, 0.1), (2.0, 1e-6, True)):
        yield Case(f"PairwiseDistance{args}", lambda a=args: nn.PairwiseDistance(*a),
                   {"x1": x(3, 4), "x2": x(3, 4)}, text=True)
    for cls in (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout):
        yield one(cls, 0.4, at=x(2, 3, *(4, 2, 2)[:int(cls.__name__[-2]) if cls.__name__[-1] == "d" else 1]))
    yield one(nn.Dropout, inplace=True, at=x(2, 3))


def embeddings():
    yield one(nn.Embedding, 10, 4, at=ids(2, 3))
    yield one(nn.Embedding, 10, 4, padding_idx=2, at=ids(5))
    yield one(nn.Embedding, 10, 4, max_norm=1.0, at=ids(2, 3), calls=False)
    yield one(nn.Embedding, 10, 4, max_norm=1.0, norm_type=1.0, scale_grad_by_freq=True, at=ids(2, 3), calls=False)
    yield one(nn.Embedding, 10, 4, dtype=torch.float16, at=ids(2, 2))

    for kwargs in ({}, {"mode": "sum"}, {"mode": "max"}, {"mode": "sum", "padding_idx": 3}):
        yield one(nn.EmbeddingBag, 10, 4, at=ids(3, 5), **kwargs)
    offsets = literal(torch.tensor([0, 2, 5]))
    for kwargs in ({}, {"mode": "sum"}, {"mode": "max"}, {"include_last_offset": True}, {"padding_idx": 2}):
        yield Case(f"EmbeddingBag(10, 4, {kwargs}) with offsets", lambda k=kwargs: nn.EmbeddingBag(10, 4, **k),
                   {"input": ids(5 if kwargs.get("include_last_offset") else 7), "offsets": offsets}, text=True)
    yield Case("EmbeddingBag(10, 4, mode=sum) with weights", lambda: nn.EmbeddingBag(10, 4, mode="sum"),
               {"input": ids(7), "offsets": offsets, "per_sample_weights": x(7)}, text=True)
    yield Case("EmbeddingBag(10, 4, mode=sum) with weights of rows", lambda: nn.EmbeddingBag(10, 4, mode="sum"),
               {"input": ids(3, 5), "per_sample_weights": x(3, 5)}, text=True,
               call=lambda input, per_sample_weights: ((input, None, per_sample_weights), {}))


def recurrences():
    def call(input, h_0=None, c_0=None):
        if h_0 is None:
            return (input,), {}
        return (input, h_0 if c_0 is None else (h_0, c_0)), {}

    variants = [
        {}, {"batch_first": True}, {"bias": False}, {"num_layers": 2, "dropout": 0.3}, {"bidirectional": True},
        {"num_layers": 2, "bidirectional": True, "batch_first": True},
    ]
    for cls in (nn.LSTM, nn.GRU, nn.RNN):
        own = [{"nonlinearity": "relu"}] if cls is nn.RNN else []
        if cls is nn.LSTM:
            own = [{"proj_size": 3}, {"proj_size": 3, "num_layers": 2, "bidirectional": True, "batch_first": True}]
        for kwargs in variants + own:
            m = cls(4, 6, **kwargs)
            directions = 2 if m.bidirectional else 1
            h = [m.num_layers * directions, 2, m.proj_size or 6]
            c = [m.num_layers * directions, 2, 6]
            state = {"h_0": x(*h)} | ({"c_0": x(*c)} if cls is nn.LSTM else {})
            single = {n: x(*[d for i, d in enumerate(s["shape"]) if i != 1]) for n, s in state.items()}
            batch = x(2, 5, 4) if m.batch_first else x(5, 2, 4)
            words = ", ".join(f"{k}={v}" for k, v in kwargs.items())
            make = lambda cls=cls, kwargs=kwargs: cls(4, 6, **kwargs)  # noqa: E731
            for what, inputs in {"": {"input": batch}, " with a state": {"input": batch} | state,
                                 " of one": {"input": x(5, 4)}, " of one with a state": {"input": x(5, 4)} | single}.items():
                if what.startswith(" of one") and (kwargs.get("bias") is False or kwargs.get("nonlinearity")):
                    continue
                yield Case(f"{cls.__name__}(4, 6, {words}){what}", make, inputs, call=call, text=True)
    for cls in (nn.LSTMCell, nn.GRUCell, nn.RNNCell):
        own = [{"nonlinearity": "relu"}] if cls is nn.RNNCell else []
        for kwargs in [{}, {"bias": False}] + own:
            for batch in ((), (3,)):
                state = {"h_0": x(*batch, 6)} | ({"c_0": x(*batch, 6)} if cls is nn.LSTMCell else {})
                for what, more in {"": {}, " with a state": state}.items():
                    yield Case(f"{cls.__name__}(4, 6, {kwargs}) of {len(batch) + 1} dimensions{what}",
                               lambda cls=cls, kwargs=kwargs: cls(4, 6, **kwargs), {"input": x(*batch, 4)} | more,
                               call=call, text=True)


def causal(n):
    return literal(nn.Transformer.generate_square_subsequent_mask(n))


def hidden(*rows):
    """A mask that hides the last so many keys of each row."""
    n = 5
    return literal(torch.stack([torch.arange(n) >= n - r for r in rows]))


def attentions():
    def qkv(first, kdim=8, vdim=8):
        shape = (lambda n, b, w: (b, n, w)) if first else (lambda n, b, w: (n, b, w))
        return {"query": x(*shape(4, 2, 8)), "key": x(*shape(5, 2, kdim)), "value": x(*shape(5, 2, vdim))}

    def named(query, key, value, **kwargs):
        return (query, key, value), kwargs

    variants = [
        {}, {"bias": False}, {"batch_first": True}, {"add_bias_kv": True}, {"add_zero_attn": True},
        {"add_bias_kv": True, "add_zero_attn": True, "batch_first": True}, {"kdim": 6, "vdim": 10},
        {"kdim": 6, "vdim": 10, "bias": False, "batch_first": True}, {"dropout": 0.2},
    ]
    masks = {
        "": {}, " padding": {"key_padding_mask": hidden(1, 2)}, " mask": {"attn_mask": x(4, 5)},
        " both": {"key_padding_mask": hidden(0, 2), "attn_mask": x(4, 5)}, " mask per head": {"attn_mask": x(4, 4, 5)},
    }
    for kwargs in variants:
        for what, more in masks.items():
            inputs = qkv(kwargs.get("batch_first"), kwargs.get("kdim", 8), kwargs.get("vdim", 8)) | more
            yield Case(f"MultiheadAttention(8, 2, {kwargs}){what}",
                       lambda kwargs=kwargs: nn.MultiheadAttention(8, 2, **kwargs), inputs, call=named, text=True)
    yield Case("MultiheadAttention(8, 2) of one", lambda: nn.MultiheadAttention(8, 2),
               {"query": x(4, 8), "key": x(5, 8), "value": x(5, 8)}, call=named)
    yield Case("MultiheadAttention(8, 2) of one, padding", lambda: nn.MultiheadAttention(8, 2),
               {"query": x(4, 8), "key": x(5, 8), "value": x(5, 8),
                "key_padding_mask": literal(torch.tensor([False, False, True, False, True]))}, call=named)


def transformers():
    def keywords(first):
        return lambda **kw: ((kw.pop(first),), kw)

    def two(a, b):
        return lambda **kw: ((kw.pop(a), kw.pop(b)), kw)

    for kwargs in ({}, {"batch_first": True}, {"norm_first": True}, {"activation": F.gelu}, {"activation": "gelu"},
                   {"activation": nn.SiLU()}, {"activation": F.silu}, {"bias": False},
                   {"layer_norm_eps": 0.01, "batch_first": True, "norm_first": True}):
        words = ", ".join(f"{k}={show(v)}" for k, v in kwargs.items())
        first = kwargs.get("batch_first")
        src = x(2, 5, 8) if first else x(5, 2, 8)
        tgt = x(2, 4, 8) if first else x(4, 2, 8)
        make = lambda kwargs=kwargs: nn.TransformerEncoderLayer(8, 2, 12, **kwargs)  # noqa: E731
        yield Case(f"TransformerEncoderLayer(8, 2, 12, {words})", make, {"src": src}, call=keywords("src"), text=True)
        decoder = lambda kwargs=kwargs: nn.TransformerDecoderLayer(8, 2, 12, **kwargs)  # noqa: E731
        yield Case(f"TransformerDecoderLayer(8, 2, 12, {words})", decoder, {"tgt": tgt, "memory": src},
                   call=two("tgt", "memory"), text=True)
    layer = lambda **kw: nn.TransformerEncoderLayer(8, 2, 12, **kw)  # noqa: E731
    yield Case("TransformerEncoderLayer, masks", layer,
               {"src": x(5, 2, 8), "src_mask": causal(5), "src_key_padding_mask": hidden(0, 2)}, call=keywords("src"))
    yield Case("TransformerEncoder, batch_first", lambda: nn.TransformerEncoder(layer(batch_first=True), 2),
               {"src": x(2, 5, 8)}, call=keywords("src"))
    yield Case("TransformerEncoder, norm and masks", lambda: nn.TransformerEncoder(layer(), 2, nn.LayerNorm(8)),
               {"src": x(5, 2, 8), "mask": causal(5), "src_key_padding_mask": hidden(1, 2)}, call=keywords("src"),
               calls=False)
    decoder = lambda: nn.TransformerDecoderLayer(8, 2, 12)  # noqa: E731
    yield Case("TransformerDecoder", lambda: nn.TransformerDecoder(decoder(), 2),
               {"tgt": x(4, 2, 8), "memory": x(5, 2, 8)}, call=two("tgt", "memory"))
    yield Case("TransformerDecoder, norm and masks", lambda: nn.TransformerDecoder(decoder(), 2, nn.LayerNorm(8)),
               {"tgt": x(5, 2, 8), "memory": x(5, 2, 8), "tgt_mask": causal(5), "memory_mask": x(5, 5),
                "tgt_key_padding_mask": hidden(0, 1), "memory_key_padding_mask": hidden(2, 0)},
               call=two("tgt", "memory"), calls=False)
    for kwargs in ({}, {"batch_first": True, "norm_first": True}):
        make = lambda kwargs=kwargs: nn.Transformer(8, 2, 1, 2, 12, **kwargs)  # noqa: E731
        shape = (lambda n: (2, n, 8)) if kwargs else (lambda n: (n, 2, 8))
        yield Case(f"Transformer(8, 2, 1, 2, 12, {kwargs})", make, {"src": x(*shape(5)), "tgt": x(*shape(4))},
                   call=two("src", "tgt"), text=True)
        yield Case(f"Transformer(8, 2, 1, 2, 12, {kwargs}), masks", make,
                   {"src": x(*shape(5)), "tgt": x(*shape(5)), "src_mask": causal(5), "tgt_mask": causal(5),
                    "memory_mask": x(5, 5), "src_key_padding_mask": hidden(0, 1), "tgt_key_padding_mask": hidden(1, 0),
                    "memory_key_padding_mask": hidden(2, 0)}, call=two("src", "tgt"), calls=False)


def containers():
    at = {"input": x(3, 4)}
    yield Case("Sequential()", lambda: nn.Sequential(), at)
    yield Case("Sequential, nested", lambda: nn.Sequential(OrderedDict(
        stem=nn.Sequential(nn.Linear(4, 5), nn.ReLU(inplace=True)), head=nn.Linear(5, 2))), at)

    def tied():
        a = nn.Linear(4, 4)
        b = nn.Linear(4, 4)
        b.weight = a.weight
        return nn.Sequential(a, nn.Tanh(), a, b)

    yield Case("Sequential, shared and tied", tied, at)
    yield Case("Sequential of embedding and linear", lambda: nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 3)),
               {"input": ids(2, 3)})
    yield Case("DataParallel", lambda: nn.DataParallel(nn.Sequential(nn.Linear(4, 2))), at, calls=False)
    yield Case("ModuleList", lambda: nn.ModuleList([nn.Linear(4, 2), nn.MSELoss()]), at,
               refused="is not run itself")
    for dim in (0, 1, None):
        yield Case(f"weight_norm(Linear, dim={dim})",
                   lambda dim=dim: nn.Sequential(torch.nn.utils.weight_norm(nn.Linear(4, 3), dim=dim)), at, calls=False)
    yield Case("weight_norm(Conv1d)", lambda: torch.nn.utils.weight_norm(nn.Conv1d(4, 3, 3)), {"input": x(2, 4, 6)},
               calls=False)
    yield Case("weight_norm(ConvTranspose1d, dim=1)", lambda: torch.nn.utils.weight_norm(nn.ConvTranspose1d(4, 3, 3), dim=1),
               {"input": x(2, 4, 6)}, calls=False)
    yield Case("spectral_norm(Linear)", lambda: torch.nn.utils.spectral_norm(nn.Linear(4, 3)), at,
               refused="spectral norm")


def cases():
    for group in (activations, linears, convolutions, norms, pools, shapes, embeddings, recurrences, attentions,
                  transformers, containers):
        yield from group()
