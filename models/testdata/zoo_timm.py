"""Convolutional nets of timm, the real ones at small resolutions."""

import timm
from torch.export import Dim

from zoo_spec import Case, Spec, image, model

AUTO = Dim.DYNAMIC


def net(name, *sizes, dynamic=None):
    @model("timm", name)
    def spec():
        return Spec(timm.create_model(name, pretrained=False, num_classes=100), [Case((image(*s),)) for s in sizes],
                    f"timm.create_model({name!r}, num_classes=100)", dynamic)


for n, s in (("resnext50_32x4d", 65), ("seresnet50", 64), ("ecaresnet50d", 67), ("skresnet18", 65), ("resnest14d", 64),
             ("res2net50_26w_4s", 65), ("dla34", 64), ("dpn68", 67), ("cspresnet50", 64), ("hrnet_w18_small", 64),
             ("tf_efficientnetv2_b0", 67), ("efficientnet_lite0", 64), ("mixnet_s", 67), ("mnasnet_100", 65),
             ("mobilenetv3_large_100", 64), ("mobilenetv4_conv_small", 67), ("lcnet_050", 65), ("ghostnetv2_100", 67)):
    net(n, (1, 3, s, s))
for n, s in (("resnet50d", 64), ("tf_efficientnet_b0", 65), ("mobilenetv2_100", 64), ("ghostnet_100", 65)):
    net(n, (2, 3, s, s), (3, 3, s, s), dynamic=({0: AUTO},))
