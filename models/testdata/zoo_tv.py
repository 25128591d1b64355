"""torchvision: classification, segmentation, video, optical flow.

The real depths and widths, at small and often odd resolutions; the few nets with hundreds of millions of weights
keep every kind of block and are narrower or shallower, as their config says.
"""

import copy

import torchvision
from torch import nn
from torch.export import Dim
from torchvision.models import convnext, efficientnet, maxvit, regnet, swin_transformer, vgg, vision_transformer
from torchvision.models.video import mvit, swin_transformer as swin3d

from zoo_spec import Case, In, Spec, image, model

AUTO = Dim.DYNAMIC
CLASSES = 100


def net(family, name, config, build, sizes, dynamic=None, **options):
    """Registers a model of one image argument. sizes holds the shape of each case."""

    @model(family, name)
    def spec():
        m, text = build()
        return Spec(m, [Case((image(*s),)) for s in sizes], text or config, dynamic, **options)


def plain(name, *sizes, dynamic=None, family="tv", options=None, **kwargs):
    kwargs = {"num_classes": CLASSES} | kwargs
    text = f"torchvision.models.get_model({name!r}, weights=None, " + ", ".join(
        f"{k}={v!r}" for k, v in kwargs.items()) + ")"
    net(family, name, text, lambda: (torchvision.models.get_model(name, weights=None, **kwargs), ""), sizes,
        dynamic, **(options or {}))


BATCH = ({0: AUTO},)
BATCH_AND_SIZE = ({0: AUTO, 2: AUTO, 3: AUTO},)

plain("alexnet", (2, 3, 97, 97), (5, 3, 97, 97), dynamic=BATCH)
for n in ("resnet18", "resnet34"):
    plain(n, (2, 3, 65, 65), (3, 3, 49, 81), (1, 3, 64, 64), dynamic=BATCH_AND_SIZE)
plain("mobilenet_v2", (2, 3, 64, 64), (3, 3, 64, 64), dynamic=BATCH)
plain("squeezenet1_0", (1, 3, 75, 75))
plain("squeezenet1_1", (2, 3, 75, 75), (3, 3, 75, 75), dynamic=BATCH)
for n in ("mobilenet_v3_small", "mobilenet_v3_large"):
    plain(n, (2, 3, 70, 66))
for n, s in (("mnasnet0_5", 64), ("mnasnet0_75", 67), ("mnasnet1_0", 64), ("mnasnet1_3", 71)):
    plain(n, (2, 3, s, s))
for n, s in (("x0_5", 64), ("x1_0", 65), ("x1_5", 67), ("x2_0", 70)):
    plain("shufflenet_v2_" + n, (2, 3, s, s))
for n, s in (("resnet50", 64), ("resnet101", 65), ("resnet152", 61), ("resnext50_32x4d", 67),
             ("resnext101_32x8d", 49), ("resnext101_64x4d", 51), ("wide_resnet50_2", 64), ("wide_resnet101_2", 49)):
    plain(n, *(((1, 3, s, s),) if n != "resnet50" else ((2, 3, s, s), (1, 3, s, s))),
          dynamic=BATCH if n == "resnet50" else None)
for n, s in (("densenet121", 64), ("densenet161", 67), ("densenet169", 65), ("densenet201", 64)):
    plain(n, *(((1, 3, s, s),) if n != "densenet121" else ((2, 3, s, s), (3, 3, s, s))),
          dynamic=BATCH if n == "densenet121" else None)
plain("googlenet", (2, 3, 79, 79), init_weights=False, aux_logits=False)
plain("inception_v3", (1, 3, 97, 97), init_weights=False)
for i, s in enumerate((64, 67, 65, 75, 70, 64, 67, 65)):
    plain(f"efficientnet_b{i}", *(((1, 3, s, s),) if i else ((2, 3, s, s), (3, 3, s, s))),
          dynamic=None if i else BATCH, options={"agree": 1e-4} if i == 7 else None)
plain("efficientnet_v2_s", (1, 3, 65, 65))
for n in ("x_400mf", "x_800mf", "x_1_6gf", "x_3_2gf", "x_8gf", "x_16gf",
          "y_400mf", "y_800mf", "y_1_6gf", "y_3_2gf", "y_8gf"):
    plain("regnet_" + n, (1, 3, 65, 65))
plain("convnext_tiny", (2, 3, 65, 65), (1, 3, 64, 64), dynamic=BATCH_AND_SIZE)
plain("convnext_small", (1, 3, 64, 64))
plain("swin_t", (1, 3, 67, 67))
plain("swin_v2_t", (1, 3, 67, 67))


def vggs():
    for n in ("vgg11", "vgg13", "vgg16", "vgg19"):
        for bn in ("", "_bn"):
            def build(n=n, bn=bn):
                cfg = {"vgg11": "A", "vgg13": "B", "vgg16": "D", "vgg19": "E"}[n]
                m = vgg.VGG(vgg.make_layers(vgg.cfgs[cfg], batch_norm=bool(bn)), num_classes=CLASSES,
                            init_weights=False)
                if n != "vgg11":
                    m.classifier[0], m.classifier[3] = nn.Linear(512 * 49, 256), nn.Linear(256, 256)
                    m.classifier[6] = nn.Linear(256, CLASSES)
                return m, ""

            net("tv", n + bn, f"torchvision.models.{n}{bn}(num_classes=100)"
                + (", the classifier 256 wide" if n != "vgg11" else ""), build,
                [(2, 3, 45, 45), (1, 3, 45, 45)] if n + bn == "vgg11" else [(1, 3, 45, 47)],
                BATCH if n + bn == "vgg11" else None)


vggs()


def convnexts():
    for n, widths, depths in (("base", (128, 256, 512, 1024), (2, 2, 4, 2)),
                              ("large", (192, 384, 768, 1536), (2, 2, 3, 2))):
        def build(widths=widths, depths=depths):
            nexts = widths[1:] + (None,)
            setting = [convnext.CNBlockConfig(w, o, d) for w, o, d in zip(widths, nexts, depths)]
            return convnext.ConvNeXt(setting, stochastic_depth_prob=0.5, num_classes=CLASSES), ""

        net("tv", "convnext_" + n, f"torchvision.models.convnext_{n}, depths {depths}", build, [(1, 3, 65, 65)])


convnexts()


def regnets():
    def big(name, depths, widths, group, se, note):
        def build():
            params = regnet.BlockParams(depths, widths, [group] * 4, [1.0] * 4, [2] * 4, se)
            return regnet.RegNet(params, num_classes=CLASSES), ""

        net("tv", name, f"torchvision.models.{name}, {note}: depths {depths}, widths {widths}, group width {group}",
            build, [(1, 3, 65, 65)])

    big("regnet_x_32gf", [2, 3, 4, 1], [336, 672, 1344, 2520], 168, None, "shallower")
    big("regnet_y_16gf", [2, 4, 4, 1], [224, 448, 1232, 3024], 112, 0.25, "shallower")
    big("regnet_y_32gf", [2, 2, 3, 1], [232, 696, 1392, 3712], 232, 0.25, "shallower")
    big("regnet_y_128gf", [2, 3, 4, 2], [132, 264, 726, 1848], 66, 0.25, "shallower and a quarter as wide")


regnets()


def efficientnets():
    for n, s in (("m", 64), ("l", 67)):
        def build(n=n):
            setting, last = efficientnet._efficientnet_conf("efficientnet_v2_" + n)
            setting = copy.deepcopy(setting)
            for c in setting:
                c.num_layers = max(2, c.num_layers // 3)
            return efficientnet.EfficientNet(setting, 0.3, num_classes=CLASSES, last_channel=last,
                                             norm_layer=lambda c: nn.BatchNorm2d(c, eps=1e-3)), ""

        net("tv", "efficientnet_v2_" + n,
            f"torchvision.models.efficientnet_v2_{n}, a third of the layers of each stage",
            build, [(1, 3, s, s)])


efficientnets()


def swins():
    for v in ("", "_v2"):
        for n, dim, heads, s in (("s", 96, [3, 6, 12, 24], 64), ("b", 128, [4, 8, 16, 32], 61)):
            def build(v=v, dim=dim, heads=heads):
                extra = {"block": swin_transformer.SwinTransformerBlockV2,
                         "downsample_layer": swin_transformer.PatchMergingV2} if v else {}
                return swin_transformer.SwinTransformer([4, 4], dim, [2, 2, 4, 2], heads, [8, 8] if v else [7, 7],
                                                        stochastic_depth_prob=0.3, num_classes=CLASSES, **extra), ""

            net("tv", f"swin{v}_{n}", f"torchvision.models.swin{v}_{n}, depths [2, 2, 4, 2]", build, [(1, 3, s, s)])


swins()


def vits():
    for n, size, patch, hidden, heads, mlp in (("b_16", 48, 16, 768, 12, 3072), ("b_32", 96, 32, 768, 12, 3072),
                                               ("l_16", 48, 16, 1024, 16, 4096), ("l_32", 96, 32, 1024, 16, 4096),
                                               ("h_14", 42, 14, 1280, 16, 5120)):
        def build(size=size, patch=patch, hidden=hidden, heads=heads, mlp=mlp):
            return vision_transformer.VisionTransformer(size, patch, 2, heads, hidden, mlp, num_classes=CLASSES), ""

        dynamic = BATCH if n == "b_16" else None
        net("tv", "vit_" + n, f"torchvision.models.vit_{n}, image_size={size}, num_layers=2", build,
            [(2, 3, size, size), (5, 3, size, size)] if dynamic else [(1, 3, size, size)], dynamic,
            weights={r"conv_proj\.weight": (0.0, 0.06)})


vits()

net("tv", "maxvit_t", "torchvision.models.maxvit.MaxVit((64, 64), 64, 2, [64, 128, 256, 512], [2, 2, 3, 2], 32, 0.2)",
    lambda: (maxvit.MaxVit((64, 64), 64, 2, [64, 128, 256, 512], [2, 2, 3, 2], 32, 0.2, num_classes=CLASSES), ""),
    [(1, 3, 64, 64)])


def segmentation(name, *sizes, dynamic=None, **kwargs):
    kwargs = {"weights_backbone": None, "num_classes": 21} | kwargs
    plain(name, *sizes, dynamic=dynamic, family="tv.segmentation", **kwargs)


segmentation("fcn_resnet50", (2, 3, 41, 65), (1, 3, 57, 57), dynamic=BATCH_AND_SIZE, aux_loss=True)
segmentation("fcn_resnet101", (1, 3, 49, 49))
segmentation("deeplabv3_resnet50", (1, 3, 57, 65), aux_loss=True)
segmentation("deeplabv3_resnet101", (1, 3, 49, 49))
segmentation("deeplabv3_mobilenet_v3_large", (2, 3, 65, 65), (1, 3, 81, 49), dynamic=BATCH_AND_SIZE)
segmentation("lraspp_mobilenet_v3_large", (1, 3, 67, 75))


def video(name, *sizes, dynamic=None, **kwargs):
    plain(name, *sizes, dynamic=dynamic, family="tv.video", **kwargs)


video("r3d_18", (2, 3, 5, 33, 33), (1, 3, 8, 32, 32), dynamic=({0: AUTO, 2: AUTO, 3: AUTO, 4: AUTO},))
video("mc3_18", (1, 3, 5, 33, 33))
video("r2plus1d_18", (1, 3, 6, 37, 35))


def s3d():
    m = torchvision.models.video.s3d(num_classes=CLASSES)
    m.avgpool = nn.AvgPool3d((2, 2, 3), stride=1)
    return m, ""


net("tv.video", "s3d", "torchvision.models.video.s3d(num_classes=100), avgpool of (2, 2, 3)", s3d,
    [(1, 3, 13, 66, 97)])


def smaller(builder, **sizes):
    """Calls a builder of torchvision that fixes the sizes of its input, with other sizes."""
    original = mvit._mvit
    mvit._mvit = lambda **kwargs: original(**(kwargs | sizes))
    try:
        return builder(num_classes=CLASSES)
    finally:
        mvit._mvit = original


def mvits():
    for n, frames, size in (("mvit_v1_b", 4, 64), ("mvit_v2_s", 6, 64)):
        def build(n=n, frames=frames, size=size):
            f = getattr(torchvision.models.video, n)
            return smaller(f, temporal_size=frames, spatial_size=(size, size)), ""

        net("tv.video", n, f"torchvision.models.video.{n}(num_classes=100), temporal_size={frames}, "
            f"spatial_size=({size}, {size})", build, [(1, 3, frames, size, size)])


mvits()


def swin3ds():
    for n, dim, depths, heads, window in (("t", 96, [2, 2, 6, 2], [3, 6, 12, 24], [8, 7, 7]),
                                          ("s", 96, [2, 2, 4, 2], [3, 6, 12, 24], [2, 7, 7]),
                                          ("b", 128, [2, 2, 2, 2], [4, 8, 16, 32], [2, 7, 7])):
        def build(dim=dim, depths=depths, heads=heads, window=window):
            return swin3d.SwinTransformer3d([2, 4, 4], dim, depths, heads, window, stochastic_depth_prob=0.1,
                                            num_classes=CLASSES), ""

        net("tv.video", "swin3d_" + n, f"torchvision.models.video.swin3d_{n}, depths {depths}, window {window}", build,
            [(1, 3, 5, 37, 34)] if n == "t" else [(1, 3, 4, 32, 32)])


swin3ds()


def rafts():
    for n in ("raft_small", "raft_large"):
        @model("tv.optical_flow", n)
        def spec(n=n):
            m = getattr(torchvision.models.optical_flow, n)()
            a, b = In((1, 3, 128, 136)), In((1, 3, 128, 136))
            return Spec(m, [Case((a, b), {"num_flow_updates": 2})],
                        f"torchvision.models.optical_flow.{n}(), num_flow_updates=2", agree=1e-4)


rafts()
