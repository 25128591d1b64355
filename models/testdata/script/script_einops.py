"""Models with einops for make_script.py, whose traces compute with sizes as tensors, in place too, and a script that does. Made with einops 0.8."""

from typing import Tuple

import torch
from torch import nn, Tensor
from einops import pack, rearrange, reduce, repeat, unpack
from einops.layers.torch import EinMix, Rearrange, Reduce


class Patches(nn.Module):
    """A ViT-like model: patches embedded, a class token repeated, heads split and joined, a pool."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Sequential(Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4), nn.LayerNorm(48), nn.Linear(48, 12))
        self.cls = nn.Parameter(torch.zeros(1, 1, 12))
        self.qkv = nn.Linear(12, 36, bias=False)
        self.out = nn.Sequential(nn.Linear(12, 12), Reduce("b n d -> b d", "mean"))

    def forward(self, x):
        y = self.patch(x)
        y = torch.cat([repeat(self.cls, "1 n d -> b n d", b=x.shape[0]), y], 1)
        q, k, v = rearrange(self.qkv(y), "b n (t h d) -> t b h n d", t=3, h=3)
        w = (q @ k.transpose(-1, -2)).softmax(-1)
        return self.out(rearrange(w @ v, "b h n d -> b n (h d)"))


class Shuffles(nn.Module):
    """Pixel shuffles by einops, pools of windows, and what repeats pixels."""

    def __init__(self):
        super().__init__()
        self.up = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), Rearrange("b (c r s) h w -> b c (h r) (w s)", r=2, s=2), nn.ReLU())
        self.pool = Reduce("b c (h p) (w q) -> b c h w", "max", p=2, q=2)

    def forward(self, x):
        y = self.up(x)
        down = rearrange(y, "b c (h r) (w s) -> b (c r s) h w", r=2, s=2)
        wide = repeat(y, "b c h w -> b c (h r) (w s)", r=2, s=3)
        windows = rearrange(y, "b c (h p) (w q) -> (b h w) (p q) c", p=4, q=4)
        return self.pool(y), down, reduce(wide, "b c h w -> b (h w)", "sum"), windows


class Mixes(nn.Module):
    """EinMix, and lists packed and unpacked."""

    def __init__(self):
        super().__init__()
        self.tokens = EinMix("b n c -> b m c", weight_shape="n m", bias_shape="m", n=6, m=4)
        self.heads = EinMix("b n (h c) -> b n h d", weight_shape="h c d", h=2, c=3, d=5)
        self.inside = nn.Sequential(EinMix("b n c -> b n d", weight_shape="c d", bias_shape="d", c=6, d=6), nn.GELU())

    def forward(self, x):
        y = self.inside(self.tokens(x))
        both, shapes = pack([y, x[:, 0]], "b * c")
        a, b = unpack(both * 2, shapes, "b * c")
        return self.heads(y), rearrange([a, a + 1], "t b n c -> b (t n) c"), b


class InPlace(nn.Module):
    """Sizes in tensors: arithmetic in place, which every name of one sees, quotients that round, powers, sums; then numbers."""

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor, int]:
        sizes = torch._shape_as_tensor(x)
        n, m = sizes[0], sizes[1].clone()
        a = n * 2
        same = a
        a.mul_(m).add_(4).sub_(n)
        b = (same * 1).floor_divide_(3)
        c = torch.div(a, 4, rounding_mode="floor")
        d = torch.div(-a, 4, rounding_mode="trunc")
        e = (a ** 2).remainder_(7)
        f = (a + 0).div_(3, rounding_mode="floor").neg_()
        total = sizes.prod() + (sizes * 2 - 1).sum() + sizes.max() * 10 + sizes.min()
        pads = [x.new_full([int(v)], float(v)) for v in [same, b, c, -d, e, -f, total]]
        k = int((a - m).item()) + int(torch.tensor([3, 4]).max().item())
        if bool(torch._shape_as_tensor(x).prod() > 20):
            k += 1
        assert x.numel() == sizes.prod().item()
        return torch.cat(pads), x * same, k
