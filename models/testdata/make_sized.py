"""Exports programs whose results have sizes that depend on data, and records in sized.json what PyTorch computes with them where
the count is zero, full and in between.

    python make_sized.py

needs torch and torchvision; the files are by torch 2.11 and torchvision 0.26.
"""

import io
import json
import pathlib
import zipfile
from typing import Dict

import torch
import torchvision
from torch import nn
from torch.nn import functional as F
from torchvision.models.detection._utils import _topk_min

HERE = pathlib.Path(__file__).parent


class Selected(nn.Module):
    """What a mask selects, and what ops make of it."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x, m):
        y = x[m]
        n = y.shape[0]
        ids = torch.where(m)[0]
        rows, order = y[:, 0].sort(descending=True)
        changed = x.clone()
        changed[m] = y.cumsum(0) * 2
        z = y.clone()
        z[:, 1] += 1
        return {
            "rows": y, "count": n, "ids": ids, "linear": F.relu(self.linear(y)), "softmax": y.softmax(1), "twice": y * y + y[:, :1],
            "turned": y.t(), "wide": y.view(-1, 2, 2), "flat": y.flatten(), "sum": y.sum(0), "mean": y.mean(0), "each": y.mean(1),
            "any": (y > 0).any(), "largest": y.amax(1), "both": torch.cat([y, x, x[~m]]), "sorted": rows, "order": order,
            "gathered": x[ids] - y, "filled": torch.zeros(n, 2) + y[:, 2:], "numbers": torch.arange(n), "changed": changed,
            "positive": y[y[:, 0] > 0], "stacked": torch.stack([y, y + 1], 1), "first": y[:2], "rest": y[1:], "back": y[:-1],
            "reversed": y[order], "written": z, "numel": y.numel(),
        }


class Places(nn.Module):
    """Where something is, and which values are there."""

    def forward(self, x, i):
        rows, columns = torch.where(x > 0)
        values, inverse, counts = torch.unique(i, return_inverse=True, return_counts=True)
        runs, lengths = torch.unique_consecutive(i, return_counts=True)
        bins = torch.bincount(i, minlength=2)
        torch._check(bins.shape[0] <= 9)
        return {
            "nonzero": torch.nonzero(x), "rows": rows, "columns": columns, "picked": x[rows, columns], "selected": x.masked_select(x > 0.5),
            "values": values, "inverse": inverse, "counts": counts, "runs": runs, "lengths": lengths, "bins": bins,
            "again": values[inverse],
        }


class Detector(nn.Module):
    """The end of a detector: scores above a threshold, suppression within classes, the best of what stays."""

    def forward(self, boxes, scores, labels):
        above = scores > 0.3
        boxes, scores, labels = boxes[above], scores[above], labels[above]
        apart = boxes + (labels.to(boxes) * 100)[:, None]
        keep = torchvision.ops.nms(apart, scores, 0.4)[:5]
        boxes = torchvision.ops.clip_boxes_to_image(boxes[keep], (30, 30))
        return {"boxes": boxes, "scores": scores[keep], "labels": labels[keep]}


class Pooled(nn.Module):
    """Regions that a mask selects, and what a head makes of their features."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(2, 3, 3, padding=1), nn.Linear(12, 5)

    def forward(self, x, regions, m):
        pooled = torchvision.ops.roi_align(x, regions[m], (2, 2), 0.5, 2)
        return {"features": F.relu(self.head(F.relu(self.conv(pooled)).flatten(1)))}


class Scripted(nn.Module):
    """The end of a detector as torchvision writes it: the best above a threshold, and torchvision's batched_nms."""

    def forward(self, boxes: torch.Tensor, scores: torch.Tensor, labels: torch.Tensor) -> Dict[str, torch.Tensor]:
        above = torch.where(scores > 0.3)[0]
        boxes, scores, labels = boxes[above], scores[above], labels[above]
        scores, order = scores.topk(min(above.size(0), 8))
        boxes, labels = boxes[order], labels[order]
        large = torchvision.ops.remove_small_boxes(boxes, 5.0)
        boxes, scores, labels = boxes[large], scores[large], labels[large]
        keep = torchvision.ops.batched_nms(boxes, scores, labels, 0.4)[:5]
        boxes = torchvision.ops.clip_boxes_to_image(boxes[keep], (30, 30))
        return {"boxes": boxes, "scores": scores[keep], "labels": labels[keep],
                "areas": torchvision.ops.box_area(boxes), "blank": torch.zeros([len(keep), 2])}


class Masked(nn.Module):
    """What a mask selects, written back where the mask is true, before and after something needed all of it."""

    def forward(self, x: torch.Tensor, m: torch.Tensor) -> Dict[str, torch.Tensor]:
        m = m > 0
        y = x.clone()
        y[m] += 1
        s = y[m].relu()
        y[m] = s * 2 - x[0]
        both = torch.cat([s, x])
        s += y[m]
        z = x.clone()
        z[m] = s
        whole = (x * 8).to(torch.int64)
        whole[m] = whole[m] // 2
        columns = x.t()[:, m]
        return {"changed": y, "both": both, "rows": s, "again": z, "sum": s.sum(0), "whole": whole, "thirds": whole[m] // 3,
                "blank": torch.zeros([2, columns.size(1)]), "columns": columns + x[:, 0][m], "wide": y[m] + x[:, None, :1]}


class Traced(nn.Module):
    """The end of a detector as a trace of torchvision's has it: the best of each class, put together, and sizes as tensors."""

    def forward(self, boxes, scores, labels):
        smallest = torch.min(torch._shape_as_tensor(boxes)[-2:]).to(torch.float32)
        scale = torch.min(torch.reciprocal(smallest) * 8.0, torch.tensor(3.0))  # 2
        width = int(torch.floor(scale.to("cpu", torch.float32, copy=True) * 15.0))
        parts = []
        for c in range(2):
            is_class = (scores > 0.3) & (labels == c)
            best, order = scores[is_class].topk(_topk_min(scores[is_class], 4, 0))
            parts.append((boxes[is_class][order], best, torch.full_like(best, c, dtype=torch.int64)))
        boxes, scores, labels = (torch.cat(list(p)) for p in zip(*parts))
        keep = torchvision.ops.batched_nms(boxes, scores, labels, 0.4)[:5]
        boxes = torchvision.ops.clip_boxes_to_image(boxes[keep], (30, width))
        return {"boxes": boxes, "scores": scores[keep], "labels": labels[keep], "pairs": labels[keep] // 2}


def record(name, module, cases):
    if isinstance(module, (Masked, Scripted, Traced)):
        whole = io.BytesIO()
        scripted = not isinstance(module, Traced)
        torch.jit.save(torch.jit.script(module) if scripted else
                       torch.jit.trace(module, tuple(cases[1].values()), strict=False), whole)
        with zipfile.ZipFile(whole) as archive, zipfile.ZipFile(HERE / f"{name}.pt", "w") as bare:
            for entry in archive.infolist():
                if not entry.filename.endswith(".debug_pkl"):  # which names files of the machine that exported
                    bare.writestr(zipfile.ZipInfo(entry.filename), archive.read(entry))
    else:
        program = torch.export.export(module, tuple(cases[1].values()), strict=False)
        for node in program.graph.nodes:
            node.meta.pop("stack_trace", None)  # it names files of the machine that exported
        torch.export.save(program, HERE / f"{name}.pt2")
    runs = []
    for inputs in cases:
        with torch.no_grad():
            out = module(*inputs.values())
        runs.append({part: {k: {"dtype": str(t.dtype).removeprefix("torch."), "shape": list(t.shape), "values": t.flatten().tolist()}
                            for k, t in ((k, torch.as_tensor(v)) for k, v in tensors.items())}
                     for part, tensors in (("inputs", inputs), ("outputs", out))})
    return runs


def rounded(*shape):
    return torch.randn(*shape).mul(64).round() / 64


def main():
    torch.manual_seed(24)
    x, none, full = rounded(5, 4), torch.zeros(5, dtype=torch.bool), torch.ones(5, dtype=torch.bool)
    some = torch.tensor([True, False, True, True, False])
    selected = [{"x": x, "m": m} for m in (none, some, full)]
    places = [{"x": torch.zeros(3, 2), "i": torch.zeros(6, dtype=torch.int64)},
              {"x": rounded(3, 2), "i": torch.tensor([3, 3, 0, 5, 5, 3])},
              {"x": rounded(3, 2).abs() + 1, "i": torch.tensor([5, 4, 3, 2, 1, 8])}]
    corners = (torch.rand(12, 2, 2) * 30).round()
    boxes = torch.cat([corners.amin(1), corners.amax(1) + 4], 1)
    labels = torch.randint(0, 2, (12,))
    detector = [{"boxes": boxes, "scores": s, "labels": labels}
                for s in (torch.zeros(12), torch.rand(12), torch.rand(12) / 2 + 0.4)]
    regions = torch.cat([torch.tensor([[0.0], [1], [1], [0], [1]]), torch.rand(5, 4) * 8 + torch.tensor([0, 0, 8, 8])], 1)
    pooled = [{"x": rounded(2, 2, 8, 8), "regions": regions, "m": m} for m in (none, some, full)]
    recorded = {"sized_selected": record("sized_selected", Selected().eval(), selected),
                "sized_places": record("sized_places", Places(), places),
                "sized_detector": record("sized_detector", Detector(), detector),
                "sized_script": record("sized_script", Scripted().eval(), [{**d, "labels": d["labels"].float()} for d in detector]),
                "sized_trace": record("sized_trace", Traced().eval(), [{**d, "labels": d["labels"].float()} for d in detector]),
                "sized_pooled": record("sized_pooled", Pooled().eval(), pooled),
                "sized_masked": record("sized_masked", Masked(), [{**s, "m": s["m"].float()} for s in selected])}
    lines = (f"{json.dumps(k)}: {json.dumps(v)}" for k, v in recorded.items())
    (HERE / "sized.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
