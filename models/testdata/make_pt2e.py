"""Quantizes small programs as PyTorch 2 Export quantization does (torchao's prepare_pt2e and convert_pt2e), exports them, and
records in pt2e.json what PyTorch computes with them, pass after pass.

    python make_pt2e.py

needs torch and torchao; the files are by torch 2.11 and torchao 0.18.
"""

import json
import pathlib

import torch
from torch import nn
from torchao.quantization.pt2e import MinMaxObserver, PerChannelMinMaxObserver
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer import QuantizationAnnotation, QuantizationSpec, Quantizer

HERE = pathlib.Path(__file__).parent


def weights(scheme, least):
    return QuantizationSpec(dtype=torch.int8, observer_or_fake_quant_ctr=PerChannelMinMaxObserver, quant_min=least,
                            quant_max=127, qscheme=scheme, ch_axis=0)


SYMMETRIC = weights(torch.per_channel_symmetric, -127)
AFFINE = weights(torch.per_channel_affine, -128)
INPUT = QuantizationSpec(dtype=torch.int8, observer_or_fake_quant_ctr=MinMaxObserver, quant_min=-128, quant_max=127,
                         qscheme=torch.per_tensor_affine)


class Linears(Quantizer):
    """Weights of all linears, those of the third around zero points that are not 0, and the input of the first."""

    def annotate(self, model):
        linears = [n for n in model.graph.nodes if n.target is torch.ops.aten.linear.default]
        for i, n in enumerate(linears):
            specs = {n.args[1]: AFFINE if i == 2 else SYMMETRIC}
            if i == 0:
                specs[n.args[0]] = INPUT
            n.meta["quantization_annotation"] = QuantizationAnnotation(input_qspec_map=specs, _annotated=True)
        return model

    def validate(self, model):
        pass


def converted():
    model = nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 5)).eval()
    x = torch.randn(3, 16)
    prepared = prepare_pt2e(torch.export.export(model, (x,)).module(), Linears())
    prepared(x)
    module = convert_pt2e(prepared)
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear):  # the float weights are not read any more
            child.weight = None
    return module, x


class Moves(nn.Module):
    """Zero points that are 0 in the first pass only, or not all in any."""

    def __init__(self, last=0, step=1):
        super().__init__()
        self.register_buffer("weight", torch.arange(-6, 6, dtype=torch.int8).reshape(3, 4))
        self.register_buffer("scales", torch.tensor([0.5, 0.25, 2.0]))
        self.register_buffer("zero_points", torch.tensor([0, 0, last]))
        self.step = step

    def forward(self, x):
        w = torch.ops.quantized_decomposed.dequantize_per_channel(
            self.weight, self.scales, self.zero_points, 0, -127, 127, torch.int8)
        if self.step:
            self.zero_points.add_(self.step)
        return nn.functional.linear(x, w)


def record(name, module, x):
    program = torch.export.export(module, (x,))
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # it names files of the machine that exported
    torch.export.save(program, HERE / f"{name}.pt2")
    runs, run = [], program.module()
    for step in range(2):
        values = x * (1 + step) / 2
        with torch.no_grad():
            y = run(values)
        runs.append({"x": values.flatten().tolist(), "y": y.flatten().tolist()})
    return {"shape": list(x.shape), "runs": runs}


def main():
    torch.manual_seed(3)
    x = torch.tensor([[1.0, -2.0, 0.5, 4.0], [3.0, 0.0, -1.0, 2.0]])
    recorded = {"pt2e": record("pt2e", *converted()), "pt2e_moves": record("pt2e_moves", Moves(), x),
                "pt2e_last": record("pt2e_last", Moves(last=3, step=0), x)}
    lines = (f"{json.dumps(k)}: {json.dumps(v)}" for k, v in recorded.items())
    (HERE / "pt2e.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
