"""Writes models/testdata/script/detectors.zip.bz2: torchvision's detection models over a small backbone, traced and scripted, and
what PyTorch computes with them.

    python make_detectors.py

The zip, itself compressed as a whole since the programs share most of their code, holds NAME.FORM.pt and
NAME.FORM.ref.json as make_script.py makes them. The cases are a picture with detections, one of almost one colour, one of NaN, in
which nothing is found, and, for scripts only, two pictures of other sizes. Made with torch 2.15, torchvision 0.29."""

import base64
import bz2
import gzip
import io
import json
import math
import os
import sys
import zipfile

import torch
from torch import nn
from torchvision.models import detection as d
from torchvision.models.detection.anchor_utils import AnchorGenerator, DefaultBoxGenerator
from torchvision.ops import FeaturePyramidNetwork, MultiScaleRoIAlign
from torchvision.ops.feature_pyramid_network import LastLevelMaxPool

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.dirname(HERE))

import make_script  # noqa: E402
import zoo_reference as ref  # noqa: E402
import zoo_weights  # noqa: E402

CHANNELS = 32


class Backbone(nn.Module):
    """Three strides of features and what a pyramid makes of them."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 4, 4), nn.BatchNorm2d(8), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU())
        self.third = nn.Sequential(nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU())
        self.fpn = FeaturePyramidNetwork([8, 8, 8], CHANNELS, LastLevelMaxPool())
        self.out_channels = CHANNELS

    def forward(self, x):
        a = self.stem(x)
        b = self.second(a)
        return self.fpn({"0": a, "1": b, "2": self.third(b)})


def rcnn(cls, **more):
    return cls(
        Backbone(), min_size=64, max_size=96, box_detections_per_img=12, rpn_post_nms_top_n_test=400, box_score_thresh=0.4,
        rpn_anchor_generator=AnchorGenerator(((8,), (16,), (32,), (48,)), ((0.5, 1.0, 2.0),) * 4),
        box_roi_pool=MultiScaleRoIAlign(["0", "1", "2", "pool"], 3, 2),
        box_head=d.faster_rcnn.TwoMLPHead(CHANNELS * 9, 24), box_predictor=d.faster_rcnn.FastRCNNPredictor(24, 4), **more)


def maskrcnn():
    return rcnn(d.MaskRCNN, mask_roi_pool=MultiScaleRoIAlign(["0", "1", "2", "pool"], 7, 2),
                mask_head=d.mask_rcnn.MaskRCNNHeads(CHANNELS, (16,), 1), mask_predictor=d.mask_rcnn.MaskRCNNPredictor(16, 16, 4))


def keypointrcnn():
    return rcnn(d.KeypointRCNN, keypoint_roi_pool=MultiScaleRoIAlign(["0", "1", "2", "pool"], 7, 2),
                keypoint_head=d.keypoint_rcnn.KeypointRCNNHeads(CHANNELS, (16,)),
                keypoint_predictor=d.keypoint_rcnn.KeypointRCNNPredictor(16, 5))


def dense(cls, anchors, threshold):
    return cls(Backbone(), 4, min_size=64, max_size=96, detections_per_img=12, topk_candidates=120, score_thresh=threshold,
               anchor_generator=anchors)


MODELS = {
    "fasterrcnn": lambda: rcnn(d.FasterRCNN),
    "maskrcnn": maskrcnn,
    "keypointrcnn": keypointrcnn,
    "retinanet": lambda: dense(d.RetinaNet, AnchorGenerator(((8, 12), (16, 24), (32, 40), (48, 64)), ((0.5, 1.0, 2.0),) * 4), 0.9),
    "fcos": lambda: dense(d.FCOS, AnchorGenerator(((8,), (16,), (32,), (64,)), ((1.0,),) * 4), 0.78),
    "ssd": lambda: d.ssd.SSD(Backbone(), DefaultBoxGenerator([[2], [2, 3], [2, 3], [2]]), (64, 64), 4, score_thresh=0.35,
                         detections_per_img=12, topk_candidates=60,
                         head=d.ssd.SSDHead([CHANNELS] * 4, [4, 6, 6, 4], 4)),
}


def overrides(bias):
    """Weights that make several detections: classes that depend on the picture, boxes that differ."""
    return {
        r"cls_score\.weight|cls_logits\.weight|classification_head.*module_list.*weight": (0.0, 0.6),
        r"cls_score\.bias|cls_logits\.bias|classification_head.*module_list.*bias": (bias, 0.3),
    }


def picture(height, width, offset=0.5, scale=0.5):
    return {"dtype": "float32", "shape": [3, height, width], "kind": "hash", "offset": offset, "scale": scale}


def nothing(height, width):
    """A picture of no numbers, in which there is nothing."""
    raw = torch.full((3, height, width), math.nan).numpy().tobytes()
    packed = base64.b64encode(gzip.compress(raw, 9, mtime=0)).decode()
    return {"dtype": "float32", "shape": [3, height, width], "kind": "literal", "gzip": packed}


def images(case):
    return [torch.full(t["shape"], math.nan) if t["kind"] == "literal" else make_script.tensor(name, t)
            for name, t in case.items()]


def make(name, build, cases, bias):
    torch.manual_seed(0)
    model = build().eval().requires_grad_(False)
    weights = zoo_weights.Weights(model, overrides(bias))
    zoo_weights.calibrate(model, weights, (images(cases[0]),), {})
    for n, entry in weights.entries.items():
        if "scale" in entry:
            weights.fill(n)
    programs = {"script": torch.jit.script(model)}
    whole = type(model)
    model.__class__ = type("Single", (whole,), {"forward": lambda self, image: whole.forward(self, [image])[0]})
    programs["trace"] = torch.jit.trace(model, images(cases[0])[0], strict=False, check_trace=False)
    model.__class__ = whole
    recorded = {"script": [], "trace": []}
    for i, case in enumerate(cases):
        outs = {"script": programs["script"](images(case))[1]}
        try:
            if len(case) == 1:
                outs["trace"] = programs["trace"](images(case)[0])
        except RuntimeError as e:  # without proposals PyTorch cannot
            print(name, i, "trace:", str(e).splitlines()[-1], file=sys.stderr)
        for form, out in outs.items():
            recorded[form].append({"inputs": case, "outputs": make_script.named(out, "", [])})
        wide = ref.doubled(model)([x.double() for x in images(case)])
        for a, b in zip(outs["script"], wide):
            print(name, i, {k: list(v.shape) for k, v in a.items()}, a["labels"].tolist(),
                  "" if a["labels"].equal(b["labels"]) else "IN FLOAT64 OTHERS",
                  "" if "trace" not in outs or all(v.equal(outs["trace"][k]) for k, v in a.items()) else "TRACED OTHERS", file=sys.stderr)
    for p in programs.values():
        for t in [*p.parameters(), *p.buffers()]:
            t.zero_()
    files = {f"{name}.{form}.pt": make_script.archive(p) for form, p in programs.items()}
    for form in programs:
        files[f"{name}.{form}.ref.json"] = json.dumps({"torch": torch.__version__.split("+")[0], "weights": weights.entries,
                                                       "cases": recorded[form]}, separators=(",", ":")).encode()
    return files


def main():
    files = {}
    for name, build in MODELS.items():
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        cases = [{"images.0": picture(64, 80)}, {"images.0": picture(64, 80, 0.5, 0.03)}, {"images.0": nothing(64, 80)},
                 {"images.0": picture(60, 48), "images.1": picture(40, 90, 0.3, 1.0)}]
        files |= make(name, build, cases, 0.0)
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as z:
        for name in sorted(files, key=lambda n: (n.endswith(".json"), ".trace." in n)):  # what is alike, side by side
            z.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), files[name])
    data = bz2.compress(whole.getvalue(), 9)
    print(len(data), "bytes", file=sys.stderr)
    with open(os.path.join(HERE, "detectors.zip.bz2"), "wb") as f:
        f.write(data)


if __name__ == "__main__":
    main()
