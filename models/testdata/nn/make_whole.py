"""Makes whole pickled modules, torch.save(model), in whole/, and whole.json with what PyTorch computes for inputs that
come from the hash of ../zoo_hash.py.

    python make_whole.py

torch 2.15, torchvision 0.29. The files in whole/refused must not run: whole.json says why.
"""

import json
import pathlib
import warnings
from collections import OrderedDict
from functools import partial

import torch
from torch import nn
from torchvision.models import ResNet, SwinTransformer, VisionTransformer
from torchvision.models.mobilenetv3 import InvertedResidual, InvertedResidualConfig
from torchvision.models.resnet import BasicBlock, Bottleneck

from make_nn import fill, tensor
from nn_cases import ids, x
from zoo_reference import describe, flatten

HERE = pathlib.Path(__file__).parent / "whole"


def digits():
    return nn.Sequential(OrderedDict(
        flatten=nn.Flatten(), hidden=nn.Linear(16, 6), act=nn.ReLU(inplace=True), drop=nn.Dropout(0.5),
        classify=nn.Linear(6, 4), out=nn.LogSoftmax(dim=1)))


def half():
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.SiLU(), nn.AvgPool2d(2),
                         nn.Conv2d(4, 4, 3, groups=2, padding="same"), nn.Hardswish(), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(4, 3)).half()


def decoder():
    return nn.Sequential(nn.ConvTranspose2d(3, 4, 4, 2, 1), nn.InstanceNorm2d(4, affine=True), nn.LeakyReLU(0.2),
                         nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False), nn.ReflectionPad2d(1),
                         nn.Conv2d(4, 8, 3), nn.PixelShuffle(2), nn.Tanh()).bfloat16()


def resnet():
    """torchvision's class, its layers replaced by narrow ones."""
    m = ResNet(BasicBlock, [0, 0, 0, 0])
    down = lambda a, b: nn.Sequential(nn.Conv2d(a, b, 1, 2, bias=False), nn.BatchNorm2d(b))  # noqa: E731
    m.conv1, m.bn1 = nn.Conv2d(3, 4, 7, 2, 3, bias=False), nn.BatchNorm2d(4)
    m.layer1 = nn.Sequential(BasicBlock(4, 4))
    m.layer2 = nn.Sequential(BasicBlock(4, 6, 2, down(4, 6)))
    m.layer3 = nn.Sequential(Bottleneck(6, 2, 2, down(6, 8), base_width=64))
    m.layer4 = nn.Sequential()
    m.fc = nn.Linear(8, 5)
    return m


def mobile():
    config = lambda *a: InvertedResidualConfig(*a, width_mult=1.0)  # noqa: E731
    norm = partial(nn.BatchNorm2d, eps=0.001)
    return nn.Sequential(InvertedResidual(config(8, 3, 16, 8, True, "RE", 1, 1), norm),
                         InvertedResidual(config(8, 5, 16, 8, True, "HS", 2, 1), norm))


def swin():
    return SwinTransformer([2, 2], 8, [1, 1], [1, 2], [2, 2], num_classes=3, stochastic_depth_prob=0.0)


def vit():
    """Its norm_layer is a functools.partial."""
    return VisionTransformer(8, 4, 2, 2, 8, 12, num_classes=3)


def tagger():
    layer = nn.TransformerEncoderLayer(8, 2, 12, activation="gelu", batch_first=True)
    return nn.Sequential(nn.Embedding(20, 8), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(8, 4))


def tied():
    embed, head, block = nn.Embedding(12, 6), nn.Linear(6, 12, bias=False), nn.Linear(6, 6)
    head.weight = embed.weight
    return nn.Sequential(embed, block, nn.GELU(), block, head)


def vocoder():
    norm = torch.nn.utils.weight_norm
    return nn.Sequential(norm(nn.Conv1d(4, 6, 7, padding=3)), nn.LeakyReLU(0.1),
                         norm(nn.ConvTranspose1d(6, 3, 4, 2, 1)), nn.LeakyReLU(0.1), norm(nn.Conv1d(3, 1, 7, padding=3)),
                         nn.Tanh())


class Backend:
    """What every module held in its attribute _backend until PyTorch 1.2."""

    def __reduce__(self):
        from torch.nn.backends.thnn import _get_thnn_function_backend
        return _get_thnn_function_backend, ()


def early():
    """A module with the attributes that PyTorch 1.0 gave it."""
    m = nn.Sequential(nn.Conv2d(2, 4, 3, 2), nn.ReLU(), nn.Upsample(scale_factor=2), nn.AdaptiveAvgPool2d((2, 2)))
    for child in m.modules():
        child.__dict__["_backend"] = Backend()
        for later in ("_is_full_backward_hook", "_non_persistent_buffers_set", "_forward_hooks_with_kwargs",
                      "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs", "_backward_pre_hooks",
                      "_state_dict_pre_hooks", "_load_state_dict_post_hooks", "padding_mode", "recompute_scale_factor",
                      "_reversed_padding_repeated_twice"):
            child.__dict__.pop(later, None)
    return m


WHOLE = {
    "digits.pt": (digits, {"input": x(3, 1, 4, 4)}, {"training": True}),
    "half.pt": (half, {"input": x(2, 2, 8, 8, dtype="float16")}, {}),
    "decoder.pt": (decoder, {"input": x(1, 3, 4, 5, dtype="bfloat16")}, {}),
    "resnet.pt": (resnet, {"x": x(2, 3, 32, 32)}, {}),
    "mobile.pt": (mobile, {"input": x(2, 8, 9, 9)}, {}),
    "swin.pt": (swin, {"x": x(1, 3, 16, 16)}, {}),
    "vit.pt": (vit, {"x": x(2, 3, 8, 8)}, {}),
    "tagger.pt": (tagger, {"input": ids(2, 7, high=20)}, {}),
    "tied.pt": (tied, {"input": ids(2, 3, high=12)}, {}),
    "vocoder.pt": (vocoder, {"input": x(1, 4, 9)}, {}),
    "lstm.pt": (lambda: nn.LSTM(5, 6, 2, bidirectional=True, batch_first=True), {"input": x(2, 4, 5)}, {}),
    "gru_legacy.pt": (lambda: nn.GRU(5, 6), {"input": x(4, 2, 5), "h_0": x(1, 2, 6)}, {"legacy": True}),
    "transformer.pt": (lambda: nn.Transformer(8, 2, 1, 1, 12, norm_first=True), {"src": x(5, 2, 8), "tgt": x(3, 2, 8)}, {}),
    "attention.pt": (lambda: nn.MultiheadAttention(8, 2, kdim=6, vdim=5, batch_first=True),
                     {"query": x(2, 3, 8), "key": x(2, 4, 6), "value": x(2, 4, 5)}, {}),
    "early_legacy.pt": (early, {"input": x(2, 2, 9, 9)}, {"legacy": True}),
    "parallel.pt": (lambda: nn.DataParallel(digits()), {"input": x(3, 1, 4, 4)}, {}),
}


def changed(make, change):
    m = make()
    change(m)
    return m


def conv(**attrs):
    return lambda: changed(lambda: nn.Sequential(nn.Conv2d(2, 2, 3)), lambda m: m[0].__dict__.update(attrs))


def without(name):
    return lambda: changed(lambda: nn.Sequential(nn.Conv2d(2, 2, 3)), lambda m: m[0].__dict__.pop(name))


def lying(cls, **attrs):
    def make(*args, **kwargs):
        m = cls(*args, **kwargs)
        m.__dict__.update(attrs)
        return m
    return make


def deep(n):
    m = nn.ReLU()
    for _ in range(n):
        m = nn.Sequential(m)
    return m


class Mine(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)


def scale(module, args):
    return (args[0] * 2,)


def hooked():
    m = nn.Sequential(nn.Linear(4, 2))
    m[0].register_forward_pre_hook(scale)
    return m


PICTURE, ROWS = {"input": [1, 2, 8, 8]}, {"input": [2, 4]}
REFUSED = {
    "stride_text.pt": (conv(stride="2"), PICTURE, "stride"),
    "stride_zero.pt": (conv(stride=(0, 0)), PICTURE, "stride"),
    "stride_three.pt": (conv(stride=(1, 1, 1)), PICTURE, "stride"),
    "stride_missing.pt": (without("stride"), PICTURE, "stride"),
    "groups_zero.pt": (conv(groups=0), PICTURE, "group"),
    "padding_huge.pt": (conv(padding=(1 << 62, 1 << 62)), PICTURE, "conv2d"),
    "padding_mode.pt": (conv(padding_mode="mirror"), PICTURE, "mirror"),
    "kernel_huge.pt": (lambda: lying(nn.MaxPool2d, kernel_size=1 << 40, stride=1 << 40)(2), PICTURE, "max_pool2d"),
    "output_huge.pt": (lambda: lying(nn.AdaptiveAvgPool2d, output_size=(1 << 40, 1 << 40))(2), PICTURE, "adaptive_avg_pool2d"),
    "upsample_huge.pt": (lambda: nn.Upsample(scale_factor=1e300), PICTURE, "Upsample"),
    "heads_zero.pt": (lambda: lying(nn.MultiheadAttention, num_heads=0)(8, 2),
                      {"query": [3, 1, 8], "key": [3, 1, 8], "value": [3, 1, 8]}, "0 heads"),
    "layers_many.pt": (lambda: lying(nn.LSTM, num_layers=1 << 50)(4, 4), {"input": [3, 1, 4]}, "num_layers"),
    "window_huge.pt": (lambda: nn.LocalResponseNorm(1 << 40), PICTURE, "window"),
    "groups_of_channels.pt": (lambda: lying(nn.GroupNorm, num_groups=0)(2, 2), PICTURE, "group"),
    "mine.pt": (lambda: nn.Sequential(Mine(), nn.ReLU(), Mine(), nn.FractionalMaxPool2d(2, 2)), ROWS, "Mine"),
    "hook.pt": (hooked, ROWS, "scale"),
    "spectral.pt": (lambda: nn.Sequential(torch.nn.utils.spectral_norm(nn.Linear(4, 3))), ROWS, "spectral norm"),
    "deep.pt": (lambda: deep(150), ROWS, "deep"),
    "list.pt": (lambda: nn.ModuleList([nn.Linear(4, 2)]), ROWS, "ModuleList"),
}


def main():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    (HERE / "refused").mkdir(parents=True, exist_ok=True)
    records = {"torch": torch.__version__.split("+")[0], "whole": {}, "refused": {}}
    for name, (make, inputs, options) in WHOLE.items():
        torch.manual_seed(1)
        model = make()
        fill(model)
        model.train(options.get("training", False))
        torch.save(model, HERE / name, _use_new_zipfile_serialization=not options.get("legacy", False))
        model.eval()
        if name == "early_legacy.pt":
            model = torch.load(HERE / name, weights_only=False)  # __setstate__ fills in what came later
        args = {n: tensor("input:" + n, s) for n, s in inputs.items()}
        if name == "attention.pt" or name == "transformer.pt":
            result = model(**args)
        else:
            result = model(*args.values())
        outputs = [describe(f"output_{i}", v) for i, v in enumerate(v for v in flatten(result) if v is not None)]
        records["whole"][name] = {"inputs": inputs, "outputs": outputs}
    for name, (make, shapes, why) in REFUSED.items():
        torch.manual_seed(1)
        torch.save(make().eval(), HERE / "refused" / name)
        records["refused"][name] = {"shapes": shapes, "why": why}
    (HERE / "whole.json").write_text(json.dumps(records, indent=None, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
