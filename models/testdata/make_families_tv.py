"""Records torchvision's models: of sizes that are not published, and the state dicts of the published ones.

    python make_families_tv.py                   families/tv.zip, families/tv/published.json
    python make_families_tv.py vgg_small published    some of them

The programs and references are as in zoo/; published.json has the number of entries of each model's state dict and the
SHA-256 of its lines, "name dtype shape" with the sizes separated by commas.
"""

import hashlib
import json
import os
import sys
import warnings
from functools import partial

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "families", "tv")
sys.path.insert(0, HERE)

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torchvision import models  # noqa: E402
from torchvision.models import convnext, densenet, efficientnet, mnasnet, mobilenetv3, regnet, vgg  # noqa: E402

import zoo_archive  # noqa: E402
import zoo_build  # noqa: E402
from zoo_spec import Case, Spec, image  # noqa: E402
from zoo_weights import dtype_name  # noqa: E402

CLASSES = 10


def old_mnasnet():
    """The first version of the class, which today's takes on when it loads a state dict of then."""
    depths = mnasnet._get_depths(1.0)[:2] + mnasnet._get_depths(0.5)[2:]
    today = mnasnet._get_depths
    mnasnet._get_depths = lambda alpha: depths
    try:
        return mnasnet.MNASNet(0.5, num_classes=CLASSES)
    finally:
        mnasnet._get_depths = today


def small_efficientnet():
    conf = partial(efficientnet.MBConvConfig, width_mult=0.5, depth_mult=0.6)
    setting = [conf(1, 3, 1, 32, 16, 1), conf(6, 3, 2, 16, 24, 2), conf(6, 5, 2, 24, 40, 2), conf(4, 3, 2, 40, 80, 3)]
    return efficientnet.EfficientNet(setting, 0.2, num_classes=CLASSES)


def small_efficientnet_v2():
    fused, mb = efficientnet.FusedMBConvConfig, efficientnet.MBConvConfig
    setting = [fused(1, 3, 1, 16, 16, 2), fused(2, 3, 2, 16, 24, 2), mb(4, 5, 2, 24, 32, 2)]
    return efficientnet.EfficientNet(setting, 0.2, num_classes=CLASSES, last_channel=96,
                                     norm_layer=partial(nn.BatchNorm2d, eps=1e-3))


def small_mobilenet_v3(name, width, tail):
    setting, last = mobilenetv3._mobilenet_v3_conf(name, width_mult=width, reduced_tail=tail)
    return mobilenetv3.MobileNetV3(setting, last, num_classes=CLASSES)


def small_convnext():
    setting = [convnext.CNBlockConfig(24, 40, 1), convnext.CNBlockConfig(40, 64, 3), convnext.CNBlockConfig(64, None, 2)]
    return convnext.ConvNeXt(setting, num_classes=CLASSES)


def small_vgg(normalized):
    layers = vgg.make_layers([8, 16, "M", 24, "M", 32, 32, 32, "M"], batch_norm=normalized)
    m = vgg.VGG(layers, num_classes=CLASSES)
    m.classifier[0], m.classifier[3], m.classifier[6] = nn.Linear(32 * 49, 40), nn.Linear(40, 48), nn.Linear(48, CLASSES)
    return m


def small_regnet(ratio, squeeze):
    params = regnet.BlockParams([1, 2, 2], [32, 48, 96], [8, 8, 16], [ratio] * 3, [2] * 3, squeeze)
    return regnet.RegNet(params, num_classes=CLASSES, stem_width=24)


# Name -> the model and the shape of its input.
MODELS = {
    "googlenet_transform": (lambda: models.GoogLeNet(transform_input=True, init_weights=False), (1, 3, 64, 64)),
    "inception_v3_transform": (
        lambda: models.Inception3(transform_input=True, aux_logits=False, init_weights=False), (1, 3, 80, 80)),
    "inception_v3_aux": (lambda: models.Inception3(num_classes=CLASSES, init_weights=False), (1, 3, 80, 80)),
    "mobilenet_v2_x0_35": (lambda: models.MobileNetV2(num_classes=CLASSES, width_mult=0.35), (1, 3, 48, 48)),
    "mobilenet_v3_large_x0_75": (lambda: small_mobilenet_v3("mobilenet_v3_large", 0.75, False), (1, 3, 48, 48)),
    "mobilenet_v3_small_tail": (lambda: small_mobilenet_v3("mobilenet_v3_small", 1.0, True), (1, 3, 48, 48)),
    "shufflenet_v2_small": (
        lambda: models.ShuffleNetV2([2, 3, 1], [16, 40, 80, 96, 128], num_classes=CLASSES), (1, 3, 48, 48)),
    "mnasnet_version_1": (old_mnasnet, (1, 3, 48, 48)),
    "densenet_small": (
        lambda: densenet.DenseNet(12, (3, 4, 2), 24, bn_size=2, num_classes=CLASSES), (1, 3, 48, 48)),
    "efficientnet_small": (small_efficientnet, (1, 3, 48, 48)),
    "efficientnet_v2_small": (small_efficientnet_v2, (1, 3, 48, 48)),
    "regnet_x_narrow": (lambda: small_regnet(0.5, None), (1, 3, 48, 48)),
    "regnet_y_fifth": (lambda: small_regnet(1.0, 0.2), (1, 3, 48, 48)),
    "convnext_small": (small_convnext, (1, 3, 48, 48)),
    "vgg_small": (lambda: small_vgg(False), (1, 3, 48, 48)),
    "vgg_small_bn": (lambda: small_vgg(True), (1, 3, 48, 48)),
}


def digest(model):
    lines = [f"{n} {dtype_name(t.dtype)} {','.join(map(str, t.shape))}\n" for n, t in model.state_dict().items()]
    return {"entries": len(lines), "sha256": hashlib.sha256("".join(lines).encode()).hexdigest()}


def published():
    """The state dicts of all models whose input is a batch of pictures or videos, as their constructors make them."""
    widths = regnet.BlockParams.from_init_params

    def on_cpu(*args, **kwargs):  # it reads the widths that it computes
        with torch.device("cpu"):
            return widths(*args, **kwargs)

    regnet.BlockParams.from_init_params = on_cpu
    table = {}
    for name in models.list_models():
        if "quantized" in name or "rcnn" in name or "retinanet" in name or name.startswith(("ssd", "fcos", "raft")):
            continue
        kwargs = {"weights": None, "init_weights": False, "aux_logits": True} if name in ("googlenet", "inception_v3") \
            else {"weights": None, "weights_backbone": None} if "deeplab" in name or "fcn" in name or "lraspp" in name \
            else {"weights": None}
        with torch.device("meta"):
            table[name] = digest(models.get_model(name, **kwargs))
    return table


def write_published():
    with open(os.path.join(OUT, "published.json"), "w", encoding="utf-8") as f:
        f.write("{\n" + ",\n".join(f" {json.dumps(n)}: {json.dumps(v)}" for n, v in published().items()) + "\n}\n")


def main():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    os.makedirs(OUT, exist_ok=True)
    for name in sys.argv[1:] or [*MODELS, "published"]:
        if name == "published":
            write_published()
            continue
        torch.manual_seed(0)
        build, shape = MODELS[name]
        files, report = zoo_build.build("tv", name, Spec(build(), [Case((image(*shape),))], name))
        zoo_archive.update(OUT + ".zip", {f"{name}.{form}.json": files[form] for form in ("aten", "ref")})
        print(name, report, flush=True)


if __name__ == "__main__":
    main()
